"""A rule for keys is proposed only if every spelling of every page had the same body."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nearcache.cli import main
from nearcache.errors import NginxError
from nearcache.nginx.cachedir.directory import CacheDir
from nearcache.nginx.cachedir.layout import LAYOUTS
from nearcache.nginx.inspect.bodies import Bodies, BodyReader, Evidence, compare_bodies
from nearcache.nginx.keys.merging import rule_of
from nearcache.nginx.keys.paths import name_of

from .conftest import Answer, Nginx, Upstream
from .entries import HEAD, made

Proxy = Callable[[str], Nginx]


def store(directory: Path, key: str, body: bytes, head: bytes = HEAD) -> None:
    content = made(LAYOUTS[0], key=key.encode(), body=body)
    if head != HEAD:
        start = LAYOUTS[0].size + len(b"\nKEY: ") + len(key) + 1
        changed = made(LAYOUTS[0], key=key.encode(), body=b"", body_start=start + len(head))
        content = changed[: -len(HEAD)] + head + body
    (directory / name_of(key.encode())).write_bytes(content)


def compared(directory: Path) -> Bodies:
    with CacheDir(directory) as opened:
        return compare_bodies(opened)


def evidence(directory: Path, rule: str) -> Evidence:
    return next(each for each in compared(directory).evidence if each.rule == rule)


def test_spellings_of_a_real_site_become_rules(proxy: Proxy, upstream: Upstream) -> None:
    def script(path: str, headers: object) -> Answer:
        parts = urlsplit(path)
        asked = sorted(
            (name, value.strip().lower())
            for name, value in parse_qsl(parts.query)
            if not name.startswith("utm_")
        )
        return Answer(f"{parts.path} {asked}".encode())

    upstream.script = script
    nginx = proxy("")
    for query in ("abba", "queen", "a-ha"):
        for spelt in (
            f"q={query}", f"q={query.upper()}", f"q={query}+", f"utm_source=x&q={query}",
            f"page=1&q={query}", f"q={query}&page=1", f"q={query}&page=2",
        ):  # fmt: skip
            nginx.fill(f"/search?{spelt}")
    bodies = compared(nginx.cache)
    proposed = {each.rule for each in bodies.evidence if each.is_proposed}
    assert proposed == {"lower", "strip", "sort-args", "drop=utm_*"}
    assert not evidence(nginx.cache, "drop=page").is_proposed
    assert bodies.duplicated == 6
    assert bodies.together is not None
    assert bodies.together.spare_bytes == bodies.spare_bytes, "together they explain it all"


def test_one_page_that_differs_is_enough_against_a_rule(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        store(tmp_path, f"http://h/?q={name}", name.encode() * 9)
        store(tmp_path, f"http://h/?q={name.upper()}", name.encode() * 9)
    assert evidence(tmp_path, "lower").is_proposed
    store(tmp_path, "http://h/?q=C", b"something else")
    found = evidence(tmp_path, "lower")
    assert (found.pages, found.against, found.is_proposed) == (2, 1, False)
    assert found.counterexample == ("http://h/?q=C", "http://h/?q=c")


def test_the_same_body_of_different_pages_is_no_evidence(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        store(tmp_path, f"http://h/{name}", b"not found")
    bodies = compared(tmp_path)
    assert (bodies.duplicated, bodies.evidence) == (1, [])


def test_another_status_is_another_answer(tmp_path: Path) -> None:
    store(tmp_path, "http://h/?q=a", b"same")
    store(tmp_path, "http://h/?q=A", b"same", head=b"HTTP/1.1 404 Not Found\r\n\r\n")
    assert evidence(tmp_path, "lower").against == 1


def test_a_page_and_its_gzip_say_nothing_about_each_other(tmp_path: Path) -> None:
    packed = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    store(tmp_path, "http://h/?q=a", b"plain")
    store(tmp_path, "http://h/?q=A", b"packed", head=packed)
    store(tmp_path, "http://h/?utm_source=x&q=A", b"packed", head=packed)
    assert not [each for each in compared(tmp_path).evidence if each.rule == "lower"]
    assert evidence(tmp_path, "drop=utm_*").is_proposed


def test_empty_bodies_are_not_compared(tmp_path: Path) -> None:
    for name in ("a", "A"):
        store(tmp_path, f"http://h/?q={name}", b"")
    bodies = compared(tmp_path)
    assert (bodies.empty, bodies.duplicated) == (2, 0)


def test_reading_is_paced(tmp_path: Path) -> None:
    store(tmp_path, "http://h/1", b"x" * 1_000_000)
    slept: list[float] = []
    with CacheDir(tmp_path) as directory:
        reader = BodyReader(2_000_000, sleep=slept.append)
        list(directory.walk(read=reader))
    assert reader.read_bytes == 1_000_000
    assert sum(slept) == pytest.approx(0.5)


def test_the_command_says_it_in_words_and_in_json(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        store(tmp_path, f"http://h/?q={name}", name.encode() * 2000)
        store(tmp_path, f"http://h/?q={name.upper()}", name.encode() * 2000)
    runner = CliRunner()
    shown = runner.invoke(main, ["nginx", "inspect", str(tmp_path), "--bodies"])
    assert "lower" in shown.output
    assert "proposed" in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
    found = runner.invoke(main, ["nginx", "inspect", str(tmp_path), "--bodies", "--json"])
    facts = json.loads(found.output)["bodies"]
    assert facts["evidence"][0]["rule"] == "lower"
    assert facts["evidence"][0]["proposed"] is True


@pytest.mark.parametrize(
    ("rule", "key", "becomes"),
    [
        ("lower", "http://H/A?Q=B", "http://H/A?q=b"),
        ("lower-path", "http://H/A?Q=B", "http://H/a?Q=B"),
        ("strip", "h/?q=+a%20&b=&=c&d", "h/?q=a&b=&=c&d"),
        ("sort-args", "h/?b=2&a=1&b=1", "h/?a=1&b=2&b=1"),
        ("drop=utm_*", "h/?utm_a=1&q=2&utm_b=3", "h/?q=2"),
        ("drop=q", "h/?q=2", "h/"),
        ("lower,drop=q", "h/A?Q=2", "h/A"),
        ("sort-args", "no path", "no path"),
    ],
)
def test_a_rule_changes_what_it_says(rule: str, key: str, becomes: str) -> None:
    assert rule_of(rule)(key) == becomes


@given(st.text(max_size=100))
def test_a_rule_applied_again_changes_nothing(key: str) -> None:
    for rule in ("lower", "lower-path", "strip", "sort-args", "drop=utm_*"):
        once = rule_of(rule)(key)
        if not rule.startswith(
            "lower"
        ):  # "İ" in lower case has a dot that is a character of its own
            assert rule_of(rule)(once) == once


def test_keys_that_are_no_text_are_compared_like_others(tmp_path: Path) -> None:
    for number, name in enumerate((b"\xff", b"%FF", b"\xfe\xc3(", b"\xed\xa0\x80")):
        key = b"http://h/?q=" + name
        content = made(LAYOUTS[0], key=key, body=b"same" * 2 if number < 2 else name * 9)
        (tmp_path / name_of(key)).write_bytes(content)
    found = evidence(tmp_path, "strip")
    assert (found.pages, found.against) == (1, 0)


def test_a_rule_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        NginxError, match="there are lower, lower-path, strip, sort-args, drop=NAME"
    ):
        rule_of("upper")

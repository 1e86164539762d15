"""Generated configurations: nginx takes them, lint finds nothing, and a proof that can fail."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcache.cli import main
from nearcache.cli.nginx.config import njs_module
from nearcache.errors import NginxError
from nearcache.lab.servers import end_process
from nearcache.nginx.config.lint import Examined, lint
from nearcache.nginx.config.prove.proof import CHECKS, prove
from nearcache.nginx.config.prove.sandbox import Sandbox, Served
from nearcache.nginx.config.prove.script import application
from nearcache.nginx.config.read.configuration import read_configuration
from nearcache.nginx.config.read.key_template import template_of
from nearcache.nginx.config.write.answers import Answers
from nearcache.nginx.config.write.files import generate, log_format
from nearcache.nginx.keys.spelling import parse_spelling
from tests.needs import missing, need
from tests.nginx.conftest import PATIENCE_S, accepts, wait_for

OLD, NEW = (1, 18, 0), (1, 22, 1)
PROXY = {"proxy": "http://127.0.0.1:8000"}
UWSGI = {"uwsgi": "unix:/run/app.sock"}
KINDS = [PROXY, UWSGI]
RULES = ["", "drop=utm_*|fbclid", "keep=q|page", "lower,strip,sort-args,drop=utm_*"]


def answers(kind: dict[str, str], rules: str = "", **more: object) -> Answers:
    return Answers(**kind, spelling=parse_spelling(rules), **({"version": NEW} | more))


@pytest.fixture(autouse=True)
def nginx() -> None:
    need("nginx")


@pytest.fixture
def njs() -> str:
    """The module of njs; NEARCACHE_NJS_MODULE names one that lies elsewhere."""
    found = os.environ.get("NEARCACHE_NJS_MODULE") or njs_module()
    if not found:
        missing("libnginx-mod-http-js is not installed")
    return str(found)


@pytest.mark.parametrize("kind", KINDS, ids=["proxy", "uwsgi"])
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"version": OLD, "session_cookie": "__Host-s", "max_size": "50g", "ttl": "3d"},
        {"static_prefix": "/static/"},
        {"static_prefix": "/static/", "static_root": "/srv/static/", "purge": "none",
         "server_names": ["example.org", "*.example.org"]},
    ],
)  # fmt: skip
def test_lint_finds_nothing_and_nginx_takes_it(
    kind: dict[str, str], rules: str, more: dict[str, object], tmp_path: Path
) -> None:
    made = generate(answers(kind, rules, cache_path=f"{tmp_path}/c", log_path=f"{tmp_path}/l",
                            **more))  # fmt: skip
    for version in (OLD, NEW, (1, 30, 4)):
        if "min_free" in made.text and version == OLD:
            continue
        assert lint(Examined(read_configuration(made.text, version=version))) == []
    with Sandbox() as box:
        box.write(made.text, made.files)
        assert box.check() == ""


def test_what_is_in_the_key_is_written_once_and_logged() -> None:
    configuration = read_configuration(generate(answers(PROXY, "drop=utm_*")).text)
    (place,) = configuration.cached
    assert place.key == "$cl_key"
    assert place.full_key == "$scheme://$host/$cl_path$cl_mark$cl_args"
    assert place.upstream == "http://nearcache_app/$cl_path$cl_mark$cl_args"
    assert '"cl_key":"$cl_key"' in configuration.formats["nearcache"]


def test_purge_knows_the_keys_of_what_was_generated() -> None:
    (place,) = read_configuration(generate(answers(UWSGI)).text).cached
    assert template_of(place) == "{scheme}://{host}{uri}"


@pytest.mark.parametrize(
    ("kind", "rules"), [(PROXY, ""), (PROXY, RULES[1]), (UWSGI, RULES[2])], ids=str
)
def test_the_proof_passes(kind: dict[str, str], rules: str) -> None:
    table = prove(answers(kind, rules))
    assert [(row.name, row.saw) for row in table if not row.passed] == []
    assert len(table) == len(CHECKS)


def test_the_proof_passes_with_njs(njs: str) -> None:
    table = prove(answers(PROXY, RULES[3], use_njs=True), modules=[njs])
    assert [(row.name, row.saw) for row in table if not row.passed] == []
    assert {row.name: row.saw for row in table}["case and spaces"].endswith("forwarded as ?q=abba")


def test_the_proof_passes_with_uwsgi_itself(uwsgi: str) -> None:
    table = prove(answers(UWSGI, "drop=utm_*"), address=uwsgi)
    assert [(row.name, row.saw) for row in table if not row.passed] == []


@pytest.fixture
def uwsgi(tmp_path: Path) -> Iterator[str]:
    """The address of a real uWSGI with the script of the proof."""
    program = Path(sys.executable).with_name("pyuwsgi")
    if not program.exists():
        missing("pyuwsgi is not installed")
    path = tmp_path / "app.sock"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), "--socket", str(path), "--module", "nearcache.nginx.config.prove.script",
             "--master", "--threads", "8", "--die-on-term", "--need-app"],
            stdout=log, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
        )  # fmt: skip
    try:
        assert wait_for(lambda: accepts(str(path)) or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield f"unix:{path}"
    finally:
        end_process(process)


SABOTAGE = [
    ("a page is stored", "    proxy_cache nearcache;", "    proxy_cache off;"),
    ("Vary", "proxy_cache_lock on;", "proxy_cache_lock on; proxy_ignore_headers Vary;"),
    ("a session is passed", "$cookie_sessionid$http_authorization", "$http_authorization"),
    ("Authorization is passed", "$cookie_sessionid$http_authorization", "$cookie_sessionid"),
    ("a chosen language is passed", "$cookie_django_language", ""),
    ("Set-Cookie is not stored", "proxy_cache_lock on;",
     "proxy_cache_lock on; proxy_ignore_headers Set-Cookie;"),
    ("private, no-store are not", "proxy_cache_lock on;",
     "proxy_cache_lock on; proxy_ignore_headers Cache-Control;"),
    ("POST is not", "proxy_cache_lock on;", "proxy_cache_lock on; proxy_cache_methods POST;"),
    ("HEAD", "proxy_cache_lock on;", "proxy_cache_lock on; proxy_cache_convert_head off;"),
    ("Range", "proxy_cache_lock on;", "proxy_cache_lock on; max_ranges 0;"),
    ("404", "proxy_cache_valid 404 1m;", ""),
    ("500: the old page", "invalid_header updating http_500", "invalid_header"),
    ("500: the old page", "proxy_cache_valid 404 1m;", "proxy_cache_valid any 1m;"),
    ("soft purge", "proxy_cache_key $cl_key;", "proxy_cache_key x$cl_key;"),
    ("a crowd fetches once", "proxy_cache_lock on;", ""),
    ("arguments are in the key", "$host$request_uri\"", "$host$uri\""),
    ("unknown arguments", "$host$request_uri\"", "$host$uri$arg_q\""),
    ("their order", "$host$request_uri\"", "$host$uri\""),
    ("tracking arguments", "$host$request_uri\"", "$host$uri$arg_q\""),
    ("case and spaces", "$host$request_uri\"", "$host$uri\""),
    ("%3F in a path", "$host$request_uri\"", "$host$uri$is_args$args\""),
    ("a port in Host", "Host $host;", "Host $http_host;"),
    ("the key in the log", "proxy_cache_key $cl_key;", "proxy_cache_key x$cl_key;"),
]  # fmt: skip


class Rendezvous:
    """Stands for ``time`` in the script: a slow answer waits for a second request, not for time.

    Else a busy machine could send the crowd one after the other, and the lock not be missed.
    """

    def __init__(self) -> None:
        self.requests = count(1)
        self.two_came = threading.Event()

    def sleep(self, _seconds: float) -> None:
        if next(self.requests) == 2:
            self.two_came.set()
        self.two_came.wait(PATIENCE_S)


@pytest.mark.parametrize(("check", "old", "new"), SABOTAGE, ids=[s[0] for s in SABOTAGE])
def test_every_row_of_the_proof_can_fail(
    check: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearcache.nginx.config.prove.proof.PATIENCE_S", 0.3)
    monkeypatch.setattr("nearcache.nginx.config.prove.sandbox.ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr("nearcache.nginx.config.prove.script.time", Rendezvous())
    only = tuple(row for row in CHECKS if row[0] == check)
    monkeypatch.setattr("nearcache.nginx.config.prove.proof.CHECKS", only)

    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    (row,) = prove(answers(PROXY), edit=edit)
    assert not row.passed, row.saw


def test_every_row_of_the_proof_is_sabotaged_here() -> None:
    assert {sabotage[0] for sabotage in SABOTAGE} == {name for name, _ in CHECKS}


def test_dropping_from_the_key_alone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classic mistake: tracking arguments are not in the key, and are forwarded."""
    table = prove(
        answers(PROXY, "drop=utm_*"),
        edit=lambda text: text.replace("nearcache_app/$cl_path$cl_mark$cl_args", "nearcache_app"),
    )
    failed = {row.name: row.saw for row in table if not row.passed}
    assert "are two for the application" in failed["tracking arguments"]


def forwarded(rules: str, queries: list[str], modules: list[str] | None = None) -> list[str]:
    """The arguments that the application gets for each of these."""
    with Served(application) as served, Sandbox(modules=modules or []) as box:
        made = generate(
            answers({"proxy": f"http://{served.address}"}, rules, use_njs=bool(modules),
                    cache_path=f"{box.directory}/cache", log_path=f"{box.directory}/log",
                    listen=f"unix:{box.socket}")
        )  # fmt: skip
        box.start(made.text, made.files)
        return [json.loads(box.ask(f"/?{query}").body)["query"] for query in queries]


def test_maps_drop_exactly_what_they_are_told() -> None:
    cases = {
        "utm_a=1": "",
        "utm_a": "",
        "utm_a=1&utm_b=2": "",
        "q=1&utm_a=1": "q=1",
        "utm_a=1&q=1": "q=1",
        "a=1&utm_x=1&utm_y=2&b=3&fbclid=4": "a=1&b=3",
        "a&utm_a&b&utm_b&c&utm_c&d&utm_d&e": "a&b&c&d&e",
        # a fifth run is forwarded, and so in the key
        "a&utm_a&b&utm_b&c&utm_c&d&utm_d&e&utm_e": "a&b&c&d&e&utm_e",
        "q=utm_a=1": "q=utm_a=1",
        "xutm_a=1&fbclidx=1&UTM_a=1": "xutm_a=1&fbclidx=1&UTM_a=1",
        "q=%26utm_a=1": "q=%26utm_a=1",
        "&&q=1&": "&&q=1&",
        "a=1&a=2": "a=1&a=2",
        "&".join(f"utm_{n}=1" for n in range(500)): "",
    }
    assert dict(zip(cases, forwarded("drop=utm_*|fbclid", list(cases)), strict=True)) == cases


def test_paths_are_forwarded_as_they_were_sent() -> None:
    with Served(application) as served, Sandbox() as box:
        made = generate(
            answers({"proxy": f"http://{served.address}"}, "drop=utm_*",
                    listen=f"unix:{box.socket}", cache_path=f"{box.directory}/cache",
                    log_path=f"{box.directory}/log")
        )  # fmt: skip
        box.start(made.text, made.files)
        for sent, path in {
            "/a//b": "/a//b",
            "/a%2Fb%20c": "/a/b c",  # by the script's own server
            "/@evil.example": "/@evil.example",
            "/x//evil.example/": "/x//evil.example/",
            "http://elsewhere/x?utm_a=1": "/x",
            "/": "/",
        }.items():
            assert json.loads(box.ask(sent).body)["path"] == path


def test_maps_keep_exactly_what_they_are_told() -> None:
    cases = {
        "q=1": "q=1",
        "q=1&page=2&x=3": "page=2&q=1",
        "x=1": "",
        "q=": "",
        "q=1&q=2": "q=1",
        "xq=1&q=%26page=3": "q=%26page=3",
    }
    assert dict(zip(cases, forwarded("keep=q|page", list(cases)), strict=True)) == cases


def test_njs_spells_exactly_as_it_is_told(njs: str) -> None:
    cases = {
        "q=ABBA": "q=abba",
        "q=+Abba%20&b=%C3%84": "b=%C3%A4&q=abba",
        "b=2&a=1&b=1": "a=1&b=2&b=1",
        "utm_x=1&q=a%26B": "q=a%26b",
        "q=%FF": "q=%FF",
        "q&&=&Q=A": "=&Q=a&q",
        "": "",
    }
    got = forwarded("lower,strip,sort-args,drop=utm_*", list(cases), [njs])
    assert dict(zip(cases, got, strict=True)) == cases


def canonical(rules: str, directory: Path) -> ModuleType:
    made = generate(answers(PROXY, rules))
    path = directory / "canonical.py"
    path.write_text(made.files["canonical.py"])
    spec = importlib.util.spec_from_file_location("canonical", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_njs_django_redirects_to_the_one_spelling_once(tmp_path: Path) -> None:
    from django.conf import settings as django_settings
    from django.http import HttpResponse
    from django.test import RequestFactory

    if not django_settings.configured:
        django_settings.configure()
    module = canonical("lower,strip,sort-args", tmp_path)
    middleware = module.canonical_arguments(lambda request: HttpResponse("page"))
    ask = RequestFactory().get
    answer = middleware(ask("/s/?q=%20ABBA+&a=1"))
    assert (answer.status_code, answer["Location"]) == (301, "/s/?a=1&q=abba")
    assert middleware(ask("/s/?a=1&q=abba")).content == b"page"
    assert middleware(ask("/s/?q=%61bba")).content == b"page"  # the same arguments: no redirect
    assert middleware(RequestFactory().post("/s/?q=ABBA")).content == b"page"
    away = RequestFactory().get("/", QUERY_STRING="q=A")
    away.path = "//evil.example/x?y"
    assert middleware(away)["Location"] == "/evil.example/x%3Fy?q=a"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_query_has_one_canonical_spelling(query: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        spelled = canonical("lower,strip,sort-args,drop=utm_*", Path(directory)).spelled
    assert spelled(spelled(query)) == spelled(query)


def test_the_log_format_alone_can_be_added_to_any_configuration() -> None:
    with Sandbox() as box:
        box.write(log_format() + f"access_log {box.directory}/a.log nearcache;\n")
        assert box.check() == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"proxy": "http://a:1/path"}, "'a:1/path'"),
        ({"proxy": "http://a; evil"}, "evil"),
        ({"uwsgi": "unix:/a b"}, "unix:/a b"),
        ({**PROXY, **UWSGI}, "--uwsgi"),
        ({}, "--proxy"),
        ({**PROXY, "server_names": ["a;b"]}, "a;b"),
        ({**PROXY, "cache_path": "relative"}, "--cache-path"),
        ({**PROXY, "max_size": "1t"}, "500m"),
        ({**PROXY, "ttl": "soon"}, "10m"),
        ({**PROXY, "ttl": "500ms"}, "whole seconds"),
        ({"proxy": "http://a:65536"}, "no port 65536"),
        ({**PROXY, "server_names": []}, "--server-name"),
        ({**PROXY, "static_prefix": "/"}, "nothing would be cached"),
        ({**PROXY, "session_cookie": "a;b"}, "--session-cookie"),
        ({**PROXY, "log_path": '/x"y'}, "--log-path"),
    ],
)
def test_an_answer_that_nginx_would_not_take_is_refused(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(NginxError, match=said):
        Answers(**wrong)


def test_nothing_leads_out_of_the_directory_of_static_files(tmp_path: Path) -> None:
    (tmp_path / "static").mkdir(mode=0o755)
    (tmp_path / "static" / "a.css").write_text("a{}")
    (tmp_path / "secret").write_text("secret")
    with Sandbox() as box:
        made = generate(
            answers({"proxy": "http://127.0.0.1:9"}, cache_path=f"{box.directory}/cache",
                    log_path=f"{box.directory}/log", listen=f"unix:{box.socket}",
                    static_prefix="/static", static_root=f"{tmp_path}/static/")
        )  # fmt: skip
        box.start(made.text)
        assert box.ask("/static/a.css").body == b"a{}"
        assert b"secret" not in box.ask("/static../secret").body


@pytest.mark.parametrize("rules", ["upper", "drop=", "drop=a&b", "keep=a-b", "keep=a,drop=b"])
def test_a_rule_that_there_is_not_is_refused(rules: str) -> None:
    with pytest.raises(NginxError, match="--normalize"):
        parse_spelling(rules)


def test_inactive_and_the_zone_follow_the_answers() -> None:
    (cache,) = read_configuration(generate(answers(PROXY, ttl="7d", max_size="20g")).text).caches
    assert cache.inactive_s == 7 * 86400
    assert (cache.zone_bytes or 0) >= 2 * 128 * (20 << 30) // (16 << 10)


def run(*arguments: str, stdin: str | None = None):
    return CliRunner().invoke(main, ["nginx", "config", *arguments], input=stdin)


def test_the_command_prints_a_configuration_or_writes_it(tmp_path: Path) -> None:
    done = run("--proxy", "http://127.0.0.1:8000", "--nginx-version", "1.22.1")
    assert done.exit_code == 0, done.output
    assert read_configuration(done.stdout).cached
    written = run("--uwsgi", "unix:/run/app.sock", "--normalize", "lower", "--no-njs",
                  "--output", str(tmp_path))  # fmt: skip
    assert written.exit_code == 0, written.output
    assert {path.name for path in tmp_path.iterdir()} == {"nearcache.conf", "canonical.py"}
    assert "canonical.py redirects" in written.stderr
    again = run("--uwsgi", "unix:/run/app.sock", "--output", str(tmp_path))
    assert (again.exit_code, "--force" in again.stderr) == (2, True)


def test_the_command_proves_and_prints_json() -> None:
    done = run("--proxy", "http://127.0.0.1:8000", "--prove")
    assert done.exit_code == 0, done.output
    assert f"{len(CHECKS)} of {len(CHECKS)} pass" in done.output
    assert max(map(len, done.output.splitlines())) <= 80
    answer = json.loads(run("--proxy", "http://127.0.0.1:8000", "--json").stdout)
    assert "proxy_cache_path" in answer["configuration"]


def test_the_command_asks_for_an_application_where_nobody_can_answer() -> None:
    done = run()
    assert (done.exit_code, "--proxy http" in done.stderr) == (2, True)
    assert run("--proxy", "http://a:1", "--normalize", "x").exit_code == 2


def test_nothing_that_was_asked_for_is_left_undone_in_silence(tmp_path: Path) -> None:
    def told(*arguments: str) -> tuple[int, str]:
        command = ["nginx", "config", *arguments]
        result = CliRunner().invoke(main, command)
        return result.exit_code, result.output

    app = ["--proxy", "http://127.0.0.1:8000"]
    code, output = told(*app, "--output", str(tmp_path / "site"), "--json")
    written = json.loads(output)["written"]
    assert code == 0
    assert [Path(each).exists() for each in written] == [True]
    assert "log_format nearcache" in json.loads(told("--log-format", "--json")[1])["log_format"]
    assert told(*app, "--output", str(tmp_path), "--prove")[1].count("are two things to do") == 1
    assert "--force is for --output" in told(*app, "--force")[1]
    assert "behind one of them" in told(*app, "--uwsgi", "unix:/run/app.sock")[1]
    assert "is no URL; write it as http://" in told("--proxy", "127.0.0.1:8000")[1]


def test_the_log_format_is_printed_alone() -> None:
    done = run("--log-format")
    assert done.stdout == log_format()
    for variable in ("msec", "upstream_cache_status", "cl_key", "http_accept_encoding"):
        assert f'"{variable}":"${variable}"' in done.stdout
    assert "cookie" not in done.stdout.replace("set_cookie", "").split("log_format nearcache")[1]

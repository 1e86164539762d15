"""Markdown, CSV, JSON in and out, the schema, damaged files; through the command line."""

from __future__ import annotations

import csv
import gzip
import json
import re
from io import StringIO
from pathlib import Path

import pytest

from nearcache.errors import LabError
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports import markdown, table_csv
from nearcache.lab.reports.html import render
from nearcache.lab.results.files import packed, read_runs
from nearcache.lab.results.sample import FORMAT, read_sample

from .made_up import HOSTILE, candidate, crowd, endings, experiment, fill, measured, rates, sizes
from .schema import SCHEMA, faults
from .test_cli import lab_here

SHAPES = {"crowd": lambda: crowd(4), "rates": rates, "sizes": sizes, "endings": endings}


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_of_every_shape_keep_to_the_schema(shape: str) -> None:
    assert faults(json.loads(SHAPES[shape]().to_text()), SCHEMA) == []


def test_the_schema_would_notice() -> None:
    plain = json.loads(crowd(4).to_text())
    plain["cells"][0]["points"]["0"]["0"] = 0
    plain["candidates"]["serializer0-compressor0"]["reach"] = "everywhere"
    del plain["machine"]["kernel"]
    plain["format"] = FORMAT + 1
    found = faults(plain, SCHEMA)
    assert len(found) == 4
    assert "$.machine lacks kernel" in found


def test_the_schema_is_of_the_version_that_is_written() -> None:
    assert SCHEMA["properties"]["format"]["const"] == FORMAT


@pytest.mark.parametrize("shape", SHAPES)
def test_markdown_is_made_of_tables_that_are_tables(shape: str) -> None:
    text = markdown.render(Analysis(SHAPES[shape]()))
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = block.splitlines()
        bars = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
        assert len(set(bars)) == 1, block
        assert set(rows[1]) <= set("|-: ")


def test_hostile_names_neither_break_a_markdown_table_nor_become_html() -> None:
    sample = measured(
        experiment("made-up-hostile", [candidate("plain"), candidate("a|b" + HOSTILE)])
    )
    fill(sample, {"plain": 1000, "a|b" + HOSTILE: 2000})
    text = markdown.render(Analysis(sample))
    assert "a\\|b\\</script\\>" in text
    assert not re.search(r"(?<!\\)<script", text)


def test_csv_has_one_line_for_each_candidate_operation_and_payload_unrounded() -> None:
    analysis = Analysis(crowd(4))
    lines = list(csv.DictReader(StringIO(table_csv.render(analysis))))
    assert len(lines) == 4 * len(analysis.measured)
    (line,) = (
        line
        for line in lines
        if (line["candidate"], line["operation"], line["payload"])
        == ("serializer0-compressor2", "set", "F")
    )
    (row,) = (r for r in analysis.rows("set", "F") if r.entry.name == "serializer0-compressor2")
    assert row.effect is not None
    assert float(line["median"]) == row.summary.median
    assert [float(line[f"ratio{end}"]) for end in ("", "_low", "_high")] == [
        row.effect.ratio, row.effect.low, row.effect.high,
    ]  # fmt: skip
    assert line["verdict"] == "slower"
    assert float(line["stored_bytes"]) == 9000
    assert line["parts_ns"].startswith("encode=")


def test_csv_has_rates_bytes_and_calls_without_an_answer() -> None:
    (rate, *_) = csv.DictReader(StringIO(table_csv.render(Analysis(rates()))))
    assert float(rate["per_second"]) == pytest.approx(1e9 / float(rate["cost"]))
    assert rate["outcomes"].startswith("timeout=")
    units = {line["unit"] for line in csv.DictReader(StringIO(table_csv.render(Analysis(sizes()))))}
    assert units == {"ns", "bytes"}
    ended = list(csv.DictReader(StringIO(table_csv.render(Analysis(endings())))))
    assert len(ended) == 8
    assert all(line["median"] == "" for line in ended)


def test_a_cell_of_csv_is_never_a_formula() -> None:
    sample = measured(experiment("made-up-formula", [candidate("plain"), candidate("=1+1")]))
    fill(sample, {"plain": 1000, "=1+1": 2000})
    assert "\n=1" not in table_csv.render(Analysis(sample)).replace(",=", "\n=")
    assert "'=1+1" in table_csv.render(Analysis(sample))


def test_the_packed_form_is_smaller_and_says_the_same(tmp_path: Path) -> None:
    sample = crowd(8)
    path = tmp_path / "kept.json.gz"
    path.write_bytes(packed(sample))
    assert packed(sample) == packed(sample)
    assert path.stat().st_size < len(sample.to_text()) / 4
    before, after = Analysis(sample), Analysis(read_sample(path))
    for name in before.cell_names:
        for old, new in zip(before.rows(*name), after.rows(*name), strict=True):
            assert new.summary.p99 == old.summary.p99
            assert new.summary.count == old.summary.count
            assert new.verdict == old.verdict
            if old.effect and new.effect:
                assert new.effect.ratio == pytest.approx(old.effect.ratio, rel=1e-4)
    assert faults(json.loads(gzip.decompress(path.read_bytes())), SCHEMA) == []
    assert sample.cells["serializer0-compressor0", "get", "S"].histograms.keys() == {0, 1, 2}


def test_report_writes_what_is_asked_for_and_leaves_stdout_to_it(tmp_path: Path) -> None:
    source = tmp_path / "run.json"
    crowd(4).write(source)
    page, small = tmp_path / "x.html", tmp_path / "x.json.gz"
    result = lab_here(
        "report", str(source), "--csv", "-", "--html", str(page), "--json", str(small)
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("experiment,candidate,")
    assert len(result.stdout.splitlines()) == 1 + 4 * 6
    assert page.read_text() == render(Analysis(read_sample(source)))
    assert read_sample(small).about["experiment"] == "made-up-crowd"
    again = lab_here("report", str(small), "--markdown", "-")
    assert again.stdout.startswith("# What about made-up-crowd?")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("{tmp}/none.json", "cannot be read"),
        ("{tmp}/empty", "holds no sample"),
        ("{tmp}/cut.json.gz", "is damaged"),
        ("{tmp}/text.json", "is not a sample of the lab"),
        ("{tmp}/newer.json", f"has format {FORMAT + 1}; this version reads {FORMAT}: upgrade"),
        ("{tmp}/histogram.json", "or it is damaged"),
        ("{tmp}/two --html {tmp}/x.html", "these are several experiments"),
        ("{tmp}/run.json --csv - --markdown -", "only one output can go to stdout"),
        ("{tmp}/run.json --csv /no/such/place.csv", "cannot be written"),
        ("{tmp}/run.json --operation gt", "did you mean 'get'"),
    ],
)
def test_what_cannot_be_reported_is_one_clear_line(words: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "two").mkdir()
    sample = crowd(2)
    sample.write(tmp_path / "run.json")
    sample.write(tmp_path / "two" / "a.json")
    rates().write(tmp_path / "two" / "b.json")
    (tmp_path / "cut.json.gz").write_bytes(packed(sample)[:500])
    (tmp_path / "text.json").write_text("<html>")
    (tmp_path / "newer.json").write_text(json.dumps({"format": FORMAT + 1}))
    plain = json.loads(sample.to_text())
    plain["cells"][0]["histograms"]["0"] = "AAAA" + plain["cells"][0]["histograms"]["0"][4:]
    (tmp_path / "histogram.json").write_text(json.dumps(plain))
    result = lab_here("report", *words.format(tmp=tmp_path).split())
    assert result.returncode == 2
    assert said in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_directory_is_read_by_experiment_and_runs_of_one_are_merged(tmp_path: Path) -> None:
    crowd(2, seed=1).write(tmp_path / "a.json")
    crowd(2, seed=2).write(tmp_path / "b.json")
    (tmp_path / "c.json.gz").write_bytes(packed(rates()))
    (tmp_path / "a.html").write_text("not looked at")
    runs = read_runs([tmp_path])
    assert set(runs) == {"made-up-crowd", "made-up-rates"}
    assert len(runs["made-up-crowd"].rounds) == 24
    (tmp_path / "none").mkdir()
    with pytest.raises(LabError, match="holds no sample"):
        read_runs([tmp_path / "none"])

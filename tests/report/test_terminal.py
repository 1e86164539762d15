"""Tables and maps of which nothing is left out."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from nearcache.report.model import Chart, Grey, Grid, Table
from nearcache.report.terminal import draw, print_table


def drawn(part: Table | Chart | Grid, width: int = 80) -> str:
    file = StringIO()
    Console(width=width, file=file).print(draw(part, width, colours=False))
    return file.getvalue()


def test_a_wide_table_is_continued_below_and_each_part_names_its_rows() -> None:
    head = ["", *(f"column {number}" for number in range(30))]
    table = Table(title="Wide", head=head, rows=[["row", *(["123.4"] * 30)]], note="a note")
    text = drawn(table)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("Wide (continued)") == text.count("row ") - 1 > 1
    assert text.count("123.4") == 30
    assert text.count("a note") == 1


def test_grey_numbers_stand_in_brackets_where_there_are_no_colours_and_words_do_not() -> None:
    table = Table(title="T", head=["", "a", "b"], rows=[["x", Grey("12.3"), Grey("same")]])
    assert "(12.3) same" in drawn(table)


def test_a_map_keeps_its_words_if_they_fit_and_has_letters_if_not() -> None:
    grid = Grid(
        title="Which wins", x_title="bytes", y_title="round trip", columns=["1 kB", "1 MB"],
        rows=["0 ms", "5 ms"], words=[["none", "none"], ["none", "zstd"]], here=(1, 1),
    )  # fmt: skip
    assert "[zstd]" in drawn(grid)
    narrow = drawn(grid, width=18)
    assert "[B]" in narrow
    assert "A none, B zstd" in narrow.replace("\n", " ")


def test_names_are_whole_and_stand_on_the_first_line_of_their_row() -> None:
    name = "django-redis-hiredis-unix"
    rows = [["a", "words that go on and on " * 5, f"{name}, {name}", "1.00"]]
    head = ["", "why", "who", "µs"]
    text = drawn(Table(title="T", head=head, rows=rows, text_columns=(0, 1, 2)), 80)
    assert text.count(name) == 2
    line = next(line for line in text.splitlines() if line.startswith("a "))
    assert "words" in line
    assert "1.00" in line


def test_the_last_column_of_a_wide_table_does_not_stand_alone() -> None:
    heads = [f"column-{number}" for number in range(7)]
    text = drawn(Table(title="T", head=["", *heads], rows=[["name", *["1.00"] * 7]]), 64)
    last = text.split("(continued)")[-1]
    assert "column-5" in last
    assert "column-6" in last


def test_a_head_is_wrapped_only_where_there_is_no_room_for_it() -> None:
    table = Table("T", ["", "of the working set"], [["a", "1"]])
    assert "of the working set" in drawn(table, 24)
    assert "of the working set" not in drawn(table, 15)


def test_a_table_without_a_title_begins_with_its_head_and_ends_with_its_last_row() -> None:
    file = StringIO()
    print_table(Table("", ["name", "keys"], [["a", "1"]]), Console(file=file, width=40))
    assert [line.split() for line in file.getvalue().splitlines()] == [["name", "keys"], ["a", "1"]]

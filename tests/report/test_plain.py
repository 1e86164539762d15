"""Pages and tables as lines that fit a width."""

from __future__ import annotations

import pytest

from nearcache.report.model import Page, Points, Sparks, Table
from nearcache.report.plain import cut, hanging, lines_of, table_lines


@pytest.mark.parametrize("width", [30, 40, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = Page(
        "t",
        ["word " * 30],
        [
            Table("T", ["name", "a number", "another"], [["/x" * 70, "1,234,567", "89.0 GB"]]),
            Table("V", ["variable", "why"], [["$" * 28, "because " * 9]], text_columns=(0, 1)),
            Sparks("S", list(range(500)), "left", "right"),
            Points("P", ["a point " * 20]),
        ],
        ["a note " * 20],
    )
    lines = lines_of(wide, width)
    assert max(map(len, lines)) <= min(width, 100)
    assert any("1,234,567" in line for line in lines), "numbers are never cut"


def test_bars_get_what_words_leave() -> None:
    rows = [["x" * 60, "1"], ["y", "2"]]
    table = Table("", ["", "n"], rows, bars=[0.5, 1.0])
    assert table_lines(table, 80)[2].endswith(f"  2  {15 * '█'}")
    assert "█" not in "".join(table_lines(table, 66))


def test_lines_hang_below_the_first_and_words_stay_whole() -> None:
    assert hanging("- ", "one two three-four", 10) == ["- one two", "  three-four"]
    assert hanging("# ", "one two", 6, below="#   ") == ["# one", "#   two"]
    assert hanging("name ", "", 20) == ["name "]


def test_what_is_cut_fits_in_columns_of_the_terminal_and_says_so() -> None:
    assert cut("日本語", 6) == "日本語"
    assert cut("日本語", 5) == "日本…"
    assert cut("two words", 5) == "two…"

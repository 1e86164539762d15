"""Numbers with units, as they are measured and as one says them."""

from __future__ import annotations

from nearcache.report.units import quantity, rate, scale_for, times
from nearcache.report.words import duration, listed, plural, printable, size


def test_numbers_carry_a_unit_in_which_they_can_be_read() -> None:
    assert quantity(1530, "ns") == "1.53 µs"
    assert quantity(2.5e9, "ns") == "2.50 s"
    assert quantity(0.045, "share") == "4.50%"
    assert quantity(1.2e6, "bytes") == "1.20 MB"
    assert quantity(17, "count") == "17.0"
    assert quantity(5, "furlongs") == "5.00 furlongs"
    assert quantity(-1530, "ns") == "-1.53 µs"
    assert rate(50_000) == "20.0 k/s"
    assert [times(ratio) for ratio in (0.00212, 0.0376, 0.104, 1.32)] == [
        "0.0021", "0.038", "0.104", "1.32",
    ]  # fmt: skip
    assert scale_for("ns", [300, 3_000_000]).suffix == "µs"
    assert scale_for("bytes", [72, 10**6]).suffix == "B"
    assert scale_for("ns", []).suffix == "ns"


def test_durations_sizes_and_names_are_written_as_one_says_them() -> None:
    assert [duration(s) for s in (0, 0.0004, 0.02, 3.14, 59.97, 4331, 90_061)] == [
        "0 ms", "0.4 ms", "20 ms", "3.1 s", "1 min", "1 h 12 min", "1 d 1 h",
    ]  # fmt: skip
    assert [size(n) for n in (0, 999, 1000, 34_000_000, 10**15)] == [
        "0 B", "999 B", "1.0 kB", "34.0 MB", "1000 TB",
    ]  # fmt: skip
    assert printable("a\x1b\u202eé") == "a\\x1b\\u202eé"
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a", "a and b", "a, b and c",
    ]  # fmt: skip
    assert [plural(1, "try", "tries"), plural(2000, "try", "tries")] == ["1 try", "2,000 tries"]

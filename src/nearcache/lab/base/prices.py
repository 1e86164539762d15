"""What the user pays, as it is told to a run and kept with it; ``advice`` makes costs of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from nearcache.errors import LabError

OPTIONS = {
    "gb_month": "--price-gb-month",
    "vcpu_hour": "--price-vcpu-hour",
    "requests_per_second": "--requests-per-second",
}


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What the user pays, in whatever currency; None where it was not given."""

    gb_month: float | None = None
    vcpu_hour: float | None = None
    requests_per_second: float | None = None
    given_on: str = ""  # the day, as text

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, float) and not 0 <= value < float("inf"):
                raise LabError(f"{OPTIONS[name]} is {value}; a price or rate is a number from 0")
        if self.requests_per_second is not None and self.vcpu_hour is None:
            raise LabError("--requests-per-second says nothing without --price-vcpu-hour")

    def __bool__(self) -> bool:
        return self.gb_month is not None or self.vcpu_hour is not None

"""What a cache is asked to compute, counted."""

from __future__ import annotations

from nearcache.base.clock import FakeClock

S = 1000  # milliseconds


class Function:
    """Counts its calls; returns their number, as text. A call takes `takes_ms` of fake time."""

    def __init__(self, clock: FakeClock, takes_ms: int = 0) -> None:
        self.calls = 0
        self.fails = False
        self.takes_ms = takes_ms
        self._clock = clock

    def __call__(self) -> str:
        self.calls += 1
        self._clock.advance_ms(self.takes_ms)
        if self.fails:
            raise KeyError("database")
        return f"value {self.calls}"

"""A signal ends a run wherever it arrives, and is never forgotten."""

from __future__ import annotations

import gc
import importlib
import io
import signal
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.runner.driver import Driver, measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.runner.stopping import Stopped, Stopping

from .conftest import Silent


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_an_import_is_acted_upon_once_that_is_over(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # CPython's compiler may forget what the handler raised, and the run would be deaf from then on.
    name = f"signalled_{number.name.lower()}"
    (tmp_path / f"{name}.py").write_text(
        f"import os, signal\nos.kill(os.getpid(), signal.{number.name})\nWHOLE = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before = signal.getsignal(signal.SIGALRM)
    with Stopping():
        module = importlib.import_module(name)
        with pytest.raises(Stopped, match=number.name) as stopped:
            signal.sigtimedwait([], 60)
    assert module.WHOLE
    assert stopped.value.exit_code == 128 + number
    assert signal.getsignal(signal.SIGALRM) is before
    del sys.modules[name]


def test_a_second_signal_does_not_interrupt_the_cleaning_up() -> None:
    with Stopping():
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)


def test_a_signal_while_things_are_put_away_ends_what_would_come_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Driver, "run", lambda driver: None)
    monkeypatch.setattr(Driver, "put_away", lambda driver: signal.raise_signal(signal.SIGINT))
    order = prepare(BACKENDS, RunOptions(plan="quick", candidates=["locmem"]))
    sample = new_sample(order, "a test")
    stopped: Any = measure(order, sample, Silent(), lambda sample: None)
    assert stopped.exit_code == 130
    assert sample.about["state"] == "complete"


def test_a_message_that_was_interrupted_is_freed_without_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.12.1 crashes when that finds one: the lab did at its end, after everything."""
    in_hand: list[weakref.ref[io.BytesIO]] = []

    def run(driver: Driver) -> None:
        message = io.BytesIO(b"as multiprocessing has one")
        in_hand.append(weakref.ref(message))
        with message.getbuffer():
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Driver, "run", run)
    order = prepare(BACKENDS, RunOptions(plan="quick", candidates=["locmem"]))
    gc.disable()
    try:
        stopped: Any = measure(order, new_sample(order, "a test"), Silent(), lambda sample: None)
        assert stopped.exit_code == 130
        assert not in_hand[0]()
    finally:
        gc.enable()

"""A signal ends a run wherever it arrives, and is never forgotten."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path

import pytest

from nearcache.lab.runs.stopping import Stopped, Stopping


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

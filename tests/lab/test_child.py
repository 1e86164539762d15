"""A process that an arm starts answers, or its end is told in its own words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nearcache.lab.arms.child import Child, ChildFailed
from nearcache.lab.base.arm import Unavailable


@pytest.fixture
def child() -> Iterator[Child]:
    started = Child("tests.lab.odd_child", cpu=0)
    yield started
    started.end()
    assert started.process.returncode is not None


def test_it_answers_and_what_it_prints_is_no_answer(child: Child) -> None:
    assert child.ask({"a": 1}) == {"heard": {"a": 1}}
    assert child.ask({"b": 2}) == {"heard": {"b": 2}}


def test_its_error_is_one_line(child: Child) -> None:
    with pytest.raises(ChildFailed, match=r"^ValueError: no such luck$"):
        child.ask({"fail": 1})


def test_what_is_not_installed_comes_with_what_to_type(child: Child) -> None:
    with pytest.raises(Unavailable, match="gevent does not import") as caught:
        child.ask({"miss": 1})
    assert caught.value.install == "pip install gevent"


def test_a_child_that_dies_leaves_its_last_words(child: Child) -> None:
    with pytest.raises(ChildFailed, match="died: its last words"):
        child.ask({"die": 1})
    with pytest.raises(ChildFailed, match="died"):
        child.ask({"again": 1})


def test_a_child_that_hangs_is_given_up_and_ended(child: Child) -> None:
    with pytest.raises(ChildFailed, match="no answer within 0 s"):
        child.ask({"hang": 1}, timeout_s=0.2)

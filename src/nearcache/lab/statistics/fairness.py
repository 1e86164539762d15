"""How evenly answers went to those who asked."""

from __future__ import annotations

from collections.abc import Sequence


def jain(answers: Sequence[int]) -> float:
    """Jain's index of fairness: 1 if all got the same, 1/n if one got everything.

    Jain, Chiu, Hawe: A Quantitative Measure of Fairness and Discrimination, DEC TR-301, 1984.
    """
    squares = sum(each * each for each in answers)
    return sum(answers) ** 2 / (len(answers) * squares) if squares else 0.0


def fairest(answered: int, contenders: int) -> float:
    """The highest index there can be: a whole answer goes to one contender or another."""
    each, rest = divmod(answered, contenders)
    return jain([each + 1] * rest + [each] * (contenders - rest))

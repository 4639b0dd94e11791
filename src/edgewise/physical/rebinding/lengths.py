"""Numbers of several recordings: which are the same, which are read, and how others follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

NEAR = 2  # how much a number may differ from a multiple or a sum of others


def order_of(numbers: Sequence[int]) -> tuple[int, ...]:
    """How numbers compare with one another, and with 0 and 1: their order, and which are equal or
    next to each other. Where two lists have the same, comparisons of them decide alike.

    >>> order_of([5, 9]) == order_of([4, 200]), order_of([5, 9]) == order_of([8, 9])
    (True, False)
    """
    every = [0, 1, *numbers]
    order = sorted(range(len(every)), key=every.__getitem__)
    return (*order, *[min(every[b] - every[a], 2) for a, b in pairwise(order)])


def formula(wanted: Sequence[int], known: Mapping[str, Sequence[int]]) -> str | None:
    """How a number follows from others in every recording, the simplest first.

    >>> formula([8, 12], {"n": [2, 3], "e": [7, 11]}), formula([6, 12], {"a": [2, 3]})
    ('e + 1', 'a * (a + 1)')
    """
    for text, found in _candidates(known, len(wanted)):
        differences = {w - f for w, f in zip(wanted, found, strict=True)}
        if len(differences) == 1:
            plus = differences.pop()
            if abs(plus) <= NEAR:
                return text if not plus else f"{text} {'+' if plus > 0 else '-'} {abs(plus)}"
    for text, found in _products(known):
        times = multiple(wanted, found)
        if times is not None:
            return text if times == 1 else f"{times} * {text}"
        for plus in (1, -1):
            times = multiple([w - plus for w in wanted], found)
            if times is not None:
                return f"{times} * {text} {'+' if plus > 0 else '-'} 1"
    return None


def multiple(wanted: Sequence[int], found: Sequence[int]) -> int | None:
    """How many times as large one number is as another, in every recording."""
    if any(f == 0 for f in found) or wanted[0] % found[0]:
        return None
    times = wanted[0] // found[0]
    same = all(w == times * f for w, f in zip(wanted, found, strict=True))
    return times if same and times else None


def _candidates(
    known: Mapping[str, Sequence[int]], count: int
) -> Iterator[tuple[str, Sequence[int]]]:
    yield from known.items()
    listed = list(known.items())
    for at, (a, one) in enumerate(listed):
        for b, other in listed[at:]:
            yield f"{a} + {b}", [x + y for x, y in zip(one, other, strict=True)]
        for b, other in listed:
            if a != b:
                yield f"{a} - {b}", [x - y for x, y in zip(one, other, strict=True)]


def _products(known: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, Sequence[int]]]:
    """Those of one or two numbers, each perhaps one more."""
    yield from known.items()
    every = [*known.items()]
    every += [(f"({a} + 1)", [x + 1 for x in one]) for a, one in known.items()]
    for at, (a, one) in enumerate(every):
        for b, other in every[at:]:
            yield f"{a} * {b}", [x * y for x, y in zip(one, other, strict=True)]


def relations(known: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Numbers that are a multiple of others, or of a product of two, in every recording."""
    for name, wanted in known.items():
        for text, found in _products(known):
            if name not in text.replace("(", " ").split():
                times = multiple(wanted, found)
                if times is not None:
                    yield f"{name} == {times} * {text}" if times != 1 else f"{name} == {text}"

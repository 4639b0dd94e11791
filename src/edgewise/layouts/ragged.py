"""Lists of different lengths, end to end in one array."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def ranges(start: Ints, count: Ints, step: Ints | int = 1) -> Ints:
    """For each k the `count[k]` numbers `start[k], start[k] + step[k], ...`, end to end.

    >>> ranges(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    before = np.cumsum(count) - count
    place = np.arange(int(count.sum()), dtype=np.int64)
    if isinstance(step, int):
        return np.repeat(start - before * step, count) + place * step
    return np.repeat(start, count) + (place - np.repeat(before, count)) * np.repeat(step, count)


def pointer(count: Ints) -> Ints:
    """Where each list begins, and the end of the last.

    >>> pointer(np.array([2, 0, 3]))
    array([0, 2, 2, 5])
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(count, dtype=np.int64)])


def owners(ptr: Ints) -> Ints:
    """The list that each element belongs to.

    >>> owners(np.array([0, 2, 2, 5]))
    array([0, 0, 2, 2, 2])
    """
    return np.repeat(np.arange(len(ptr) - 1, dtype=np.int64), np.diff(ptr))


def starts_of_runs(key: Ints) -> Ints:
    """Where a sorted array changes.

    >>> starts_of_runs(np.array([4, 4, 7]))
    array([0, 2])
    """
    if not len(key):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))


def distinct(key: Ints) -> Ints:
    """Sorted, each once; faster than `numpy.unique` on what is sorted already.

    >>> distinct(np.array([4, 2, 4]))
    array([2, 4])
    """
    if not (key[1:] > key[:-1]).all():
        key = np.sort(key)
        key = key[starts_of_runs(key)]
    return key

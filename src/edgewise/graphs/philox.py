"""Random bits from (seed, row): Philox4x32-10, the same on every machine, version and device.

A counter-based generator (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011):
every number is a function of the seed, the stream, the row and the position in it, so that one
row can be sampled without the others. Only integer arithmetic is used.
"""

import numpy as np
from numpy.typing import NDArray

from edgewise.layouts.ragged import Ints

Words = NDArray[np.uint64]
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
LINEAR_SEARCH, TABLE = 256, 1 << 24
PART = 1 << 14  # numbers at a time, which fit a cache


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, ...]:
    """Ten rounds on four 32-bit words, held in 64-bit ones."""
    a, b, c, d = (np.array(word, order="C") for word in counter)
    left, right = np.empty_like(a), np.empty_like(a)
    k, h = key
    for _ in range(10):  # in place: allocation would take longer than the arithmetic
        np.multiply(a, np.uint64(0xD2511F53), out=left)
        np.multiply(c, np.uint64(0xCD9E8D57), out=right)
        np.bitwise_xor(np.right_shift(right, HALF, out=a), b, out=a)
        np.bitwise_xor(np.right_shift(left, HALF, out=c), d, out=c)
        a ^= np.uint64(k)
        c ^= np.uint64(h)
        np.bitwise_and(right, LOW, out=b)
        np.bitwise_and(left, LOW, out=d)
        k, h = (k + 0x9E3779B9) & 0xFFFFFFFF, (h + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def words(seed: int, rows: Ints, first: int, count: int, *, stream: int = 0) -> Words:
    """64 random bits for each row and each place first ≤ t < first + count."""
    return np.ascontiguousarray(_by_place(seed, rows, first, count, stream).T)


def _by_place(seed: int, rows: Ints, first: int, count: int, stream: int) -> Words:
    """The same, (count, rows)."""
    start, stop = first // 2, -(-(first + count) // 2)
    place = np.arange(start, stop, dtype=np.uint64)[:, None]
    row = rows.astype(np.uint64)[None, :]
    shape = np.broadcast_shapes(place.shape, row.shape)
    counter = (
        np.broadcast_to(place, shape),
        np.broadcast_to(np.uint64(stream), shape),
        np.broadcast_to(row & LOW, shape),
        np.broadcast_to(row >> HALF, shape),
    )
    a, b, c, d = philox(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    both = np.stack([a | (b << HALF), c | (d << HALF)], axis=1).reshape(
        2 * (stop - start), len(rows)
    )
    return both[first - 2 * start : first - 2 * start + count]


def below(bits: Words, limit: Ints | int) -> Ints:
    """⌊bits · limit / 2⁶⁴⌋: integers 0 ≤ x < limit, limit < 2³¹."""
    top = np.asarray(limit, dtype=np.uint64)
    product = (bits >> HALF) * top + (((bits & LOW) * top) >> HALF)
    return (product >> HALF).astype(np.int64)


def distinct(seed: int, rows: Ints, count: int, limit: Ints | int, *, stream: int = 0) -> Ints:
    """For each row `count` different numbers below `limit`, in no order (Floyd's sampling).

    Where a row's limit is less than `count`, it has all numbers below it, then -1.
    """
    limits = np.asarray(limit, np.int64)
    out = np.empty((len(rows), count), np.int64)
    step, marks = max(2 * PART // max(count, 1), 1), None
    if count > LINEAR_SEARCH and len(rows):
        wide = int(limits.max()) + 1
        step = max(TABLE // wide, 1)
        marks = np.empty((min(step, len(rows)), wide), bool)
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        bits = _by_place(seed, rows[part], 0, count, stream)
        out[part] = _drawn(bits, limits[part] if limits.ndim else limits, marks).T
    return out


def _drawn(bits: Words, limit: Ints, marks: np.ndarray | None) -> Ints:
    """Floyd's sampling; duplicates are found by linear search, or in a table of marks."""
    count, rows = bits.shape
    every, short = np.arange(rows), limit < count
    chosen, any_short = np.empty((count, rows), np.int64), bool(np.any(short))
    if marks is not None:
        marks[:rows] = False
    for t in range(count):
        top = limit - count + t
        drawn = below(bits[t], np.maximum(top + 1, 1))
        if t:
            taken = (chosen[:t] == drawn).any(axis=0) if marks is None else marks[every, drawn]
            drawn = np.where(taken, top, drawn)
        if any_short:
            drawn = np.where(short, np.where(t < limit, t, -1), drawn)
        if marks is not None:
            marks[every, drawn] = True
        chosen[t] = drawn
    return chosen


def shuffled(seed: int, count: int, *, stream: int = 0) -> Ints:
    """The numbers below `count` in random order."""
    bits = words(seed, np.arange(count), 0, 1, stream=stream)[:, 0]
    return np.argsort(bits, kind="stable").astype(np.int64)

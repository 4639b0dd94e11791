"""The sweep for up to eight trapezoids in plain Python, where NumPy's call overhead dominates."""

import itertools
from typing import NamedTuple

import numpy as np

from edgewise.layouts.ragged import Bools
from edgewise.layouts.rows import Rows
from edgewise.layouts.trapezoid import Trapezoids

MOST = 8


class Trapezoid(NamedTuple):
    """As in `Trapezoids`, without a step; `side` is its operand (0, 1)."""

    top: int
    bottom: int
    start: int
    stop: int
    dstart: int
    dstop: int
    side: int


class Slab(NamedTuple):
    """Rows from `top` on, and their intervals (start, stop, dstart, dstop)."""

    top: int
    height: int
    intervals: list[tuple[int, int, int, int]]


def applies(a: Trapezoids, b: Trapezoids) -> bool:
    small = len(a) + len(b) <= MOST
    return small and 1 == max(a.step.tolist(), default=1) == max(b.step.tolist(), default=1)


def combine(n: int, m: int, a: Trapezoids, b: Trapezoids, table: Bools) -> Rows:
    """`sweep.combine`, where `applies`."""
    found = [*_listed(a, n, 0), *_listed(b, n, 1)]
    tops, truth = _tops(n, m, found), table.tolist()
    slabs: list[Slab] = []
    for top, bottom in itertools.pairwise(tops):
        here = [p for p in found if p.top <= top < p.bottom]
        slab = Slab(top, bottom - top, _intervals(m, top, here, truth))
        slabs[-1:] = _merged(slabs[-1], slab) if slabs else [slab]
    slabs[-1:] = [_flattened(slab) for slab in slabs[-1:]]
    lines = np.array([p for slab in slabs for p in slab.intervals], np.int64).reshape(-1, 4)
    ends, ptr = [slab.top for slab in slabs], [0]
    for slab in slabs:
        ptr.append(ptr[-1] + len(slab.intervals))
    start, stop, dstart, dstop = np.ascontiguousarray(lines.T)
    one = np.ones(len(lines), np.int64)
    return Rows(n, m, np.array([*ends, n]), np.array(ptr), start, stop, dstart, dstop, one)


def _listed(p: Trapezoids, n: int, side: int) -> list[Trapezoid]:
    """The trapezoids clipped to rows 0 to n."""
    out = []
    columns = (p.top, p.bottom, p.start, p.stop, p.dstart, p.dstop)
    for top, bottom, start, stop, dstart, dstop in zip(*(x.tolist() for x in columns), strict=True):
        down = max(-top, 0)
        if top + down < min(bottom, n):
            ends = (start + dstart * down, stop + dstop * down)
            out.append(Trapezoid(top + down, min(bottom, n), *ends, dstart, dstop, side))
    return out


def _tops(n: int, m: int, found: list[Trapezoid]) -> list[int]:
    """The rows at which slabs begin, and n, as `slab_tops` finds them."""
    tops = {0, n}
    flat = [(0, n, 0), (0, n, m)]
    sloped: list[tuple[int, int, int]] = []
    for top, bottom, start, stop, dstart, dstop, _ in found:
        tops |= {top, bottom}
        (sloped if dstart else flat).append((top, bottom, start))
        (sloped if dstop else flat).append((top, bottom, stop))
    for top, bottom, value in sloped:
        for first, last, border in flat:
            row = top + border - value
            if top <= row < bottom and first <= row < last:
                tops |= {row, row + 1}
    return sorted(tops)


def _intervals(
    m: int, top: int, here: list[Trapezoid], truth: list[list[bool]]
) -> list[tuple[int, int, int, int]]:
    """The intervals of the result in one slab, neighbours merged."""
    ends: dict[int, list[int]] = {0: [0, 0, 0], m: [0, 0, 0]}  # slope, and changes of both depths
    for p in here:
        down = top - p.top
        start, stop = p.start + p.dstart * down, p.stop + p.dstop * down
        if start < stop:
            ends.setdefault(start, [p.dstart, 0, 0])[1 + p.side] += 1
            ends.setdefault(stop, [p.dstop, 0, 0])[1 + p.side] -= 1
    out: list[tuple[int, int, int, int]] = []
    first, second, opened = 0, 0, None
    for value in sorted(ends):
        slope, more, others = ends[value]
        first, second = first + more, second + others
        inside = 0 <= value < m and truth[first > 0][second > 0]
        if inside and opened is None:
            opened = value, slope
        elif not inside and opened is not None:
            out.append((opened[0], value, opened[1], slope))
            opened = None
    return out


def _merged(last: Slab, slab: Slab) -> list[Slab]:
    """One slab, if every interval of the last continues in the next; otherwise both."""
    if len(last.intervals) != len(slab.intervals):
        return [_flattened(last), slab]
    intervals = []
    for a, b in zip(last.intervals, slab.intervals, strict=True):
        moves = [b[k] - a[k] - a[k + 2] * (last.height - 1) for k in (0, 1)]
        for k, move in enumerate(moves):
            fits = last.height == 1 or move == a[k + 2]
            fits = fits and (slab.height == 1 or move == b[k + 2])
            if not fits or not 0 <= move <= 1:
                return [_flattened(last), slab]
        intervals.append((a[0], a[1], moves[0], moves[1]))
    return [Slab(last.top, last.height + slab.height, intervals)]


def _flattened(slab: Slab) -> Slab:
    """A single row has no slope."""
    if slab.height > 1:
        return slab
    return Slab(slab.top, 1, [(start, stop, 0, 0) for start, stop, _, _ in slab.intervals])

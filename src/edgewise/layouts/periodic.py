"""The sweep where progressions with step > 1 take part: residues within one period decide."""

from dataclasses import dataclass

import numpy as np

from edgewise.layouts.pieces import Pieces, joined, tightened
from edgewise.layouts.ragged import Bools, Ints, ranges, starts_of_runs


@dataclass(frozen=True)
class Segments:
    """The stretches between neighbouring ends within one slab, all of one slab together."""

    slab: Ints
    low: Ints
    high: Ints
    dlow: Ints
    dhigh: Ints


Parts = tuple[Pieces, Ints, Ints, Ints]
"""Pieces; then, for each meeting of one with a segment: the piece, the segment, and its side."""


def periodic_parts(
    segments: Segments, depth: list[Bools], parts: Parts, keep: Bools
) -> tuple[Bools, Pieces]:
    """The segments kept as a whole, and what is kept of those that hold progressions."""
    _, _, segment, side = parts
    count = len(segments.slab)
    has = [np.bincount(segment[side == s], minlength=count) > 0 for s in (0, 1)]
    inside = [depth[0].astype(int), depth[1].astype(int)]
    solid = keep[inside[0], inside[1]] & ~has[0] & ~has[1]
    as_it_is = np.zeros(count, bool)
    for s in (0, 1):
        other = inside[1 - s]
        with_it = keep[1, other] if s == 0 else keep[other, 1]
        without = keep[0, other] if s == 0 else keep[other, 0]
        alone = has[s] & ~has[1 - s]
        solid |= alone & with_it & without
        as_it_is |= alone & with_it & ~without
        has[s] = has[s] & ~(alone & (with_it | ~without))
    mixed = has[0] | has[1]
    direct = _clipped(segments, parts, np.flatnonzero(as_it_is[segment]))
    if not mixed.any():
        return solid, direct
    whole, general = _by_residue(segments, inside, parts, np.flatnonzero(mixed[segment]), keep)
    solid[whole] = True
    return solid, joined(direct, general)


def _clipped(segments: Segments, parts: Parts, chosen: Ints) -> Pieces:
    """The chosen progressions, cut to their segments; `top` is the slab."""
    q, owner, segment, _ = parts
    owner, segment = owner[chosen], segment[chosen]
    low, high, step = segments.low[segment], segments.high[segment], q.step[owner]
    start = low + (q.start[owner] - low) % step
    some = start < high
    owner, segment, start, step = owner[some], segment[some], start[some], step[some]
    slab, slope = segments.slab[segment], q.dstart[owner]
    return tightened(Pieces(slab, slab, start, segments.high[segment], slope, slope, step))


def _by_residue(
    segments: Segments, inside: list[Ints], parts: Parts, chosen: Ints, keep: Bools
) -> tuple[Ints, Pieces]:
    """Whole segments and progressions, decided key by key over one period (or one segment)."""
    q, owner, segment, side = parts
    chosen = chosen[np.argsort(segment[chosen], kind="stable")]
    owner, segment, side = owner[chosen], segment[chosen], side[chosen]
    opening = starts_of_runs(segment)
    which = segment[opening]
    length = segments.high[which] - segments.low[which]
    period = _periods(q.step[owner], opening, length)
    base = np.cumsum(period) - period
    here = np.repeat(np.arange(len(which)), period)
    member = [np.repeat(inside[s][which], period) for s in (0, 1)]
    place = np.searchsorted(which, segment)
    offset = (q.start[owner] - segments.low[segment]) % q.step[owner]
    count = np.maximum((period[place] - offset - 1) // q.step[owner] + 1, 0)
    touched = ranges(base[place] + offset, count, q.step[owner])
    for s in (0, 1):
        member[s][touched[np.repeat(side == s, count)]] = 1
    kept = keep[member[0], member[1]]
    total = np.bincount(here[kept], minlength=len(which))
    whole = total == period
    at = np.flatnonzero(kept & ~whole[here])
    here = here[at]
    start = segments.low[which[here]] + at - base[here]
    long = period[here] < length[here]
    stop = np.where(long, segments.high[which[here]], start + 1)
    slab, slope = segments.slab[which[here]], segments.dlow[which[here]]
    step = np.where(long, period[here], 1)
    return which[whole], tightened(Pieces(slab, slab, start, stop, slope, slope, step))


def _periods(step: Ints, opening: Ints, length: Ints) -> Ints:
    """The least common multiple of the steps in each group, at most the length."""
    bits = np.add.reduceat(np.log2(step), opening)
    multiple = np.lcm.reduceat(step, opening)
    return np.where(bits < 62, np.minimum(multiple, length), length)

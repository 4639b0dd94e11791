"""Blocks in groups that share a mask: how a CPU walks through a block-sparse graph.

Blocks that look alike have the same mask however far apart they are, so a window needs two or
three masks at any length, and they are found by comparing intervals, not by looking at pairs.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.graphs.pattern import Pattern, union
from edgewise.graphs.residues import written_groups, written_step
from edgewise.kernels.attention.contract import facts, pieces_of
from edgewise.layouts import Blocks, Pieces, Rows
from edgewise.layouts.cover import blocks_of_rows, touched
from edgewise.layouts.pieces import in_slabs
from edgewise.layouts.ragged import (
    Bools,
    Ints,
    distinct_rows,
    owners,
    pointer,
    ranges,
    starts_of_runs,
)

FULL = -1
FINEST = 32  # the smallest block
FEW = 1 << 20
PART = 4


@dataclass(frozen=True, eq=False)
class Group:
    """Block rows with as many key blocks each, alike in place: one mask serves all.

    `kinds[c]` is the mask of slot c, or FULL. Where `slides`, row r + 1 has the key blocks of row
    r moved on by one, all of them neighbours: keys can be views instead of copies.
    """

    rows: Tensor
    keys: Tensor
    kinds: Tensor
    slides: bool

    @property
    def masked(self) -> bool:
        return bool((self.kinds != FULL).any())


@dataclass(frozen=True, eq=False)
class Tiles:
    """The groups, the masks (u, block, block), and which rows have a key."""

    block: int
    shape: tuple[int, int]
    groups: tuple[Group, ...]
    masks: Tensor
    heard: Tensor


@lru_cache(maxsize=64)
def tiles(graph: Pattern, n: int, m: int, block: int) -> Tiles:
    blocks, _, kinds, masks = kinds_of(graph, n, m, block)
    groups = _groups(np.diff(blocks.ptr.numpy()), blocks.index.long().numpy(), kinds)
    heard = torch.from_numpy(graph.rows(n, m).degrees() > 0)
    return Tiles(block, blocks.shape, groups, torch.from_numpy(masks), heard)


@lru_cache(maxsize=32)
def blocks_of(graph: Pattern, n: int, m: int, block: int) -> Blocks:
    return graph.blocks(n, m, block=block)


@lru_cache(maxsize=32)
def at_least(graph: Pattern, n: int, m: int, block: int) -> int:
    """A number of blocks that there are: of scattered graphs a part of the rows says enough."""
    if written_groups(graph, n, m) is not None:  # so few keys of a block has one row at most
        most = block * -(-block // written_step(graph))
        return -(-facts(graph, n, m).pairs // most)
    if pieces_of(graph, n, m) < n:
        return blocks_of(graph, n, m, block).count
    if isinstance(graph, union):
        return max(at_least(member, n, m, block) for member in graph.members)
    rows = graph.rows(n, m)
    part = rows.between(0, n // PART)
    if (part.n // block + 1) * (m // block + 1) > FEW:
        return blocks_of_rows(part, block).count
    return int(touched(part, block).sum())


def count_of(graph: Pattern, n: int, m: int, block: int) -> int:
    """How many blocks are not empty; where they are few, all sizes 32, 64... are one look."""
    if (n // FINEST + 1) * (m // FINEST + 1) > FEW:
        return blocks_of(graph, n, m, block).count
    return int(_coarser(graph, n, m, block).sum())


@lru_cache(maxsize=64)
def _coarser(graph: Pattern, n: int, m: int, block: int) -> Bools:
    if block == FINEST:
        return touched(graph.rows(n, m), FINEST)
    fine = _coarser(graph, n, m, block // 2)
    fine = np.pad(fine, [(0, size % 2) for size in fine.shape])
    return fine[::2, ::2] | fine[1::2, ::2] | fine[::2, 1::2] | fine[1::2, 1::2]


def kinds_of(graph: Pattern, n: int, m: int, block: int) -> tuple[Blocks, Ints, Ints, np.ndarray]:
    """The non-empty blocks, the row and the kind (FULL, or its mask) of each, and the masks."""
    rows, blocks = graph.rows(n, m), blocks_of(graph, n, m, block)
    row, index = owners(blocks.ptr.numpy()), blocks.index.numpy().astype(np.int64)
    full = blocks.full.numpy()
    kinds = np.full(len(index), FULL)
    kinds[~full], masks = _masks(rows, row[~full], index[~full], block)
    return blocks, row, kinds, masks


def _masks(rows: Rows, row: Ints, column: Ints, block: int) -> tuple[Ints, np.ndarray]:
    """The kind of each partial block, and the mask of each kind."""
    height, width = -(-rows.n // block), -(-rows.m // block)
    borders = np.minimum(np.arange(height + 1) * block, rows.n)
    _, slab, parts = in_slabs(rows.pieces(), borders)
    place, table = _described(row * width + column, slab, parts, block, width)
    count = np.bincount(place, minlength=len(row))
    ptr = pointer(count)
    kinds, masks = np.zeros(len(row), np.int64), [np.zeros((0, block, block), bool)]
    for size in np.unique(count):
        which = np.flatnonzero(count == size)
        lines = table[ranges(ptr[which], count[which])].reshape(len(which), size * 7)
        alike, back = distinct_rows(lines)
        kinds[which] = back + sum(map(len, masks))
        several = alike.reshape(len(alike), -1, 7)
        masks += [_drawn(several[at : at + 256], block) for at in range(0, len(several), 256)]
    return kinds, np.concatenate(masks)


def _described(
    wanted: Ints, slab: Ints, p: Pieces, block: int, width: int
) -> tuple[Ints, np.ndarray]:
    """For every piece of every wanted block: which block, and the piece as seen from its corner."""
    height = p.bottom - p.top
    low, high = p.start // block, (p.stop + p.dstop * (height - 1) - 1) // block + 1
    which, column = np.repeat(np.arange(len(slab)), high - low), ranges(low, high - low)
    key = slab[which] * width + column
    place = np.searchsorted(wanted, key)
    found = place < len(wanted)
    found[found] = wanted[place[found]] == key[found]
    which, column, place = which[found], column[found], place[found]
    q, height = p[which], height[which]
    start, stop = q.start - column * block, q.stop - column * block
    before = (start + q.dstart * (height - 1) <= 0) & (q.step == 1)
    after = (stop >= block) & (q.step == 1)
    table = np.stack(
        [
            q.top - slab[which] * block,
            q.bottom - slab[which] * block,
            np.where(before, 0, start),
            np.where(after, block, stop),
            np.where(before, 0, q.dstart),
            np.where(after, 0, q.dstop),
            q.step,
        ],
        axis=1,
    )
    order = np.lexsort((table[:, 2], table[:, 0], place))
    return place[order], table[order]


def _drawn(kinds: np.ndarray, block: int) -> np.ndarray:
    """The masks of kinds that are as many lines each."""
    masks = np.zeros((len(kinds), block, block), bool)
    j = np.arange(block)
    for lines in kinds.transpose(1, 2, 0):
        top, bottom, start, stop, dstart, dstop, step = lines[:, :, None]
        down = j - top
        first = (start + dstart * down)[:, :, None]
        last = np.where((down >= 0) & (j < bottom), stop + dstop * down, 0)[:, :, None]
        found = (j >= first) & (j < last)
        if (step > 1).any():
            found &= (j - first) % step[:, :, None] == 0
        masks |= found
    return masks


def _groups(count: Ints, index: Ints, kinds: Ints) -> tuple[Group, ...]:
    ptr, out = pointer(count), []
    for size in np.unique(count[count > 0]):
        rows = np.flatnonzero(count == size)
        at = ranges(ptr[rows], count[rows])
        key, kind = index[at].reshape(-1, size), kinds[at].reshape(-1, size)
        _, back = np.unique(kind, axis=0, return_inverse=True)
        order = np.argsort(back.ravel(), kind="stable")
        ends = np.append(starts_of_runs(back.ravel()[order]), len(order))
        for a, b in pairwise(ends):
            chosen = order[a:b]
            out.append(_group(rows[chosen], key[chosen], kind[chosen[0]]))
    return tuple(out)


def _group(rows: Ints, keys: Ints, kinds: Ints) -> Group:
    along = (np.diff(rows) == 1).all() and (np.diff(keys, axis=0) == 1).all()
    slides = bool(along and (np.diff(keys, axis=1) == 1).all())
    arrays = (np.ascontiguousarray(part, np.int64) for part in (rows, keys, kinds))
    rows_, keys_, kinds_ = map(torch.from_numpy, arrays)
    return Group(rows_, keys_, kinds_, slides)


def blocked(x: Tensor, block: int, value: float = 0.0) -> Tensor:
    """(..., n, d) as (..., blocks, block, d)."""
    missing = -x.shape[-2] % block
    x = pad(x, (0, 0, 0, missing), value=value) if missing else x
    return x.unflatten(-2, (-1, block))

"""Blocks in groups that share a mask: how a CPU walks through a block-sparse graph."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.graphs.algebra import union
from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import residue_groups, symbolic_step
from edgewise.kernels.attention.contract import facts, pieces_of
from edgewise.layouts import Blocks
from edgewise.layouts.blocks import nonempty_blocks
from edgewise.layouts.ragged import Bools, Ints, distinct, pointer, ranges, starts_of_runs
from edgewise.layouts.tiling import FULL, Tiling, tile_rows

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


@cached
def tiles(graph: Pattern, n: int, m: int, block: int) -> Tiles:
    found = tiling_of(graph, n, m, block)
    row, index, kinds = found.listed()
    order = np.lexsort((index, row))
    groups = _groups(np.bincount(row, minlength=found.shape[0]), index[order], kinds[order])
    heard = torch.from_numpy(graph.rows(n, m).degrees() > 0)
    return Tiles(block, found.shape, groups, torch.from_numpy(found.masks), heard)


@cached
def blocks_of(graph: Pattern, n: int, m: int, block: int) -> Blocks:
    return graph.blocks(n, m, block=block)


@cached
def at_least(graph: Pattern, n: int, m: int, block: int) -> int:
    """A number of blocks that there are: of scattered graphs a part of the rows says enough."""
    if residue_groups(graph, n, m) is not None:  # so few keys of a block has one row at most
        most = block * -(-block // symbolic_step(graph))
        return -(-facts(graph, n, m).pairs // most)
    if pieces_of(graph, n, m) < n:
        return exactly(graph, n, m, block)
    if isinstance(graph, union):
        return max(at_least(member, n, m, block) for member in graph.members)
    part = graph.rows(n, m).between(0, n // PART)
    width = m // block + 1
    key = part.top[part.slab] // block * width + part.start // block
    if (part.n // block + 1) * width > FEW:
        return len(distinct(key))
    marks = np.zeros((part.n // block + 1) * width, bool)
    marks[key] = True
    return int(np.count_nonzero(marks))


def exactly(graph: Pattern, n: int, m: int, block: int) -> int:
    """How many blocks there are; of what is not scattered, their kinds will be needed too."""
    few = pieces_of(graph, n, m) < n
    return (tiling_of if few else blocks_of)(graph, n, m, block).count


def count_of(graph: Pattern, n: int, m: int, block: int) -> int:
    """How many blocks are not empty; where they are few, all sizes 32, 64... are one look."""
    if (n // FINEST + 1) * (m // FINEST + 1) > FEW:
        return blocks_of(graph, n, m, block).count
    return int(_coarser(graph, n, m, block).sum())


@cached
def _coarser(graph: Pattern, n: int, m: int, block: int) -> Bools:
    if block == FINEST:
        return nonempty_blocks(graph.rows(n, m), FINEST)
    fine = _coarser(graph, n, m, block // 2)
    fine = np.pad(fine, [(0, size % 2) for size in fine.shape])
    return fine[::2, ::2] | fine[1::2, ::2] | fine[::2, 1::2] | fine[1::2, 1::2]


@cached
def tiling_of(graph: Pattern, n: int, m: int, block: int) -> Tiling:
    return tile_rows(graph.rows(n, m), block)


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

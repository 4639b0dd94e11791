"""How many blocks of a graph are not empty: what block-sparse kernels cost, found cheaply."""

import numpy as np

from edgewise.graphs.algebra import union
from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import residue_groups, symbolic_step
from edgewise.kernels.attention.contract import facts, pieces_of
from edgewise.layouts import Blocks
from edgewise.layouts.bitmap import BitTiling
from edgewise.layouts.blocks import nonempty_blocks
from edgewise.layouts.boxes import BoxTiling
from edgewise.layouts.ragged import Bools, distinct
from edgewise.layouts.tiling import Tiling, tile_rows

FINEST = 32  # the smallest block
MOST = 1 << 20  # blocks that are marked in a table of all
PART = 4


@cached
def blocks_of(graph: Pattern, n: int, m: int, block: int) -> Blocks:
    return graph.blocks(n, m, block=block)


@cached
def at_least(graph: Pattern, n: int, m: int, block: int) -> int:
    """A number of blocks that there are: of scattered graphs a part of the rows says enough."""
    if residue_groups(graph, n, m) is not None:  # so a row has at most this many keys of a block
        most = block * -(-block // symbolic_step(graph))
        return -(-facts(graph, n, m).pairs // most)
    if pieces_of(graph, n, m) < n:
        return exactly(graph, n, m, block)
    if isinstance(graph, union):
        return max(at_least(member, n, m, block) for member in graph.members)
    part = graph.rows(n, m).between(0, n // PART)
    width = m // block + 1
    key = part.top[part.slab] // block * width + part.start // block
    if (part.n // block + 1) * width > MOST:
        return len(distinct(key))
    marks = np.zeros((part.n // block + 1) * width, bool)
    marks[key] = True
    return int(np.count_nonzero(marks))


def exactly(graph: Pattern, n: int, m: int, block: int) -> int:
    """How many blocks there are; of what is not scattered, their kinds will be needed too."""
    coarse = pieces_of(graph, n, m) < n
    return (tiling_of if coarse else blocks_of)(graph, n, m, block).count


def count_of(graph: Pattern, n: int, m: int, block: int) -> int:
    """How many blocks are not empty; up to `MOST`, all sizes are found at once."""
    if (n // FINEST + 1) * (m // FINEST + 1) > MOST:
        return exactly(graph, n, m, block)
    return int(_coarser(graph, n, m, block).sum())


def partial_of(graph: Pattern, n: int, m: int, block: int) -> int:
    """How many blocks have some pairs, and not all; of what is not scattered, full blocks that
    are put together from several runs count too."""
    if pieces_of(graph, n, m) < n:
        tiling = tiling_of(graph, n, m, block)
        if isinstance(tiling, Tiling):
            return len(tiling.keys)
    return int((~blocks_of(graph, n, m, block).full).sum())


@cached
def _coarser(graph: Pattern, n: int, m: int, block: int) -> Bools:
    if graph.bitmap is not None:
        found: Bools = graph.bitmap.pairs_in(block) > 0
        return found
    if block == FINEST:
        return nonempty_blocks(graph.rows(n, m), FINEST)
    fine = _coarser(graph, n, m, block // 2)
    fine = np.pad(fine, [(0, size % 2) for size in fine.shape])
    return fine[::2, ::2] | fine[1::2, ::2] | fine[::2, 1::2] | fine[1::2, 1::2]


@cached
def tiling_of(graph: Pattern, n: int, m: int, block: int) -> Tiling | BitTiling | BoxTiling:
    if graph.bitmap is not None:
        return graph.bitmap.tiling(block)
    return tile_rows(graph.rows(n, m), block)

"""The heads of an attention that have a key to hear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs import causal, full, window
from edgewise.graphs.algebra import difference, intersection, union
from edgewise.graphs.pattern import Pattern
from edgewise.ground.index import Grid, Index, Keys, index_of
from edgewise.plan.nodes import Attention
from edgewise.run.attention import CAUSAL, head_names
from edgewise.run.extents import Extents, Refused


@dataclass(frozen=True, eq=False)
class Heard:
    """The heads; where they are not all, their queries, or in ragged samples their rows among the
    padded ones; and the keys of each sample where a query could hear padding."""

    index: Index
    queries: Tensor | None = None
    rows: Tensor | None = None
    lengths: Tensor | None = None


def heard_in_all(node: Attention, extents: Extents, pattern: Any) -> Heard:
    names, axes = head_names(node), extents.axes
    grid = Grid(tuple(axes[name] for name in names))
    n, m = axes[node.query], axes[node.key]
    if pattern is None:
        if m == 0:
            raise Refused("there are no keys")
        return Heard(grid)
    if not n or not m:
        raise Refused("there are no pairs")
    hears = torch.as_tensor(pattern.degrees(n, m)) > 0
    if bool(hears.all()):
        return Heard(grid)
    queries = hears.nonzero()[:, 0]
    at = names.index(node.query)
    fewer = Grid((*grid.sizes[:at], len(queries), *grid.sizes[at + 1 :]))
    columns = [fewer.column(p) for p in range(grid.arity)]
    columns[at] = queries[columns[at]]
    return Heard(Keys(torch.stack(columns, 1)), queries)


def heard_in_samples(node: Attention, extents: Extents, pattern: Any) -> Heard:
    names, axes, alive = head_names(node), extents.axes, extents.alive
    n, m = axes[node.query], axes[node.key]
    queries, keys = extents.each[node.query], extents.each[node.key]
    if node.pairs.pattern is not None:
        _refuse_other(node.pairs.pattern.pattern, queries[alive], keys[alive], n, m)
    first = torch.zeros(n, dtype=torch.int64) if pattern is None else _first_keys(pattern, n, m)
    grid = Grid((len(alive), *(axes[name] for name in names)))
    sample, place = grid.column(0), grid.column(1 + names.index(node.query))
    hears = (place < queries[sample]) & (first[place] < keys[sample])
    rows = hears.nonzero()[:, 0]
    if not len(rows):
        raise Refused("there are no pairs in any sample")
    index = index_of(torch.stack([grid.column(p)[rows] for p in range(grid.arity)], 1))
    short = keys < (queries if pattern == CAUSAL else m)
    # no sample is without a key: a softmax over nothing has no gradient
    lengths = torch.where(alive, keys, m) if bool(short[alive].any()) else None
    return Heard(index, rows=None if len(rows) == grid.rows else rows, lengths=lengths)


def _first_keys(pattern: Pattern, n: int, m: int) -> Tensor:
    """The first key that each query hears; m where there is none."""
    rows = pattern.rows(n, m).expand()
    first = np.full(n, m, np.int64)
    np.minimum.at(first, rows.slab, rows.start)
    return torch.from_numpy(first)


def _refuse_other(pattern: Pattern, queries: Tensor, keys: Tensor, n: int, m: int) -> None:
    """A pattern of padded samples is that of each, cut off; some depend on where a sample ends."""
    if _is_cut(pattern):
        return
    pairs = torch.unique(torch.stack([queries, keys]), dim=1).T.tolist()
    longest = pattern.edges(n, m)
    for length, width in pairs:
        inside = (longest[0] < length) & (longest[1] < width)
        if not torch.equal(pattern.edges(length, width), longest[:, inside]):
            raise Refused(f"{pattern!r} is another in shorter samples")


def _is_cut(pattern: Pattern) -> bool:
    """Whether whether a pair is in the pattern never depends on the lengths."""
    match pattern:
        case union() | intersection():
            return all(map(_is_cut, pattern.members))
        case difference():
            return _is_cut(pattern.left) and _is_cut(pattern.right)
    return isinstance(pattern, causal | full | window)

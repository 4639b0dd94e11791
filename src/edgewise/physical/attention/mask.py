"""The mask of an attention node on data: its pattern, the order of tokens, and which attend.

The samples of a ragged batch are one sequence, packed: the sample is one more condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs import full, per_head
from edgewise.graphs.pattern import Pattern
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Grid, Index, Keys, index_of, locate, pack, same_keys
from edgewise.ground.joins.body import SAMPLE
from edgewise.ground.masks.cells import TooManyCells
from edgewise.ground.masks.classes import TooManyClasses
from edgewise.ground.masks.lower import LoweredMask, lower_mask
from edgewise.ground.masks.pattern import pattern_of_rows
from edgewise.ground.masks.sides import Pairs
from edgewise.ground.masks.tokens import TokenAxis
from edgewise.language import nodes
from edgewise.language.statements import substitute
from edgewise.language.terms import variables
from edgewise.physical.attention.extents import Attending, Extents, Refused
from edgewise.physical.attention.step import SortedTokens, head_names
from edgewise.plan.mask import Conjunction, Mask, conditions_in, map_conditions
from edgewise.plan.nodes import Attention
from edgewise.scores.nodes import I, J, by_distance, replaced

MOST_GRAPHS = 64  # of heads, each with a mask of its own
MOST_LINES = 12  # of an explanation


@dataclass(frozen=True, eq=False)
class AttendedMask:
    """Pairs on data: a pattern, which rule heads attend, and the lengths of the axes; of a mask the
    order of its tokens, how it was chosen, and whether samples are `packed`."""

    pattern: Any
    attending: Attending
    axes: dict[str, int]
    order: SortedTokens | None = None
    choice: tuple[str, ...] = ()
    packed: bool = False


def mask_on(node: Attention, grounder: Grounder, extents: Extents) -> Mask | None:
    """The conditions that are more than a pattern and pairs listed for all samples, if any."""
    pairs = node.pairs
    heads = [atom for atom in pairs.heads if SAMPLE in atom.terms]
    if pairs.mask is not None:
        return Conjunction(tuple(heads), (pairs.mask,)) if heads else pairs.mask
    sparse = [atom for atom in pairs.rows if not _holds_everywhere(atom, grounder, extents)]
    sparse += heads
    if not sparse and not any(SAMPLE in atom.terms for atom in pairs.listed):
        return None
    return Conjunction((*pairs.listed, *sparse))


def _holds_everywhere(atom: nodes.Atom, grounder: Grounder, extents: Extents) -> bool:
    """Whether a condition on queries, or keys, holds for all of them."""
    (name,) = (v.name for v in variables(atom.terms) if v != SAMPLE)
    index = grounder.index(atom.relation, len(atom.terms))
    if SAMPLE in atom.terms:
        return same_keys(Keys(index.keys), _tokens(name, extents).index)
    return isinstance(index, Grid) and index.sizes[0] >= extents.axes[name]


def attended_mask(
    node: Attention,
    mask: Mask,
    grounder: Grounder,
    extents: Extents,
    pattern: Pattern | None,
    *,
    plain: bool,
) -> AttendedMask:
    """The pairs of a mask and a pattern, of each head or of all."""
    queries, keys = (_tokens(name, extents) for name in (node.query, node.key))
    if not queries.count or not keys.count:
        raise Refused("there are no pairs")
    packed = extents.samples is not None
    if packed and not plain and not _same_distances(node, queries, keys):
        raise Refused("the score of a ragged batch with a mask reads positions")
    if pattern is not None:
        terms = (nodes.Variable(node.query), nodes.Variable(node.key))
        atom = nodes.PatternAtom(pattern, (SAMPLE, *terms) if packed else terms)
        inner = mask if isinstance(mask, Conjunction) else Conjunction((), (mask,))
        mask = Conjunction((atom, *inner.conditions), inner.parts)
    pairs = Pairs(node.query, node.key, queries, keys, grounder)
    names = {v.name for c in conditions_in(mask) for v in variables(c.terms)} & set(node.shared)
    if names and len(node.shared) > 1 and not plain:
        raise Refused("heads of several axes have masks of their own")
    sort = plain and not (names and node.score.reads)
    found = _lowered(node, mask, pairs, extents, sorted(names), sort)
    patterns = [pattern_of_rows(one.rows) for one in found]
    graph = patterns[0] if len(found) == 1 else per_head(*patterns)
    several = [f"{len(found)} heads with masks of their own"] if len(found) > 1 else []
    lines = dict.fromkeys(line for one in found for line in one.lines)
    return AttendedMask(
        None if isinstance(graph, full) else graph,
        _attending(node, extents, queries, _attends(found)),
        extents.axes | {node.query: queries.count, node.key: keys.count},
        _order(found, queries.count, keys.count),
        (*several, *list(lines)[:MOST_LINES]),
        packed,
    )


def _same_distances(node: Attention, queries: TokenAxis, keys: TokenAxis) -> bool:
    """Whether I − J is the same among packed tokens, and the score reads no more than that."""
    tree = node.score.tree
    back = replaced(tree, {I: J, J: I})
    return queries.code == keys.code and (by_distance(tree) or by_distance(back))


def _tokens(name: str, extents: Extents) -> TokenAxis:
    if extents.samples is None:
        return TokenAxis.dense(extents.axes[name])
    return TokenAxis.ragged(extents.each[name].numpy())


def _lowered(
    node: Attention, mask: Mask, pairs: Pairs, extents: Extents, names: list[str], sort: bool
) -> list[LoweredMask]:
    """One mask, or one for each head in the order of the node's heads."""
    known: dict[tuple[nodes.Constant, ...], LoweredMask] = {}
    found = []
    shared = node.shared if names else ()
    sizes = [range(extents.axes[name]) for name in shared]
    if np.prod([len(size) for size in sizes]) > MOST_GRAPHS:
        raise Refused(f"each of {MOST_GRAPHS}+ heads has a mask of its own")
    for values in product(*sizes):
        own = tuple(
            pairs.data.constants.constant(int(extents.key(name, torch.tensor(v))))
            for name, v in zip(shared, values, strict=True)
            if name in names
        )
        if own not in known:
            terms: dict[str, nodes.Term] = dict(
                zip(sorted(names, key=shared.index), own, strict=True)
            )
            inner = map_conditions(mask, partial(substitute, terms=terms)) if terms else mask
            known[own] = _one(inner, pairs, sort)
        found.append(known[own])
    return found


def _one(mask: Mask, pairs: Pairs, sort: bool) -> LoweredMask:
    cache = pairs.data.masks
    key = (mask, pairs.query, pairs.key, pairs.queries.code, pairs.keys.code, sort)
    if key not in cache:
        try:
            cache[key] = lower_mask(mask, pairs, sort=sort)
        except (TooManyCells, TooManyClasses) as reason:
            raise Refused(f"its mask has {reason}") from None
    found: LoweredMask = cache[key]
    return found


def _order(found: Sequence[LoweredMask], n: int, m: int) -> SortedTokens | None:
    if all(one.order is None for one in found):
        return None
    each = [
        (np.arange(n), np.arange(m)) if one.order is None else (one.order.query, one.order.key)
        for one in found
    ]
    query, key = (torch.from_numpy(np.stack(side)) for side in zip(*each, strict=True))
    back = torch.empty_like(query).scatter_(1, query, torch.arange(n).expand(query.shape))
    if len(found) == 1:
        return SortedTokens(query[0], key[0], back[0])
    return SortedTokens(query, key, back)


def _attends(found: Sequence[LoweredMask]) -> Tensor:
    """(heads, queries): which attend to a key; heads are 1 where all are alike."""
    each = []
    for one in found:
        some = one.rows.degrees() > 0
        if one.order is not None:
            back = np.empty_like(some)
            back[one.order.query] = some
            some = back
        each.append(torch.from_numpy(some))
    return torch.stack(each)


def _attending(node: Attention, extents: Extents, queries: TokenAxis, attends: Tensor) -> Attending:
    """The rule heads that attend to a key; the axis of queries has all tokens of a ragged batch."""
    names, ragged = head_names(node), extents.samples is not None
    sizes = tuple(queries.count if name == node.query else extents.axes[name] for name in names)
    grid = Grid(sizes)
    if bool(attends.all()) and not ragged:
        return Attending(extents.keyed(names, grid))
    at = names.index(node.query)
    if not bool(attends.any()):
        raise Refused("there are no pairs")
    token = grid.column(at)
    if len(attends) == 1 and not ragged:
        some = attends[0].nonzero()[:, 0]
        fewer = Grid((*sizes[:at], len(some), *sizes[at + 1 :]))
        columns = [fewer.column(p) for p in range(grid.arity)]
        columns[at] = some[columns[at]]
        return Attending(extents.keyed(names, Keys(torch.stack(columns, 1))), some)
    head = torch.zeros_like(token)
    if len(attends) > 1:
        for name in node.shared:
            head = head * extents.axes[name] + grid.column(names.index(name))
    columns = [grid.column(p) for p in range(grid.arity)]
    columns[at] = torch.from_numpy(queries.position)[token]
    if queries.sample is not None:
        columns.insert(0, torch.from_numpy(queries.sample)[token])
    keys = torch.stack(columns, 1)
    rows = attends[head, token].nonzero()[:, 0]
    rows = rows[pack(list(keys[rows].unbind(1)))[0].argsort()]
    identity = len(rows) == grid.rows and bool((rows == torch.arange(grid.rows)).all())
    return Attending(extents.keyed(names, index_of(keys[rows])), rows=None if identity else rows)


def packed_grid(
    extents: Extents, node: Attention, names: tuple[str, ...], index: Index
) -> tuple[tuple[str, ...], tuple[int, ...], int | None, Tensor | None]:
    """As `Extents.padded_grid`, with all tokens of a ragged batch in one sequence."""
    own = names[1:] if names[:1] == (SAMPLE.name,) else names
    tokens = {name: _tokens(name, extents) for name in (node.query, node.key) if name in own}
    if len(tokens) > 1 or (own != names and not tokens):
        raise Refused("the score reads a number of each sample")
    sizes = tuple(tokens[n].count if n in tokens else extents.axes[n] for n in own)
    if not tokens:
        return own, sizes, None, None
    ((name, found),) = tokens.items()
    grid = Grid(sizes)
    token = grid.column(own.index(name))
    columns = [grid.column(p) for p in range(grid.arity)]
    columns[own.index(name)] = torch.from_numpy(found.position)[token]
    if own != names:
        assert found.sample is not None
        columns.insert(0, torch.from_numpy(found.sample)[token])
    return own, sizes, 1, locate(index, columns)

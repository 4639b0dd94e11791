"""What a score reads by distance I − J: a table of each, and the pairs that have one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.checks.evaluation import OutOfDomain
from edgewise.graphs import Pattern, causal, window
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Grid, Keys, locate
from edgewise.ground.joins.body import Body
from edgewise.language import nodes
from edgewise.physical.attention.extents import Extents, Refused
from edgewise.physical.attention.sides import Axes, Side
from edgewise.physical.lowering_state import State
from edgewise.physical.rule import PRODUCT, SUM, RuleStep
from edgewise.plan.nodes import Attention
from edgewise.plan.score import names_in

DISTANCE = "@distance"
PAIRS = "@pairs"  # a pair for each distance that occurs


@dataclass(frozen=True, eq=False)
class Distances:
    """The distances I − J from -(m - 1) to n - 1; `there` are those that some pair has."""

    n: int
    m: int
    there: Tensor

    @property
    def pairs(self) -> Tensor:
        """A pair (i, j) of every distance."""
        distance = torch.arange(1 - self.m, self.n)
        i = distance.clamp(min=0)
        return torch.stack([i, i - distance], 1)


def distances(pattern: Any, n: int, m: int) -> Distances:
    """Those that occur in a pattern, and perhaps some between them."""
    there = torch.ones(n + m - 1, dtype=torch.bool)
    if pattern is None:
        return Distances(n, m, there)
    rows = pattern.rows(n, m).expand()
    some = rows.stop > rows.start
    i, start, stop = rows.slab[some], rows.start[some], rows.stop[some]
    ends = np.zeros(n + m, np.int64)  # +1 where a row begins to cover distances, -1 behind
    np.add.at(ends, np.maximum(i - stop + m, 0), 1)
    np.add.at(ends, i - start + m, -1)
    return Distances(n, m, torch.from_numpy(ends.cumsum()[:-1] > 0))


def tables(
    leaves: Sequence[nodes.Expression],
    node: Attention,
    grounder: Grounder,
    extents: Extents,
    pattern: Any,
) -> tuple[dict[nodes.Expression, Side], Any]:
    """What the score reads for each distance, and the pattern of the pairs that have it."""
    axes = extents.axes
    n, m = axes[node.query], axes[node.key]
    if not n or not m:
        raise Refused("there are no pairs")
    found = distances(pattern, n, m)
    keys = Keys(found.pairs[found.there])
    known = replace(grounder, relations=grounder.relations | {PAIRS: keys}, joins={})
    sides, held = {}, found.there
    for leaf in leaves:
        names = tuple(sorted(names_in(leaf) & set(node.shared)))
        side, has = _side(leaf, names, _grounded(leaf, names, node, known), extents, found)
        sides[leaf] = side
        held = held & has
    return sides, _restricted(pattern, held, found)


def _grounded(
    leaf: nodes.Expression, names: tuple[str, ...], node: Attention, grounder: Grounder
) -> GroundRule:
    terms = tuple(nodes.Variable(n) for n in (*names, node.query, node.key))
    pairs = nodes.Atom(PAIRS, terms[-2:], hidden=True)
    rule = nodes.Rule(nodes.Atom("@side", terms), (leaf, pairs, *node.score.where), (PRODUCT,))
    try:
        ground = grounder.ground(Body(rule, grounder.domains))
    except OutOfDomain:  # perhaps at a distance that no pair has: the rules themselves know
        raise Refused(f"`{leaf!r}` has no value at some distances") from None
    if not ground.segments.trivial:
        raise Refused(f"`{leaf!r}` has several values at one distance")
    return ground


def _side(
    leaf: nodes.Expression,
    names: tuple[str, ...],
    ground: GroundRule,
    extents: Extents,
    found: Distances,
) -> tuple[Side, Tensor]:
    """The leaf at every distance, and the distances at which it has a value."""
    sizes = tuple(extents.axes[n] for n in names)
    count = len(found.there)
    grid = Grid((*sizes, count))
    at = found.pairs[grid.column(len(sizes))]
    heads = [extents.key(name, grid.column(p)) for p, name in enumerate(names)]
    columns = [*heads, at[:, 0], at[:, 1]]
    rows = locate(ground.heads, columns)
    has = (rows >= 0).view(-1, count)
    if len(has) > 1 and not bool((has == has[0]).all()):
        raise Refused(f"`{leaf!r}` has values at different distances in different heads")
    rows = torch.where(rows < 0, ground.heads.rows, rows)
    return Side(RuleStep(ground, SUM), (*names, DISTANCE), (*sizes, count), None, rows), has[0]


def _restricted(pattern: Any, held: Tensor, found: Distances) -> Any:
    """The pairs whose distance has values: those between two distances."""
    if torch.equal(held, found.there):
        return pattern
    some = held.nonzero()[:, 0]
    if not len(some):
        raise Refused("no distance has a value")
    low, high = int(some[0]), int(some[-1])
    if not bool((held | ~found.there)[low : high + 1].all()):
        raise Refused("the distances that have a value are not an interval")
    occur = found.there.nonzero()[:, 0]
    parts = [] if pattern is None else [pattern]
    parts += [_at_least(low - found.m + 1)] if low > int(occur[0]) else []
    parts += [_at_least(found.m - 1 - high).T] if high < int(occur[-1]) else []
    return reduce(and_, parts)


def _at_least(distance: int) -> Pattern:
    """{(i, j) : i - j >= distance}."""
    if distance > 0:
        return causal() - window(distance - 1)
    return causal() | window(-distance) if distance else causal()


def read_table(side: Side, node: Attention, axes: Axes) -> Callable[[State], Tensor]:
    def table(state: State) -> Tensor:
        sizes = axes | {DISTANCE: side.sizes[-1]}
        data = side(state, (*node.shared, DISTANCE), sizes)
        return data if node.shared else data.unsqueeze(1)

    return table

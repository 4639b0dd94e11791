"""A cyclic body joined from two sides: of a 4-cycle, the paths X → Y → Z and Z → W → X.

Both are listed for some keys of a variable that they share, the lead, and joined on all that they
share; then come the next keys. That reads each path of two edges twice, where a join atom by atom
would look for W at each of them, and its memory is that of the paths of some keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.index import TABLE, Keys, pack
from edgewise.ground.joins.body import LOOK_UP, Body, IndexOf, JoinSide, ordered, side_of
from edgewise.ground.joins.groups import hashed
from edgewise.ground.joins.join import Bindings, Budget, expansion
from edgewise.ground.joins.joiner import CHUNK, Extend, Joiner, together
from edgewise.language import nodes

LEAST_HALVED = 1 << 14  # matches; below, any order is quick
MOST_ATOMS = 8  # of which all splits are tried
GAIN = 2  # times less work, from which on two sides are worth it
SLOTS = 8  # of a filter for each row: one of as many others passes
SHARE = 1 / 16  # of the work, after which what is found tells how much there will be


@dataclass(frozen=True)
class Halves:
    """Two sides of a body: the order of the literals of each, and of those after both."""

    lead: str
    sides: tuple[JoinSide, JoinSide]
    shared: tuple[str, ...]
    rest: tuple[int, ...]


def halves_of(body: Body, index: IndexOf, cost: float) -> Halves | None:
    """The cheapest two sides of a body, where they are much cheaper than `cost`."""
    atoms = list(body.positive)
    if cost < GAIN * LOOK_UP * LEAST_HALVED:  # no sides would be both large and cheaper
        return None
    if not 4 <= len(atoms) <= MOST_ATOMS or not all(_is_listed(body, at, index) for at in atoms):
        return None
    found = [
        halves
        for size in range(1, len(atoms) - 2)
        for others in combinations(atoms[1:], size)
        for halves in _split(body, (atoms[0], *others), index)
    ]
    best = min(found, key=_cost, default=None)
    if best is None or GAIN * _cost(best) > cost:
        return None
    return best if sum(side.rows for side in best.sides) >= LEAST_HALVED else None


def _is_listed(body: Body, at: int, index: IndexOf) -> bool:
    return isinstance(index(at), Keys) and len(set(body.names[at])) == len(body.names[at])


def _cost(halves: Halves) -> float:
    return sum(side.cost + LOOK_UP * side.rows for side in halves.sides)


def _split(body: Body, atoms: tuple[int, ...], index: IndexOf) -> Iterator[Halves]:
    """The sides that some atoms and all others are, for each variable that may lead."""
    others = tuple(at for at in body.positive if at not in atoms)
    names = [{name for at in side for name in body.names[at]} for side in (atoms, others)]
    shared = names[0] & names[1]
    visible = set(body.visible)
    if len(shared) < 2 or any(not visible & (mine - shared) for mine in names):
        return
    literals = [
        [at for at in range(len(body.literals)) if at in side or _tests(body, at, mine)]
        for side, mine in zip((atoms, others), names, strict=True)
    ]
    after = [at for at in range(len(body.literals)) if at not in (*literals[0], *literals[1])]
    rest = ordered(body, after, names[0] | names[1], index)
    for lead in sorted(shared, key=lambda name: (name not in body.visible[:1], name)):
        sides = [side_of(body, some, lead, index) for some in literals]
        if sides[0] is not None and sides[1] is not None:
            yield Halves(lead, (sides[0], sides[1]), tuple(sorted(shared)), rest)


def _tests(body: Body, at: int, names: set[str]) -> bool:
    """Whether a literal that binds nothing can be tested on one side."""
    return at not in body.positive and bool(body.names[at]) and set(body.names[at]) <= names


@dataclass(frozen=True)
class TwoSidedJoin:
    """Two sides of a body as joins; `joiner(order, visible, known)` makes one."""

    body: Body
    halves: Halves
    joiner: Callable[[Sequence[int], tuple[str, ...], tuple[str, ...]], Joiner]
    extend: Extend
    budget: Budget

    def run(self) -> Bindings:
        return together(self._chunks(), self.budget)

    def _chunks(self) -> Iterator[Bindings]:
        halves, budget = self.halves, self.budget
        joiners = [self._side(side) for side in halves.sides]
        keys, work = self._leads(joiners)
        total, done, count = float(work.sum()), 0.0, 0
        for low, high in _cuts(work):
            some = Bindings(high - low, {halves.lead: keys[low:high]})
            left, right = (together(joiner.after(some), budget) for joiner in joiners)
            found = joined(left, right, halves.shared, budget)
            for at in halves.rest:
                found = self.extend(at, found)
            count, done = count + found.count, done + float(work[low:high].sum())
            if total and done >= SHARE * total:
                budget.check(int(count * (total / done)) // 4)
            yield found.only(self.body.visible)

    def _side(self, side: JoinSide) -> Joiner:
        """A side, with the variables that groundings, the other side or later literals need."""
        needed = {*self.body.visible, *self.halves.shared}
        needed.update(name for at in self.halves.rest for name in self.body.names[at])
        names = {name for at in side.order for name in self.body.names[at]} & needed
        visible = tuple(name for name in self.body.visible if name in names)
        visible += tuple(sorted(names - set(visible)))
        return self.joiner(side.order, visible, (self.halves.lead,))

    def _leads(self, joiners: Sequence[Joiner]) -> tuple[Tensor, Tensor]:
        """The keys of the lead that both sides have, and about how many rows each leads to."""
        lead = nodes.Variable(self.halves.lead)
        known = joiners[0].keys
        atoms = [
            next(at for at in side.order if at in known and lead in known[at][0])
            for side in self.halves.sides
        ]
        terms, index = known[atoms[0]]
        column = index.column(terms.index(lead))
        if not len(column):
            return column, column
        low, high = map(int, column.aminmax())
        dense = high - low < TABLE * len(column)
        keys = torch.arange(low, high + 1) if dense else column.unique()
        some = Bindings(len(keys), {lead.name: keys})
        counts = [joiner.matches(at, some)[1] for joiner, at in zip(joiners, atoms, strict=True)]
        both = ((counts[0] > 0) & (counts[1] > 0)).nonzero()[:, 0]
        work = torch.zeros(len(both))
        for side, matches in zip(self.halves.sides, counts, strict=True):
            each = max(side.rows / max(int(matches.sum()), 1), 1.0)
            work += matches[both] * each
        return keys[both], work


def _cuts(work: Tensor) -> list[tuple[int, int]]:
    """Slices of about CHUNK each; one without rows where there is nothing to do."""
    if not len(work):
        return [(0, 0)]
    number = (work.cumsum(0, dtype=torch.float64) / CHUNK).long()
    ends = [int(end) + 1 for end in (number[1:] > number[:-1]).nonzero()[:, 0]]
    return list(zip([0, *ends], [*ends, len(work)], strict=True))


def joined(left: Bindings, right: Bindings, shared: Sequence[str], budget: Budget) -> Bindings:
    """Groundings of both sides with the same keys of what they share, in the order of left."""
    codes = pack(*([side.columns[name] for name in shared] for side in (left, right)))
    bits = (SLOTS * max(left.count, right.count, 1)).bit_length()
    left, mine = _likely(left, codes[0], codes[1], bits)
    right, others = _likely(right, codes[1], mine, bits)
    ordered, order = others.sort(stable=True)
    first = torch.searchsorted(ordered, mine)
    counts = torch.searchsorted(ordered, mine, right=True) - first
    total = int(counts.sum())
    budget.check(total)
    rows, places = expansion(first, counts, total)
    found, added = left.take(rows), right.take(order.index_select(0, places))
    return Bindings(total, added.columns | found.columns, added.rows | found.rows)


def _likely(side: Bindings, mine: Tensor, others: Tensor, bits: int) -> tuple[Bindings, Tensor]:
    """The rows whose codes may be among others, by a table of hashes."""
    table = np.zeros(1 << bits, dtype=bool)
    table[hashed(others, bits)] = True
    rows = torch.from_numpy(np.flatnonzero(np.take(table, hashed(mine, bits))))
    return side.take(rows), mine.index_select(0, rows)

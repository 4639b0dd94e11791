"""A body joined in steps: each binds variables from the shortest list of matches (a generic join).

Of a triangle `e(X, Y), e(Y, Z), e(Z, X)`, the second step reads for each edge (X, Y) the shorter of
the lists of Z after Y and of Z before X, and looks up the other: never more than edges^1.5 in all.
A step runs on chunks, whose groundings go through all later steps, so that memory is linear in what
comes out. A variable that nothing needs any more is dropped, and groundings that differ only in it
become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from edgewise.ground.body import Body, terms_of
from edgewise.ground.groups import Groups, Lookups
from edgewise.ground.index import Index, Keys
from edgewise.ground.join import Bindings, Budget, column_of, distinct, expansion
from edgewise.ground.key_ranges import KeyRange
from edgewise.language import nodes

CHUNK = 1 << 18  # matches that are read at a time: their columns stay in cache
MANY_CHUNKS = 2  # from which on a sample is joined first, to estimate what comes out
SAMPLED = 4096  # matches
SURE = 256  # groundings of a sample from which an estimate is right by a factor of two
LONG = 16  # matches of a grounding, from which on a search for a range among them is quicker
Extend = Callable[[int, Bindings], Bindings]  # groundings under which one more literal holds
Terms = tuple[nodes.Term | int, ...]
Listed = tuple[list[int], list[int], KeyRange | None]  # of a step: lists, then, range


@dataclass(frozen=True)
class JoinStep:
    """Literals that are joined together.

    Each of `lists` is an atom that could bind the same variable: of each grounding, the one with
    the fewest matches does, and the others are looked up. `then` are joined one after the other.
    """

    lists: tuple[int, ...]
    then: tuple[int, ...]
    live: tuple[str, ...]  # the variables that later steps or the groundings need, as keys sort
    drops: bool  # a variable is not live any more
    range: KeyRange | None = None  # of a variable that the lists bind


def steps_of(
    body: Body, order: Sequence[int], index: Callable[[int], Index | None]
) -> list[JoinStep]:
    """The steps of an order of literals; `index` gives the keys of those that are atoms."""
    found: list[Listed] = [([], [], None)]
    known: set[str] = set()
    before, fresh = known, known  # the variables before the last step, and those that it binds
    for at in order:
        terms, names = terms_of(body.literals[at]), body.names[at]
        free = set(names) - known
        listed = len(set(names)) == len(names) and isinstance(index(at), Keys)
        ranged = body.range_of(at, known) if listed and free else None
        if not listed:
            found[-1][1].append(at)
        elif free and (len(free) < len(terms) or ranged is not None):
            found.append(([at], [], ranged))
            before, fresh = set(known), free
        elif len(fresh) == 1 < len(terms) and set(names) - before == fresh:
            found[-1][0].append(at)
        else:
            found[-1][1].append(at)
        known |= free
    return _with_live(body, found)


def _with_live(body: Body, found: Sequence[Listed]) -> list[JoinStep]:
    live, bound = set(body.visible), set[str]()
    after = []
    for lists, then, _ in reversed(found):
        after.append(set(live))
        live |= _names(body, lists + then)
    steps = []
    for (lists, then, ranged), live in zip(found, reversed(after), strict=True):
        bound |= _names(body, lists + then)
        drops = not bound <= live
        bound &= live
        names = [name for name in body.visible if name in bound]
        names += sorted(bound - set(names))
        steps.append(JoinStep(tuple(lists), tuple(then), tuple(names), drops, ranged))
    return steps


def _names(body: Body, places: Sequence[int]) -> set[str]:
    return {name for at in places for name in body.names[at]}


@dataclass(frozen=True)
class Joiner:
    """What the steps of one body read: `keys[at]` are the terms and keys of atoms in lists."""

    steps: Sequence[JoinStep]
    keys: Mapping[int, tuple[Terms, Keys]]
    read: frozenset[int]  # atoms whose rows groundings need
    extend: Extend
    budget: Budget
    lookups: Lookups

    def run(self) -> Bindings:
        return together(self._after(Bindings(), 0), self.budget)

    def _after(self, bindings: Bindings, number: int) -> Iterator[Bindings]:
        """The groundings after all steps from this one on, in chunks."""
        if number == len(self.steps):
            yield bindings
            return
        step = self.steps[number]
        chunks = map(partial(self._rest, step), self._listed(number, bindings))
        if step.drops and number + 1 < len(self.steps):
            merged = distinct(together(chunks, self.budget), step.live)
            yield from self._after(merged, number + 1)
            return
        for chunk in chunks:
            yield from self._after(chunk, number + 1)

    def _rest(self, step: JoinStep, bindings: Bindings) -> Bindings:
        for at in step.then:
            bindings = self.extend(at, bindings)
        if not step.drops:
            return bindings
        return distinct(bindings.only(step.live), step.live)

    def _listed(self, number: int, bindings: Bindings) -> Iterator[Bindings]:
        """Groundings with the variable that the lists of a step bind, in chunks."""
        step = self.steps[number]
        if not step.lists:
            yield bindings
            return
        found = [self._matches(at, bindings, step.range) for at in step.lists]
        if len(found) == 1:
            yield from self._read(number, step.lists[0], bindings, *found[0])
            return
        shortest = _shortest([counts for _, counts, _ in found])
        for which, (first, counts, groups) in enumerate(found):
            mine = (shortest == which).nonzero()[:, 0]
            if len(mine) or not which:
                part = bindings.take(mine)
                at = step.lists[which]
                yield from self._read(number, at, part, first[mine], counts[mine], groups)

    def _matches(
        self, at: int, bindings: Bindings, ranged: KeyRange | None
    ) -> tuple[Tensor, Tensor, Groups]:
        terms, keys = self.keys[at]
        known = [p for p, term in enumerate(terms) if not _is_free(term, bindings)]
        columns = [column_of(terms[p], bindings) for p in known]
        if known:
            found = self.lookups.matches(keys, tuple(known), columns)
            if ranged is None or int(found[1].sum()) < LONG * bindings.count:
                return found
        assert ranged is not None
        place = next(p for p, t in enumerate(terms) if t == nodes.Variable(ranged.variable))
        ends = ranged.ends(bindings.columns, bindings.count)
        fewer = self.lookups.ranges(keys, (*known, place), columns, *ends)
        return found if fewer is None else fewer

    def _read(
        self,
        number: int,
        at: int,
        bindings: Bindings,
        first: Tensor,
        counts: Tensor,
        groups: Groups,
    ) -> Iterator[Bindings]:
        """The matches of one list, in chunks, where the other lists have them too."""
        step = self.steps[number]
        others = [other for other in step.lists if other != at]
        total = int(counts.sum())
        self.budget.at = at
        last = number + 1 == len(self.steps)
        if last and not (others or step.then or step.drops):
            self.budget.check(total)
        elif total > MANY_CHUNKS * CHUNK and not any(s.drops for s in self.steps[number:]):
            left, places = _sampled(first, counts, total)
            some = self._rest(step, self._bound(at, others, bindings, left, places, groups))
            self._estimate(number + 1, some, total / len(left))
        lead = bindings.columns.get(step.live[0]) if step.drops and step.live else None
        for low, high in _slices(counts, total, lead):
            mine = counts[low:high]
            size = total if high - low == len(counts) else int(mine.sum())
            left, places = expansion(first[low:high], mine, size)
            yield self._bound(at, others, bindings.between(low, high), left, places, groups)

    def _estimate(self, number: int, some: Bindings, scale: float) -> None:
        """Refuse what is surely too large: by the groundings that one match in `scale` leads to."""
        found = 0
        for chunk in self._after(some, number):
            found += chunk.count
            if found > SURE:
                self.budget.check(int(found * scale) // 2)

    def _bound(
        self,
        at: int,
        others: Sequence[int],
        bindings: Bindings,
        left: Tensor,
        places: Tensor,
        groups: Groups,
    ) -> Bindings:
        terms, _ = self.keys[at]
        free = {
            term.name: p
            for p, term in enumerate(terms)
            if isinstance(term, nodes.Variable) and term.name not in bindings.columns
        }
        for other in others:
            left, places = self._likely(other, free, bindings, left, places, groups)
        found = bindings.take(left)
        for name, p in free.items():
            found = found.bind(name, groups.column(p).index_select(0, places))
        if at in self.read:
            order = groups.order
            rows = places if order is None else order.index_select(0, places)
            found = Bindings(found.count, found.columns, found.rows | {at: rows})
        for other in others:
            found = self.extend(other, found)
        return found

    def _likely(
        self,
        at: int,
        free: Mapping[str, int],
        bindings: Bindings,
        left: Tensor,
        places: Tensor,
        groups: Groups,
    ) -> tuple[Tensor, Tensor]:
        """The matches that may be in another list, of which columns that it lacks are not made."""
        terms, keys = self.keys[at]
        columns = []
        for term in terms:
            if isinstance(term, nodes.Variable) and term.name in free:
                columns.append(groups.column(free[term.name]).index_select(0, places))
            elif isinstance(term, nodes.Variable):
                columns.append(bindings.columns[term.name].index_select(0, left))
            else:
                columns.append(torch.full((len(left),), int(term)))
        likely = self.lookups.may_hold(keys, columns)
        if likely is None:
            return left, places
        chosen = likely.nonzero()[:, 0]
        return left.index_select(0, chosen), places.index_select(0, chosen)


def _is_free(term: nodes.Term | int, bindings: Bindings) -> bool:
    return isinstance(term, nodes.Variable) and term.name not in bindings.columns


def _shortest(several: Sequence[Tensor]) -> Tensor:
    """Which of several columns has the least number of each row, the first of equals."""
    least, which = several[0], torch.zeros(len(several[0]), dtype=torch.uint8)
    for number, counts in enumerate(several[1:], 1):
        which.masked_fill_(counts < least, number)
        least = torch.minimum(least, counts)
    return which


def _sampled(first: Tensor, counts: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """As `expansion`, of SAMPLED matches at equal distances."""
    ends = counts.cumsum(0)
    wanted = torch.arange(SAMPLED) * (total // SAMPLED) + total // (2 * SAMPLED)
    left = torch.searchsorted(ends, wanted, right=True)
    return left, first[left] + wanted - (ends - counts)[left]


def _slices(counts: Tensor, total: int, lead: Tensor | None = None) -> list[tuple[int, int]]:
    """Cuts after about every CHUNK matches; where `lead` is sorted, between its keys, so that
    chunks that are sorted by it are sorted one after the other."""
    if total <= CHUNK:
        return [(0, len(counts))]
    wanted = torch.arange(CHUNK, total, CHUNK)
    cuts = torch.searchsorted(counts.cumsum(0), wanted).add_(1)
    if lead is not None and bool((lead[1:] >= lead[:-1]).all()):
        cuts = torch.searchsorted(lead, lead[cuts - 1], right=True)
    ends = [cut for cut in cuts.unique().tolist() if cut < len(counts)]
    return list(zip([0, *ends], [*ends, len(counts)], strict=True))


def together(chunks: Iterator[Bindings], budget: Budget) -> Bindings:
    """All chunks as one; refused as soon as they are too many."""
    found = [next(chunks)]
    count = found[0].count
    for chunk in chunks:
        count += chunk.count
        budget.check(count)
        if chunk.count:
            found.append(chunk)
    if len(found) == 1:
        return found[0]
    return Bindings(
        count,
        {name: torch.cat([b.columns[name] for b in found]) for name in found[0].columns},
        {at: torch.cat([b.rows[at] for b in found]) for at in found[0].rows},
    )

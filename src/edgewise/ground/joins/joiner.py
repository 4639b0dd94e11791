"""Steps of a join run on columns: in chunks, which go through all later steps one by one, so that
memory is linear in what comes out.

Steps that bind nothing that groundings assign are tests. Each different key is tested once, and
matches are tried in rounds, the first of each key first: a node on many cycles is found by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from edgewise.ground.index import Keys, encode, ends_of, pack, run_starts
from edgewise.ground.joins.groups import Groups, Lookups
from edgewise.ground.joins.join import MARKED, Bindings, Budget, column_of, distinct, expansion
from edgewise.ground.joins.key_ranges import KeyRange
from edgewise.ground.joins.steps import JoinStep
from edgewise.language import nodes
from edgewise.layouts.recorded import integer

CHUNK = 1 << 18  # matches that are read at a time: their columns stay in cache
MANY_CHUNKS = 2  # from which on a sample is joined first, to estimate what comes out
SAMPLED = 4096  # matches
SURE = 256  # groundings of a sample from which an estimate is right by a factor of two
FIRST = 4  # matches that are tried in a first round, and times more in each later one
LONG = 16  # matches of a grounding, from which on a search for a range among them is quicker
OWNER = "@owner"  # a column: the key that a row is a match of
Extend = Callable[[int, Bindings], Bindings]  # groundings under which one more literal holds
Terms = tuple[nodes.Term | int, ...]


@dataclass(frozen=True)
class Joiner:
    """What the steps of one body read: `keys[at]` are the terms and keys of atoms in lists."""

    steps: Sequence[JoinStep]
    keys: Mapping[int, tuple[Terms, Keys]]
    read: frozenset[int]  # atoms whose rows groundings need
    extend: Extend
    budget: Budget
    lookups: Lookups
    visible: tuple[str, ...]  # the variables that groundings assign

    def run(self) -> Bindings:
        return together(self.after(Bindings()), self.budget)

    def after(self, bindings: Bindings, number: int = 0) -> Iterator[Bindings]:
        """The groundings after all steps from this one on, in chunks."""
        if number == len(self.steps):
            yield bindings
            return
        step = self.steps[number]
        if step.tests:
            yield self._tested(bindings, number)
            return
        chunks = map(partial(self._rest, step), self._listed(number, bindings))
        if step.drops and number + 1 < len(self.steps):
            merged = distinct(together(chunks, self.budget), step.live)
            yield from self.after(merged, number + 1)
            return
        for chunk in chunks:
            yield from self.after(chunk, number + 1)

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
        for at, part, found in self._lists(step, bindings):
            yield from self._read(number, at, part, *found)

    def _lists(
        self, step: JoinStep, bindings: Bindings
    ) -> Iterator[tuple[int, Bindings, tuple[Tensor, Tensor, Groups]]]:
        """For groundings that have the same shortest list: its atom, and its matches."""
        found = [self.matches(at, bindings, step.range) for at in step.lists]
        if len(found) < 2:
            yield from (
                (at, bindings, matches) for at, matches in zip(step.lists, found, strict=True)
            )
            return
        shortest = _shortest([counts for _, counts, _ in found])
        for which, (first, counts, groups) in enumerate(found):
            mine = (shortest == which).nonzero()[:, 0]
            if len(mine) or not which:
                part = first.index_select(0, mine), counts.index_select(0, mine), groups
                yield step.lists[which], bindings.take(mine), part

    def matches(
        self, at: int, bindings: Bindings, ranged: KeyRange | None = None
    ) -> tuple[Tensor, Tensor, Groups]:
        terms, keys = self.keys[at]
        known = [p for p, term in enumerate(terms) if not _is_free(term, bindings)]
        columns = [column_of(terms[p], bindings) for p in known]
        if known:
            found = self.lookups.matches(keys, tuple(known), columns)
            if ranged is None or integer(found[1].sum()) < LONG * bindings.count:
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
        total = integer(counts.sum())
        self.budget.at = at
        last = number + 1 == len(self.steps)
        if last and not (others or step.then or step.drops):
            self.budget.check(total)
        elif total > MANY_CHUNKS * CHUNK and not any(s.drops for s in self.steps[number:]):
            left, places = _sampled(first, counts, total)
            some = self._rest(step, self._bound(at, others, bindings, left, places, groups))
            self._estimate(number + 1, some, total / left.shape[0])
        lead = bindings.columns.get(step.live[0]) if step.drops and step.live else None
        for low, high in _slices(counts, total, lead):
            mine = counts[low:high]
            size = total if high - low == counts.shape[0] else integer(mine.sum())
            left, places = expansion(first[low:high], mine, size)
            yield self._bound(at, others, bindings.between(low, high), left, places, groups)

    def _tested(self, bindings: Bindings, number: int) -> Bindings:
        """The groundings for which all steps from this one on have a match, without what is hidden.

        Where rows with the same visible keys differ in others that are tested with them, one of
        them is enough.
        """
        step, visible = self.steps[number], self.visible
        if set(bindings.columns) <= set(visible) or not set(visible) <= step.needs:
            return bindings.where(self._holds(bindings, number)).only(visible)
        own = [bindings.columns[name] for name in visible]
        owner, order, first, counts = _grouped(own, bindings.count)
        done = torch.zeros(first.shape[0], dtype=torch.bool)
        for _, places in _rounds(first, counts, torch.arange(first.shape[0]), done):
            rows = places if order is None else order.index_select(0, places)
            held = self._holds(bindings.take(rows), number)
            done[owner.index_select(0, places[held])] = True
        chosen = first[done]
        return bindings.take(chosen if order is None else order[chosen]).only(visible)

    def _holds(self, bindings: Bindings, number: int) -> Tensor:
        """For which groundings all steps from this one on have a match."""
        if number == len(self.steps):
            return torch.ones(bindings.count, dtype=torch.bool)
        step = self.steps[number]
        keys, which = _different(bindings.only(step.needs), number + 1 < len(self.steps))
        keys = keys.bind(OWNER, torch.arange(keys.count))
        done = torch.zeros(keys.count, dtype=torch.bool)
        for chunk in self._tried(step, keys, done):
            for at in step.then:
                chunk = self.extend(at, chunk)
            done[chunk.columns[OWNER][self._holds(chunk, number + 1)]] = True
        return done if which is None else done.index_select(0, which)

    def _tried(self, step: JoinStep, keys: Bindings, done: Tensor) -> Iterator[Bindings]:
        """Keys with matches of a step, in chunks; none of those that are done by then."""
        if not step.lists:
            yield keys
        for at, part, (first, counts, groups) in self._lists(step, keys):
            others = [other for other in step.lists if other != at]
            for left, places in _rounds(first, counts, part.columns[OWNER], done):
                yield self._bound(at, others, part, left, places, groups)

    def _estimate(self, number: int, some: Bindings, scale: float) -> None:
        """Refuse what is surely too large: by the groundings that one match in `scale` leads to."""
        found = 0
        for chunk in self.after(some, number):
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
                columns.append(torch.full((left.shape[0],), int(term)))
        likely = self.lookups.may_hold(keys, columns)
        if likely is None:
            return left, places
        chosen = likely.nonzero()[:, 0]
        return left.index_select(0, chosen), places.index_select(0, chosen)


def _grouped(columns: Sequence[Tensor], count: int) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Rows grouped by their keys: the group of each in order, the order (None where they are in
    it), and where each group begins and how many rows it has. Rows without keys are one group."""
    (codes,) = pack(columns) if columns else [torch.zeros(count, dtype=torch.int64)]
    order = None
    if not bool((codes[1:] >= codes[:-1]).all()):
        codes, order = codes.sort(stable=True)
    fresh = run_starts(codes)
    first = fresh.nonzero()[:, 0]
    return fresh.cumsum(0) - 1, order, first, first.diff(append=torch.tensor([len(codes)]))


def _different(bindings: Bindings, sort: bool) -> tuple[Bindings, Tensor | None]:
    """The different groundings, and which of them each is; None where all are taken as different.

    Where no table can tell, equal ones are only found if it is worth a `sort`.
    """
    columns = list(bindings.columns.values())
    if not columns or not bindings.count:
        return bindings, None
    ends = ends_of([columns])
    size = math.prod(high - low + 1 for low, high in ends)
    if size <= MARKED * bindings.count:
        codes = encode(columns, ends)
        first = torch.empty(size, dtype=torch.int64)
        first[codes] = torch.arange(codes.shape[0])
        mine = (first.index_select(0, codes) == torch.arange(codes.shape[0])).nonzero()[:, 0]
        first[codes[mine]] = torch.arange(mine.shape[0])
        return bindings.take(mine), first.index_select(0, codes)
    if not sort:
        return bindings, None
    owner, order, first, _ = _grouped(columns, bindings.count)
    if order is None:
        return bindings.take(first), owner
    which = torch.empty_like(owner).index_copy_(0, order, owner)
    return bindings.take(order.index_select(0, first)), which


def _rounds(
    first: Tensor, counts: Tensor, owner: Tensor, done: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """As `expansion`, some of each k at a time, and none of those whose owner is done."""
    total = int(counts.sum())
    offset, width = 0, FIRST if total > CHUNK // 8 else total
    while total:
        rows = ((counts > offset) & ~done.index_select(0, owner)).nonzero()[:, 0]
        some = (counts.index_select(0, rows) - offset).clamp_(max=width)
        start, total = first.index_select(0, rows) + offset, int(some.sum())
        for low, high in _slices(some, total) if total else ():
            mine = some[low:high]
            left, places = expansion(start[low:high], mine, int(mine.sum()))
            yield rows[low:high].index_select(0, left), places
        offset, width = offset + width, width * FIRST


def _is_free(term: nodes.Term | int, bindings: Bindings) -> bool:
    return isinstance(term, nodes.Variable) and term.name not in bindings.columns


def _shortest(several: Sequence[Tensor]) -> Tensor:
    """Which of several columns has the least number of each row, the first of equals."""
    least, which = several[0], torch.zeros(several[0].shape[0], dtype=torch.uint8)
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
        return [(0, counts.shape[0])]
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

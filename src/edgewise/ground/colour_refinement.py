"""Lifting: rows that are provably equal are one class, and a class is computed once.

Colour refinement over ground rules: a data row has the colour of its value, a head that of the
rows, weights and numbers its groundings read. Gradients stay exact, because every reader of a row
reads its class: the gradient of a class is the sum of its members'. A colour is an integer that is
equal only where values are sure to be: found by hashing, then compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from edgewise.functions import Law
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Keys, pack, run_starts
from edgewise.ground.source import Source
from edgewise.language import functions, nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.statements import applied_functions
from edgewise.layouts.ragged import Segments
from edgewise.layouts.recorded import one_call

MAX_GROUNDINGS = 1 << 22  # beyond, colours cost more than a fraction of the joins
SAMPLE = 1 << 10  # rule heads that are looked at first where there are many
PAYS = 0.75  # the most classes for each row


BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of each row, numbered by their first rows, and those."""

    of: Tensor
    first: Tensor

    @property
    def count(self) -> int:
        return self.first.shape[0]

    @property
    def rows(self) -> int:
        return self.of.shape[0]


@one_call
def classes(colours: Tensor) -> Classes:
    """Rows of one colour as a class.

    >>> classes(torch.tensor([7, 3, 7, 9])).of.tolist()
    [0, 1, 0, 2]
    """
    if colours.shape[0] and bool((colours == colours[0]).all()):
        return Classes(torch.zeros_like(colours), torch.zeros(1, dtype=torch.int64))
    ordered, order = colours.sort(stable=True)
    fresh = run_starts(ordered)
    first, by_first = order[fresh].sort()
    number = torch.empty_like(by_first)
    number[by_first] = torch.arange(by_first.shape[0])
    of = torch.empty_like(order)
    of[order] = number[fresh.cumsum(0) - 1]
    return Classes(of, first)


@one_call
def mixed(columns: Sequence[Tensor], rows: int) -> Tensor:
    """One colour for each row of several columns of colours.

    >>> mixed([torch.tensor([0, 0, 1]), torch.tensor([5, 5, 5])], 3).tolist()
    [0, 0, 1]
    """
    if not columns:
        return torch.zeros(rows, dtype=torch.int64)
    found = columns[0]
    for column in columns[1:]:  # two at a time: their product stays small
        found = classes(pack([found, column])[0]).of
    return found


@one_call
def of_values(values: Tensor) -> Tensor:
    """Colours of rows of numbers (rows, ...): equal where every bit is.

    >>> of_values(torch.tensor([[0.5, 1.0], [0.5, 2.0], [0.5, 1.0]])).tolist()
    [0, 1, 0]
    """
    rows = values.detach().cpu().reshape(len(values), math.prod(values.shape[1:]))
    bits = rows.contiguous().view(BITS[rows.element_size()])
    if bits.shape[1] == 1:
        return bits[:, 0].long()
    places = torch.arange(bits.shape[1])
    found = classes(_hash(bits.long() + _hash(places)).sum(1))
    return _checked(found, (bits == bits[found.first[found.of]]).all(1)).of


@one_call
def of_segments(colours: Tensor, parts: Segments, *, in_order: bool) -> Classes:
    """Segments that hold the same colours equally often, or in the same order, as classes.

    >>> from edgewise.layouts.ragged import segments
    >>> parts = segments(torch.tensor([0, 0, 1, 2, 2]), 3)
    >>> of_segments(torch.tensor([4, 5, 4, 5, 4]), parts, in_order=False).of.tolist()
    [0, 1, 0]
    """
    if parts.trivial:
        return classes(colours)
    (codes,) = pack([parts.ids] if in_order else [parts.ids, colours])
    order = codes.argsort(stable=True)
    colours, ids, sizes = colours[order], parts.ids[order], parts.sizes
    starts = sizes.cumsum(0) - sizes
    places = torch.arange(ids.shape[0]) - starts[ids]
    hashes = _hash(colours + _hash(places)) if in_order else _hash(colours)
    sums = _hash(sizes).index_add(0, ids, hashes)
    found = classes(sums)
    twin = found.first[found.of]
    same = sizes == sizes[twin]
    there = (starts[twin][ids] + places).clamp(max=max(ids.shape[0] - 1, 0))
    same[ids[colours != colours[there]]] = False
    return _checked(found, same)


def _checked(found: Classes, same: Tensor) -> Classes:
    """Rows that are not the same as the first of their class get classes of their own."""
    if bool(same.all()):
        return found
    wrong = (~same).nonzero()[:, 0]
    return classes(found.of.index_copy(0, wrong, found.count + torch.arange(wrong.shape[0])))


def _hash(numbers: Tensor) -> Tensor:
    """Integers scattered over 64 bits (the finaliser of splitmix)."""
    found = numbers + -7046029254386353131
    found = (found ^ ((found >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    found = (found ^ ((found >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return found ^ ((found >> 31) & 0x1FFFFFFFF)


@dataclass
class Lifting:
    """What is known about the rows of relations while a plan is grounded.

    `by_class` are the relations whose columns hold one row for each class; `row_wise` those that
    are read row by row; `volatile` those whose values may change.
    """

    row_wise: frozenset[str]
    volatile: frozenset[str] = frozenset()
    on: bool = True
    known: dict[str, Classes | str] = field(default_factory=dict)
    by_class: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()  # data whose values classes come from

    def source(self, name: str, source: Source) -> Source:
        """A data relation that rules only read, by class if that pays."""
        found = self.facts(name, source)
        if isinstance(found, str) or name in self.row_wise or source.weights or not _pays(found):
            return source
        assert source.stored is not None
        rows = found.first if source.order is None else source.order[found.first]
        self.by_class.add(name)
        return replace(source, stored=source.stored[rows.to(source.stored.device)], order=None)

    def facts(self, name: str, source: Source) -> Classes | str:
        """The classes of the rows of a data relation."""
        if name not in self.known:
            self.known[name] = self._of_source(name, source) if self.on else "switched off"
            if isinstance(self.known[name], Classes):
                self.constant |= {name}
        return self.known[name]

    def rule(self, ground: GroundRule, default: nodes.Function) -> Classes | str:
        """The classes of the ground heads of a rule, or why they may all be different."""
        if not self.on:
            return "switched off"
        name = ground.rule.head.relation
        for relation in _read_relations(ground):
            if isinstance(self.known.get(relation, ""), str):
                return f"`{relation}` differs from row to row"
        own = own_rows(_listed(ground.rule))
        if own is not None:
            self.refusals[name] = own
            return own
        if ground.count > MAX_GROUNDINGS:
            self.refusals[name] = f"more than {MAX_GROUNDINGS:,} groundings"
            return self.refusals[name]
        if ground.heads.rows > 8 * SAMPLE and ground.groups is None:
            some = torch.zeros(ground.heads.rows, dtype=torch.bool)
            some[:: ground.heads.rows // SAMPLE] = True
            found = self._colours(restricted(ground, some), default)
            if not _pays(found):
                self.refusals[name] = f"{found.rows:,} rows looked at are {found.count:,} classes"
                return self.refusals[name]
        return self._colours(ground, default)

    def relation(
        self, name: str, parts: Sequence[Classes | str], places: Sequence[Tensor | None]
    ) -> None:
        """Find the classes of a relation: rows alike in all of its parts."""
        columns = []
        for part, at in zip(parts, places, strict=True):
            if isinstance(part, str) or (at is None and len(parts) == 1):
                self.known[name] = part
                return
            columns.append(_through(part.of, at))
        self.known[name] = classes(mixed(columns, 0))

    def lifted(self, name: str) -> Classes | None:
        """The classes of a relation, if it pays to compute it by class."""
        found = self.known[name]
        if isinstance(found, str):
            return None
        if not _pays(found):
            self.known[name] = reason = f"{found.rows:,} rows are {found.count:,} classes"
            if found.rows > 1:
                self.refusals[name] = reason
            return None
        if name not in self.row_wise:
            self.by_class.add(name)
        return found

    def refuse(self, name: str, reason: str) -> None:
        """Treat all rows of a relation as different from here on."""
        self.known[name] = reason
        if self.on:
            self.refusals[name] = reason

    def unknown(self, name: str, reason: str, reads: Iterable[str]) -> None:
        """A relation that rules alone do not compute; reported if all that it reads is lifted."""
        self.known[name] = reason
        if self.on and not any(isinstance(self.known.get(r, reason), str) for r in reads):
            self.refusals[name] = reason

    def _of_source(self, name: str, source: Source) -> Classes | str:
        stored = source.stored
        if source.dense or stored is None or name in self.volatile:
            return f"`{name}` may change with every step"
        if stored.requires_grad:
            return f"`{name}` needs gradients"
        if len(stored) > 8 * SAMPLE:
            some = classes(of_values(stored[:: len(stored) // SAMPLE]))
            if not _pays(some):
                return f"`{name}` differs from row to row"
        found = of_values(stored if source.order is None else stored[source.order])
        if source.weights:
            numbers: dict[str, int] = {}
            named = [numbers.setdefault(name, len(numbers)) for _, name in source.weights]
            learnt = torch.full_like(found, -1)
            learnt[torch.tensor([row for row, _ in source.weights])] = torch.tensor(named)
            found = mixed([torch.where(learnt < 0, found, 0), learnt], len(found))
        return classes(found)

    def reduced(
        self,
        ground: GroundRule,
        own: Classes | str,
        heads: Tensor | None,
        count: int,
        every: bool,
    ) -> tuple[GroundRule, Tensor | None]:
        """A rule for `heads` (-1: none, None: all), which may be fewer; and the rows of those.

        `count` is the number of different rule heads that are wanted, which may be `every` one.
        """
        grouped = ground.groups is not None  # a softmax needs its group
        if isinstance(own, Classes) and _pays(own) and (grouped or own.count <= count / 2):
            chosen_heads = torch.zeros(ground.heads.rows, dtype=torch.bool)
            chosen_heads[own.first] = True
            if ground.groups is not None:
                units = torch.zeros(ground.groups.count, dtype=torch.bool)
                units[ground.groups.ids[own.first]] = True
                chosen_heads = units[ground.groups.ids]
            row = (chosen_heads.cumsum(0) - 1)[own.first][own.of]
        elif grouped or heads is None or every or count == ground.heads.rows:
            return self._read(ground), heads
        else:
            chosen_heads = torch.zeros(ground.heads.rows, dtype=torch.bool)
            chosen_heads[heads[heads >= 0]] = True
            row = chosen_heads.cumsum(0) - 1
        found = self._read(restricted(ground, chosen_heads))
        return found, _unless_all(_through(row, heads), found.heads.rows)

    def _colours(self, ground: GroundRule, default: nodes.Function) -> Classes:
        columns = [of_values(numbers) for numbers in ground.numbers.values()]
        for at, rows in ground.rows.items():
            literal = ground.body.literals[at]
            if not isinstance(literal, nodes.Atom):
                columns.append(torch.arange(ground.count) if rows is None else rows)
                continue
            known = self.known[literal.relation]
            assert isinstance(known, Classes)
            if rows is None and len(ground.rows) == 1 and not columns and _one_each(ground):
                return known  # heads are the rows of a relation, one by one
            if known.count > 1:
                columns.append(known.of if rows is None else known.of[rows])
        own = (f for f in ground.rule.functions if functions.kind(f) == functions.AGGREGATION)
        reduces = next(own, default) if ground.groups is None else default
        in_order = Law.ORDER_FREE not in functions.definition(reduces)
        found = of_segments(mixed(columns, ground.count), ground.segments, in_order=in_order)
        if ground.groups is None:
            return found
        units = of_segments(found.of, ground.groups, in_order=False)
        return classes(mixed([units.of[ground.groups.ids], found.of], ground.heads.rows))

    def _read(self, ground: GroundRule) -> GroundRule:
        """The rule reading classes where relations are stored by class."""
        rows, sizes = dict(ground.rows), dict(ground.sizes)
        for at, before in ground.rows.items():
            literal = ground.body.literals[at]
            if isinstance(literal, nodes.Atom) and literal.relation in self.by_class:
                known = self.known[literal.relation]
                assert isinstance(known, Classes)
                sizes[at] = known.count
                rows[at] = _unless_all(known.of if before is None else known.of[before], sizes[at])
        return replace(ground, rows=rows, sizes=sizes)


def read_row_wise(rules: Iterable[nodes.Rule], others: Iterable[nodes.Rule]) -> frozenset[str]:
    """The relations that are read row by row: by recursion, random functions or `others`."""
    rules = list(rules)
    graph = needs(rules, values_only=True)
    drawing = [rule for rule in rules if own_rows(_listed(rule)) is not None]
    found = set().union(*needs([*others, *drawing], values_only=True).values())
    for part in components(graph):
        if any(part & graph[name] for name in part):
            found |= part.union(*(graph[name] for name in part))
    return frozenset(found)


def _listed(rule: nodes.Rule) -> tuple[nodes.Function, ...]:
    """All functions that a rule applies."""
    return (*rule.functions, *applied_functions(rule.body))


def own_rows(listed: Iterable[nodes.Function]) -> str | None:
    """Why equal rows may get different values."""
    for function in listed:
        found = functions.definition(function)
        if Law.RANDOM in found:
            return f"{function.name} draws for every row"
        if Law.BATCH in found:
            return f"{function.name} counts every row"
        if Law.OPAQUE in found:
            return "a module may tell rows apart"
    return None


def restricted(ground: GroundRule, chosen_heads: Tensor) -> GroundRule:
    """A rule with some of its ground heads; `chosen_heads` says which."""
    found = ground.on(chosen_heads[ground.segments.ids].nonzero()[:, 0])
    rows = {
        at: _unless_all(rows, ground.sizes[at]) if rows is not None and at in ground.sizes else rows
        for at, rows in found.rows.items()
    }
    heads = Keys(ground.heads.keys[chosen_heads]) if ground.heads.arity else ground.heads
    return replace(found, rows=rows, sizes=ground.sizes, heads=heads, before=ground.total)


def _read_relations(ground: GroundRule) -> Iterator[str]:
    for at in ground.rows:
        literal = ground.body.literals[at]
        if isinstance(literal, nodes.Atom):
            yield literal.relation


def _one_each(ground: GroundRule) -> bool:
    return ground.segments.trivial and ground.groups is None


def _unless_all(rows: Tensor, size: int) -> Tensor | None:
    same = rows.shape[0] == size and bool((rows == torch.arange(size)).all())
    return None if same else rows


def _through(values: Tensor, rows: Tensor | None) -> Tensor:
    """The values at some rows, -1 where there is no row; None means all."""
    return values if rows is None else torch.nn.functional.pad(values, (0, 1), value=-1)[rows]


def _pays(found: Classes) -> bool:
    return found.rows > 1 and found.count <= PAYS * found.rows

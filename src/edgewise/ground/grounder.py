"""Grounds rules on data: joins bodies, and finds the rows that they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.evaluation import OutOfDomain
from edgewise.graphs.checks import LARGEST, physical_memory
from edgewise.ground import conditions
from edgewise.ground.grids import on_grid
from edgewise.ground.ground_rule import GroundRule, normalised, relabelled
from edgewise.ground.index import (
    STRINGS,
    Constants,
    Grid,
    Index,
    KeyOutOfRange,
    Keys,
    index_of,
    locate,
    pack,
    starts_of,
)
from edgewise.ground.joins.body import (
    SAMPLES,
    Body,
    Literal,
    is_read,
    join_order,
    ordered,
    plain_terms,
)
from edgewise.ground.joins.disk import KeysOnDisk
from edgewise.ground.joins.disk import split as split_body
from edgewise.ground.joins.groups import Lookups
from edgewise.ground.joins.halves import TwoSidedJoin, halves_of
from edgewise.ground.joins.join import (
    Bindings,
    Budget,
    OverBudget,
    distinct,
    join,
    over_limit,
    too_many_bytes,
)
from edgewise.ground.joins.joiner import Joiner, together
from edgewise.ground.joins.recorded import RecordedJoins
from edgewise.ground.joins.reduce import Reduced, reduced
from edgewise.ground.joins.steps import steps_of
from edgewise.language import nodes
from edgewise.language.defaults import Domain, members
from edgewise.language.statements import remembered
from edgewise.language.terms import variables
from edgewise.layouts.ragged import Segments, segments
from edgewise.layouts.recorded import key_of


@dataclass(frozen=True, eq=False)
class Grounder:
    """Joins bodies over the relations known so far."""

    constants: Constants
    domains: Mapping[str, Domain]
    relations: dict[str, Index]
    limit: int
    joins: dict[Any, tuple[list[Index], Bindings]] = field(default_factory=dict)
    lookups: Lookups = field(default_factory=Lookups)
    grounds: dict[Any, GroundRule] = field(default_factory=dict)
    masks: dict[Any, Any] = field(default_factory=dict)  # those of attention, lowered
    recorded: RecordedJoins | None = None  # joins of earlier groundings

    def index(self, relation: str, arity: int) -> Index:
        found = self.relations.get(relation)
        return Keys(torch.zeros(0, arity, dtype=torch.int64)) if found is None else found

    def _of(self, atom: nodes.Atom) -> Index:
        return self.index(atom.relation, len(atom.terms))

    def ground(self, body: Body) -> GroundRule:
        """The ground rule; bodies that read keys in the same way share one join, and all of what
        comes of it where heads are alike: the layers of a model are joined once."""
        rule = body.rule
        key = (body.keys, tuple(map(self._read, body.literals)), body.visible)
        alike = (key, remembered(rule, _head_keys))
        if alike not in self.grounds:
            self.grounds[alike] = self._on_grid(body) or self.finish(body, self._joined(key, body))
        known = self.grounds[alike]
        rows, numbers, sizes = dict(known.rows), dict(known.numbers), dict(known.sizes)
        return replace(known, body=body, rows=rows, numbers=numbers, sizes=sizes)

    def _on_grid(self, body: Body) -> GroundRule | None:
        """The ground rule where all that it reads is dense."""
        with self._budget(body) as budget:
            found = on_grid(body, self._grid_of, budget.check)
        if found is None:
            return None
        sizes = {at: self._of(atom).rows for at, atom in body.positive.items()}
        groups = self._groups(body.rule, found.heads)
        parts = found.heads, found.segments, groups, sizes
        return GroundRule(body, found.count, found.rows, {}, *parts)

    def _grid_of(self, literal: nodes.Atom | nodes.Weight) -> Index:
        return self._of(literal) if isinstance(literal, nodes.Atom) else self.domain(literal)

    def _joined(self, key: Any, body: Body) -> Bindings:
        if key not in self.joins:
            read = [self._of(a) for a in body.literals if isinstance(a, nodes.Atom)]
            if self.recorded is None:
                found = self._distinct(body)
            else:
                found = self.recorded.bindings(self, body, lambda: self._distinct(body))
            self.joins[key] = read, found
        return self.joins[key][1]

    def _distinct(self, body: Body) -> Bindings:
        return distinct(self.bindings(body), body.visible)

    def _read(self, literal: Literal) -> tuple[Any, ...] | int | None:
        """Which keys a literal reads."""
        if not isinstance(literal, nodes.Atom):
            return None
        index = self._of(literal)
        if isinstance(index, Grid):
            return tuple(map(key_of, index.sizes))
        return id(index)  # which `joins` keeps

    def bindings(self, body: Body, first: int | None = None, new: Index | None = None) -> Bindings:
        """All assignments; with `first`, that atom takes its rows from `new` alone."""
        with self._budget(body) as budget:
            indices = {at: self._of(atom) for at, atom in body.positive.items()}
            if first is not None and new is not None:
                indices[first] = new
            elif (found := self._on_disk(body, budget)) is not None:
                return found

            def extend(at: int, found: Bindings) -> Bindings:
                return self.extended(body, at, found, budget, indices.get(at))

            # a change is joined with what it reaches, which a look at all rows would outlast
            some = (
                Reduced(indices)
                if first is not None
                else reduced(body, indices, self.coded, extend)
            )
            indices = some.indices
            cost, order = join_order(body, first, self._generators(body), indices.__getitem__)
            halves = None if first is not None else halves_of(body, indices.__getitem__, cost)
            keys = {
                at: (self.coded(body.positive[at].terms), index)
                for at, index in indices.items()
                if isinstance(index, Keys)
            }
            read = frozenset(at for at, literal in enumerate(body.literals) if is_read(literal))

            def joiner(
                order: Sequence[int], visible: tuple[str, ...], known: tuple[str, ...] = ()
            ) -> Joiner:
                steps = steps_of(body, order, indices.get, visible, known)
                return Joiner(steps, keys, read, extend, budget, self.lookups, visible)

            if halves is None:
                return some.restored(joiner(order, body.visible).run())
            return some.restored(TwoSidedJoin(body, halves, joiner, extend, budget).run())

    def _on_disk(self, body: Body, budget: Budget) -> Bindings | None:
        """The groundings of a body with atoms of tables on disk: joined there first."""
        terms = {
            at: self.coded(literal.terms)
            for at, literal in enumerate(body.literals)
            if isinstance(literal, nodes.Atom | nodes.SpecialAtom)
        }
        atoms = {at: a for at, a in enumerate(body.literals) if isinstance(a, nodes.Atom)}
        indices = {at: self._of(atom) for at, atom in atoms.items()}
        if not any(isinstance(index, KeysOnDisk) for index in indices.values()):
            return None
        join, rest = split_body(body, indices, terms)
        table = join.table
        if table is None:
            return None

        def extend(at: int, found: Bindings) -> Bindings:
            return self.extended(body, at, found, budget)

        with table.joined(join) as found:
            if not rest:
                budget.check(found.count)
                return found.all()
            known = set(join.needed)
            order = ordered(body, rest, known, indices.__getitem__)
            keys = {at: (terms[at], i) for at, i in indices.items() if isinstance(i, Keys)}
            steps = steps_of(body, order, indices.get, body.visible, known)
            read = frozenset(at for at, literal in enumerate(body.literals) if is_read(literal))
            options = extend, budget, self.lookups, body.visible
            joiner = Joiner(steps, keys, read, *options)
            every = (piece for chunk in found.chunks() for piece in joiner.after(chunk))
            return together(every, budget)

    @contextmanager
    def _budget(self, body: Body) -> Iterator[Budget]:
        """What the groundings of a rule may take; inside, one that has more is refused."""
        memory = physical_memory()
        limit = min(self.limit, memory)
        budget = Budget(limit, len(body.visible) + len(body.literals))
        try:
            yield budget
        except OverBudget:
            count, needed = budget.refused, budget.refused * budget.each
            if limit == memory:
                raise too_many_bytes(body.rule, count, "groundings", needed) from None
            atom = "" if budget.at is None else str(body.literals[budget.at])
            raise over_limit(body.rule, count, needed, limit, atom) from None

    def check_rows(self, body: Body, count: int) -> None:
        """Refuse more atoms of a rule head than may be held."""
        with self._budget(body) as budget:
            budget.each = 8 * max(len(body.rule.head.terms), 1)
            budget.check(count)

    def _is_absent(self, index: Index, columns: list[Tensor], count: int) -> Tensor:
        """Which keys are not in an index; those that a filter leaves over are looked up."""
        likely = self.lookups.may_hold(index, columns)
        if likely is None:
            return (locate(index, columns) < 0).expand(count)
        absent = ~likely
        some = likely.nonzero()[:, 0]
        absent[some] = locate(index, [column.index_select(0, some) for column in columns]) < 0
        return absent

    def extended(
        self, body: Body, at: int, bindings: Bindings, budget: Budget, replaced: Index | None = None
    ) -> Bindings:
        """Bindings under which one more literal holds; `replaced` are its keys instead of all."""
        literal = body.literals[at]
        budget.at = at
        match literal:
            case nodes.Atom(negated=True):
                columns = [self.column(t, bindings) for t in literal.terms]
                return bindings.where(self._is_absent(self._of(literal), columns, bindings.count))
            case nodes.Atom():
                index = self._of(literal) if replaced is None else replaced
                terms = self.coded(literal.terms)
                found = join(bindings, at, terms, index, budget, self.lookups)
                # those of a grid are computed at the end
                carried = literal.carries_value and isinstance(index, Keys)
                return found if carried else found.without_rows(at)
            case nodes.PatternAtom():
                return self._pattern(body, at, literal, bindings, budget)
            case nodes.SpecialAtom():
                return self._special(body, literal, bindings)
            case nodes.Weight():
                return self._family(body, literal, at, bindings, budget)
        raise TypeError(f"not a literal: {literal!r}")

    def _generators(self, body: Body) -> dict[int, int]:
        """Patterns that may be listed, with how many pairs they have: fewer than their axes."""
        found = {}
        for at, literal in enumerate(body.literals):
            if isinstance(literal, nodes.PatternAtom) and not literal.negated:
                axes = self.axes(body, literal)
                listed = axes.held and int(axes.lengths.max()) <= LARGEST
                pairs = conditions.pair_count(literal.pattern, axes) if listed else 0
                if listed and pairs < self._held(body, literal) // 2:
                    found[at] = pairs
        return found

    def _held(self, body: Body, literal: nodes.PatternAtom) -> int:
        """How many pairs the atoms around a pattern would make without it."""
        total = 1
        for term in literal.terms[-2:]:
            total *= min(
                (
                    self._of(a).rows
                    for a in body.literals
                    if isinstance(a, nodes.Atom) and not a.negated and term in a.terms
                ),
                default=1,
            )
        return total

    def coded(self, terms: tuple[nodes.Term, ...]) -> tuple[nodes.Term | int, ...]:
        """Terms with constants as codes; a constant that no data has never matches."""
        return tuple(t if isinstance(t, nodes.Variable) else self.constants.code(t) for t in terms)

    def column(self, term: nodes.Term, bindings: Bindings) -> Tensor:
        if isinstance(term, nodes.Variable):
            return bindings.columns[term.name]
        return torch.full((bindings.count,), self.constants.code(term), dtype=torch.int64)

    def keys(self, atom: nodes.Atom, bindings: Bindings) -> Tensor:
        """The keys (groundings, arity) of an atom under bindings."""
        columns = [self.column(term, bindings) for term in atom.terms]
        return torch.stack(columns, 1) if columns else torch.zeros(bindings.count, 0).long()

    def axes(self, body: Body, literal: nodes.PatternAtom) -> conditions.PatternAxes:
        """The lengths of a pattern's axes, in all or in each sample."""
        samples = self.relations.get(SAMPLES)
        count = samples.rows if samples is not None else 0
        return conditions.pattern_axes(body, literal, self._of, count)

    def _pattern(
        self, body: Body, at: int, literal: nodes.PatternAtom, bindings: Bindings, budget: Budget
    ) -> Bindings:
        axes = self.axes(body, literal)
        if all(v.name in bindings.columns for v in variables(literal.terms)):
            columns = [self.column(t, bindings) for t in literal.terms]
            return bindings.where(
                conditions.contains_pairs(literal.pattern, axes, columns) != literal.negated
            )
        budget.check(conditions.pair_count(literal.pattern, axes))
        pairs = conditions.pairs_index(literal.pattern, axes)
        found = join(bindings, at, self.coded(literal.terms), pairs, budget, self.lookups)
        return found.without_rows(at)

    def _special(self, body: Body, literal: nodes.SpecialAtom, bindings: Bindings) -> Bindings:
        free = [v.name for v in variables(literal.terms) if v.name not in bindings.columns]
        if not free:
            columns = [self.column(t, bindings) for t in literal.terms]
            if literal.carries_value:
                return bindings.where(conditions.evaluated(literal.name, columns)[1])
            true = conditions.holds(literal, columns, self.constants)
            return bindings.where(true != literal.negated)
        known = [
            None if isinstance(t, nodes.Variable) and t.name in free else self.column(t, bindings)
            for t in literal.terms
        ]
        value, fine = conditions.computed(literal, known, self.constants, bindings.count)
        if literal.function is None and literal.name != "eq":
            far = fine & (value.abs() >= STRINGS)
            held = {v.name for atom in body.positive.values() for v in variables(atom.terms)}
            if free[0] not in held and bool(far.any()):
                raise KeyOutOfRange(
                    f"`{literal!r}` computes keys that do not fit",
                    body.rule.place,
                    "use keys below 2^40, and compare with arithmetic: `V.X * V.Y <= 5`",
                )
            fine &= ~far
        return bindings.bind(free[0], value).where(fine)

    def _family(
        self, body: Body, family: nodes.Weight, at: int, bindings: Bindings, budget: Budget
    ) -> Bindings:
        index, known = self.domain(family), {v.name for v in variables(family.keys)}
        before = bindings
        bindings = join(bindings, at, self.coded(family.keys), index, budget, self.lookups)
        bound = known & set(before.columns) & _bound_by_program(body)
        if bound and (bound < known or bindings.count < before.count):
            self._refuse_key(family, before, bound)
        return bindings

    def domain(self, family: nodes.Weight) -> Index:
        """The members of a family, as keys in the order of its weights."""
        parts = [members(self.domains[v.name]) for v in variables(family.keys)]
        if all(isinstance(part, range) for part in parts):
            return Grid(tuple(len(part) for part in parts))
        columns = [torch.tensor([self.constants.code(c) for c in part]) for part in parts]
        return Keys(torch.cartesian_prod(*columns).reshape(-1, len(parts)))

    def _refuse_key(self, family: nodes.Weight, bindings: Bindings, bound: set[str]) -> None:
        for variable in variables(family.keys):
            if variable.name not in bound:
                continue
            have = torch.tensor(
                [self.constants.code(c) for c in members(self.domains[variable.name])]
            )
            column = bindings.columns[variable.name]
            wrong = column[~torch.isin(column, have)]
            if wrong.numel():
                raise OutOfDomain(
                    f"`{variable.name}` = {self.constants.constant(int(wrong[0]))!r} has no weight "
                    f"in `{family.name}`: it is not in the domain of `{variable.name}`",
                    family.place,
                    f"declare it: `Program(..., domains={{V.{variable.name}: ...}})`",
                )

    def finish(self, body: Body, bindings: Bindings) -> GroundRule:
        """From ordered, distinct groundings: rule heads, segments, rows and softmax groups."""
        head = body.rule.head
        names = list(dict.fromkeys(v.name for v in variables(head.terms)))
        heads, parts = self._heads(head, names, bindings)
        rows: dict[int, Tensor | None] = {}
        numbers: dict[int, Tensor] = {}
        for at, literal in enumerate(body.literals):
            if isinstance(literal, nodes.SpecialAtom) and literal.carries_value:
                columns = [self.column(t, bindings) for t in literal.terms]
                numbers[at] = conditions.evaluated(literal.name, columns)[0]
            elif at in bindings.rows and is_read(literal):
                rows[at] = self._identity(literal, bindings.rows[at])
            elif isinstance(literal, nodes.Atom) and at in body.positive and is_read(literal):
                columns = [self.column(t, bindings) for t in literal.terms]
                found = locate(self._of(literal), columns).expand(bindings.count)
                rows[at] = self._identity(literal, found)
        sizes = {
            at: self._of(atom).rows
            for at, atom in enumerate(body.literals)
            if at in rows and isinstance(atom, nodes.Atom)
        }
        groups = self._groups(body.rule, heads)
        return GroundRule(body, bindings.count, rows, numbers, heads, parts, groups, sizes)

    def _identity(self, literal: Literal, rows: Tensor) -> Tensor | None:
        if isinstance(literal, nodes.Weight):
            total = self.domain(literal).rows
        else:
            assert isinstance(literal, nodes.Atom)
            total = self._of(literal).rows
        same = rows.shape[0] == total and bool((rows == torch.arange(total)).all())
        return None if same else rows.to(torch.int64)

    def _heads(
        self, head: nodes.Atom, names: list[str], bindings: Bindings
    ) -> tuple[Index, Segments]:
        if not names:
            some = self.keys(head, bindings)[:1]
            ids = torch.zeros(bindings.count, dtype=torch.int64)
            return index_of(some), segments(ids, len(some))
        ids, firsts = _runs([bindings.columns[name] for name in names])
        at_first = bindings if firsts is None else bindings.take(firsts)
        return index_of(self.keys(head, at_first)), segments(ids, at_first.count)

    def _groups(self, rule: nodes.Rule, heads: Index) -> Segments | None:
        over = normalised(rule)
        if over is None:
            return None
        fixed = [
            heads.column(p)
            for p, t in enumerate(rule.head.terms)
            if not (isinstance(t, nodes.Variable) and t.name in over)
        ]
        if not fixed:
            return segments(torch.zeros(heads.rows, dtype=torch.int64), min(heads.rows, 1))
        return relabelled(pack(fixed)[0])


def _runs(columns: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """The run of each row of sorted columns, and the first row of each run; None for all."""
    fresh = starts_of(columns)
    firsts = fresh.nonzero()[:, 0]
    return fresh.cumsum(0).sub_(1), None if firsts.shape[0] == fresh.shape[0] else firsts


def _head_keys(rule: nodes.Rule) -> tuple[Any, ...]:
    return plain_terms(rule.head.terms), normalised(rule)


def _bound_by_program(body: Body) -> set[str]:
    """The variables of a body but for those that only conditions have which a pass has added: they
    leave members of a family out, and ask for none."""
    return {
        v.name
        for literal in body.literals
        if not isinstance(literal, nodes.Weight)
        and not (isinstance(literal, nodes.Atom) and literal.hidden and literal.place is None)
        for v in variables(literal.terms)
    }

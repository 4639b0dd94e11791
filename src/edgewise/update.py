"""Incremental evaluation: facts are added, and only the rule heads that they reach are recomputed.

Which rule heads those are follows from keys alone (semi-naive joins). Their values are computed by
a physical plan for each relation, lowered for the rows that are read and reused when a later
addition reads rows in the same pattern.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.checks.atoms import listed
from edgewise.checks.evaluation import is_extreme
from edgewise.errors import EdgewiseError, caller
from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.dimensions import show
from edgewise.ground.delta import DeltaRule
from edgewise.ground.index import (
    STRINGS,
    Constants,
    Index,
    Keys,
    distinct_rows,
    index_of,
    rows_of,
    union_of,
)
from edgewise.ground.rules import Grounder, GroundRule
from edgewise.inputs.kinds import ragged
from edgewise.inputs.prepare import prepare
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.program import FactLike
from edgewise.language.statements import weights
from edgewise.physical.build import refuse_facts
from edgewise.physical.lowering import Lowering, to_device
from edgewise.physical.merge import aligned, merge_of
from edgewise.physical.output import Relation
from edgewise.physical.plan import PhysicalPlan, lowered, untraced
from edgewise.physical.prepare import uninlined
from edgewise.physical.rule import RuleStep
from edgewise.physical.state import Column, State
from edgewise.physical.step import RelationStep
from edgewise.physical.weights import weights_changed
from edgewise.plan.nodes import Plan

if TYPE_CHECKING:
    from edgewise.module import Model

MOST_PLANS = 64
REUSED = 1 << 10  # groundings, above which lowering is cheap beside the rest of an addition


class CannotUpdate(EdgewiseError):
    """What new facts reach is found rule by rule, in order; a recursion has none."""

    code = "cannot-update"
    example = """\
rules = [R.path(V.X, V.Y) <= R.edge(V.X, V.Y),
         R.path(V.X, V.Z) <= (R.path(V.X, V.Y), R._edge(V.Y, V.Z))]
Program(rules).compile(R.path).updating(facts=[R.edge(0, 1)[1.0]])"""
    instead = """\
rules = [R.two(V.X, V.Z) <= (R.edge(V.X, V.Y), R.edge(V.Y, V.Z))]
Program(rules).compile(R.two).updating(facts=[R.edge(0, 1)[1.0]])"""


@dataclass(frozen=True, eq=False)
class Table:
    """`data` is (rows, value...), in the order of the index."""

    index: Index
    data: Tensor

    def rows(self, some: Tensor | None) -> Tensor:
        return self.data if some is None else self.data[some]

    def with_rows(self, keys: Tensor, values: Tensor) -> Table:
        """The same with values set at keys, new ones among them; keys are sorted."""
        if not self.index.rows:
            return Table(index_of(keys), values)
        index, rows = self.index, rows_of(self.index, keys)
        if bool((rows < 0).any()):
            index, rows = union_of(index, keys)
        if self.data.shape[1:] != values.shape[1:]:
            return Table(index, self._replaced(index, keys, values))
        if index is self.index:
            data = self.data.clone()
        else:
            data = values.new_empty(index.rows, *values.shape[1:])
            old, rows = rows[: -len(keys)], rows[-len(keys) :]
            data[old] = self.data
        data[rows] = values
        return Table(index, data)

    def _replaced(self, index: Index, keys: Tensor, values: Tensor) -> Tensor:
        """Values of another shape can only replace all that were there."""
        if index.rows != len(keys):
            raise ShapeMismatch(
                f"new values are {show(tuple(values.shape[1:]))}, those before "
                f"{show(tuple(self.data.shape[1:]))}",
                help="a compiled relation has values of one shape",
            )
        return values


@dataclass(frozen=True, eq=False)
class DerivedRelation:
    """A relation that rules derive: those, its line, and the weights that they read."""

    relation: str
    rules: tuple[DeltaRule, ...]
    line: nodes.Line | None
    weights: tuple[str, ...]


class Updating:
    """The output for the facts so far; `add` recomputes the rule heads that new facts reach.

    A delta join gives those rule heads: the new rows of each atom, joined with all rows of the
    others. They are recomputed from all their groundings; every other row stays. `computed` counts
    the rows of the last call by relation.
    """

    def __init__(self, model: Model, facts: Iterable[Any]) -> None:
        self.model = model
        _refuse_outputs(model.plan)
        # a rule that is inlined into another would refuse keys that it never has by itself
        self._plan = uninlined(model) if model.plan.domains else model.plan
        self.computed: dict[str, int] = {}
        self._constants = Constants()
        self._facts: dict[str, Table] = {}
        self._tables: dict[str, Table] = {}  # facts and what rules derive
        self._derived = self._in_order()
        self._plans: dict[Hashable, PhysicalPlan] = {}
        self._mark = model._mark()
        self._read(tuple(listed(facts)), self._plan, first=True)

    @property
    def output(self) -> Relation:
        """The output relation, as rows."""
        (output,) = self._plan.outputs
        name = output.relation
        table = self._tables.get(name)
        if table is None:
            empty = torch.zeros(len(output.terms), 0, dtype=torch.int64)
            return Relation(name, empty, self.model._one.new_zeros(0), self._constants, False)
        return Relation(name, table.index.keys.T, table.data.clone(), self._constants, False)

    def add(self, facts: Iterable[FactLike]) -> Relation:
        """The output with these facts too; a fact that was there before has a new value now."""
        if self.model._mark() != self._mark:
            raise weights_changed("model.updating(facts=...)")
        self._read(tuple(listed(facts)), replace(self._plan, facts=()))
        return self.output

    def _in_order(self) -> list[DerivedRelation]:
        plan, graph, domains = self._plan, needs(self._plan.rules), dict(self._plan.domains)
        lines = {line.relation: line for line in plan.lines}
        found = []
        for part in components(graph):
            if any(part & graph[name] for name in part):
                names = " and ".join(f"`{name}`" for name in sorted(part))
                raise CannotUpdate(
                    f"the rules for {names} are recursive",
                    caller(),
                    "compute from scratch: `model.ground(...)`",
                )
            (name,) = part
            rules = [rule for rule in plan.rules if rule.head.relation == name]
            used = dict.fromkeys(str(weight.name) for rule in rules for weight in weights(rule))
            deltas = tuple(DeltaRule(rule, domains) for rule in rules)
            found.append(DerivedRelation(name, deltas, lines.get(name), tuple(used)))
        return found

    def _read(self, facts: tuple[Any, ...], plan: Any, first: bool = False) -> None:
        read = self.model._reader.facts(facts)
        assert not isinstance(read, ragged)
        unit = self.model._one
        before = self._constants, dict(self._facts), dict(self._tables)
        try:
            with torch.no_grad():
                prepared = prepare(plan, self.model._reader.arities, {}, read, unit.dtype)
                self._recode(prepared.constants)
                weights = {n: self.model.weight(n) for n in self.model._paths}
                changed = {}
                for name, source in prepared.sources.items():
                    keys = _coded(source.index.keys, prepared.constants, self._constants)
                    data = source.data(None, weights, unit.dtype)[0].to(unit.device)
                    changed[name] = self._set(name, keys, data)
                self._derive(changed, weights, first)
        except BaseException:
            self._constants, self._facts, self._tables = before  # nothing changed
            raise

    def _set(self, name: str, keys: Tensor, data: Tensor) -> Tensor:
        facts, table = self._facts.get(name), self._tables.get(name)
        empty = Table(Keys(keys[:0]), data[:0])
        self._facts[name] = (facts or empty).with_rows(keys, data)
        alone = table is facts  # no rule derives more
        self._tables[name] = self._facts[name] if alone else (table or empty).with_rows(keys, data)
        return keys

    def _recode(self, new: Constants) -> None:
        """Strings are numbered in order: a new one moves those behind it."""
        if set(new.strings) <= set(self._constants.strings):
            return
        both = Constants([*self._constants.strings, *new.strings])
        old, self._constants = self._constants, both
        moved: dict[Table, Table] = {}
        for table in (*self._facts.values(), *self._tables.values()):
            if table not in moved:
                moved[table] = Table(index_of(_coded(table.index.keys, old, both)), table.data)
        self._facts = {name: moved[table] for name, table in self._facts.items()}
        self._tables = {name: moved[table] for name, table in self._tables.items()}

    def _derive(self, changed: dict[str, Tensor], weights: dict[str, Tensor], first: bool) -> None:
        domains = dict(self._plan.domains)
        recomputed: set[str] = set()  # relations that may have lost rows
        self.computed = {}
        indices: dict[str, Index] = {n: t.index for n, t in self._tables.items()}
        grounder = Grounder(self._constants, domains, indices, self.model.limit)
        for derived in self._derived:
            relation, rules = derived.relation, derived.rules
            if any(rule.needs_all(changed, recomputed) for rule in rules):
                recomputed.add(relation)
                self._tables.pop(relation, None)
                indices.pop(relation, None)
                if relation in self._facts:
                    self._tables[relation] = self._facts[relation]
                    indices[relation] = self._facts[relation].index
                found = [grounder.ground(rule.body).heads.keys for rule in rules]
                found += [indices[relation].keys] if relation in indices else []
            else:
                found = [rule.reached(grounder, changed, first) for rule in rules]
                found += [changed[relation]] if relation in changed else []
            heads = distinct_rows(torch.cat(found))
            if len(heads):
                changed[relation] = self._compute(derived, heads, grounder, weights)
                indices[relation] = self._tables[relation].index

    def _compute(
        self,
        derived: DerivedRelation,
        heads: Tensor,
        grounder: Grounder,
        weights: Mapping[str, Tensor],
    ) -> Tensor:
        """Set the values of rule heads and of those a softmax normalises with them; their keys."""
        while True:
            grounds = [rule.grounded(grounder, heads) for rule in derived.rules]
            more = [
                g.heads.keys for r, g in zip(derived.rules, grounds, strict=True) if not r.exact
            ]
            joined = distinct_rows(torch.cat([heads, *more])) if more else heads
            if len(joined) == len(heads):
                break
            heads = joined
        facts = self._facts_at(derived.relation, heads)
        if facts is not None and not is_extreme(derived.line):
            refuse_facts(derived.relation, facts.index, grounds, self._constants)
        index, data = self._values(derived, grounds, facts, weights)
        keys = index.keys
        old = self._tables.get(derived.relation, Table(Keys(keys[:0]), data[:0]))
        self._tables[derived.relation] = old.with_rows(keys, data)
        self.computed[derived.relation] = len(keys)
        return keys

    def _values(
        self,
        derived: DerivedRelation,
        grounds: Sequence[GroundRule],
        facts: Table | None,
        weights: Mapping[str, Tensor],
    ) -> tuple[Index, Tensor]:
        """The rule heads of a relation and their values, by its plan."""
        numbers = tuple(n for n, ground in enumerate(grounds) if ground.count)
        reads = rows_read([grounds[n] for n in numbers], self._tables)
        local = [reading(grounds[n], reads) for n in numbers]
        columns = {n: self._tables[n].rows(rows) for n, rows in reads.items()}
        parts = [g.heads for g in local]
        if facts is not None:
            parts.insert(0, facts.index)
            columns[derived.relation] = facts.data
        index, places = aligned(parts)
        used = {name: weights[name] for name in derived.weights}
        tensors = [*(data.unsqueeze(0) for data in columns.values()), *used.values()]
        key: Hashable = None
        if sum(g.count for g in local) <= REUSED:
            key = (derived.relation, numbers, *map(_key, local), *map(_bytes, places))
        plan = self._plans.get(key)
        if plan is None or not plan.fits(tensors):
            name, sizes, stated = derived.relation, [p.rows for p in parts], facts is not None
            merge = merge_of(name, index, index.rows, places, sizes, stated, derived.line)
            steps = tuple(RuleStep(g, self._plan.aggregation) for g in local)
            step = RelationStep(name, steps, merge, stated)
            plan = self._lowered(step, list(columns), list(used), tensors)
            if key is not None:
                if len(self._plans) >= MOST_PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[key] = plan
        return index, plan(*tensors)

    def _lowered(
        self,
        step: RelationStep,
        relations: Sequence[str],
        weights: Sequence[str],
        tensors: Sequence[Tensor],
    ) -> PhysicalPlan:
        unit = self.model._one
        step = to_device(step, unit.device)

        def run(lowering: Lowering, symbols: Sequence[Tensor]) -> Tensor:
            columns = dict(zip(relations, map(Column, symbols), strict=False))
            used = dict(zip(weights, symbols[len(relations) :], strict=True))
            state = State(columns, used, False, unit.dtype, unit.device, lowering)
            return step(state)[step.relation].data.squeeze(0)

        names = (*relations, *weights)
        with untraced():
            return lowered(run, names, tensors, unit.device, without=self.model.without)

    def _facts_at(self, relation: str, heads: Tensor) -> Table | None:
        """The facts among some rule heads."""
        facts = self._facts.get(relation)
        if facts is None:
            return None
        rows = rows_of(facts.index, heads)
        rows = rows[rows >= 0]
        return Table(Keys(facts.index.keys[rows]), facts.data[rows]) if len(rows) else None


def _refuse_outputs(plan: Plan) -> None:
    """Refuse several outputs, and some rows of one."""
    if not plan.is_one_relation:
        raise CannotUpdate(
            "the model was compiled for several outputs, or some rows of one",
            caller(),
            f"compile it for one relation: `compile(R.{plan.outputs[0].relation})`",
        )


def _coded(keys: Tensor, old: Constants, new: Constants) -> Tensor:
    """Keys by the numbers that strings have in another order."""
    if not old.strings:
        return keys
    ranks = torch.tensor([new.code(string) for string in old.strings])
    is_string = keys >= STRINGS
    moved = ranks[(keys - STRINGS).clamp(min=0, max=len(ranks) - 1)]
    return torch.where(is_string, moved, keys)


def rows_read(
    grounds: Sequence[GroundRule], tables: Mapping[str, Table]
) -> dict[str, Tensor | None]:
    """The distinct rows of each relation that ground rules read; None for all of them."""
    found: dict[str, list[Tensor | None]] = {}
    for ground in grounds:
        for at, rows in ground.rows.items():
            literal = ground.body.literals[at]
            if isinstance(literal, nodes.Atom):
                found.setdefault(literal.relation, []).append(rows)
    chosen: dict[str, Tensor | None] = {}
    for name, parts in found.items():
        some = [rows for rows in parts if rows is not None]
        every = len(some) < len(parts) or sum(map(len, some)) >= tables[name].index.rows
        chosen[name] = None if every else torch.cat(some).unique()
    return chosen


def reading(ground: GroundRule, chosen: Mapping[str, Tensor | None]) -> GroundRule:
    """The same ground rule where relations hold the chosen rows alone."""
    rows, sizes = dict(ground.rows), dict(ground.sizes)
    for at, read in ground.rows.items():
        literal = ground.body.literals[at]
        some = chosen[literal.relation] if isinstance(literal, nodes.Atom) else None
        if read is not None and some is not None:
            local, sizes[at] = torch.searchsorted(some, read.contiguous()), len(some)
            in_order = len(local) == len(some) and torch.equal(local, torch.arange(len(some)))
            rows[at] = None if in_order else local
    return replace(ground, rows=rows, sizes=sizes)


def _key(ground: GroundRule) -> Hashable:
    """What decides the plan of a ground rule besides the shapes that it reads."""
    groups = None if ground.groups is None else ground.groups.ids
    read = [_bytes(rows) for rows in ground.rows.values()]
    numbers = [(number.dtype, _bytes(number)) for number in ground.numbers.values()]
    return ground.count, *read, *numbers, _bytes(ground.segments.ids), _bytes(groups)


def _bytes(tensor: Tensor | None) -> bytes | None:
    return None if tensor is None else tensor.numpy().tobytes()

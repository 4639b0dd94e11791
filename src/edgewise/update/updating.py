"""A model over facts that are added, changed and removed.

Which rule heads an edit reaches follows from keys alone: rows that are gone are joined with what
held before, rows that are new or changed with what holds now. Those rule heads are computed from
all their groundings, and where a value comes out unchanged, nothing behind it is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.checks.atoms import listed
from edgewise.checks.evaluation import is_extreme, not_a_scalar
from edgewise.errors import EdgewiseError, caller
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Constants, Keys, distinct_rows, index_of
from edgewise.inputs.errors import BadInput
from edgewise.inputs.kinds import InputLike, dense, ragged
from edgewise.inputs.prepare import BoundPlan, prepare, strings
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.program import FactLike
from edgewise.language.statements import is_selection, weights
from edgewise.notebook import html_table
from edgewise.physical.build import refuse_facts
from edgewise.physical.relation import Relation
from edgewise.physical.weights import weights_changed
from edgewise.plan.nodes import Plan
from edgewise.update.delta import DeltaRule, Edit, Stratum
from edgewise.update.recursion import Recomputed, Recursion
from edgewise.update.removal import matching
from edgewise.update.tables import Change, Table, change_of, coded
from edgewise.update.values import RelationValues

if TYPE_CHECKING:
    from edgewise.module import Model

HELD = ("computed", "changes", "reasons", "_constants", "_own", "_data", "_facts", "_tables")


class CannotUpdate(EdgewiseError):
    """Edits are followed to all rows of one relation."""

    code = "cannot-update"
    example = """\
rules = [R.h(V.X) <= R.a(V.X), R.g(V.X) <= R.h(V.X)]
Program(rules).compile([R.h, R.g]).updating(facts=[R.a(0)[1.0]])"""
    instead = """\
rules = [R.h(V.X) <= R.a(V.X), R.g(V.X) <= R.h(V.X)]
Program(rules).compile(R.g).updating(facts=[R.a(0)[1.0]])"""


class Updating:
    """The output for the facts so far; `add`, `remove` and `edit` recompute what they reach.

    `computed` counts the rows that the last call recomputed and `rows` all rows, by relation;
    `changes` are the keys that it added, removed and gave another value; `reasons` says why all
    rows of a recursive relation were recomputed. Printed, a table.

    >>> from edgewise import Program, R, V
    >>> model = Program([R.h(V.X) <= R.edge(V.X, V.Y)]).compile(R.h)
    >>> updating = model.updating(edge=[("a", "b"), ("c", "b")])
    >>> updating.add(R.edge("a", "c")).at(["a"]), updating.computed
    (tensor([2.]), {'h': 1})
    """

    def __init__(
        self, model: Model, facts: Iterable[Any], inputs: Mapping[str, InputLike] | None = None
    ) -> None:
        _refuse_outputs(model.plan)
        self.model = model
        self.computed: dict[str, int] = {}
        self.changes: dict[str, Change] = {}
        self.reasons: dict[str, str] = {}
        self._plan = model.stages["plan"]  # passes would put several relations into one
        self._constants = Constants(strings(self._plan))
        self._own: dict[str, Table] = {}  # facts of the program
        self._data: dict[str, Table] = {}  # facts of the data, which replace those
        self._facts: dict[str, Table] = {}  # both
        self._tables: dict[str, Table] = {}  # facts and what rules derive
        self._lines = {line.relation: line for line in self._plan.lines}
        self._strata = self._in_order()
        self._values = RelationValues(model, self._plan.aggregation)
        self._recursion = Recursion(model, self._plan)
        self._mark = model._mark()
        self._edit(tuple(listed(facts)), (), inputs or {}, first=True)

    @property
    def output(self) -> Relation:
        """The output relation, as rows.

        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> dict(model.updating(facts=[R.x(0)[1.0], R.edge(0, 1)]).output)
        {R.h(1): tensor(1.)}
        """
        (output,) = self._plan.outputs
        name = output.relation
        table = self._tables.get(name)
        if table is None:
            empty = torch.zeros(len(output.terms), 0, dtype=torch.int64)
            return Relation(name, empty, self.model._one.new_zeros(0), self._constants, False)
        return Relation(name, table.index.keys.T, table.data.clone(), self._constants, False)

    @property
    def rows(self) -> dict[str, int]:
        """How many rows every derived relation has.

        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> model.updating(facts=[R.x(0)[1.0], R.edge(0, 1)]).rows
        {'h': 1}
        """
        names = [name for stratum in self._strata for name in stratum.relations]
        return {n: self._tables[n].index.rows if n in self._tables else 0 for n in names}

    def add(self, facts: Iterable[FactLike] = (), **inputs: InputLike) -> Relation:
        """The output with these facts too; a fact that was there before has a new value now.

        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> updating = model.updating(facts=[R.x(0)[1.0], R.edge(0, 1)])
        >>> dict(updating.add([R.edge(0, 2)]))
        {R.h(1): tensor(1.), R.h(2): tensor(1.)}
        """
        return self._after(facts, (), inputs)

    def remove(self, atoms: Iterable[FactLike]) -> Relation:
        """The output without these facts; an atom with variables stands for all that match it.

        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> updating = model.updating(facts=[R.x(0)[1.0], R.edge(0, 1), R.edge(0, 2)])
        >>> dict(updating.remove([R.edge(0, 1)]))
        {R.h(2): tensor(1.)}
        """
        return self._after((), atoms, {})

    def edit(
        self,
        *,
        add: Iterable[FactLike] = (),
        remove: Iterable[FactLike] = (),
        **inputs: InputLike,
    ) -> Relation:
        """The output after some facts are removed and others added, computed once for all.

        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))]).compile(R.h)
        >>> updating = model.updating(facts=[R.x(0)[1.0], R.edge(0, 1)])
        >>> dict(updating.edit(add=[R.edge(0, 2)], remove=[R.edge(0, 1)]))
        {R.h(2): tensor(1.)}
        """
        return self._after(add, remove, inputs)

    def _after(
        self, add: Iterable[Any], remove: Iterable[Any], inputs: Mapping[str, Any]
    ) -> Relation:
        if self.model._mark() != self._mark:
            raise weights_changed("model.updating(facts=...)")
        self._edit(tuple(listed(add)), tuple(listed(remove)), inputs)
        return self.output

    def _counts(self) -> list[tuple[str, ...]]:
        """What the last edit did to each relation, below titles."""
        titles = ("relation", "rows", "recomputed", "added", "removed", "changed")
        table: list[tuple[str, ...]] = [titles]
        for name, rows in self.rows.items():
            change = self.changes.get(name)
            counts = (0, 0, 0) if change is None else tuple(map(len, change.keys))
            table.append((name, *map(str, (rows, self.computed.get(name, 0), *counts))))
        return table

    def _repr_html_(self) -> str:
        titles, *rows = self._counts()
        return html_table("the last edit", titles, rows, len(rows))

    def __repr__(self) -> str:
        table = self._counts()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = []
        for first, *rest in table:
            cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]))
        lines += [f"all rows of {name}: {reason}" for name, reason in self.reasons.items()]
        return "\n".join(lines)

    def _in_order(self) -> list[Stratum]:
        plan, graph, domains = self._plan, needs(self._plan.rules), dict(self._plan.domains)
        found = []
        for part in components(graph):
            rules = [rule for rule in plan.rules if rule.head.relation in part]
            used = dict.fromkeys(str(weight.name) for rule in rules for weight in weights(rule))
            deltas = tuple(DeltaRule(rule, domains, n) for n, rule in enumerate(rules))
            recursive = any(part & graph[name] for name in part)
            found.append(Stratum(tuple(sorted(part)), deltas, tuple(used), recursive))
        return found

    def _edit(
        self,
        add: tuple[Any, ...],
        remove: tuple[Any, ...],
        inputs: Mapping[str, Any],
        first: bool = False,
    ) -> None:
        held = {name: value for name, value in vars(self).items() if name in HELD}
        held = {n: dict(v) if isinstance(v, dict) else v for n, v in held.items()}
        try:
            with torch.no_grad():
                weights = {n: self.model.weight(n) for n in self.model._paths}
                if first:
                    self._own = self._read(self._plan, (), {}, weights)
                new = self._read(replace(self._plan, facts=()), add, inputs, weights)
                arities = self.model._reader.relations
                gone = matching(remove, self._data, self._own, self._constants, arities)
                renamed = held["_constants"] is not self._constants
                before = self._grounder()
                changes = self._set(gone, new)
                parts = before, self._grounder(), changes, self._facts, self._tables, weights
                edit = Edit(*parts, renamed=renamed, first=first)
                self._derive(edit)
                self.changes, self.computed, self.reasons = changes, edit.computed, edit.reasons
        except BaseException:
            vars(self).update(held)  # nothing changed
            raise

    def _read(
        self,
        plan: Any,
        facts: tuple[Any, ...],
        inputs: Mapping[str, Any],
        weights: Mapping[str, Tensor],
    ) -> dict[str, Table]:
        """Facts and inputs as tables; strings that are new get their numbers."""
        reader, unit = self.model._reader, self.model._one
        read = reader.facts(facts)
        assert read is not None
        found = reader.read_to_ground(inputs, unit)
        _refuse_batches(found)
        prepared = prepare(plan, reader.arities, found, read, unit.dtype)
        _refuse_batch_axis(prepared)
        self._recode(Constants([*self._constants.strings, *prepared.constants.strings]))
        values, tables = dense(found), {}
        for name, source in prepared.sources.items():
            keys = coded(source.index.keys, prepared.constants, self._constants)
            data = source.data(values.get(name), weights, unit.dtype)[0].to(unit.device)
            tables[name] = Table(Keys(keys).or_grid(), data.clone())
        return tables

    def _grounder(self) -> Grounder:
        """Joins over what holds now."""
        relations = {name: table.index for name, table in self._tables.items()}
        return Grounder(self._constants, dict(self._plan.domains), relations, self.model.limit)

    def _recode(self, constants: Constants) -> None:
        """Strings are numbered in order: a new one moves those behind it."""
        old = self._constants
        if constants.strings == old.strings:
            return
        self._constants = constants
        moved: dict[Table, Table] = {}
        for name in ("_own", "_data", "_facts", "_tables"):
            tables = getattr(self, name)
            for table in tables.values():
                if table not in moved:
                    moved[table] = table.recoded(old, constants)
            setattr(self, name, {n: moved[t] for n, t in tables.items()})

    def _set(self, gone: Mapping[str, Tensor], new: Mapping[str, Table]) -> dict[str, Change]:
        """Change the facts; what differs from before."""
        derived = {name for stratum in self._strata for name in stratum.relations}
        changes = {}
        for name in {**gone, **new, **({} if self._facts else self._own)}:
            old, data = self._facts.get(name), self._data.get(name)
            keys = [table.index.keys for table in (new.get(name),) if table is not None]
            keys += [gone[name]] if name in gone else []
            keys += [self._own[name].index.keys] if old is None and name in self._own else []
            if data is not None and name in gone:
                data = data.without(gone[name])
            if name in new:
                fresh = new[name]
                data = fresh if data is None else data.with_rows(fresh.index.keys, fresh.data)
            facts = self._own.get(name)
            if data is not None:
                self._data[name] = data
                facts = data if facts is None else facts.with_rows(data.index.keys, data.data)
            assert facts is not None
            self._facts[name] = facts
            if name not in derived:
                self._tables[name] = facts
            changes[name] = change_of(old, facts, distinct_rows(torch.cat(keys)))
        return {name: found for name, found in changes.items() if found}

    def _derive(self, edit: Edit) -> None:
        for stratum in self._strata:
            if not (stratum.moves(edit) or stratum.reads(edit.changes)):
                continue
            if stratum.recursive:
                found = self._recursion(stratum, edit)
            else:
                found = self._plain(stratum, edit)
            for name, (keys, table, count) in found.items():
                change = change_of(edit.tables.get(name), table, keys)
                edit.changes.pop(name, None)
                edit.tables[name] = table
                edit.now.relations[name] = table.index
                if count:
                    edit.computed[name] = count
                if change:
                    edit.changes[name] = change

    def _plain(self, stratum: Stratum, edit: Edit) -> dict[str, Recomputed]:
        """A relation that does not need itself."""
        (name,), rules = stratum.relations, stratum.rules
        old, facts, line = edit.tables.get(name), edit.facts.get(name), self._lines.get(name)
        everything = stratum.moves(edit)
        if everything:
            grounds = [edit.now.ground(rule.body) for rule in rules]
            known = [table.index.keys for table in (old, facts) if table is not None]
            heads = distinct_rows(torch.cat([*(g.heads.keys for g in grounds), *known]))
        else:
            own = edit.changes[name].keys if name in edit.changes else []
            heads = distinct_rows(torch.cat([*(rule.reached(edit) for rule in rules), *own]))
            grounds, heads = stratum.grounded(edit.now, heads)
            facts = None if facts is None else facts.at(heads)
        if not len(heads):
            return {}
        facts = facts if facts is not None and facts.index.rows else None
        if facts is not None and not is_extreme(line):
            refuse_facts(name, facts.index, grounds, self._constants)
        left = None if old is None or everything else old.without(heads)
        if facts is None and not any(ground.count for ground in grounds):
            return {name: (heads, left or self._empty(heads, old), 0)}
        used = {weight: edit.weights[weight] for weight in stratum.weights}
        rows = self._values(name, grounds, facts, line, edit.tables, used)
        rows = self._chosen(rows, rules[0].rule) if is_selection(name) else rows
        table = rows if left is None else left.with_rows(rows.index.keys, rows.data)
        return {name: (heads, table, rows.index.rows)}

    def _chosen(self, rows: Table, rule: nodes.Rule) -> Table:
        """Of a selection the rows that hold: those whose value is not 0."""
        if rows.data.ndim > 1:
            raise not_a_scalar(rule.head.relation, rule)
        holds = (rows.data != 0).cpu()
        return Table(index_of(rows.index.keys[holds]), rows.data[holds.to(rows.data.device)])

    def _empty(self, heads: Tensor, old: Table | None) -> Table:
        values = self.model._one.new_zeros(0) if old is None else old.data[:0]
        return Table(Keys(heads[:0]), values)


def _refuse_outputs(plan: Plan) -> None:
    """Refuse several outputs, and some rows of one."""
    if not plan.is_one_relation:
        raise CannotUpdate(
            "the model was compiled for several outputs, or some rows of one",
            caller(),
            f"compile it for one relation: `compile(R.{plan.outputs[0].relation})`",
        )


def _refuse_batches(inputs: Mapping[str, Any]) -> None:
    for name, item in inputs.items():
        if isinstance(item, ragged):
            raise BadInput(
                f"`{name}` is a ragged batch; `updating` is over one sample",
                caller(),
                "give one sample: `model.updating(facts=...)` for each",
            )


def _refuse_batch_axis(prepared: BoundPlan) -> None:
    for name, source in prepared.sources.items():
        if source.batched:
            raise BadInput(
                f"`{name}` has a batch axis; `updating` is over one sample",
                caller(),
                "give one sample: (keys..., value)",
            )

"""A program that is computed once and then follows the facts it is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.checks.evaluation import fact_and_rule, is_extreme
from edgewise.checks.facts import listed
from edgewise.errors import EdgewiseError, caller
from edgewise.ground.body import Body
from edgewise.ground.constants import STRINGS, Constants
from edgewise.ground.index import Index, Keys, distinct_rows, locate
from edgewise.ground.rules import Grounder
from edgewise.inputs.kinds import ragged
from edgewise.inputs.prepare import prepare
from edgewise.language.dependencies import components, needs
from edgewise.language.program import FactLike
from edgewise.run.built import uninlined
from edgewise.run.merge import merged
from edgewise.run.result import Relation
from edgewise.run.rule import RuleStep
from edgewise.run.state import State
from edgewise.run.weights import weights_changed
from edgewise.update.affected import everywhere, grounded, reached
from edgewise.update.table import Table, keys_of, places

if TYPE_CHECKING:
    from edgewise.module import Model


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


class Updating:
    """The output for the facts so far; `add` computes the heads that new facts reach.

    A delta join gives those heads: the new rows of each atom, joined with all rows of the others.
    They are computed anew, from all their groundings; every other row is kept. `computed` counts
    the rows of the last call by relation.
    """

    def __init__(self, model: Model, facts: Iterable[Any]) -> None:
        self.model = model
        # a helper that is written into a rule would refuse keys that its own rule never has
        self._plan = uninlined(model) if model.plan.domains else model.plan
        self.computed: dict[str, int] = {}
        self._constants = Constants()
        self._given: dict[str, Table] = {}  # facts
        self._tables: dict[str, Table] = {}  # facts and what rules derive
        self._refuse_recursion()
        self._mark = model._mark()
        self._tell(tuple(listed(facts)), self._plan, first=True)

    @property
    def output(self) -> Relation:
        """The output relation, as rows."""
        name = self._plan.output.relation
        table = self._tables.get(name)
        if table is None:
            empty = torch.zeros(len(self._plan.output.terms), 0, dtype=torch.int64)
            return Relation(name, empty, self.model._one.new_zeros(0), self._constants, False)
        return Relation(name, keys_of(table.index).T, table.data.clone(), self._constants, False)

    def add(self, facts: Iterable[FactLike]) -> Relation:
        """The output with these facts too; a fact that was given before has a new value now."""
        if self.model._mark() != self._mark:
            raise weights_changed("model.updating(facts=...)")
        self._tell(tuple(listed(facts)), replace(self._plan, facts=()))
        return self.output

    def _tell(self, facts: tuple[Any, ...], plan: Any, first: bool = False) -> None:
        read = self.model._reader.facts(facts)
        assert not isinstance(read, ragged)
        unit = self.model._one
        before = self._constants, dict(self._given), dict(self._tables)
        try:
            with torch.no_grad():
                prepared = prepare(plan, self.model._reader.arities, {}, read, unit.dtype)
                self._recode(prepared.constants)
                weights = {n: self.model.weight(n) for n in self.model._paths}
                changed = {}
                for name, source in prepared.sources.items():
                    keys = _coded(keys_of(source.index), prepared.constants, self._constants)
                    data = source.data(None, weights, unit.dtype)[0]
                    changed[name] = self._set(name, keys, data)
                self._derive(changed, weights, first)
        except BaseException:
            self._constants, self._given, self._tables = before  # nothing changed
            raise

    def _set(self, name: str, keys: Tensor, data: Tensor) -> Tensor:
        """Write facts down."""
        for tables in (self._given, self._tables):
            old = tables.get(name)
            empty = Table(Keys(keys[:0]), data[:0])
            tables[name] = (empty if old is None else old).with_rows(keys, data)
        return keys

    def _recode(self, new: Constants) -> None:
        """Strings are numbered in order: a new one moves those behind it."""
        if set(new.strings) <= set(self._constants.strings):
            return
        both = Constants([*self._constants.strings, *new.strings])
        old, self._constants = self._constants, both
        for tables in (self._given, self._tables):
            for name, table in tables.items():
                tables[name] = table.recoded(lambda keys: _coded(keys, old, both))

    def _derive(self, changed: dict[str, Tensor], weights: dict[str, Tensor], first: bool) -> None:
        plan, unit = self._plan, self.model._one
        domains = dict(plan.domains)
        bodies = [Body(rule, domains) for rule in plan.rules]
        whole: set[str] = set()  # relations that may have lost rows
        self.computed = {}
        for part in components(needs(plan.rules)):
            (relation,) = part
            here = [body for body in bodies if body.rule.head.relation == relation]
            indices: dict[str, Index] = {n: t.index for n, t in self._tables.items()}
            grounder = Grounder(self._constants, domains, indices, self.model.limit)
            if any(everywhere(body.rule, changed, whole) for body in here):
                whole.add(relation)
                self._tables.pop(relation, None)
                if relation in self._given:
                    self._tables[relation] = self._given[relation]
                heads = self._all_heads(relation, here, grounder)
            else:
                found = [reached(grounder, body, changed, first) for body in here]
                found += [changed[relation]] if relation in changed else []
                heads = distinct_rows(torch.cat(found))
            if len(heads):
                columns = {n: t.column for n, t in self._tables.items()}
                state = State(columns, weights, False, unit.dtype, unit.device)
                changed[relation] = self._compute(relation, here, heads, grounder, state)

    def _all_heads(self, relation: str, bodies: Sequence[Body], grounder: Grounder) -> Tensor:
        found = [keys_of(grounder.ground(body).heads) for body in bodies]
        found += [keys_of(self._given[relation].index)] if relation in self._given else []
        return distinct_rows(torch.cat(found))

    def _compute(
        self,
        relation: str,
        bodies: Sequence[Body],
        heads: Tensor,
        grounder: Grounder,
        state: State,
    ) -> Tensor:
        """Set the values of heads, and of heads that a softmax joins to them; their keys."""
        while True:
            grounds = [grounded(grounder, body, heads)[1] for body in bodies]
            joined = distinct_rows(torch.cat([heads, *(keys_of(g.heads) for g in grounds)]))
            if len(joined) == len(heads):
                break
            heads = joined
        line = next((li for li in self._plan.lines if li.relation == relation), None)
        parts: list[Index] = [g.heads for g in grounds]
        steps = [RuleStep(g, self._plan.aggregation) for g in grounds]
        values = [step(state) for step in steps if step.ground.count]
        parts = [part for part in parts if part.rows]
        given = self._facts_at(relation, heads)
        if given is not None:
            self._refuse_both(relation, given.index, grounds, line)
            parts, values = [given.index, *parts], [given.column, *values]
        merge = merged(relation, parts, given is not None, line)
        data = merge(values, False).data[0]
        keys = keys_of(merge.index)
        old = self._tables.get(relation, Table(Keys(keys[:0]), data[:0]))
        self._tables[relation] = old.with_rows(keys, data)
        self.computed[relation] = len(keys)
        return keys

    def _facts_at(self, relation: str, heads: Tensor) -> Table | None:
        """The facts among some heads."""
        given = self._given.get(relation)
        if given is None:
            return None
        keys = keys_of(given.index)
        among = locate(Keys(heads), list(keys.unbind(1))) >= 0 if keys.shape[1] else None
        rows = torch.arange(len(keys)) if among is None else among.nonzero()[:, 0]
        return Table(Keys(keys[rows]), given.data[rows]) if len(rows) else None

    def _refuse_both(self, relation: str, facts: Index, grounds: Any, line: Any) -> None:
        if is_extreme(line):
            return
        for ground in grounds:
            keys = keys_of(ground.heads)
            found = places(facts, keys) if facts.rows else torch.zeros(0)
            if len(keys) and bool((found >= 0).any()):
                at = keys[int((found >= 0).nonzero()[0])].tolist()
                key = tuple(self._constants.constant(code) for code in at)
                raise fact_and_rule(relation, key, ground.rule)

    def _refuse_recursion(self) -> None:
        graph = needs(self._plan.rules)
        for part in components(graph):
            if any(part & graph[name] for name in part):
                names = " and ".join(f"`{name}`" for name in sorted(part))
                raise CannotUpdate(
                    f"the rules for {names} are recursive",
                    caller(),
                    "compute anew: `model.ground(...)`",
                )


def _coded(keys: Tensor, old: Constants, new: Constants) -> Tensor:
    """Keys by the numbers that strings have in another order."""
    if not old.strings:
        return keys
    ranks = torch.tensor([new.code(string) for string in old.strings])
    is_string = keys >= STRINGS
    moved = ranks[(keys - STRINGS).clamp(min=0, max=len(ranks) - 1)]
    return torch.where(is_string, moved, keys)

"""Facts that are added to a computed program: what they reach is recomputed, all else stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.checks.atoms import listed
from edgewise.checks.evaluation import fact_and_rule, is_extreme
from edgewise.errors import EdgewiseError, caller
from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.dimensions import show
from edgewise.ground.body import Body
from edgewise.ground.constants import STRINGS, Constants
from edgewise.ground.index import Index, Keys, distinct_rows, index_of, locate
from edgewise.ground.join import distinct
from edgewise.ground.rules import Grounder, GroundRule
from edgewise.inputs.kinds import ragged
from edgewise.inputs.prepare import prepare
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs
from edgewise.language.program import FactLike
from edgewise.language.statements import atoms
from edgewise.language.terms import variables
from edgewise.physical.column import Column
from edgewise.physical.merge import merged
from edgewise.physical.output import Relation
from edgewise.physical.prepare import uninlined
from edgewise.physical.rule import RuleStep
from edgewise.physical.state import State
from edgewise.physical.weights import weights_changed

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


@dataclass(frozen=True, eq=False)
class Table:
    """`data` is (rows, value...), in the order of the index."""

    index: Index
    data: Tensor

    @property
    def column(self) -> Column:
        return Column(self.data.unsqueeze(0))

    def with_rows(self, keys: Tensor, values: Tensor) -> Table:
        """The same with values set at keys, new ones among them; keys are sorted."""
        old = keys_of(self.index)
        if not len(old):
            return Table(index_of(keys), values)
        index = index_of(distinct_rows(torch.cat([old, keys])))
        data = values.new_empty(index.rows, *values.shape[1:])
        if len(old) and self.data.shape[1:] != values.shape[1:]:
            return Table(index, self._mixed(index, keys, values))
        data[places(index, old)] = self.data
        data[places(index, keys)] = values
        return Table(index, data)

    def _mixed(self, index: Index, keys: Tensor, values: Tensor) -> Tensor:
        """Values of another shape can only replace all that were there."""
        if index.rows != len(keys):
            raise ShapeMismatch(
                f"new values are {show(tuple(values.shape[1:]))}, those before "
                f"{show(tuple(self.data.shape[1:]))}",
                help="a compiled relation has values of one shape",
            )
        return values

    def recoded(self, code: Callable[[Tensor], Tensor]) -> Table:
        return Table(index_of(code(keys_of(self.index))), self.data)


class Updating:
    """The output for the facts so far; `add` recomputes the rule heads that new facts reach.

    A delta join gives those rule heads: the new rows of each atom, joined with all rows of the
    others. They are recomputed from all their groundings; every other row stays. `computed` counts
    the rows of the last call by relation.
    """

    def __init__(self, model: Model, facts: Iterable[Any]) -> None:
        self.model = model
        # a rule that is inlined into another would refuse keys that it never has by itself
        self._plan = uninlined(model) if model.plan.domains else model.plan
        self.computed: dict[str, int] = {}
        self._constants = Constants()
        self._facts: dict[str, Table] = {}  # facts
        self._tables: dict[str, Table] = {}  # facts and what rules derive
        self._refuse_recursion()
        self._mark = model._mark()
        self._read(tuple(listed(facts)), self._plan, first=True)

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
        """The output with these facts too; a fact that was there before has a new value now."""
        if self.model._mark() != self._mark:
            raise weights_changed("model.updating(facts=...)")
        self._read(tuple(listed(facts)), replace(self._plan, facts=()))
        return self.output

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
                    keys = _coded(keys_of(source.index), prepared.constants, self._constants)
                    data = source.data(None, weights, unit.dtype)[0]
                    changed[name] = self._set(name, keys, data)
                self._derive(changed, weights, first)
        except BaseException:
            self._constants, self._facts, self._tables = before  # nothing changed
            raise

    def _set(self, name: str, keys: Tensor, data: Tensor) -> Tensor:
        for tables in (self._facts, self._tables):
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
        for tables in (self._facts, self._tables):
            for name, table in tables.items():
                tables[name] = table.recoded(lambda keys: _coded(keys, old, both))

    def _derive(self, changed: dict[str, Tensor], weights: dict[str, Tensor], first: bool) -> None:
        plan, unit = self._plan, self.model._one
        domains = dict(plan.domains)
        bodies = [Body(rule, domains) for rule in plan.rules]
        recomputed: set[str] = set()  # relations that may have lost rows
        self.computed = {}
        for part in components(needs(plan.rules)):
            (relation,) = part
            here = [body for body in bodies if body.rule.head.relation == relation]
            indices: dict[str, Index] = {n: t.index for n, t in self._tables.items()}
            grounder = Grounder(self._constants, domains, indices, self.model.limit)
            if any(needs_all(body.rule, changed, recomputed) for body in here):
                recomputed.add(relation)
                self._tables.pop(relation, None)
                if relation in self._facts:
                    self._tables[relation] = self._facts[relation]
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
        found += [keys_of(self._facts[relation].index)] if relation in self._facts else []
        return distinct_rows(torch.cat(found))

    def _compute(
        self, relation: str, bodies: Sequence[Body], heads: Tensor, grounder: Grounder, state: State
    ) -> Tensor:
        """Set the values of rule heads and of those a softmax normalises with them; their keys."""
        while True:
            grounds = [grounded(grounder, body, heads) for body in bodies]
            joined = distinct_rows(torch.cat([heads, *(keys_of(g.heads) for g in grounds)]))
            if len(joined) == len(heads):
                break
            heads = joined
        line = next((li for li in self._plan.lines if li.relation == relation), None)
        parts: list[Index] = [g.heads for g in grounds]
        steps = [RuleStep(g, self._plan.aggregation) for g in grounds]
        values = [step(state) for step in steps if step.ground.count]
        parts = [part for part in parts if part.rows]
        stated = self._facts_at(relation, heads)
        if stated is not None:
            self._refuse_both(relation, stated.index, grounds, line)
            parts, values = [stated.index, *parts], [stated.column, *values]
        merge = merged(relation, parts, stated is not None, line)
        data = merge(values, False).data[0]
        keys = keys_of(merge.index)
        old = self._tables.get(relation, Table(Keys(keys[:0]), data[:0]))
        self._tables[relation] = old.with_rows(keys, data)
        self.computed[relation] = len(keys)
        return keys

    def _facts_at(self, relation: str, heads: Tensor) -> Table | None:
        """The facts among some rule heads."""
        facts = self._facts.get(relation)
        if facts is None:
            return None
        keys = keys_of(facts.index)
        among = locate(Keys(heads), list(keys.unbind(1))) >= 0 if keys.shape[1] else None
        rows = torch.arange(len(keys)) if among is None else among.nonzero()[:, 0]
        return Table(Keys(keys[rows]), facts.data[rows]) if len(rows) else None

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


def places(index: Index, keys: Tensor) -> Tensor:
    """The row of each key; all of them hold."""
    if not keys.shape[1]:
        return torch.zeros(len(keys), dtype=torch.int64)
    return locate(index, list(keys.unbind(1)))


WANTED = "@wanted"


def reached(grounder: Grounder, body: Body, changed: Mapping[str, Tensor], first: bool) -> Tensor:
    """The keys of the rule heads that some grounding with a changed row has (semi-naive).

    A body without relations, such as weights alone, has all its groundings from the `first` call.
    """
    head, found = body.rule.head, [torch.zeros(0, len(body.rule.head.terms), dtype=torch.int64)]
    if not body.positive:
        return keys_of(grounder.ground(body).heads) if first else found[0]
    for at, atom in body.positive.items():
        if atom.relation in changed:
            new = Keys(changed[atom.relation])
            bindings = grounder.bindings(body, at, new)
            columns = [grounder.column(term, bindings) for term in head.terms]
            found.append(
                torch.stack(columns, 1)
                if columns
                else torch.zeros(min(bindings.count, 1), 0, dtype=torch.int64)
            )
    return distinct_rows(torch.cat(found))


def needs_all(rule: nodes.Rule, changed: Mapping[str, Tensor], recomputed: set[str]) -> bool:
    """Whether a change may remove rule heads, or move pairs of a pattern: all are recomputed."""
    for atom in atoms(rule.body):
        if isinstance(atom, nodes.PatternAtom):
            return True
        if isinstance(atom, nodes.Atom) and (
            atom.relation in recomputed or (atom.negated and atom.relation in changed)
        ):
            return True
    return False


def grounded(grounder: Grounder, body: Body, heads: Tensor) -> GroundRule:
    """The rule for some rule heads alone, and for those that a softmax normalises with them.

    A variable that only a family of weights holds takes all values of its domain.
    """
    rule = body.rule
    named = next((f for f in rule.functions if dict(f.arguments).get("agg_terms")), None)
    free = set(named["agg_terms"]) if named is not None else set()
    held = {v.name for atom in atoms(rule.body) for v in variables(atom.terms)}
    free |= {v.name for v in variables(rule.head.terms)} - held
    bound = [
        p
        for p, t in enumerate(rule.head.terms)
        if not (isinstance(t, nodes.Variable) and t.name in free)
    ]
    wanted = nodes.Atom(WANTED, tuple(rule.head.terms[p] for p in bound), hidden=True)
    restricted = Body(replace(rule, body=(*rule.body, wanted)), body.domains)
    at = next(n for n, literal in enumerate(restricted.literals) if literal is wanted)
    keys = Keys(distinct_rows(heads[:, bound]))
    with_wanted = replace(grounder, relations=grounder.relations | {WANTED: keys}, joins={})
    bindings = distinct(with_wanted.bindings(restricted, at, keys), restricted.visible)
    return with_wanted.finish(restricted, bindings)


def keys_of(index: Index) -> Tensor:
    """(rows, arity)."""
    columns = [index.column(p) for p in range(index.arity)]
    return torch.stack(columns, 1) if columns else torch.zeros(index.rows, 0, dtype=torch.int64)

"""What follows from a template without values: the atoms that hold, and substitutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from edgewise.language import Program, nodes, statements
from edgewise.language.text_form.published import NAMED
from edgewise.neuralogic.core.constructs.factories import R
from edgewise.neuralogic.core.constructs.relation import BaseRelation
from edgewise.neuralogic.engine import Example, Template, _facts, matched
from edgewise.neuralogic.sample_reader import SampleReader


class LogicInference:
    """The rules of a template as conditions: which atoms hold, whatever their values.

    >>> from edgewise.neuralogic import Model, R, V
    >>> model = Model()
    >>> model += R.far(V.X, V.Y) <= (R.road(V.X, V.Z), R.road(V.Z, V.Y))
    >>> facts = [R.road("home", "lake"), R.road("lake", "mill")]
    >>> print(*model.derivable_queries(facts))
    road(home, lake). road(lake, mill). far(home, mill).
    """

    def __init__(self, template: Template) -> None:
        self.template = template
        self.reader = SampleReader(template)

    def query(self, query: BaseRelation, examples: Any = None) -> Any:
        asks = self.reader.query(query)
        found = [matched(asks, atom) for atom in self._holds(examples, asks.relation)]
        listed = [{k: str(v) for k, v in one.items()} for one in found if one is not None]
        return listed if listed else {}

    def derived(self, example: Any = None) -> list[BaseRelation]:
        atoms = self._holds(example, None)
        named = [(a.relation.partition("/")[0], list(map(str, a.terms))) for a in atoms]
        return [R.get(name)(terms) if terms else R.get(name) for name, terms in named]

    def _holds(self, examples: Any, relation: str | None) -> list[nodes.Atom]:
        """The atoms of a relation that hold, or all of them."""
        facts = list(self.reader.facts(examples or []))
        program = Program([_condition(s) for s in self.template.statements()])
        rules = program.rules
        heads = {rule.head.relation for rule in rules}
        own = [fact.atom for fact in program.facts if fact.atom.relation != NAMED]
        every = dict.fromkeys(replace(atom, weight=None) for atom in (*own, *facts))
        found = [a for a in every if relation in (None, a.relation)]
        wanted = sorted(name for name in heads if relation in (None, name))
        if wanted:
            read = {
                a.relation for r in rules for a in statements.atoms(r) if isinstance(a, nodes.Atom)
            }
            model = program.compile([nodes.Atom(name) for name in wanted], dtype=torch.float64)
            stated = [replace(a, weight=None) for a in _facts(Example(facts), heads, read)]
            outputs: Any = model.rows(model.ground(facts=stated))
            found += [nodes.Atom(a.relation, a.terms) for r in outputs.values() for a in r]
        return list(dict.fromkeys(found))


def _condition(statement: nodes.Statement) -> nodes.Statement:
    """A rule whose body carries no value."""
    if isinstance(statement, nodes.Fact):
        return nodes.Fact(replace(statement.atom, weight=None))
    if not isinstance(statement, nodes.Rule):
        return statement
    body: list[nodes.Expression] = []
    for atom in statements.atoms(statement):
        if isinstance(atom, nodes.Atom):
            body.append(replace(atom, weight=None, hidden=not atom.negated))
        elif isinstance(atom, nodes.SpecialAtom) and not atom.carries_value:
            body.append(atom)
    return nodes.Rule(replace(statement.head, weight=None), tuple(body), place=statement.place)


class InferenceEngine:
    """`InferenceEngine(template, facts)`: queries of a template, as before 0.8.

    >>> from edgewise.neuralogic import Model, R, V
    >>> model = Model()
    >>> model += R.far(V.X, V.Y) <= (R.road(V.X, V.Z), R.road(V.Z, V.Y))
    >>> facts = [R.road("home", "lake"), R.road("lake", "mill")]
    >>> InferenceEngine(model, facts).query(R.far("home", V.Y))
    [{'Y': 'mill'}]
    """

    def __init__(self, template: Any, examples: Any = None) -> None:
        self.template = template
        self.examples: Any = examples

    def set_knowledge(self, examples: Any) -> None:
        self.examples = examples

    def query(self, query: BaseRelation, examples: Any = None) -> Any:
        """The values of the variables for which a query holds."""
        return self.template.query(query, self.examples if examples is None else examples)

    q = query

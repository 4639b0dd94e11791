"""Templates in files, in NeuraLogic's text format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from edgewise.errors import caller, named
from edgewise.language import Program, nodes, statements
from edgewise.language.text_form.parser import parse
from edgewise.language.text_form.published import (
    DERIVED,
    FACTS,
    Relation,
    bound,
    constants,
    unbound,
    with_facts_apart,
)
from edgewise.neuralogic.errors import BadTemplate
from edgewise.neuralogic.translate import COMPUTED, TemplateWeight
from edgewise.neuralogic.values import WeightForm, tensor


class TextTemplate:
    """The rules and weights of a text, as `TemplateTranslator` has those of Python rules."""

    def __init__(self, path: str | Path) -> None:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, TypeError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else problem
            raise BadTemplate(
                f"cannot read `{named(path)}`: {why}", caller(), "give the path of a template"
            ) from None
        found = _named_by_arity(parse(text, str(path), lifts=True).statements)
        self.arities = _arities(found)
        self.weights: dict[str, TemplateWeight] = {}
        self.compares = any(
            isinstance(atom, nodes.SpecialAtom)
            for s in found
            if isinstance(s, nodes.Rule)
            for atom in statements.atoms(s)
        )
        self.computes = any(
            isinstance(atom, nodes.SpecialAtom) and atom.name in COMPUTED
            for s in found
            if isinstance(s, nodes.Rule)
            for atom in statements.atoms(s)
        )
        program = Program(found)
        listed = statements.name_weights(program)
        for statement in sorted(listed, key=lambda s: not isinstance(s, nodes.Rule)):
            for weight in statements.weights(statement):  # those of rules have the first numbers
                self._weight(weight)
        self._statements = [self._collected(s) for s in listed]

    def name(self, relation: Relation) -> str:
        name, arity = relation
        return name if self.arities.get(name, {arity}) == {arity} else f"{name}/{arity}"

    def extended(self, rules: Iterable[nodes.Rule]) -> TextTemplate:
        """The template with other rules beside its own."""
        found = copy(self)
        found._statements = [*self._statements, *rules]
        return found

    def derived(self) -> set[str]:
        """The relations that have rules."""
        return {s.head.relation for s in self._statements if isinstance(s, nodes.Rule)}

    def statements(self, with_facts: Iterable[Relation] = ()) -> list[nodes.Statement]:
        found = self._statements
        facts = [s.atom for s in found if isinstance(s, nodes.Fact)]
        apart = dict.fromkeys((*with_facts, *((a.relation, len(a.terms)) for a in facts)))
        found = with_facts_apart(list(found), apart)
        names = {s.head.relation for s in found if isinstance(s, nodes.Rule)}
        found = [
            nodes.Fact(replace(s.atom, relation=s.atom.relation + FACTS))
            if isinstance(s, nodes.Fact) and s.atom.relation + DERIVED in names
            else s
            for s in found
        ]
        is_open = any(isinstance(s, nodes.Rule) and unbound(s) for s in found)
        found = [bound(s) if isinstance(s, nodes.Rule) else s for s in found]
        return [*found, *constants(found)] if is_open else found

    def _collected(self, statement: nodes.Statement) -> Any:
        def changed(node: Any) -> Any:
            return self._weight(node) if isinstance(node, nodes.Weight) else _parts(node, changed)

        return changed(statement)

    def _weight(self, weight: nodes.Weight) -> nodes.Weight:
        if weight.is_fixed and weight.value is not None:
            return weight
        label = weight.name or ""
        known = next((w for w in self.weights.values() if w.label == label), None)
        if known is None:
            index = len(self.weights)
            known = TemplateWeight(index, f"w{index}", label, _form(weight), weight.is_fixed)
            self.weights[known.name] = known
        shape = known.form.shape
        return nodes.Weight(name=known.name, shape=shape or None, value=None if shape else 0.0)


def _parts(node: Any, change: Any) -> Any:
    return statements.mapped(node, change)


def _form(weight: nodes.Weight) -> WeightForm:
    if weight.value is not None:
        value = weight.value.thing if isinstance(weight.value, nodes.Opaque) else weight.value
        found = tensor(torch.as_tensor(value, dtype=torch.float64))
        return WeightForm(tuple(found.shape), found)
    shape = tuple(n for at, n in enumerate(weight.shape or ()) if at == 0 or n != 1)
    form = () if shape == (1,) else shape
    fill = None if weight.fill is None else torch.full(form, weight.fill, dtype=torch.float64)
    return WeightForm(form, fill)


def _arities(found: Iterable[nodes.Statement]) -> dict[str, set[int]]:
    known: dict[str, set[int]] = defaultdict(set)
    for atom in _all_atoms(found):
        name, _, arity = atom.relation.rpartition("/")
        is_split = bool(name) and arity == str(len(atom.terms))
        known[name if is_split else atom.relation].add(len(atom.terms))
    return known


def _all_atoms(found: Iterable[nodes.Statement]) -> Iterable[nodes.Atom]:
    for statement in found:
        if isinstance(statement, nodes.Rule):
            yield statement.head
            yield from (a for a in statements.atoms(statement) if isinstance(a, nodes.Atom))
        elif isinstance(statement, nodes.Fact):
            yield statement.atom


def _named_by_arity(found: Iterable[nodes.Statement]) -> list[nodes.Statement]:
    """A name with several arities is one relation for each."""
    items = list(found)
    known = _arities(items)

    def changed(node: Any) -> Any:
        if isinstance(node, nodes.Atom) and len(known.get(node.relation, ())) > 1:
            return replace(node, relation=f"{node.relation}/{len(node.terms)}")
        if isinstance(node, nodes.Line) and len(known.get(node.relation, ())) > 1:
            return replace(node, relation=f"{node.relation}/{node.arity}")
        return statements.mapped(node, changed)

    return [changed(item) for item in items]

"""Datasets as samples of a template: facts and queries under the names of its program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from edgewise.data.neuralogic_samples import read_samples
from edgewise.errors import caller, safe_repr
from edgewise.language import brackets, nodes
from edgewise.neuralogic.core.constructs.relation import BaseRelation, WeightedRelation
from edgewise.neuralogic.core.constructs.rule import TemplateRule
from edgewise.neuralogic.dataset.base import ConvertibleDataset
from edgewise.neuralogic.dataset.file import FileDataset
from edgewise.neuralogic.dataset.logic import LogicDataset
from edgewise.neuralogic.engine import Example, NeuralSample, Template
from edgewise.neuralogic.errors import BadSample
from edgewise.neuralogic.learned_facts import LEARNED, LearnedFacts
from edgewise.neuralogic.translate import TemplateTranslator
from edgewise.neuralogic.values import tensor, weight_form

ONE = torch.ones((), dtype=torch.float64)


class SampleReader:
    """Reads facts and queries with the names that a template has for relations."""

    def __init__(self, template: Template, learned: LearnedFacts | None = None) -> None:
        self.template = template
        self.learned = learned  # where the values of facts are noted, if they are learned
        self._terms = (
            template if isinstance(template, TemplateTranslator) else TemplateTranslator([], None)
        )
        self._examples: dict[int, tuple[Any, Example]] = {}

    def samples(self, dataset: Any) -> list[NeuralSample]:
        if isinstance(dataset, ConvertibleDataset):
            dataset = dataset.to_dataset()
        if isinstance(dataset, FileDataset):
            self._refuse_learned()
            return list(self._from_files(dataset))
        if not isinstance(dataset, LogicDataset):
            raise BadSample(
                f"`{safe_repr(dataset)}` is not a dataset",
                caller(),
                "write `Dataset([Sample(query, example)])`",
            )
        return [self._sample(query, self._example(facts)) for query, facts in dataset.pairs()]

    def _sample(self, query: Any, example: Example) -> NeuralSample:
        if query is None:
            return NeuralSample(example, None, ONE)
        target = _written(query) if isinstance(query, WeightedRelation) else ONE
        if target.isnan().any():
            raise BadSample(
                f"the target of `{query}` is not a number",
                caller(),
                "leave the sample out, or give its target a number",
            )
        return NeuralSample(example, self.query(query), target)

    def query(self, query: Any) -> nodes.Atom:
        if not isinstance(query, BaseRelation) or query.predicate.special or query.negated:
            raise BadSample(
                f"`{safe_repr(query)}` is not a query", caller(), "write `R.h(1)`, `R.h(V.X)`"
            )
        return self._atom(query)

    def _atom(self, relation: BaseRelation) -> nodes.Atom:
        terms = tuple(self._terms.term(term)[0] for term in relation.terms)
        return nodes.Atom(self.template.name((relation.predicate.name, len(terms))), terms)

    def _example(self, facts: Any) -> Example:
        known = self._examples.get(id(facts))
        if known is None:
            found = Example(self._distinct(self.facts(facts)))
            known = self._examples[id(facts)] = (facts, found)
        return known[1]

    def _distinct(self, atoms: Iterable[nodes.Atom]) -> list[nodes.Atom]:
        """The first of each fact counts."""
        found: dict[Any, nodes.Atom] = {}
        for atom in atoms:
            name, is_learned, _ = atom.relation.partition(LEARNED)
            found.setdefault((name, atom.terms[:-1] if is_learned else atom.terms), atom)
        return list(found.values())

    def _refuse_learned(self) -> None:
        if self.learned is not None:
            raise BadSample(
                "facts of files are data, and are not learned",
                caller(),
                "read them into `Dataset([Sample(query, example)])`",
            )

    def facts(self, facts: Iterable[Any]) -> Iterator[nodes.Atom]:
        for fact in facts:
            if isinstance(fact, TemplateRule):
                raise BadSample(
                    f"`{fact}` is a rule in an example", fact.place, "write rules in the template"
                )
            if not isinstance(fact, BaseRelation) or fact.predicate.special or fact.negated:
                raise BadSample(
                    f"`{safe_repr(fact)}` is not a fact", caller(), "a fact is `R.a(1)[0.5]`"
                )
            atom = self._atom(fact)
            free = [term for term in atom.terms if isinstance(term, nodes.Variable)]
            if free:
                raise BadSample(
                    f"`{fact}` has the variable `{free[0].name}`",
                    caller(),
                    "a fact for all constants belongs into the template",
                )
            self._refuse_negative(atom)
            for (term, kind), written in zip(
                map(self._terms.term, fact.terms), fact.terms, strict=True
            ):
                self._refuse_float(written)
                if kind is not None:
                    yield nodes.Atom(f"{kind}:", (term,))
            yield self._valued(atom, fact)

    def _refuse_float(self, term: Any) -> None:
        if isinstance(term, float) and self.template.compares:
            raise BadSample(
                f"the term {term} is not an integer, and the template compares terms",
                caller(),
                "number the constants, and give the numbers as values",
            )

    def _refuse_negative(self, atom: nodes.Atom) -> None:
        """Index arithmetic is over the natural numbers: it would not hold, without a word."""
        found = [term for term in atom.terms if isinstance(term, int) and term < 0]
        if found and self.template.computes:
            raise BadSample(
                f"the term {found[0]} is negative, and the template computes with terms",
                caller(),
                "number the constants from 0",
            )

    def _valued(self, atom: nodes.Atom, fact: BaseRelation) -> nodes.Atom:
        if not isinstance(fact, WeightedRelation):
            return atom
        if self.learned is not None and not fact.is_fixed:
            name, terms = fact.predicate.name, ", ".join(map(str, atom.terms))
            literal = f"{name}({terms})" if terms else name
            return self.learned.atom(atom, literal, fact.weight, fact.weight_name)
        value = _written(fact)
        found = brackets.weight(value.item() if value.dim() == 0 else value, caller())
        return replace(atom, weight=found)

    def _from_files(self, dataset: FileDataset) -> Iterator[NeuralSample]:
        examples, queries = read_samples(dataset.examples_file, dataset.queries_file, shares=True)
        for atom in (atom for atoms in examples for atom in atoms):
            self._refuse_negative(atom)
        read = [Example([self._renamed(atom) for atom in atoms]) for atoms in examples]
        for at, atom in queries:
            yield NeuralSample(read[at], replace(self._renamed(atom), weight=None), _target(atom))

    def _renamed(self, atom: nodes.Atom) -> nodes.Atom:
        return replace(atom, relation=self.template.name((atom.relation, len(atom.terms))))


def _written(fact: WeightedRelation) -> torch.Tensor:
    """The value of a fact; of a shape, zeros."""
    form = weight_form(fact.weight)
    return torch.zeros(form.shape, dtype=torch.float64) if form.value is None else form.value


def _target(atom: nodes.Atom) -> torch.Tensor:
    value = None if atom.weight is None else atom.weight.value
    found = value.thing if isinstance(value, nodes.Opaque) else value
    return ONE if found is None else tensor(torch.as_tensor(found, dtype=torch.float64))

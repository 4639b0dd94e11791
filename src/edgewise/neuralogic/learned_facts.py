"""Facts of samples that are learned: the values that a dataset was built with are weights.

x(t) with the value number n of its shape is

    x(T) :- w(N) x.learned(T, N).      x.learned(t, n).

so that a value may be that of several facts, which give it one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.language import nodes
from edgewise.language.text_form.published import Relation, terms_of
from edgewise.neuralogic.errors import BadSample
from edgewise.neuralogic.values import plain, tensor, weight_form

LEARNED = ".learned"  # what follows the name of a relation that has learned facts
Row = tuple[tuple[int, ...], int]  # the shape of a value, and its number among those of the shape


class IncompatibleKeys(NamedTuple):
    """Facts that a state says nothing about, and those that a dataset does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]


@dataclass(eq=False)
class LearnedFacts:
    """The values of the learned facts of a dataset, by shape; `facts` says where each is."""

    values: dict[tuple[int, ...], list[Tensor]] = field(default_factory=dict)
    relations: dict[tuple[Relation, tuple[int, ...]], None] = field(default_factory=dict)
    facts: dict[str, list[Row]] = field(default_factory=dict)
    weights: dict[str, torch.nn.Parameter] = field(default_factory=dict)
    _named: dict[str, Row] = field(default_factory=dict)

    def atom(self, atom: nodes.Atom, literal: str, item: Any, name: str | None) -> nodes.Atom:
        """The atom that stands for a fact with a value, or with a shape: zeros."""
        form = weight_form(item)
        shape = form.shape
        row = self._named.get(name) if name else None
        if row is None:
            listed = self.values.setdefault(shape, [])
            row = shape, len(listed)
            value = form.value
            listed.append(torch.zeros(shape, dtype=torch.float64) if value is None else value)
            if name:
                self._named[name] = row
        elif row[0] != shape:
            raise BadSample(
                f"the value `{name}` has the shapes {row[0]} and {shape}",
                caller(),
                "give values of other shapes other names",
            )
        known = self.facts.setdefault(literal, [])
        if row not in known:
            known.append(row)
        self.relations[(atom.relation, len(atom.terms)), shape] = None
        return replace(
            atom, relation=self._relation(atom.relation, shape), terms=(*atom.terms, row[1])
        )

    def _relation(self, name: str, shape: tuple[int, ...]) -> str:
        return f"{name}{LEARNED}{list(self.values).index(shape)}"

    def rules(self, derived: set[str]) -> list[nodes.Rule]:
        """What the facts are of their values; `derived` are the relations that have rules."""
        found = []
        for (relation, shape), _ in self.relations.items():
            name, arity = relation
            if name in derived:
                raise BadSample(
                    f"rules derive `{name}`, and facts of it are learned",
                    caller(),
                    "learn facts of a relation of its own, and read it in a rule",
                )
            at = list(self.values).index(shape)
            variables, number = terms_of(arity), nodes.Variable(f"Fact{at}")
            weight = nodes.Weight(name=f"facts.{at}", keys=(number,), shape=shape or (1,))
            body = nodes.Atom(self._relation(name, shape), (*variables, number), weight)
            found.append(nodes.Rule(nodes.Atom(name, variables), (body,)))
        return found

    def domains(self) -> dict[str, int]:
        return {f"Fact{at}": len(values) for at, values in enumerate(self.values.values())}

    def make_weights(self) -> dict[str, torch.nn.Parameter]:
        """Values of one shape are one weight."""
        for at, (shape, values) in enumerate(self.values.items()):
            rows = torch.stack(values).reshape(len(values), *(shape or (1,)))
            self.weights[f"facts.{at}"] = torch.nn.Parameter(rows)
        return self.weights

    def _value(self, row: Row) -> Tensor:
        shape, number = row
        at = list(self.values).index(shape)
        return self.weights[f"facts.{at}"].detach()[number].reshape(shape)

    def _row(self, literal: str) -> Row:
        rows = self.facts[literal]
        if len(rows) > 1:
            raise BadSample(
                f"`{literal}` has {len(rows)} learned values, in several examples",
                caller(),
                'give them one name, as in `R.x(1)["name":0.5]`',
            )
        return rows[0]

    def state_dict(self) -> dict[str, dict[str, Any]]:
        return {"weights": {fact: plain(self._value(self._row(fact))) for fact in self.facts}}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool) -> IncompatibleKeys:
        """Nothing is set where something is refused."""
        new = state.get("weights", state)
        missing = [fact for fact in self.facts if fact not in new]
        unexpected = [fact for fact in new if fact not in self.facts]
        if strict and (missing or unexpected):
            raise BadSample(
                f"the state lacks {missing[:3]} and has {unexpected[:3]} beside the learned facts",
                caller(),
                "give the state of the same facts, or `strict=False`",
            )
        found: dict[Row, tuple[str, Tensor]] = {}
        for fact in (fact for fact in new if fact in self.facts):
            row, value = self._row(fact), tensor(new[fact])
            if tuple(value.shape) != row[0]:
                raise BadSample(
                    f"the value of `{fact}` has the shape {row[0]}, got {tuple(value.shape)}",
                    caller(),
                    "give a value of its shape",
                )
            other = found.setdefault(row, (fact, value))
            if not torch.equal(other[1], value):
                raise BadSample(
                    f"`{other[0]}` and `{fact}` have one value, and get two",
                    caller(),
                    "give both the same",
                )
        for row, (_, value) in found.items():
            self._value(row).copy_(value)
        return IncompatibleKeys(missing, unexpected)

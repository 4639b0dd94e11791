"""Programs without some heads: the domain of a layer's heads is smaller, and so are its weights.

The variable of the heads is renamed in the rules of the layer, and gets a domain of its own; a
matrix that is applied to concatenated heads loses their columns. Where no head is left, what is
added to a sum is left out of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.language import nodes
from edgewise.language.defaults import Domain
from edgewise.language.program import Program
from edgewise.language.statements import (
    aggregation_of,
    atoms,
    combination,
    mapped,
    name_weights,
    substitute,
    weights,
)
from edgewise.language.terms import variables
from edgewise.pruning.errors import NotPrunable
from edgewise.pruning.layers import HeadLayer

# f(0) = 0: nothing that goes in is nothing that comes out
OF_NOTHING = frozenset(("dropout", "identity", "norm", "rms_norm", "relu", "tanh", "transp"))


@dataclass(frozen=True)
class Cut:
    """What is left of a weight along one axis: the places `left` of all."""

    axis: int
    left: tuple[int, ...]

    def __call__(self, weight: Tensor) -> Tensor:
        index = torch.tensor(self.left, dtype=torch.int64, device=weight.device)
        return weight.index_select(self.axis, index)


@dataclass
class PrunedRules:
    """A program without some heads, and what is left of its weights; others are as they were."""

    program: Program
    cuts: dict[str, Cut] = field(default_factory=dict)

    def weight(self, name: str, weight: Tensor) -> Tensor:
        cut = self.cuts.get(name)
        return weight if cut is None else cut(weight)


def pruned(program: Program, layers: Mapping[int, HeadLayer], left: Mapping[int, Sequence[int]],
           outputs: Sequence[str] = ()) -> PrunedRules:  # fmt: skip
    """The program with the heads (of grouped ones: the groups) at the places `left` of layers.

    `outputs` are relations that must still be derived.
    """
    made = PrunedRules(program)
    statements = list(name_weights(program))
    domains: dict[str, Domain] = dict(program.domains)
    for number, layer in layers.items():
        cut = _LayerCut(statements, layer, tuple(left[number]), program.aggregation)
        if left[number]:
            name = _fresh(f"{layer.variable}{number}", domains, statements)
            statements = cut.smaller(name, outputs)
            numbers = tuple(layer.numbers[k] for k in left[number])
            counted = isinstance(domains[layer.variable], int) and not cut.by_number
            domains[name] = len(numbers) if counted else numbers
        else:
            statements = cut.nothing(outputs)
        made.cuts |= cut.cuts
    made.program = Program(
        statements,
        aggregation=program.aggregation,
        domains={nodes.Variable(n): d for n, d in domains.items()},
        rounds=program.rounds,
    )
    return made


def _fresh(name: str, domains: Mapping[str, Domain], statements: Sequence[nodes.Statement]) -> str:
    taken = {*domains}
    for statement in statements:
        if isinstance(statement, nodes.Rule):
            every = (statement.head, *atoms(statement.body))
            taken |= {v.name for atom in every for v in variables(atom.terms)}
    while name in taken:
        name += "_"
    return name


class _LayerCut:
    """The rules of one layer: `places` are the relations that have its heads, and where."""

    def __init__(
        self,
        statements: list[nodes.Statement],
        layer: HeadLayer,
        left: tuple[int, ...],
        default: nodes.Function,
    ) -> None:
        self.statements, self.layer, self.left, self.default = statements, layer, left, default
        self.rules = [s for s in statements if isinstance(s, nodes.Rule)]
        self.stated = {s.atom.relation for s in statements if isinstance(s, nodes.Fact)}
        self.cuts: dict[str, Cut] = {}
        self.by_number = False
        head = layer.score.head
        at = head.terms.index(nodes.Variable(layer.variable))
        self.places: dict[str, int] = {head.relation: at}
        self._find_readers()
        self._find_read()

    def _of(self, relation: str) -> list[nodes.Rule]:
        return [rule for rule in self.rules if rule.head.relation == relation]

    def _variable(self, rule: nodes.Rule) -> nodes.Variable | None:
        """The variable of the heads in a rule; None in a rule without one."""
        at = self.places.get(rule.head.relation)
        found = set() if at is None else {rule.head.terms[at]}
        found |= {
            atom.terms[self.places[atom.relation]]
            for atom in atoms(rule.body)
            if isinstance(atom, nodes.Atom) and atom.relation in self.places
        }
        if not found:
            return None
        (term, *others) = found
        if others or not isinstance(term, nodes.Variable):
            raise self._refused(f"`{rule.head.relation}` reads one head by its number", "")
        return term

    def _find_readers(self) -> None:
        """What is derived from the weights, as long as it is of one head."""
        waiting = list(self.places)
        while waiting:
            relation = waiting.pop()
            for rule in self.rules:
                if relation not in {a.relation for a in atoms(rule.body)
                                    if isinstance(a, nodes.Atom)}:  # fmt: skip
                    continue
                term = self._variable(rule)
                if term in rule.head.terms and rule.head.relation not in self.places:
                    self.places[rule.head.relation] = rule.head.terms.index(term)
                    waiting.append(rule.head.relation)

    def _find_read(self) -> None:
        """What the layer alone reads: queries, keys and values, as they are made."""
        changed = True
        while changed:
            changed = False
            for rule in [r for r in self.rules if r.head.relation in self.places]:
                term = self._variable(rule)
                for atom in atoms(rule.body):
                    if isinstance(atom, nodes.Atom) and term in atom.terms and self._own(atom):
                        self.places[atom.relation] = atom.terms.index(term)
                        changed = True

    def _own(self, atom: nodes.Atom) -> bool:
        """Whether a relation is derived for this layer alone."""
        relation = atom.relation
        if relation in self.places or relation in self.stated or not self._of(relation):
            return False
        readers = [
            rule
            for rule in self.rules
            if any(isinstance(a, nodes.Atom) and a.relation == relation for a in atoms(rule.body))
        ]
        mine = relation.rpartition(".")[0] == self.layer.scope
        return mine and all(rule.head.relation in self.places for rule in readers)

    # fewer heads

    def smaller(self, name: str, outputs: Sequence[str]) -> list[nodes.Statement]:
        read = {a.relation for r in self.rules for a in atoms(r.body) if isinstance(a, nodes.Atom)}
        every = [r for r in self.rules if self._variable(r) is not None]
        for rule in every:
            summed = aggregation_of(rule, self.default).name == "sum_agg"
            relation = rule.head.relation
            if relation in outputs and (relation in self.places or not summed):
                why = "compile a relation that is computed from it" if relation not in read else ""
                raise self._refused(f"the output `{relation}` has a part of each head", why)
        made = {id(rule): self._renamed(rule, name) for rule in self.rules}
        statements = [made.get(id(s), s) for s in self.statements]
        for rule in self.rules:
            term = self._variable(rule)
            if term is not None and term not in rule.head.terms:
                statements = self._aggregated(rule, term, statements)
        return statements

    def _renamed(self, rule: nodes.Rule, name: str) -> nodes.Rule:
        term = self._variable(rule)
        for weight in weights(rule):
            if term is None:
                if weight.name in self.cuts:
                    raise self._refused(f"the weight `{weight.name}` is in another rule too", "")
            elif term in weight.keys:
                if weight.value is not None or weight.name is None:
                    raise self._refused(f"`{rule.head.relation}` has numbers for each head", "")
                self.cuts[weight.name] = Cut(weight.keys.index(term), self.left)
        if term is None:
            return rule
        self.by_number |= any(
            term in atom.terms and getattr(atom, "relation", None) not in self.places
            for atom in atoms(rule.body)
        )
        renamed: nodes.Rule = substitute(rule, {term.name: nodes.Variable(name)})
        return renamed

    def _aggregated(
        self, rule: nodes.Rule, term: nodes.Variable, statements: list[nodes.Statement]
    ) -> list[nodes.Statement]:
        """A rule over all heads is a sum, or their concatenation, from which matrices are cut."""
        aggregation = aggregation_of(rule, self.default).name
        relation = rule.head.relation
        if aggregation == "sum_agg":
            return statements
        if aggregation != "concat_agg":
            why = "it would be another of fewer"
            raise self._refused(f"`{relation}` is the {aggregation} of all heads", why)
        others = [v for v in variables(self._first_atom(rule).terms) if v not in rule.head.terms]
        if others[0] != term:
            raise self._refused(f"`{relation}` concatenates heads inside of others", "")
        if len(self._of(relation)) > 1:
            raise self._refused(f"{len(self._of(relation))} rules derive `{relation}`", "")
        self.read = 0
        return [self._narrowed(s, relation) if isinstance(s, nodes.Rule) else s for s in statements]

    def _first_atom(self, rule: nodes.Rule) -> nodes.Atom:
        every = (a for a in atoms(rule.body) if isinstance(a, nodes.Atom))
        return next(a for a in every if a.relation in self.places)

    def _narrowed(self, node: Any, relation: str) -> Any:
        """The same with narrower matrices where concatenated heads are read."""
        if isinstance(node, nodes.Atom) and node.relation == relation and node.carries_value:
            weight = node.weight
            if weight is None or weight.shape is None or len(weight.shape) != 2 or weight.keys:
                raise self._refused(
                    f"`{relation}`, all heads side by side, is read without a matrix", ""
                )
            width, count = weight.shape[1], len(self.layer.numbers)
            each = width // count
            if each * count != width:
                raise self._refused(f"`{weight.name}` has {width} columns, {count} heads", "")
            columns = tuple(h * each + k for h in self.left for k in range(each))
            self.cuts[str(weight.name)] = Cut(1, columns)
            shape = (weight.shape[0], len(columns))
            return replace(node, weight=replace(weight, shape=shape))
        if isinstance(node, nodes.Rule):
            if not any(
                isinstance(a, nodes.Atom) and a.relation == relation for a in atoms(node.body)
            ):
                return node
            return replace(node, body=self._narrowed(node.body, relation))
        return mapped(node, lambda part: self._narrowed(part, relation))

    # no heads

    def nothing(self, outputs: Sequence[str]) -> list[nodes.Statement]:
        """The statements without the layer's heads, and without what follows from them alone."""
        gone = set(self.places)
        statements = [s for s in self.statements if self._relation(s) not in gone]
        while True:
            changed: list[nodes.Statement] = []
            for statement in statements:
                less = self._without(statement, gone) if isinstance(statement, nodes.Rule) else None
                if not isinstance(statement, nodes.Rule) or less is not None:
                    changed.append(statement if less is None else less)
            derived = {self._relation(s) for s in changed}
            lost = {self._relation(s) for s in statements} - derived
            statements = changed
            if not lost:
                break
            gone = {str(name) for name in lost}
            if both := gone & set(outputs):
                raise self._refused(
                    f"without heads nothing is left of `{min(both)}`", "leave one head"
                )
        return statements

    def _relation(self, statement: nodes.Statement) -> str | None:
        match statement:
            case nodes.Rule():
                return statement.head.relation
            case nodes.Fact():
                return statement.atom.relation
            case nodes.Line():
                return statement.relation
        return None

    def _without(self, rule: nodes.Rule, gone: set[str]) -> nodes.Rule | None:
        """A rule without what is added to its sum; None where nothing is left."""
        if not any(isinstance(a, nodes.Atom) and a.relation in gone for a in atoms(rule.body)):
            return rule
        items = [self._left(item, gone) for item in rule.body]
        if combination(rule.functions).name != "sum" and None in items:
            return None
        body = tuple(item for item in items if item is not None)
        if not any(i.carries_value for i in body):
            return None
        bound = {v for a in atoms(body) if isinstance(a, nodes.Atom) for v in variables(a.terms)}
        free = [v for v in variables(rule.head.terms) if v not in bound]
        if free and (len(free) > 1 or self._rows is None):
            raise self._refused(f"nothing is left that binds `{free[0].name}`", "leave one head")
        rows = (nodes.Atom(str(self._rows), (v,), hidden=True) for v in free)
        return replace(rule, body=(*body, *rows))

    @property
    def _rows(self) -> str | None:
        """What has a row for each token: the relation that queries and keys are made of."""
        every = (a for rule in self.rules if rule.head.relation in self.places
                 for a in atoms(rule.body))  # fmt: skip
        read = (a for a in every if isinstance(a, nodes.Atom) and len(a.terms) == 1)
        return next((a.relation for a in read if a.relation not in self.places), None)

    def _left(self, item: Any, gone: set[str]) -> Any:
        """An expression without atoms that are gone; None where it is 0."""
        if not any(isinstance(a, nodes.Atom) and a.relation in gone for a in atoms(item)):
            return item
        match item:
            case nodes.Atom():
                return None
            case nodes.Apply(function=function, operands=operands):
                parts = [self._left(operand, gone) for operand in operands]
                if function.name == "sum":
                    rest = tuple(p for p in parts if p is not None)
                    alone = len(rest) == 1 and item.weight is None
                    if not rest:
                        return None
                    return rest[0] if alone else replace(item, operands=rest)
                if None not in parts:
                    return replace(item, operands=tuple(parts))
                if function.name in ("product", "elproduct") or function.name in OF_NOTHING:
                    return None
        raise self._refused(f"`{item!r}` is not 0 without heads", "leave one head")

    def _refused(self, what: str, help: str) -> NotPrunable:
        where = f"the heads of `{self.layer.relation}`"
        return NotPrunable(
            f"{where} cannot be pruned: {what}",
            caller(),
            help or "mask them instead, by a condition such as `R._alive(V.H)`",
        )

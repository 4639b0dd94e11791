"""The values of atoms: each rule as `W_h · agg(f(comb(W·b, ...)))`, in an order that needs them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from edgewise.checks.evaluation import NoFixedPoint, cyclic_recursion, fact_and_rule, is_extreme
from edgewise.errors import EdgewiseError
from edgewise.functions import Law
from edgewise.functions.values import canonical, product
from edgewise.language import functions, nodes
from edgewise.language.defaults import members
from edgewise.language.dependencies import components, needs
from edgewise.language.functions import arguments, definition
from edgewise.language.statements import SUM, aggregation_of, atoms, combination
from edgewise.reference.arithmetic import evaluated
from edgewise.reference.ground import RuleGroundings
from edgewise.reference.join import Assignment, Key, ground
from edgewise.weights import WeightTable

T = TypeVar("T")
GroundAtom = tuple[str, Key]
Values = dict[GroundAtom, Tensor]


class Evaluator:
    """Evaluates ground rules over a table of weights."""

    def __init__(
        self,
        rules: Sequence[RuleGroundings],
        lines: Mapping[str, nodes.Line],
        weights: WeightTable,
        aggregation: nodes.Function,
        training: bool,
    ) -> None:
        self.lines = lines
        self.weights = weights
        self.aggregation = aggregation
        self.training = training
        self.computed: Counter[str] = Counter()  # groundings evaluated, by relation
        self.facts: Values = {}
        self.unreached: set[GroundAtom] = set()  # derivable, but not in this many rounds
        self.before: dict[str, Values] = {}  # what the last of k rounds read, by relation
        self.rules: dict[str, list[RuleGroundings]] = defaultdict(list)
        for rule in rules:
            self.rules[rule.rule.head.relation].append(rule)

    # one weight, one grounding, one rule head, one atom

    def weight(self, weight: nodes.Weight, bound: Assignment) -> Tensor:
        """The weight under an assignment of its keys."""
        return weight_value(self.weights, weight, bound)

    def expression(self, item: nodes.Expression, bound: Assignment, values: Values) -> Tensor:
        match item:
            case nodes.Atom():
                value = values[item.relation, ground(item.terms, bound)]
            case nodes.SpecialAtom():
                number = evaluated(item.name, ground(item.terms, bound))
                value = torch.tensor(number, dtype=self.weights.dtype)
            case nodes.Weight():
                return self.weight(item, bound)
            case nodes.Apply(function=function):
                operands = [self.expression(operand, bound, values) for operand in item.operands]
                if functions.kind(function) == functions.COMBINATION:
                    value = combine(function, operands)
                else:
                    value = transform(function, operands[0], self.training)
            case _:
                raise TypeError(f"carries no value: {item!r}")
        if item.weight is not None:
            value = product(self.weight(item.weight, bound), value)
        return value

    def grounding(self, rule: nodes.Rule, bound: Assignment, values: Values) -> Tensor:
        """f(comb(W1·b1, ..., Wn·bn)); a body of conditions alone combines to 1."""
        self.computed[rule.head.relation] += 1
        items = [item for item in rule.body if item.carries_value]
        operands = [self.expression(item, bound, values) for item in items]
        one = torch.ones((), dtype=self.weights.dtype)
        value = combine(combination(rule.functions), operands) if operands else one
        for function in rule.functions:
            if functions.kind(function) == functions.TRANSFORMATION:
                value = transform(function, value, self.training)
        return value

    def rule(self, ground_rule: RuleGroundings, head: Key, values: Values) -> dict[Key, Tensor]:
        """W_h · agg over groundings, for a rule head and those its softmax is normalised over.

        Groundings count whose atoms have values: all of them, except in the rounds of a cycle.
        """
        rule = ground_rule.rule
        aggregation = aggregation_of(rule, self.aggregation)
        grouped = dict(aggregation.arguments).get("agg_terms")
        inner = self.aggregation if grouped else aggregation
        found: dict[Key, Tensor] = {}
        for key in ground_rule.groups[head]:
            present = [b for b in ground_rule.heads[key] if all(n in values for n in uses(rule, b))]
            if present:
                found[key] = combine(inner, [self.grounding(rule, b, values) for b in present])
        if grouped and found:
            normal = normalise(aggregation, list(found.values()))
            found = dict(zip(found, normal, strict=True))
        if rule.head.weight is None:
            return found
        return {
            key: product(self.weight(rule.head.weight, ground_rule.heads[key][0]), value)
            for key, value in found.items()
        }

    def atom(
        self, atom: GroundAtom, values: Values, facts: Values, done: dict[int, dict[Key, Tensor]]
    ) -> Tensor | None:
        """The rules' values combined by the relation's line; None if no rule applies yet.

        `done` keeps what softmax groups have computed already, by ground rule.
        """
        relation, key = atom
        parts = [facts[atom]] if atom in facts else []
        for rule in self.rules[relation]:
            if key not in rule.heads:
                continue
            cache = done.setdefault(id(rule), {})
            if key not in cache:
                cache |= located(rule.rule, partial(self.rule, rule, key, values))
            if key in cache:
                parts.append(cache[key])
        if not parts or (len(parts) == 1 and atom in facts):
            return facts.get(atom)
        line = self.lines.get(relation)
        if line is None:
            return located(self.rules[relation][0].rule, lambda: combine(SUM, parts))
        return located(line, lambda: self.lined(line, parts))

    def lined(self, line: nodes.Line, parts: Sequence[Tensor]) -> Tensor:
        value = combine(combination(line.functions), parts)
        for function in line.functions:
            if functions.kind(function) == functions.TRANSFORMATION:
                value = transform(function, value, self.training)
        return value

    # all atoms

    def everything(self, facts: Values, rounds: int | None) -> Values:
        self.facts = facts
        values = dict(facts)
        heads = [rule.rule for rules in self.rules.values() for rule in rules]
        self._refuse_facts(facts)
        graph = needs(heads, values_only=True)
        for part in components(graph):
            here = [(r, key) for r in sorted(part) for rule in self.rules[r] for key in rule.heads]
            here = list(dict.fromkeys(here))
            if not any(needed in part for relation in part for needed in graph[relation]):
                self._once(here, values, facts)
            elif (ordered := self._levels(here)) is not None:
                self._once(ordered, values, facts)
            elif rounds is not None:
                self._rounds(here, values, facts, rounds)
            elif all(is_extreme(self.lines.get(r), heads, part, r, self.aggregation) for r in part):
                self._fixed_point(here, values, facts)
            else:
                raise cyclic_recursion(part, heads)
        return values

    def _once(self, here: Sequence[GroundAtom], values: Values, facts: Values) -> None:
        done: dict[int, dict[Key, Tensor]] = {}
        for atom in here:
            value = self.atom(atom, values, facts, done)
            if value is not None:
                values[atom] = value

    def _levels(self, here: Sequence[GroundAtom]) -> list[GroundAtom] | None:
        """The atoms, each after those it needs; None if the ground program has a cycle."""
        inside = set(here)
        graph = {
            atom: [
                needed
                for rule in self.rules[atom[0]]
                if atom[1] in rule.heads
                for head in rule.groups[atom[1]]
                for bound in rule.heads[head]
                for needed in uses(rule.rule, bound)
                if needed in inside
            ]
            for atom in here
        }
        parts = components(graph)
        if any(len(part) > 1 for part in parts) or any(a in graph[a] for a in graph):
            return None
        return [atom for part in parts for atom in part]

    def _fixed_point(self, here: Sequence[GroundAtom], values: Values, facts: Values) -> None:
        """Rounds until nothing changes; a round more than there are atoms means it never ends."""
        for _ in range(len(here) + 2):
            before = {atom: values[atom] for atom in here if atom in values}
            self._round(here, values, facts)
            if all(a in before and torch.equal(before[a], values[a]) for a in here if a in values):
                return
        rule = self.rules[here[0][0]][0].rule
        raise NoFixedPoint(
            f"`{here[0][0]}` still changes after {len(here)} rounds, one for each of its atoms",
            rule.place,
            "a cycle improves the value every time: remove it, or set `Program(..., rounds=k)`",
        )

    def _rounds(
        self, here: Sequence[GroundAtom], values: Values, facts: Values, rounds: int
    ) -> None:
        for _ in range(rounds):
            before = dict(values)
            self._round(here, values, facts)
        self.before |= {relation: before for relation, _ in here}
        self.unreached |= {atom for atom in here if atom not in values}

    def _round(self, here: Sequence[GroundAtom], values: Values, facts: Values) -> None:
        """All atoms at once from the values of the round before."""
        done: dict[int, dict[Key, Tensor]] = {}
        found = {atom: self.atom(atom, values, facts, done) for atom in here}
        values.update({atom: value for atom, value in found.items() if value is not None})

    def _refuse_facts(self, facts: Values) -> None:
        for relation, key in facts:
            if is_extreme(self.lines.get(relation)):
                continue
            for rule in self.rules.get(relation, ()):
                if key in rule.heads:
                    raise fact_and_rule(relation, key, rule.rule)


def weight_value(table: WeightTable, weight: nodes.Weight, bound: Assignment) -> Tensor:
    tensor = table.tensors[str(weight.name)]
    for key in weight.keys:
        if isinstance(key, nodes.Variable):
            tensor = tensor[members(table.domains[key.name]).index(bound[key.name])]
    return canonical(tensor.to(table.dtype))


def uses(rule: nodes.Rule, bound: Assignment) -> Iterator[GroundAtom]:
    """The atoms whose values one grounding needs."""
    for atom in atoms(rule.body):
        if isinstance(atom, nodes.Atom) and atom.carries_value:
            yield atom.relation, ground(atom.terms, bound)


def located(node: nodes.Rule | nodes.Line, compute: Callable[[], T]) -> T:
    """What `compute` gives; an error in it is shown at the rule."""
    try:
        return compute()
    except EdgewiseError as error:
        if error.place is None:
            error.place = node.place
        raise


def transform(function: nodes.Function, x: Tensor, training: bool) -> Tensor:
    found, options = definition(function), arguments(function)
    if Law.RANDOM in found and not training:
        return x
    module = options["module"].thing if Law.OPAQUE in found else None
    if not isinstance(module, torch.nn.Module):
        return canonical(found.value(x, **options))
    before = module.training  # it is left in the mode that it had
    module.train(training)
    try:
        return canonical(found.value(x, **options))
    finally:
        module.train(before)


def combine(function: nodes.Function, values: Sequence[Tensor]) -> Tensor:
    """Operands of a body, or the groundings of one rule head in key order, as one value."""
    return canonical(definition(function).value(values, **arguments(function)))


def normalise(function: nodes.Function, values: Sequence[Tensor]) -> list[Tensor]:
    """The rule heads of one group, each with its share."""
    shares = definition(function).shares
    assert shares is not None
    found: list[Tensor] = shares[0](values)
    return found

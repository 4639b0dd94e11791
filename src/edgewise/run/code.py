"""A score that is code, for a kernel: its tree, with the numbers of this step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from edgewise.language import nodes
from edgewise.plan.code import DOT
from edgewise.run.state import State
from edgewise.scores import I, J, S, Score, exp, log, maximum, minimum, sigmoid, sqrt, tanh, where
from edgewise.scores.score import as_score, entry

OF_ONE: dict[str, Callable[[Score], Score]] = {
    "identity": lambda x: x,
    "abs": abs,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "exp": exp,
    "log": log,
    "sqrt": sqrt,
    "square": lambda x: x * x,
    "relu": lambda x: where(x > 0, x, 0.0),
    "silu": lambda x: x * sigmoid(x),
    "inverse": lambda x: 1.0 / x,
    "reverse": lambda x: 1.0 - x,
    "signum": lambda x: where(x > 0, 1.0, 0.0),
    "lukasiewicz": lambda x: sigmoid(6.0 * x + 0.5),
}
OF_PLACES: dict[str, Callable[[Score, Score], Score]] = {
    "add_eval": lambda a, b: a + b,
    "sub_eval": lambda a, b: a - b,
    "mul_eval": lambda a, b: a * b,
    "max_eval": maximum,
    "min_eval": minimum,
}


@dataclass(frozen=True, eq=False)
class Coded:
    """`number` of a leaf is its value for each head, (batch, heads...); one in `tables` has a value
    for each distance too, (batch, heads..., distances), the first for I − J = -shift."""

    item: nodes.Expression
    query: str
    number: dict[nodes.Expression, Callable[[State], Tensor]] = field(default_factory=dict)
    tables: dict[nodes.Expression, Callable[[State], Tensor]] = field(default_factory=dict)
    shift: int = 0

    def __call__(self, state: State) -> Score:
        return self._score(self.item, state)

    def _score(self, item: nodes.Expression, state: State) -> Score:
        match item:
            case nodes.Atom() if item == DOT:
                return S
            case nodes.Weight(value=value) if constant(item):
                return as_score(float(value))  # type: ignore[arg-type]
            case nodes.SpecialAtom(name=name, terms=terms):
                a, b = (self._place(term) for term in terms)
                return self._times(item.weight, OF_PLACES[name](a, b), state)
            case nodes.Apply(function=f, operands=operands):
                parts = [self._score(x, state) for x in operands]
                return self._times(item.weight, _applied(f, parts), state)
        if item in self.tables:
            return entry(_alone(self.tables[item](state)), I - J + self.shift)
        return entry(_alone(self.number[item](state)).unsqueeze(-1), 0)

    def _place(self, term: Any) -> Score:
        if not isinstance(term, nodes.Variable):
            return as_score(int(term))
        return I if term.name == self.query else J

    def _times(self, weight: nodes.Weight | None, score: Score, state: State) -> Score:
        return score if weight is None else self._score(weight, state) * score


def _alone(values: Tensor) -> Tensor:
    """Without the axis of the batch where it has one element."""
    return values if values.shape[0] > 1 else values.squeeze(0)


def constant(weight: nodes.Weight) -> bool:
    return weight.is_fixed and isinstance(weight.value, float | int)


def leaves(item: nodes.Expression) -> list[nodes.Expression]:
    """What has a value of its own for each head."""
    match item:
        case nodes.Atom() if item == DOT:
            return []
        case nodes.Weight() if constant(item):
            return []
        case nodes.SpecialAtom():
            return [] if item.weight is None else leaves(item.weight)
        case nodes.Apply(operands=operands):
            found = [] if item.weight is None else leaves(item.weight)
            return found + [leaf for x in operands for leaf in leaves(x)]
    return [item]


def _applied(function: nodes.Function, parts: list[Score]) -> Score:
    if function.name == "leaky_relu":
        (x,) = parts
        return where(x > 0, x, float(function["slope"]) * x)
    if function.name in OF_ONE:
        return OF_ONE[function.name](*parts)
    total = parts[0]
    for part in parts[1:]:
        match function.name:
            case "sum" | "avg":
                total = total + part
            case "product" | "elproduct":
                total = total * part
            case "max":
                total = maximum(total, part)
            case "min":
                total = minimum(total, part)
    return total / len(parts) if function.name == "avg" else total

"""Layers over the rows of a relation: linear maps, perceptrons, pooling, positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgewise.errors import caller
from edgewise.neuralogic.core.constructs.factories import R
from edgewise.neuralogic.core.constructs.function import (
    Aggregation,
    Combination,
    Function,
    Transformation,
)
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.core.constructs.relation import BaseRelation
from edgewise.neuralogic.errors import BadTemplate
from edgewise.neuralogic.nn.module.module import Entry, TemplateModule, atom, line, terms


@dataclass(eq=False, repr=False)
class LinearLayer(TemplateModule):
    """out = f(W·in).

    >>> print(*Linear(2, 3, "h", "x")(), sep="\\n")
    {3, 2} h(X0) :- x(X0).
    h/1 [transformation=identity]
    """

    in_channels: int
    out_channels: int
    output_name: str
    input_name: str
    activation: Function = Transformation.IDENTITY
    arity: int = 1

    def __call__(self) -> list[Entry]:
        keys = terms(self.arity)
        head = atom(self.output_name, keys)[self.out_channels, self.in_channels]
        return [
            head <= atom(self.input_name, keys),
            line(self.output_name, self.arity, self.activation),
        ]


@dataclass(eq=False, repr=False)
class MLP(TemplateModule):
    """Linear maps with a function after each; two maps are one rule, its head and its body.

    >>> print(*MLP([2, 4, 3], "h", "x")(), sep="\\n")
    {3, 4} h(X0) :- {4, 2} x(X0). [transformation=relu]
    h/1 [transformation=relu]
    """

    units: Sequence[int]
    output_name: str
    input_name: str
    activation: Function | Sequence[Function] = Transformation.RELU
    arity: int = 1

    def __post_init__(self) -> None:
        if len(self.units) < 2:
            raise BadTemplate(
                f"a perceptron has sizes of its input and output, got {list(self.units)}",
                caller(),
                'write `MLP([4, 8, 2], "out", "in")`',
            )

    def _functions(self, count: int) -> list[Metadata]:
        if not isinstance(self.activation, Sequence):
            return [Metadata(transformation=self.activation) for _ in range(count)]
        found = [Metadata(transformation=one) for one in self.activation[:count]]
        return found + [Metadata() for _ in range(count - len(found))]

    def __call__(self) -> list[Entry]:
        keys, sizes = terms(self.arity), list(self.units)
        maps = list(zip(sizes[1:], sizes, strict=False))
        functions = self._functions(len(sizes))
        rules: list[Entry] = []
        source = self.input_name
        for at in range(0, len(maps), 2):
            is_last = at + 2 >= len(maps)
            name = self.output_name if is_last else f"{self.output_name}__mlp{at // 2}"
            head = atom(name, keys)
            head = head[maps[at + 1]] if at + 1 < len(maps) else head
            rules += [
                (head <= atom(source, keys)[maps[at]]) | functions[at],
                R.get(name) / self.arity | functions[at + 1],
            ]
            source = name
        return rules


@dataclass(eq=False, repr=False)
class Pooling(TemplateModule):
    """One value of all rows.

    >>> print(*Pooling("h", "x", Aggregation.SUM)(), sep="\\n")
    h :- x(X0). [aggregation=sum]
    """

    output_name: str
    input_name: str
    aggregation: Function
    input_arity: int = 1

    def __call__(self) -> list[Entry]:
        body = atom(self.input_name, terms(self.input_arity))
        return [(R.get(self.output_name) <= body) | Metadata(aggregation=self.aggregation)]


class MaxPooling(Pooling):
    """The maximum of all rows.

    >>> print(*MaxPooling("h", "x")(), sep="\\n")
    h :- x(X0). [aggregation=max]
    """

    def __init__(self, output_name: str, input_name: str, input_arity: int = 1) -> None:
        super().__init__(output_name, input_name, Aggregation.MAX, input_arity)


class AvgPooling(Pooling):
    """The average of all rows.

    >>> print(*AvgPooling("h", "x")(), sep="\\n")
    h :- x(X0). [aggregation=avg]
    """

    def __init__(self, output_name: str, input_name: str, input_arity: int = 1) -> None:
        super().__init__(output_name, input_name, Aggregation.AVG, input_arity)


class SumPooling(Pooling):
    """The sum of all rows.

    >>> print(*SumPooling("h", "x")(), sep="\\n")
    h :- x(X0). [aggregation=sum]
    """

    def __init__(self, output_name: str, input_name: str, input_arity: int = 1) -> None:
        super().__init__(output_name, input_name, Aggregation.SUM, input_arity)


@dataclass(eq=False, repr=False)
class PositionalEncoding(TemplateModule):
    """Sines and cosines of the last term, added to the input; wavelengths up to 1000.

    >>> print(*PositionalEncoding(2, 2, "h", "x")(), sep="\\n")
    <[0.0, 1.0]> h__pe(0).
    <[0.8414709848078965, 0.5403023058681398]> h__pe(1).
    h(X0) :- h__pe(X0), x(X0). [combination=sum]
    """

    embed_dim: int
    max_len: int
    output_name: str
    input_name: str
    arity: int = 1
    learnable: bool = False

    def _row(self, position: int) -> list[float]:
        found = []
        for at in range(self.embed_dim):
            angle = position * math.exp(-(at - at % 2) * math.log(1000.0) / self.embed_dim)
            found.append(math.cos(angle) if at % 2 else math.sin(angle))
        return found

    def __call__(self) -> list[Entry]:
        name, keys = f"{self.output_name}__pe", terms(self.arity)
        facts = [atom(name, [*keys[:-1], i])[self._row(i)] for i in range(self.max_len)]
        rule = atom(self.output_name, keys) <= (atom(name, keys), atom(self.input_name, keys))
        table = facts if self.learnable else [fact.fixed() for fact in facts]
        return [*table, rule | [Combination.SUM]]


@dataclass(eq=False, repr=False)
class RvNN(TemplateModule):
    """A recursive network over trees: f of the sum of W_i times the i-th child.

    >>> print(*RvNN(2, "h", "x", "parent", max_children=1)(), sep="\\n")
    h(X0, P) :- x(X0, P), parent(P). [transformation=tanh, aggregation=sum]
    h(X0, P) :- $h__rvnn_1={2, 2} h(X0, C1), parent(P, C1). [transformation=tanh, aggregation=sum]
    """

    input_size: int
    output_name: str
    input_name: str
    parent_map_name: str
    max_children: int = 2
    activation: Function = Transformation.TANH
    aggregation: Function = Aggregation.SUM
    arity: int = 1

    def __call__(self) -> list[Entry]:
        keys, size = terms(self.arity), self.input_size
        functions = Metadata(transformation=self.activation, aggregation=self.aggregation)
        head = atom(self.output_name, [*keys, "P"])
        leaf = head <= (atom(self.input_name, [*keys, "P"]), atom(self.parent_map_name, ["P"]))
        rules: list[Entry] = [leaf | functions]
        children: list[BaseRelation] = []
        for i in range(1, self.max_children + 1):
            weight = f"{self.output_name}__rvnn_{i}"
            children.append(atom(self.output_name, [*keys, f"C{i}"])[weight:size, size])
            parents = atom(self.parent_map_name, ["P", *(f"C{j}" for j in range(1, i + 1))])
            rules.append((head <= (*children, parents)) | functions)
        return rules


Linear = LinearLayer

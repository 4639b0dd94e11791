"""Layers over meta-paths and roles of heterogeneous graphs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from edgewise.neuralogic.core.constructs.factories import V
from edgewise.neuralogic.core.constructs.function import Aggregation, Function, Transformation
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.nn.module.module import Entry, TemplateModule, atom, line, refuse_unread


@dataclass(eq=False, repr=False)
class MetaConv(TemplateModule):
    """W₀ times the node, and W_r times the neighbours by role r.

    >>> print(*MetaConv(2, 3, "h", "x", None, ["likes", "knows"])(), sep="\\n")
    h(I) :- h__roles(I, R). [aggregation=avg]
    h(I) :- {3, 2} x(I). [aggregation=avg]
    h__roles(I, likes) :- {3, 2} x(J), likes(J, I).
    h__roles(I, knows) :- {3, 2} x(J), knows(J, I).
    h/1 [transformation=sigmoid]
    """

    in_channels: int
    out_channels: int
    output_name: str
    feature_name: str
    role_name: str | None
    roles: list[str]
    activation: Function = Transformation.SIGMOID
    aggregation: Function = Aggregation.AVG

    def _edge(self, role: str) -> Any:
        if self.role_name is None:
            return atom(role, [V.J, V.I])
        return atom(self.role_name, [V.J, role, V.I])

    def __call__(self) -> list[Entry]:
        shape = (self.out_channels, self.in_channels)
        name, functions = f"{self.output_name}__roles", Metadata(aggregation=self.aggregation)
        out, feature = atom(self.output_name, [V.I]), atom(self.feature_name, [V.J])[shape]
        own = out <= atom(self.feature_name, [V.I])[shape]
        return [
            (out <= atom(name, [V.I, V.R])) | functions,
            own | functions,
            *(atom(name, [V.I, role]) <= (feature, self._edge(role)) for role in self.roles),
            line(self.output_name, 1, self.activation),
        ]


@dataclass(eq=False, repr=False)
class MAGNNMean(TemplateModule):
    """The mean of the features along a meta-path that begins at the node.

    >>> print(*MAGNNMean("h", "x", "likes", None, ["a", "b"])(), sep="\\n")
    h(V0) :- likes(V0, V1), a(V0), b(V1), <0.5> x(V0), <0.5> x(V1). [duplicate_grounding=True]
    h/1 [transformation=sigmoid]
    """

    output_name: str
    feature_name: str
    relation_name: str
    type_name: str | None
    meta_paths: list[str]
    activation: Function = Transformation.SIGMOID
    aggregation: Function = Aggregation.SUM

    def __post_init__(self) -> None:
        refuse_unread("aggregation", self.aggregation, Aggregation.SUM)

    def _head(self) -> Any:
        return atom(self.output_name, [V.V0])

    def _type(self, node: str, kind: str) -> Any:
        return atom(kind, [node]) if self.type_name is None else atom(self.type_name, [node, kind])

    def __call__(self) -> list[Entry]:
        nodes = [f"V{i}" for i in range(len(self.meta_paths))]
        steps = [atom(self.relation_name, pair) for pair in pairwise(nodes)]
        kinds = [self._type(n, kind) for n, kind in zip(nodes, self.meta_paths, strict=True)]
        share = 1 / max(len(nodes), 1)
        features = [atom(self.feature_name, [node])[share].fixed() for node in nodes]
        rule = self._head() <= [*steps, *kinds, *features]
        last = line(self.output_name, 1, self.activation)
        return [rule | Metadata(duplicate_grounding=True), last]


class MAGNNLinear(MAGNNMean):
    """W times the mean along a meta-path.

    >>> print(*MAGNNLinear(2, 3, "h", "x", "e", None, ["a"])(), sep="\\n")
    {3, 2} h(V0) :- a(V0), <1.0> x(V0). [duplicate_grounding=True]
    h/1 [transformation=sigmoid]
    """

    def __init__(self, in_channels: int, out_channels: int, *names: Any, **options: Any) -> None:
        super().__init__(*names, **options)
        self.in_channels, self.out_channels = in_channels, out_channels

    def _head(self) -> Any:
        return super()._head()[self.out_channels, self.in_channels]

"""Layers over meta-paths and roles of heterogeneous graphs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from edgewise.neuralogic.core.constructs.factories import V
from edgewise.neuralogic.core.constructs.function import Aggregation, Function, Transformation
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.nn.module.module import Entry, TemplateModule, atom, line, refuse_unread


class MetaConv(TemplateModule):
    """W₀ times the node, and W_r times the neighbours by role r."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        output_name: str,
        feature_name: str,
        role_name: str | None,
        roles: list[str],
        activation: Function = Transformation.SIGMOID,
        aggregation: Function = Aggregation.AVG,
    ) -> None:
        self.shape, self.roles, self.role_name = (out_channels, in_channels), roles, role_name
        self.output_name, self.feature_name = output_name, feature_name
        self.activation, self.aggregation = activation, aggregation

    def _edge(self, role: str) -> Any:
        if self.role_name is None:
            return atom(role, [V.J, V.I])
        return atom(self.role_name, [V.J, role, V.I])

    def __call__(self) -> list[Entry]:
        name, functions = f"{self.output_name}__roles", Metadata(aggregation=self.aggregation)
        out, feature = atom(self.output_name, [V.I]), atom(self.feature_name, [V.J])[self.shape]
        own = out <= atom(self.feature_name, [V.I])[self.shape]
        return [
            (out <= atom(name, [V.I, V.R])) | functions,
            own | functions,
            *(atom(name, [V.I, role]) <= (feature, self._edge(role)) for role in self.roles),
            line(self.output_name, 1, self.activation),
        ]


class MAGNNMean(TemplateModule):
    """The mean of the features along a meta-path that begins at the node."""

    shape: tuple[int, int] | None = None

    def __init__(
        self,
        output_name: str,
        feature_name: str,
        relation_name: str,
        type_name: str | None,
        meta_paths: list[str],
        activation: Function = Transformation.SIGMOID,
        aggregation: Function = Aggregation.SUM,
    ) -> None:
        refuse_unread("aggregation", aggregation, Aggregation.SUM)
        self.output_name, self.feature_name, self.relation_name = (
            *(output_name, feature_name, relation_name),
        )
        self.type_name, self.meta_paths = type_name, meta_paths
        self.activation = activation

    def _type(self, node: str, kind: str) -> Any:
        return atom(kind, [node]) if self.type_name is None else atom(self.type_name, [node, kind])

    def __call__(self) -> list[Entry]:
        nodes = [f"V{i}" for i in range(len(self.meta_paths))]
        steps = [atom(self.relation_name, pair) for pair in pairwise(nodes)]
        kinds = [self._type(n, kind) for n, kind in zip(nodes, self.meta_paths, strict=True)]
        share = 1 / max(len(nodes), 1)
        features = [atom(self.feature_name, [node])[share].fixed() for node in nodes]
        head = atom(self.output_name, [V.V0])
        head = head if self.shape is None else head[self.shape]
        rule = head <= [*steps, *kinds, *features]
        last = line(self.output_name, 1, self.activation)
        return [rule | Metadata(duplicate_grounding=True), last]


class MAGNNLinear(MAGNNMean):
    """W times the mean along a meta-path."""

    def __init__(self, in_channels: int, out_channels: int, *names: Any, **options: Any) -> None:
        super().__init__(*names, **options)
        self.shape = (out_channels, in_channels)

"""Graph layers: messages along edges `edge(J, I)`, from J to I."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from edgewise.errors import caller
from edgewise.neuralogic.core.constructs.factories import R, V
from edgewise.neuralogic.core.constructs.function import (
    Aggregation,
    Combination,
    Function,
    Transformation,
)
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.errors import BadTemplate
from edgewise.neuralogic.nn.module.general import MLP
from edgewise.neuralogic.nn.module.module import Entry, TemplateModule, atom, line

PRODUCT = Combination.PRODUCT


@dataclass(eq=False, repr=False)
class GraphLayer(TemplateModule):
    """Sizes and names of a layer."""

    in_channels: int
    out_channels: int
    output_name: str
    feature_name: str
    edge_name: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.out_channels, self.in_channels

    def _feature(self, node: Any) -> Any:
        return atom(self.feature_name, [node])

    def _out(self, node: Any = V.I) -> Any:
        return atom(self.output_name, [node])

    def _hidden_edge(self) -> Any:
        return R.hidden.get(self.edge_name)(V.J, V.I)

    def _last(self, activation: Function) -> Any:
        return line(self.output_name, 1, activation)


class NormalisedLayer(GraphLayer):
    """A layer with a loop at every node and edges divided by the roots of both degrees."""

    normalize: bool = True
    add_self_loops: bool | None = True  # None: where the layer normalises

    def __post_init__(self) -> None:
        if self.add_self_loops is None:
            self.add_self_loops = self.normalize

    def _named(self, suffix: str, a: Any, b: Any) -> Any:
        return atom(f"{self.output_name}__{suffix}", [a, b])

    def _edge(self, a: Any, b: Any) -> Any:
        return self._named("edge", a, b) if self.add_self_loops else atom(self.edge_name, [a, b])

    def _prepared(self) -> list[Any]:
        """The rules for loops and for degrees."""
        rules: list[Any] = []
        if self.add_self_loops:
            copied = self._named("edge", V.I, V.J) <= atom(self.edge_name, [V.I, V.J])
            rules += [self._named("edge", V.I, V.I)[1.0].fixed(), copied]
        if self.normalize:
            summed = Metadata(aggregation=Aggregation.SUM)
            count = self._named("edge_count", V.I, V.J)
            rules += [(count <= self._edge(V.X, node)) | summed for node in (V.J, V.I)]
            name = f"{self.output_name}__edge_count"
            rules.append(line(name, 2, Transformation.INVERSE, combination=PRODUCT))
        return rules

    def _step(self, a: Any, b: Any) -> list[Any]:
        """The edge from a to b, with its share."""
        share = Transformation.SQRT(self._named("edge_count", a, b))
        return [self._edge(a, b), share] if self.normalize else [self._edge(a, b)]

    def _path(self, length: int) -> list[Any]:
        """The feature of a node, and the edges on the way from it to I0."""
        pairs = [(f"I{i + 1}", f"I{i}") for i in range(length)]
        steps = [part for pair in pairs for part in self._step(*pair)]
        return [self._feature(f"I{length}"), *steps]


@dataclass(eq=False, repr=False)
class GCNConv(NormalisedLayer):
    """W·Σ of the neighbours' features over the roots of degrees.

    >>> print(*GCNConv(2, 3, "h", "x", "edge", normalize=False)(), sep="\\n")
    {3, 2} h(I) :- x(J), edge(J, I). [combination=product, aggregation=sum]
    h/1 [transformation=identity]
    """

    activation: Function = Transformation.IDENTITY
    aggregation: Function = Aggregation.SUM
    add_self_loops: bool | None = None
    normalize: bool = True

    def __call__(self) -> list[Entry]:
        step = self._step(V.J, V.I) if self.normalize else [atom(self.edge_name, [V.J, V.I])]
        rule = self._out()[self.shape] <= [self._feature(V.J), *step]
        functions = Metadata(aggregation=self.aggregation, combination=PRODUCT)
        return [*self._prepared(), rule | functions, self._last(self.activation)]


@dataclass(eq=False, repr=False)
class SGConv(NormalisedLayer):
    """W times the features after k steps.

    >>> rules = SGConv(2, 3, "h", "x", "edge", k=2, normalize=False)()
    >>> print(str(rules[0]).partition(" [")[0])
    {3, 2} h(I0) :- x(I2), edge(I1, I0), edge(I2, I1).
    """

    k: int = 1
    activation: Function = Transformation.IDENTITY
    aggregation: Function = Aggregation.SUM
    add_self_loops: bool | None = None
    normalize: bool = True

    def __call__(self) -> list[Entry]:
        functions = Metadata(
            aggregation=self.aggregation, combination=PRODUCT, duplicate_grounding=True
        )
        rule = self._out(V.I0)[self.shape] <= self._path(self.k)
        return [*self._prepared(), rule | functions, self._last(self.activation)]


@dataclass(eq=False, repr=False)
class TAGConv(NormalisedLayer):
    """Σ of W_i times the features after i steps, i up to k.

    >>> print(*TAGConv(2, 3, "h", "x", "edge", k=1, normalize=False)(), sep="\\n")
    {3, 2} h(I0) :- x(I0). [combination=product, aggregation=sum]
    {3, 2} h(I0) :- x(I1), edge(I1, I0). [combination=product, aggregation=sum]
    h/1 [transformation=identity]
    """

    add_self_loops = False

    k: int = 2
    activation: Function = Transformation.IDENTITY
    aggregation: Function = Aggregation.SUM
    normalize: bool = True

    def __call__(self) -> list[Entry]:
        functions = Metadata(aggregation=self.aggregation, combination=PRODUCT)
        heads = [self._out(V.I0)[self.shape] for _ in range(self.k + 1)]
        rules = [(head <= self._path(i)) | functions for i, head in enumerate(heads)]
        return [*self._prepared(), *rules, self._last(self.activation)]


class APPNPConv(NormalisedLayer):
    """k times: α of the feature and 1 − α of what comes along edges.

    >>> print(*APPNPConv("h", "x", "edge", k=1, alpha=0.1, normalize=False)(), sep="\\n")
    h(I) :- <0.1> x(I). [combination=product, aggregation=sum]
    h(I) :- <0.9> x(J), edge(J, I). [combination=product, aggregation=sum]
    h/1 [transformation=identity]
    """

    def __init__(
        self,
        output_name: str,
        feature_name: str,
        edge_name: str,
        k: int,
        alpha: float,
        activation: Function = Transformation.IDENTITY,
        aggregation: Function = Aggregation.SUM,
        add_self_loops: bool | None = None,
        normalize: bool = True,
    ) -> None:
        super().__init__(1, 1, output_name, feature_name, edge_name)
        self.activation, self.aggregation = activation, aggregation
        if not isinstance(k, int) or k < 1:
            raise BadTemplate(f"there are {k!r} steps", caller(), "write `k=1` or more")
        self.k, self.alpha, self.normalize = k, alpha, normalize
        self.add_self_loops = normalize if add_self_loops is None else add_self_loops

    def __call__(self) -> list[Entry]:
        functions = Metadata(aggregation=self.aggregation, combination=PRODUCT)
        steps = [f"{self.output_name}__{i}" for i in range(1, self.k)]
        names, rules = [self.feature_name, *steps, self.output_name], []
        for source, name in pairwise(names):
            moved = [atom(source, [V.J])[1 - self.alpha].fixed(), *self._step(V.J, V.I)]
            for body in (self._feature(V.I)[self.alpha].fixed(), moved):
                rules.append((atom(name, [V.I]) <= body) | functions)
        return [*self._prepared(), *rules, self._last(self.activation)]


@dataclass(eq=False, repr=False)
class SAGEConv(GraphLayer):
    """W₁ times the average of the neighbours, and W₂ times the node.

    >>> print(*SAGEConv(2, 3, "h", "x", "edge")(), sep="\\n")
    {3, 2} h(I) :- x(J), *edge(J, I). [aggregation=avg]
    {3, 2} h(I) :- x(I). [aggregation=avg]
    h/1 [transformation=identity]
    """

    activation: Function = Transformation.IDENTITY
    aggregation: Function = Aggregation.AVG

    def __call__(self) -> list[Entry]:
        functions = Metadata(aggregation=self.aggregation)
        around = self._out()[self.shape] <= (self._feature(V.J), self._hidden_edge())
        own = self._out()[self.shape] <= self._feature(V.I)
        return [around | functions, own | functions, self._last(self.activation)]


@dataclass(eq=False, repr=False)
class GINConv(GraphLayer):
    """W₁ times the sum of the neighbours, and f of W₂·W₃ times the node.

    >>> print(*GINConv(2, 3, "h", "x", "edge")(), sep="\\n")
    {3, 2} h(I) :- x(J), *edge(J, I). [aggregation=sum]
    embed__h(I) :- x(I). [aggregation=sum]
    {3, 2} h(I) :- {2, 2} embed__h(I). [transformation=identity]
    h/1 [transformation=identity]
    """

    activation: Function = Transformation.IDENTITY
    aggregation: Function = Aggregation.SUM

    def __call__(self) -> list[Entry]:
        functions = Metadata(aggregation=self.aggregation)
        inner = atom(f"embed__{self.output_name}", [V.I])
        around = self._out()[self.shape] <= (self._feature(V.J), self._hidden_edge())
        own = self._out()[self.shape] <= inner[self.in_channels, self.in_channels]
        return [
            around | functions,
            (inner <= self._feature(V.I)) | functions,
            own | Metadata(transformation=self.activation),
            self._last(self.activation),
        ]


@dataclass(eq=False, repr=False)
class GINEConv(TemplateModule):
    """(1 + ε)·x(I) and the sum of relu(x(J) + e(J, I)), as input of `nn_name`.

    >>> print(*GINEConv(2, "x", "edge", "mlp")(), sep="\\n")
    mlp__gine_feat_sum(I, J) :- x(J), edge(J, I). [transformation=relu, combination=sum]
    mlp__gine_feat_agg(I) :- mlp__gine_feat_sum(I, J). [aggregation=sum]
    mlp__gine_out(I) :- <1.0> x(I), mlp__gine_feat_agg(I). [combination=sum]
    mlp(I) :- mlp__gine_out(I).
    """

    in_channels: int
    feature_name: str
    edge_name: str
    nn_name: str
    eps: float = 0.0
    train_eps: bool = False
    edge_dim: int | None = None

    def __call__(self) -> list[Entry]:
        name, plus = f"{self.nn_name}__gine", Metadata(combination=Combination.SUM)
        own = atom(self.feature_name, [V.I])[self.eps + 1]
        own = own if self.train_eps else own.fixed()
        edge, rules = self.edge_name, []
        if self.edge_dim is not None:
            edge = f"{name}_edge_proj"
            shape = (self.in_channels, self.edge_dim)
            rules = [atom(edge, [V.I, V.J])[shape] <= atom(self.edge_name, [V.I, V.J])]
        pair, total = atom(f"{name}_feat_sum", [V.I, V.J]), atom(f"{name}_feat_agg", [V.I])
        message = pair <= (atom(self.feature_name, [V.J]), atom(edge, [V.J, V.I]))
        relu = Metadata(transformation=Transformation.RELU, combination=Combination.SUM)
        out = atom(f"{name}_out", [V.I])
        return [
            *rules,
            message | relu,
            (total <= pair) | Metadata(aggregation=Aggregation.SUM),
            (out <= (own, total)) | plus,
            atom(self.nn_name, [V.I]) <= out,
        ]


@dataclass(eq=False, repr=False)
class GENConv(TemplateModule):
    """A perceptron of x(I) plus the aggregation of relu(x(J) + e(J, I)) + ε.

    >>> print(*GENConv(2, 3, "h", "x", "edge", num_layers=1)(), sep="\\n")
    <1e-07> h__eps.
    h__gen_feat_sum(I, J) :- {3, 2} x(J), edge(J, I). [transformation=relu, combination=sum]
    h__gen_feat_agg(I) :- h__gen_feat_sum(I, J), h__eps. [combination=sum, aggregation=softmax]
    h__gen_out(I) :- {3, 2} x(I), h__gen_feat_agg(I). [combination=sum]
    h(X0) :- {3, 3} h__gen_out(X0). [transformation=identity]
    h/1 [transformation=identity]
    """

    in_channels: int
    out_channels: int
    output_name: str
    feature_name: str
    edge_name: str
    aggregation: Function = Aggregation.SOFTMAX
    num_layers: int = 2
    expansion: int = 2
    eps: float = 1e-07
    train_eps: bool = False
    edge_dim: int | None = None

    def _feature(self, node: Any) -> Any:
        found = atom(self.feature_name, [node])
        is_same = self.in_channels == self.out_channels
        return found if is_same else found[self.out_channels, self.in_channels]

    def __call__(self) -> list[Entry]:
        name, plus = f"{self.output_name}__gen", Combination.SUM
        eps = R.get(f"{self.output_name}__eps")
        constant = eps[self.eps] if self.train_eps else eps[self.eps].fixed()
        edge, rules = self.edge_name, []
        if self.edge_dim is not None and self.edge_dim != self.out_channels:
            edge = f"{name}_edge_proj"
            shape = (self.out_channels, self.edge_dim)
            rules = [atom(edge, [V.I, V.J])[shape] <= atom(self.edge_name, [V.I, V.J])]
        pair, total = atom(f"{name}_feat_sum", [V.I, V.J]), atom(f"{name}_feat_agg", [V.I])
        message = pair <= (self._feature(V.J), atom(edge, [V.J, V.I]))
        out = atom(f"{name}_out", [V.I])
        added = Metadata(aggregation=self.aggregation, combination=plus)
        inner = [self.out_channels * self.expansion] * (self.num_layers - 1)
        sizes = [self.out_channels, *inner, self.out_channels]
        perceptron = MLP(sizes, self.output_name, f"{name}_out", Transformation.IDENTITY)
        return [
            constant,
            *rules,
            message | Metadata(transformation=Transformation.RELU, combination=plus),
            (total <= (pair, eps)) | added,
            (out <= (self._feature(V.I), total)) | Metadata(combination=plus),
            *perceptron(),
        ]


@dataclass(eq=False, repr=False)
class RGCNConv(GraphLayer):
    """W₀ times the node, and W_r times the average of the neighbours by relation r.

    >>> print(*RGCNConv(2, 3, "h", "x", None, ["likes", "knows"])(), sep="\\n")
    h(I) :- {3, 2} x(I). [aggregation=avg]
    h(I) :- {3, 2} x(J), likes(J, I). [aggregation=avg]
    h(I) :- {3, 2} x(J), knows(J, I). [aggregation=avg]
    h/1 [transformation=identity]
    """

    edge_name: str | None  # type: ignore[assignment]
    relations: list[str]
    activation: Function = Transformation.IDENTITY
    aggregation: Function = Aggregation.AVG

    def _edge(self, relation: str) -> Any:
        if not self.edge_name:
            return atom(relation, [V.J, V.I])
        return R.hidden.get(self.edge_name)(V.J, relation, V.I)

    def __call__(self) -> list[Entry]:
        functions = Metadata(aggregation=self.aggregation)
        own = self._out() <= self._feature(V.I)[self.shape]
        bodies = [(self._feature(V.J)[self.shape], self._edge(name)) for name in self.relations]
        return [
            own | functions,
            *((self._out() <= b) | functions for b in bodies),
            self._last(self.activation),
        ]


@dataclass(eq=False, repr=False)
class GATv2Conv(GraphLayer):
    """Softmax over J of a·leaky_relu(W₂·x(I) + W₁·x(J)), times W₁·x(J).

    >>> rules = GATv2Conv(2, 3, "h", "x", "e", add_self_loops=False)()
    >>> print(*(str(rule).partition(" [")[0] for rule in rules), sep="\\n")
    h__score(I, J) :- $h__left={3, 2} x(I), $h__right={3, 2} x(J), *e(J, I).
    h__attention(I, J) :- $h__att={1, 3} h__score(I, J).
    h(I) :- h__attention(I, J), $h__right={3, 2} x(J), *e(J, I).
    h/1
    """

    share_weights: bool = False
    activation: Function = Transformation.IDENTITY
    add_self_loops: bool = True
    negative_slope: float = 0.2

    def __call__(self) -> list[Entry]:
        name, (rows, columns) = self.output_name, self.shape
        source, target = f"{name}__right", f"{name}__{'right' if self.share_weights else 'left'}"
        edge, loops = self.edge_name, []
        if self.add_self_loops:
            edge = f"{name}__edge"
            copied = atom(edge, [V.I, V.J]) <= atom(self.edge_name, [V.I, V.J])
            loops = [atom(edge, [V.I, V.I])[1.0].fixed(), copied]
        condition = R.hidden.get(edge)(V.J, V.I)
        score, share = (atom(f"{name}__{part}", [V.I, V.J]) for part in ("score", "attention"))
        left = self._feature(V.I)[target:rows, columns]
        right = self._feature(V.J)[source:rows, columns]
        leaky = Transformation.LEAKY_RELU(self.negative_slope)
        softmax = Aggregation.SOFTMAX(agg_terms=["J"])
        return [
            *loops,
            (score <= (left, right, condition)) | [Combination.SUM, leaky],
            (share <= score[f"{name}__att" : 1, rows]) | [softmax, Transformation.IDENTITY],
            (self._out() <= (share, right, condition)) | [Aggregation.SUM, PRODUCT],
            self._last(self.activation),
        ]


@dataclass(eq=False, repr=False)
class ResGatedGraphConv(GraphLayer):
    """W₃·x(I), and the sum of gates σ(W₁·x(I) + W₂·x(J)) times W₄·x(J).

    >>> print(*ResGatedGraphConv(2, 3, "h", "x", "edge")(), sep="\\n")
    h__gate(I, J) :- {3, 2} x(I), {3, 2} x(J).
    h__gate/2 [transformation=sigmoid]
    h(I) :- {3, 2} x(I).
    h(I) :- h__gate(I, J), {3, 2} x(J), edge(J, I). [combination=elproduct, aggregation=sum]
    h/1 [transformation=identity]
    """

    gating_activation: Function = Transformation.SIGMOID
    activation: Function = Transformation.IDENTITY
    aggregation: Function = Aggregation.SUM

    def __call__(self) -> list[Entry]:
        name, gate = f"{self.output_name}__gate", atom(f"{self.output_name}__gate", [V.I, V.J])
        edge = atom(self.edge_name, [V.J, V.I])
        around = self._out() <= (gate, self._feature(V.J)[self.shape], edge)
        both = Metadata(combination=Combination.ELPRODUCT, aggregation=self.aggregation)
        return [
            gate <= (self._feature(V.I)[self.shape], self._feature(V.J)[self.shape]),
            line(name, 2, self.gating_activation),
            self._out() <= self._feature(V.I)[self.shape],
            around | both,
            self._last(self.activation),
        ]

"""What surrounds the layers of a graph network: encoding, norms, dropout, residuals, readout.

    hᵢ⁰ = xᵢ, or W [xᵢ; positionᵢ] + b
    hᵢᵏ⁺¹ = activation(norm(layer(dropout(hᵏ))ᵢ)) (+ hᵢᵏ)
    logitsᵢ                = hᵢᴸ, or of an MLP                    (nodes)
    logits_q               = MLP([hᵢᴸ; hⱼᴸ]) for pair(q, i, j)    (edges)
    logits                 = MLP(Σᵢ hᵢᴸ), or Σₖ Wₖ Σᵢ hᵢᵏ + bₖ    (graphs)

Each model gives its layer; `edgewise.zoo.graph_models` lists them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.errors import caller, safe_repr, suggest
from edgewise.language import F, Program, R, V, scope
from edgewise.language.nodes import Atom, Expression, Function, Statement, Variable
from edgewise.zoo.block import BadConfig
from edgewise.zoo.parts import Statements, affine, batch_norm, dropped, layer_norm_of

TASKS = ("node", "edge", "graph")
NORMS = ("none", "batch", "layer")
READOUTS: Mapping[str, Function] = {"sum": F.sum_agg, "mean": F.avg_agg, "max": F.max_agg}
ACTIVATIONS: Mapping[str, Function] = {
    "relu": F.relu, "elu": F.elu, "gelu": F.gelu, "silu": F.silu, "tanh": F.tanh,
    "leaky_relu": F.leaky_relu, "none": F.identity,
}  # fmt: skip
# from the rows that a layer reads, their size, the size of its rows, and whether it is the last
Layer = Callable[[Atom, int, int, bool], Statements]


@dataclass(frozen=True, kw_only=True)
class Network:
    """The sizes and choices around layers.

    - inputs, edges, positions: features of `x(i)`, of `edge(i, j)` and of `position(i)`
    - encode: a linear map before the first layer, which makes all layers of one size
    - head: the layers of the MLP that gives the logits; 0: the last layer does (of nodes only)
    - dropout: of the rows that layers read; of graphs, of what is read out
    - jump: graphs are read out after every layer, and the logits are the sum
    """

    inputs: int = 16
    hidden: int = 64
    outputs: int = 2
    layers: int = 2
    edges: int = 0
    positions: int = 0
    task: str = "node"
    dropout: float = 0.0
    norm: str = "none"
    activation: str = "relu"
    residual: bool = False
    encode: bool = False
    readout: str = "sum"
    head: int = 0
    jump: bool = False

    def __post_init__(self) -> None:
        choices = {"task": TASKS, "norm": NORMS, "activation": ACTIVATIONS, "readout": READOUTS}
        for name, known in choices.items():
            one_of(name, getattr(self, name), tuple(known))
        for name in ("inputs", "hidden", "outputs", "layers"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise _bad(f"`{name}={safe_repr(value)}` is not positive", "give an integer ≥ 1")
        if self.jump and self.task != "graph":
            raise _bad("`jump` adds readouts, which only graphs have", "write `task='graph'`")

    @property
    def gives_logits(self) -> bool:
        """Whether the last layer gives the logits of nodes."""
        return self.task == "node" and self.head == 0


def one_of(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse a choice that is not one of those known."""
    if not isinstance(value, str) or value not in known:
        raise _bad(
            f"`{name}={safe_repr(value)}` is not one of {', '.join(known)}",
            suggest(str(value), list(known), f"write `{name}={known[0]!r}`"),
        )


def edge_features(config: Network, model: str) -> int:
    """The features of edges, which the data must have."""
    if config.edges < 1:
        raise _bad(f"`{model}` reads `edge(i, j)` as a vector: `edges=0`", "give their size")
    return config.edges


def _bad(what: str, help: str) -> BadConfig:
    return BadConfig(what, caller(), help)


def assembled(
    config: Network,
    layer: Layer,
    *before: Statement,
    domains: Mapping[Variable, Any] | None = None,
    bare: str = "",
) -> Program:
    """The network of a layer: derives `logits(i)`, `logits(q)` or `logits` by its task.

    `before` are rules of the graph that all layers read, such as degrees. Layers that have norms
    and residuals of their own are bare: they derive the relation `bare`, and nothing follows.
    """
    rules, x, states = stacked(config, layer, *before, bare=bare)
    return Program([*rules, *logits(config, x, states)], domains=dict(domains or {}))


def stacked(
    config: Network, layer: Layer, *before: Statement, bare: str = ""
) -> tuple[Statements, Atom, list[tuple[Atom, int]]]:
    """The layers: rules, the rows of the last, and those that are read out with their sizes."""
    rules, x, size = encoded(config)
    rules += before
    states: list[tuple[Atom, int]] = [(x, size)] if config.jump else []
    for k in range(config.layers):
        last = k == config.layers - 1 and config.gives_logits
        width = config.outputs if last else config.hidden
        made = (layer if bare else _around(config, layer))(x, size, width, last)
        state = bare or ("out" if last else "state")
        rules += scope(f"layer.{k}")(made)
        x, size = R[f"layer.{k}.{state}"], width
        states.append((x, size))
    return rules, x, states


def encoded(config: Network) -> tuple[Statements, Atom, int]:
    """The rows that the first layer reads, and their size."""
    read: Expression = R.x(V.I)
    size = config.inputs + config.positions
    if config.positions:
        read = F.concat(read, R.position(V.I))
    if config.encode:
        return (
            [R.encoded(V.I) <= affine(read, "encoded", size, config.hidden)],
            R.encoded,
            (config.hidden),
        )
    return ([R.placed(V.I) <= read], R.placed, size) if config.positions else ([], R.x, size)


def _around(config: Network, layer: Layer) -> Layer:
    """A layer with what stands around it; after the last of a node task there is nothing."""

    def made(x: Atom, size: int, width: int, last: bool) -> Statements:
        rules: Statements = []
        read = x
        if config.dropout and config.task != "graph":
            rules, read = [R.dropped(V.I) <= dropped(x(V.I), config.dropout)], R.dropped
        rules += layer(read, size, width, last)
        if last:
            return rules
        state = ACTIVATIONS[config.activation](normed(R.out(V.I), "state", width, config.norm))
        same = config.residual and size == width
        return [*rules, R.state(V.I) <= (state + x(V.I) if same else state)]

    return made


def normed(x: Expression, name: str, size: int, kind: str) -> Expression:
    """A normalised row: by statistics of the batch, by its own, or as it is."""
    match kind:
        case "batch":
            return batch_norm(x, name, size)
        case "layer":
            return layer_norm_of(x, name, size)
    return x


def logits(config: Network, x: Atom, states: Sequence[tuple[Atom, int]]) -> Statements:
    """The rules after the last layer."""
    if config.gives_logits:
        return [R.logits(V.I) <= x(V.I)]
    if config.task == "node":
        return mlp(config, x(V.I), config.hidden, (V.I,))
    if config.task == "edge":
        pairs = F.concat(x(V.I), x(V.J))
        return mlp(config, pairs, 2 * config.hidden, (V.Q,), (R._pair(V.Q, V.I, V.J),))
    readout = READOUTS[config.readout]
    if not config.jump:
        rule: Statement = (R.pooled <= x(V.I)) | [readout]
        return [rule, *mlp(config, R.pooled, config.hidden, ())]
    rules: Statements = []
    for k, (state, size) in enumerate(states):
        pooled = R[f"pooled_{k}"]
        rules += [
            (pooled <= state(V.I)) | [readout],
            R.logits <= dropped(_sum(affine(pooled, f"logits_{k}", size, config.outputs)),
                                config.dropout),
        ]  # fmt: skip
    return rules


def _sum(items: Sequence[Expression]) -> Expression:
    first, second = items
    return first + second


def mlp(
    config: Network,
    x: Expression,
    size: int,
    keys: tuple[Variable, ...],
    where: tuple[Expression, ...] = (),
) -> Statements:
    """Layers of half the size each, then the logits."""
    rules: Statements = []
    for k in range(config.head - 1):
        y = R[f"head_{k}"]
        width = max(size // 2, 1)
        items = (*affine(dropped(x, config.dropout), y.relation, size, width), *where)
        rules.append((y(*keys) <= items) | [ACTIVATIONS[config.activation]])
        x, size, where = y(*keys), width, ()
    out = affine(dropped(x, config.dropout), "logits", size, config.outputs)
    return [*rules, R.logits(*keys) <= (*out, *where)]

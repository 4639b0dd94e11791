"""What surrounds the layers of a graph network: encoding, norms, dropout, residuals, readout.

    hᵢ⁰ = xᵢ, or W [xᵢ; positionᵢ] + b
    hᵢᵏ⁺¹ = activation(norm(layer(dropout(hᵏ))ᵢ)) (+ hᵢᵏ)

What follows the last layer is in `edgewise.zoo.graph_readouts`. Each model gives its layer;
`edgewise.zoo.graph_models` lists them.

>>> import torch
>>> from edgewise import R, zoo
>>> program = zoo.gcn.network(zoo.network.Network(inputs=8, hidden=16, outputs=3))
>>> model = program.compile(R.logits, seed=0).eval()
>>> model(x=torch.randn(4, 8), edge=[(0, 1), (1, 2)]).shape
torch.Size([4, 3])
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from edgewise.errors import caller, safe_repr, suggest
from edgewise.language import F, Program, R, V, W, scope
from edgewise.language.nodes import Atom, Expression, Statement, Variable
from edgewise.zoo.block import BadConfig
from edgewise.zoo.graph_readouts import ACTIVATIONS, PAIRS, READOUTS, logits
from edgewise.zoo.parts import Statements, affine, batch_norm, dropped, layer_norm_of

TASKS = ("node", "edge", "graph")
NORMS = ("none", "batch", "layer")
# from the rows that a layer reads, their size, the size of its rows, and whether it is the last
Layer = Callable[[Atom, int, int, bool], Statements]
Start = tuple[Statements, Atom, int]  # rules, the rows that they derive, and their size


@dataclass(frozen=True, kw_only=True)
class Network:
    """The sizes and choices around layers.

    - inputs, edges, positions: features of `x(i)`, of `edge(i, j)` and of `position(i)`
    - encode: a linear map before the first layer, which makes all layers of one size
    - head: the layers of the MLP that gives the logits; 0: the last layer does (of nodes only)
    - dropout: of the rows that layers read; of graphs, of what is read out
    - pairs: the logits of pairs are of both rows (concat), or of their elementwise product
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
    pairs: str = "concat"
    head: int = 0
    jump: bool = False
    readouts: ClassVar[Sequence[str]] = READOUTS

    def __post_init__(self) -> None:
        choices = {"task": TASKS, "norm": NORMS, "activation": ACTIVATIONS, "pairs": PAIRS}
        for name, known in (choices | {"readout": self.readouts}).items():
            one_of(name, getattr(self, name), tuple(known))
        least = dict.fromkeys(("inputs", "hidden", "outputs", "layers"), 1)
        for name, low in (least | dict.fromkeys(("edges", "positions", "head"), 0)).items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                what = f"`{name}={safe_repr(value)}` is not an integer ≥ {low}"
                raise _bad(what, f"write `{name}={low}` or more")
        if self.jump and self.task != "graph":
            raise _bad("`jump` adds readouts, which only graphs have", "write `task='graph'`")

    @property
    def gives_logits(self) -> bool:
        """Whether the last layer gives the logits of nodes."""
        return self.task == "node" and self.head == 0


@dataclass(frozen=True, kw_only=True)
class BlockNetwork(Network):
    """A network of blocks of `hidden` features, with norms and residual connections inside."""

    layers: int = 4
    norm: str = "batch"
    encode: bool = True
    head: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.inputs + self.positions
        if not self.encode and size != self.hidden:
            what = f"blocks of {self.hidden} features read rows of {size}: `encode=False`"
            raise _bad(what, "write `encode=True`")
        if self.residual:
            raise _bad("blocks have residual connections inside: `residual=True`", "leave it out")

    @property
    def gives_logits(self) -> bool:
        return False


def without_jump(config: Network, reason: str) -> None:
    """Refuse readouts after every layer."""
    if config.jump:
        raise _bad(f"`jump` reads out rows after every layer, but {reason}", "leave it out")


def one_of(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse a choice that is not one of those known."""
    if not isinstance(value, str) or value not in known:
        raise _bad(
            f"`{name}={safe_repr(value)}` is not one of {', '.join(known)}",
            suggest(str(value), list(known), f"write `{name}={known[0]!r}`"),
        )


def bonds(config: Network) -> Statement:
    """`bond(i, j)`, a vector of `hidden` features: of the edge's own, or one for all edges."""
    if config.edges:
        return R.bond(V.I, V.J) <= affine(R.edge(V.I, V.J), "bond", config.edges, config.hidden)
    return R.bond(V.I, V.J) <= (W["bond.bias"][config.hidden,], R._edge(V.I, V.J))


def pairs(config: Network, y: Atom) -> Statements:
    """A vector for all pairs of nodes: a bias, and more where there is an edge."""
    d, all_pairs = config.hidden, (R._x(V.I), R._x(V.J))
    along: Expression | tuple[Expression, ...] = (W[f"{y.relation}.edge"][d,], R._edge(V.I, V.J))
    if config.edges:
        along = R.edge(V.I, V.J)[W[f"{y.relation}.edge"][d, config.edges]]
    return [y(V.I, V.J) <= (W[f"{y.relation}.bias"][d,], *all_pairs), y(V.I, V.J) <= along]


def _bad(what: str, help: str) -> BadConfig:
    return BadConfig(what, caller(), help)


def assembled(
    config: Network,
    layer: Layer,
    *before: Statement,
    domains: Mapping[Variable, Any] | None = None,
    bare: str = "",
    start: Start | None = None,
) -> Program:
    """The network of a layer: derives `logits(i)`, `logits(q)` or `logits` by its task.

    `before` are rules of the graph that all layers read, such as degrees. Layers that have norms
    and residuals of their own are bare: they derive the relation `bare`, and nothing follows.
    `start` are the rows that the first layer reads, with their rules and size, if not those of `x`.
    """
    rules, x, states = stacked(config, layer, *before, bare=bare, start=start)
    return Program([*rules, *logits(config, x, states)], domains=dict(domains or {}))


def stacked(
    config: Network, layer: Layer, *before: Statement, bare: str = "", start: Start | None = None
) -> tuple[Statements, Atom, list[tuple[Atom, int]]]:
    """The layers: rules, the rows of the last, and those that are read out with their sizes."""
    rules, x, size = start or encoded(config)
    rules = [*rules, *before]
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


def encoded(config: Network) -> Start:
    """The rows that the first layer reads, and their size."""
    read: Expression = R.x(V.I)
    size = config.inputs + config.positions
    if config.positions:
        read = F.concat(read, R.position(V.I))
    if config.encode:
        return (
            [R.encoded(V.I) <= affine(read, "encoded", size, config.hidden)],
            R.encoded,
            config.hidden,
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

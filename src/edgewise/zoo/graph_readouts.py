"""From the rows of nodes to logits: of nodes, of pairs of nodes, or of graphs.

    nodes    logitsᵢ = hᵢ, or MLP(hᵢ)
    edges    logits_q = MLP([hᵢ; hⱼ]) for pair(q, i, j), or MLP(hᵢ ⊙ hⱼ)
    graphs   logits = MLP(poolᵢ hᵢ), or Σₖ Wₖ poolᵢ hᵢᵏ + bₖ of all layers k
    pool     Σᵢ hᵢ, the mean or maximum; with attention Σᵢ αᵢ hᵢ, αᵢ = softmaxᵢ(w · hᵢ + b)

Parity: `torch_geometric.nn.aggr` with Sum, Mean, Max and `AttentionalAggregation`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgewise.language import F, R, V
from edgewise.language.nodes import Atom, Expression, Function, Statement, Variable
from edgewise.zoo.parts import Statements, affine, affine_of, dropped

if TYPE_CHECKING:
    from edgewise.zoo.network import Network

POOLS: Mapping[str, Function] = {"sum": F.sum_agg, "mean": F.avg_agg, "max": F.max_agg}
READOUTS = (*POOLS, "attention")
PAIRS = ("concat", "product")
ACTIVATIONS: Mapping[str, Function] = {
    "relu": F.relu, "elu": F.elu, "gelu": F.gelu, "silu": F.silu, "tanh": F.tanh,
    "leaky_relu": F.leaky_relu, "none": F.identity,
}  # fmt: skip


def pooled(x: Atom, y: Atom, size: int, how: str) -> Statements:
    """One row for all rows of a graph."""
    if how in POOLS:
        return [(y <= x(V.I)) | [POOLS[how]]]
    name = y.relation
    share = R[f"{name}_share"]
    return [
        (share(V.I) <= affine(x(V.I), f"{name}.gate", size, 1)) | [F.softmax_agg(agg_terms=[V.I])],
        (y <= (share(V.I), x(V.I))) | [F.product],
    ]


def logits(config: "Network", x: Atom, states: Sequence[tuple[Atom, int]]) -> Statements:
    """The rules after the last layer, whose rows have `hidden` features unless they are logits."""
    if config.gives_logits:
        return [R.logits(V.I) <= x(V.I)]
    if config.task == "node":
        return mlp(config, x(V.I), config.hidden, (V.I,))
    if config.task == "edge":
        apart, where = config.pairs == "concat", (R._pair(V.Q, V.I, V.J),)
        both = F.concat(x(V.I), x(V.J)) if apart else x(V.I) * x(V.J)
        return mlp(config, both, (2 if apart else 1) * config.hidden, (V.Q,), where)
    if not config.jump:
        rules = pooled(x, R.pooled, config.hidden, config.readout)
        return [*rules, *mlp(config, R.pooled, config.hidden, ())]
    return [
        rule for k, (state, size) in enumerate(states) for rule in _of_layer(config, state, size, k)
    ]


def _of_layer(config: "Network", state: Atom, size: int, k: int) -> Statements:
    """What the readout after layer k adds to the logits."""
    y = R[f"pooled_{k}"]
    own = affine_of(y, f"logits_{k}", size, config.outputs)
    added: Statement = R.logits <= dropped(own, config.dropout)
    return [*pooled(state, y, size, config.readout), added]


def mlp(
    config: "Network",
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

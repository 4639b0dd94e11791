"""Personalised propagation of neural predictions (APPNP).

    h = W₂ relu(W₁ x + b₁) + b₂,   z⁰ = h
    zᵢᵏ⁺¹ = (1 − α) Σ_{j ∈ N(i) ∪ {i}} zⱼᵏ / √(dᵢ dⱼ) + α hᵢ

Paper: https://arxiv.org/abs/1810.05997. Parity: `torch_geometric.nn.APPNP`. Every row has a
self-loop, as in PyG.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.appnp.Config(steps=3)
>>> model = zoo.appnp.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(4, 8), edge=torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
torch.Size([4, 8])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, repeat
from edgewise.language.nodes import Atom
from edgewise.zoo import gcn
from edgewise.zoo import network as networks
from edgewise.zoo.graph_readouts import logits
from edgewise.zoo.parts import Statements, affine, dropped


@dataclass(frozen=True)
class Config:
    """`steps` of propagation, `teleport` (α) back to the start of each."""

    steps: int = 10
    teleport: float = 0.1
    dropout: float = 0.0


def layer(h: Atom, config: Config) -> Statements:
    """Reads `h(i)`, `neighbour(i, j)` and `degree(i)`, derives `step.out(i)`."""
    norm = F.inverse(F.sqrt(R.degree(V.I) * R.degree(V.J)))
    far, near = 1 - config.teleport, config.teleport

    def step(z: Atom) -> Statements:
        return [
            (R.spread(V.I) <= (dropped(norm, config.dropout), z(V.J), R._neighbour(V.I, V.J)))
            | [F.product],
            R.out(V.I) <= (R.spread(V.I)[far].fixed(), h(V.I)[near].fixed()),
        ]

    return [repeat(step, config.steps, name="step")(h)]


def program(config: Config) -> Program:
    """Reads `x(i)` and `edge(i, j)`, from j to i; derives `out(i)`."""
    last: Statements = [R.out(V.I) <= R["step.out"](V.I)]
    return Program([*gcn.normalised(), *layer(R.x, config), *last])


@dataclass(frozen=True, kw_only=True)
class Network(networks.Network):
    """`layers` are those of the MLP before propagation."""

    steps: int = 10
    teleport: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        networks.without_jump(self, "here they are propagated after the last one")


def network(config: Network) -> Program:
    """Reads `x(i)` and `edge(i, j)`."""
    sizes = Config(config.steps, config.teleport, config.dropout)

    def made(x: Atom, inputs: int, outputs: int, last: bool) -> Statements:
        return [R.out(V.I) <= affine(x(V.I), "out", inputs, outputs)]

    rules, last, _ = networks.stacked(config, made, *gcn.normalised())
    rules += layer(last, sizes)
    return Program([*rules, *logits(config, R["step.out"], ())])

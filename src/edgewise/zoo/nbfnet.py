"""NBFNet: Bellman–Ford with learned products and sums, from the head of a query to all entities.

    q = the vector of the query's relation;  bᵢ = q for the head of the query, else 0;  x⁰ = b
    wᵗ(k) = W_k q + c_k
    mᵢ = Σ over edges (j, k, i)  xᵗ⁻¹ⱼ ⊙ wᵗ(k)  + bᵢ
    xᵗᵢ = relu(norm(W [xᵗ⁻¹ᵢ; mᵢ])) + xᵗ⁻¹ᵢ
    score(i) = MLP([xᴸᵢ; q])

Paper: https://arxiv.org/abs/2106.06935, with DistMult's messages and the sum.
Parity: the equations in plain torch.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.nbfnet.Config(relations=3, size=8, layers=2)
>>> model = zoo.nbfnet.program(config).compile(R.score, seed=0)
>>> model(relation=numbers(1), start=torch.eye(4)[0], edge=[(0, 1, 2), (2, 0, 3)], hide=[]).shape
torch.Size([4])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.zoo.block import check_positive
from edgewise.zoo.parts import Statements, affine, layer_norm_of


@dataclass(frozen=True)
class Config:
    """`relations` counts inverse ones too; `size` is that of the vector of an entity."""

    relations: int = 20
    size: int = 32
    layers: int = 4

    def __post_init__(self) -> None:
        check_positive(self, "relations", "size", "layers")


def layer(config: Config, t: int) -> Statements:
    """The rules of layer t, from `x_(t-1)` to `x_t`."""
    d, x, y = config.size, R[f"x_{t - 1}"], R[f"x_{t}"]
    weight, message, joined = (R[f"{name}_{t}"] for name in ("relation", "message", "joined"))
    matrix, bias = W[f"relation.{t}.weight"](V.K)[d, d], W[f"relation.{t}.bias"](V.K)[d,]
    edge = R._edge(V.J, V.K, V.I), ~R._hide(V.J, V.K, V.I)
    state = affine(F.concat(x(V.I), message(V.I)), f"layer.{t}", 2 * d, d)
    return [
        weight(V.K) <= (R.query[matrix], bias),
        (message(V.I) <= (x(V.J), weight(V.K), *edge)) | [F.elproduct],
        message(V.I) <= R.boundary(V.I),
        joined(V.I) <= state,
        y(V.I) <= F.relu(layer_norm_of(joined(V.I), f"norm.{t}", d)) + x(V.I),
    ]


def program(config: Config) -> Program:
    """Reads `relation` and `start(i)`, 1 for the head of the query, and `edge(j, k, i)`.

    `hide(j, k, i)` are edges that do not count, such as the query itself. Derives `score(i)`.
    """
    d, last = config.size, R[f"x_{config.layers}"]
    rules: Statements = [
        R.query <= F.lookup(W.query[config.relations, d], R.relation),
        (R.boundary(V.I) <= (R.start(V.I), R.query)) | [F.product],
        R.x_0(V.I) <= R.boundary(V.I),
    ]
    for t in range(1, config.layers + 1):
        rules += layer(config, t)
    rules += [
        (R.hidden_state(V.I) <= (*affine(last(V.I), "hidden", d, d),
                                 R.query["hidden.query":d, d])) | [F.relu],
        R.score(V.I) <= affine(R.hidden_state(V.I), "score", d, 1),
    ]  # fmt: skip
    return Program(rules, domains={V.K: config.relations})

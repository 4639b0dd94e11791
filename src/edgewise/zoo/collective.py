"""Collective classification: the class of a node depends on those of its neighbours, in rounds.

    labelⱼ = the observed class of j, or its belief in the round before
    beliefᵢ = softmax(W xᵢ + b + U meanⱼ labelⱼ)         over the neighbours j of i
    logitsᵢ = log beliefᵢ                                after k rounds

In the first round only observed classes count. All rounds have the same weights, and gradients go
through all of them.

Paper: https://arxiv.org/abs/1609.04508, and Sen et al. 2008, "Collective classification in network
data". Parity: the equations in plain torch, round by round.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.collective.Config(inputs=8, classes=2, rounds=2)
>>> model = zoo.collective.program(config).compile(R.logits, seed=0)
>>> model(
...     x=torch.randn(4, 8), edge=torch.tensor([[0, 1, 2], [1, 2, 3]]), observed={0: [1.0, 0.0]}
... ).shape
torch.Size([4, 2])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.zoo.parts import Statements


@dataclass(frozen=True)
class Config:
    """Features of a node, classes, and rounds."""

    inputs: int = 16
    classes: int = 2
    rounds: int = 3


def one_round(config: Config, t: int) -> Statements:
    """Beliefs of round t from the labels of the round before."""
    before, near, belief, label = (
        R[f"label_{t - 1}"], R[f"near_{t}"], R[f"belief_{t}"], R[f"label_{t}"]
    )  # fmt: skip
    return [
        (near(V.I) <= (before(V.J), R._edge(V.I, V.J))) | [F.avg_agg],
        belief(V.I) <= R.own(V.I),
        belief(V.I) <= near(V.I)["near" : config.classes, config.classes],
        belief / 1 | [F.softmax],
        label(V.I) <= R.observed(V.I),
        label(V.I) <= (belief(V.I), ~R._observed(V.I)),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)`, `edge(i, j)` and `observed(i)`, a one-hot vector where a class is known.

    Derives `logits(i)` for every node, also for those that are observed.
    """
    c = config.classes
    rules: Statements = [
        R.own(V.I) <= (R.x(V.I)["own.weight":c, config.inputs], W["own.bias"][c,]),
        R.label_0(V.I) <= R.observed(V.I),
    ]
    for t in range(1, config.rounds + 1):
        rules += one_round(config, t)
    last = R[f"belief_{config.rounds}"]
    return Program([*rules, R.logits(V.I) <= F.log(last(V.I))])

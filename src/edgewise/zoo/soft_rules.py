"""Soft rules: chains of relations, learned by choosing softly which relation each step follows.

    at⁰ᵢ = 1 for the head of the query, else 0
    atᵗᵢ = Σ over edges (j, k, i)  choiceᵗ(k) ⊙ atᵗ⁻¹ⱼ  +  choiceᵗ(stay) ⊙ atᵗ⁻¹ᵢ
    choiceᵗ = softmaxₖ of weights that the relation of the query has
    score(i) = log(Σ_c atᴸᵢ_c + ε)

Every feature c is a mixture of chains of its own. A chain k₁ … k_L has the weight
Σ_c Πₜ choiceᵗ(kₜ)_c, and reads as the rule `query(X, Y) :- k₁(X, A), k₂(A, Y)`: see `chains`.

Papers: https://arxiv.org/abs/1702.08367 (Neural LP), https://arxiv.org/abs/1911.00055 (DRUM).
Parity: products of adjacency matrices in plain torch.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.soft_rules.Config(relations=3, length=2, rank=2)
>>> model = zoo.soft_rules.program(config).compile(R.score, seed=0)
>>> model(relation=numbers(1), start=torch.eye(4)[0], edge=[(0, 1, 2), (2, 0, 3)], hide=[]).shape
torch.Size([4])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Rule
from edgewise.zoo.block import check_positive
from edgewise.zoo.parts import Statements

LEAST = 1e-6  # of a score, so that what no chain reaches has a logarithm
BRANCHES = 8  # relations of each step that are tried in a chain


@dataclass(frozen=True)
class Config:
    """`length` steps of chains, each a choice among `relations`; `rank` mixtures of chains."""

    relations: int = 20
    length: int = 2
    rank: int = 3

    def __post_init__(self) -> None:
        check_positive(self, "relations", "length", "rank")

    @property
    def stay(self) -> int:
        """The number of the choice to stay, which makes a chain shorter."""
        return self.relations


def step(config: Config, t: int) -> Statements:
    """The rules of step t, from `at_(t-1)` to `at_t`."""
    before, at = R[f"at_{t - 1}"], R[f"at_{t}"]
    logit, choice = R[f"logit_{t}"], R[f"choice_{t}"]
    table = W[f"choice.{t}"](V.K)[config.relations, config.rank]
    edge = R._edge(V.J, V.K, V.I), ~R._hide(V.J, V.K, V.I)
    return [
        logit(V.K) <= F.lookup(table, R.relation),
        (choice(V.K) <= logit(V.K)) | [F.softmax_agg(agg_terms=[V.K])],
        (at(V.I) <= (before(V.J), choice(V.K), *edge)) | [F.elproduct],
        (at(V.I) <= (before(V.I), choice(config.stay))) | [F.elproduct],
    ]


def program(config: Config) -> Program:
    """Reads `relation` and `start(i)`, 1 for the head of the query, and `edge(j, k, i)`.

    `hide(j, k, i)` are edges that do not count, such as the query itself. Derives `score(i)`.
    """
    ones = W.ones[[1.0] * config.rank].fixed()
    total = R[f"at_{config.length}"](V.I)[W.total[[[1.0] * config.rank]].fixed()]
    rules: Statements = [(R.at_0(V.I) <= (R.start(V.I), ones)) | [F.product]]
    for t in range(1, config.length + 1):
        rules += step(config, t)
    rules.append(R.score(V.I) <= F.log(total + LEAST))
    return Program(rules, domains={V.K: config.relations + 1})


def chains(
    config: Config, weights: Mapping[str, Tensor], relation: int, *, most: int = 5
) -> list[tuple[tuple[int, ...], float]]:
    """The chains of a relation with the largest weights, without the steps that stay.

    Weights of chains that become equal are added; all together are 1 at most.
    """
    choices = [
        weights[f"choice.{t}"].detach()[:, relation].double().softmax(0) / config.rank ** (t == 1)
        for t in range(1, config.length + 1)
    ]  # (relations + 1, rank) each
    tops = [choice.sum(1).topk(min(BRANCHES, len(choice))).indices.tolist() for choice in choices]
    found: dict[tuple[int, ...], float] = {}
    for chain in product(*tops):
        rows = [choice[k] for choice, k in zip(choices, chain, strict=True)]
        weight = float(torch.stack(rows).prod(0).sum())
        moved = tuple(k for k in chain if k != config.stay)
        found[moved] = found.get(moved, 0.0) + weight
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return ordered[:most]


def as_rule(head: str, chain: Sequence[tuple[str, bool]]) -> Rule:
    """A chain as a rule; a step is a relation and whether it is followed backwards.

    >>> as_rule("uncle", [("brother", False), ("son", True)])
    R.uncle(V.X, V.Y) <= (R._brother(V.X, V.A), R._son(V.Y, V.A))
    """
    places = [V.X, *(V[name] for name in "ABCDEFGH"[: max(len(chain) - 1, 0)]), V.Y]
    body = []
    for at, (name, backwards) in enumerate(chain):
        ends = places[at], places[at + 1]
        body.append(R.hidden[name](*(ends[::-1] if backwards else ends)))
    if not body:
        body = [R.special.eq(V.X, V.Y)]
    found: Rule = R[head](V.X, V.Y) <= tuple(body)
    return found

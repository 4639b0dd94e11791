"""A biaffine parser: which word each word depends on, and by which relation.

    dᵢ = relu(D xᵢ),   hⱼ = relu(H xⱼ)
    arc(i, j) = dᵢᵀ U hⱼ + uᵀ hⱼ                       one attention head: softmax over j
    relation(c, i, j) = dᵢᵀ Uc hⱼ + ucᵀ hⱼ + wcᵀ dᵢ + bc      with d and h of its own

Word 0 is the root. Paper: https://arxiv.org/abs/1611.01734 (Dozat and Manning).
Parity: `torch.nn.Bilinear` of d and h, each with a 1 at its end.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.biaffine.Config(size=8, relations=5, arcs=6, labels=4)
>>> model = zoo.biaffine.program(config).compile([R.weights, R.relation], seed=0)
>>> found = model(word_row=torch.ones(1, 3, 8), word_mask=torch.ones(1, 3, 1))
>>> {name: tuple(value.shape) for name, value in found.items()}
{'weights': (1, 3, 3), 'relation': (1, 5, 3, 3)}
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Variable
from edgewise.zoo.block import check_positive
from edgewise.zoo.parts import Statements, affine, dropped, present


@dataclass(frozen=True)
class Config:
    """`arcs` and `labels` are the sizes of d and h for arcs and for relations."""

    size: int = 384
    relations: int = 50
    arcs: int = 256
    labels: int = 96
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self, "size", "relations", "arcs", "labels")


def program(config: Config) -> Program:
    """Reads `word_row(i)`, the words, and `word_mask(i)`, 0 where there is none; derives
    `arc(i, j)`, the score of word i below word j, `weights(i, j)`, its probability, and
    `relation(c, i, j)`.
    """
    return Program(
        [*present(R.word_mask, R.word_present), *scores(R.word_row, config)],
        domains=domains(config),
    )


def scores(x: Atom, config: Config) -> Statements:
    """The rules of both scores; `word_present(j)` is 0, and −∞ where there is no word."""
    a, d = config.arcs, config.labels
    query = affine(R.arc_dependent(V.I), "arc", a, a)
    both = R.relation_head(V.J).T @ R.relation_query(V.C, V.I)
    relation = W["relation.weight"](V.C)[d, d], W["relation.bias"](V.C)[d,]
    own = W["own.weight"](V.C)[1, d], W["own.bias"](V.C)[1,]
    return [
        *_features(x, R.arc_dependent, a, config),
        *_features(x, R.arc_head, a, config),
        R.arc_query(V.I) <= query,
        R.arc(V.I, V.J) <= (R.arc_head(V.J).T @ R.arc_query(V.I), R.word_present(V.J)),
        (R.weights(V.I, V.J) <= R.arc(V.I, V.J)) | [F.identity, F.softmax_agg(agg_terms=[V.J])],
        *_features(x, R.relation_dependent, d, config),
        *_features(x, R.relation_head, d, config),
        R.relation_query(V.C, V.I) <= (R.relation_dependent(V.I)[relation[0]], relation[1]),
        R.relation_own(V.C, V.I) <= (R.relation_dependent(V.I)[own[0]], own[1]),
        R.relation(V.C, V.I, V.J) <= (both, R.relation_own(V.C, V.I)),
    ]


def _features(x: Atom, y: Atom, size: int, config: Config) -> Statements:
    row = dropped(x(V.I), config.dropout)
    return [(y(V.I) <= affine(row, y.relation, config.size, size)) | [F.relu]]


def words(pieces: Atom, part: Atom, y: Atom) -> Statements:
    """y(k): the mean of the pieces of word k, by `part(k, i)`, the share of piece i in it."""
    return [(y(V.K) <= (part(V.K, V.I), pieces(V.I))) | [F.product]]


def domains(config: Config) -> dict[Variable, int]:
    return {V.C: config.relations}

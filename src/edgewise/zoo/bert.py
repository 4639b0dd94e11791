"""BERT, and the encoders of its family: RoBERTa, DistilBERT, MPNet.

    xᵢ = norm(word(tokenᵢ) + position(i) + type(segmentᵢ))
    aᵢ = norm(xᵢ + O attention(x)ᵢ),   yᵢ = norm(aᵢ + W₂ gelu(W₁ aᵢ))

Papers: https://arxiv.org/abs/1810.04805, https://arxiv.org/abs/1907.11692 (RoBERTa),
https://arxiv.org/abs/1910.01108 (DistilBERT), https://arxiv.org/abs/2004.09297 (MPNet).
Parity: `transformers.BertModel`, `RobertaModel`, `DistilBertModel`, `MPNetModel`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.zoo.parts import (
    Statements,
    affine,
    attention,
    dropped,
    layer_norm,
    linear,
    penalty,
    post_norm,
    relative,
)


@dataclass(frozen=True)
class Config:
    """`first` is the position of the first token, `buckets` those of relative positions (MPNet).

    `labels` are the classes of a classifier, `pooling` is the activation of `pooled`; embeddings
    of another size than that of the layers (`embedding`) are projected to it (ELECTRA, ALBERT).
    """

    vocabulary: int = 30_522
    size: int = 768
    heads: int = 12
    hidden: int = 3072
    layers: int = 12
    length: int = 512
    first: int = 0
    types: int = 2
    buckets: int = 0
    activation: Function = F.gelu
    eps: float = 1e-12
    dropout: float = 0.1
    labels: int = 2
    pooling: Function = F.tanh
    embedding: int | None = None

    @property
    def width(self) -> int:
        """The size of embeddings."""
        return self.embedding or self.size


ROBERTA = Config(vocabulary=50_265, length=514, first=2, types=1, eps=1e-5)
DISTILBERT = Config(layers=6, types=0, pooling=F.relu)
MPNET = Config(vocabulary=30_527, length=514, first=2, types=0, buckets=32)
Variant = TypeVar("Variant", bound=Config)


def embeddings(y: Atom, config: Config) -> Statements:
    """Reads `token(i)` and, with types, `segment(i)`."""
    d, projects = config.width, config.embedding is not None
    known = F.lookup(W.word[config.vocabulary, d], R.token(V.I)) + W.position(V.P)[d,]
    if config.types:
        known = known + F.lookup(W.type[config.types, d], R.segment(V.I))
    return [
        R.known(V.I) <= (known, R.special.add(V.I, config.first, V.P)),
        *layer_norm(R.known, R.embedded, d, eps=config.eps),
        (R.narrow if projects else y)(V.I) <= dropped(R.embedded(V.I), config.dropout),
        *(linear(R.narrow, y, d, config.size) if projects else []),
    ]


def layer(x: Atom, config: Config) -> Statements:
    d, p = config.size, config.dropout
    scores: tuple[Expression, ...] = (R.penalty(V.J),)
    scores += (R.relative(V.H, V.I, V.J),) if config.buckets else ()
    return [
        *attention(x, R.heads, d, config.heads, p=p, scores=scores),
        *added(x, R.heads, R.norm2, config),
    ]


def added(x: Atom, read: Atom, y: Atom, config: Config) -> Statements:
    """The rest of a layer: what attention read is added to x, then the hidden layer."""
    return post_norm(
        x, read, y, config.size, config.hidden,
        activation=config.activation, eps=config.eps, p=config.dropout,
    )  # fmt: skip


def encoder(
    config: Variant, block: Callable[[Atom, Variant], Statements], *before: Statement
) -> Statements:
    """Embeddings and a stack of blocks: derives `out(i)`, the last hidden row of every token."""
    stack = repeat(lambda x: block(x, config), config.layers)(R.x)
    return [
        *embeddings(R.x, config),
        *penalty(R.mask, R.penalty),
        *before,
        stack,
        R.out(V.I) <= stack.out(V.I),
    ]


def pooled(config: Config) -> Statement:
    """The row of the first token, through a layer."""
    return (R.pooled <= affine(R.out(0), "pooled", config.size, config.size)) | [config.pooling]


def readouts(config: Config) -> Statements:
    """What is made of `out(i)`: `pooled`, `logits(i)`, `embedding` and what classifiers give."""
    return [
        pooled(config),
        *masked_tokens(config, config.activation),
        *classifiers(config),
        R.follows <= affine(dropped(R.pooled, config.dropout), "follows", config.size, 2),
        *unit_mean(R.out, R.mask, R.embedding),
    ]


def masked_tokens(config: Config, activation: Function) -> Statements:
    """A score for every word that may stand at i, by the table that words were read from."""
    d, words = config.width, config.vocabulary
    return [
        (R.guess(V.I) <= affine(R.out(V.I), "guess", config.size, d)) | [activation],
        *layer_norm(R.guess, R.guessed, d, eps=config.eps),
        R.logits(V.I) <= (R.guessed(V.I)["word":words, d], W["logits.bias"][words,]),
    ]


def classifiers(config: Config) -> Statements:
    """`classes` of the text, `tags(i)` of a token, and `span(i)`: does an answer begin or end?"""
    d, row = config.size, dropped(R.out(V.I), config.dropout)
    return [
        R.classes <= affine(dropped(R.pooled, config.dropout), "classes", d, config.labels),
        R.tags(V.I) <= affine(row, "tags", d, config.labels),
        R.span(V.I) <= affine(R.out(V.I), "span", d, 2),
    ]


def program(config: Config) -> Program:
    """Reads `token(i)`, `mask(i)` (0 where padded) and `segment(i)`; derives `out(i)`, and from it
    `pooled`, `logits(i)` (of masked tokens), `embedding` (of the text, of length 1), `classes`,
    `tags(i)`, `span(i)` and `follows` (does the second sentence follow the first?).
    """
    domains = {V.H: config.heads, V.P: config.length}
    distances: Statements = []
    if config.buckets:
        domains |= {V.B: config.buckets}
        distances = relative(R.x, R.relative, config.buckets, 128)
    return Program([*encoder(config, layer, *distances), *readouts(config)], domains=domains)


def unit_mean(x: Atom, mask: Atom, y: Atom) -> Statements:
    """The mean of the rows that are not padded, made of length 1."""
    return [
        (R.total <= (mask(V.I), x(V.I))) | [F.product],
        y <= R.total * F.inverse(F.sqrt(R.total.T @ R.total)),
    ]

"""BERT, and the encoders of its family: RoBERTa, DistilBERT, MPNet.

    xᵢ = norm(word(tokenᵢ) + position(i) + type(segmentᵢ))
    aᵢ = norm(xᵢ + O attention(x)ᵢ),   yᵢ = norm(aᵢ + W₂ gelu(W₁ aᵢ))

Papers: https://arxiv.org/abs/1810.04805, https://arxiv.org/abs/1907.11692 (RoBERTa),
https://arxiv.org/abs/1910.01108 (DistilBERT), https://arxiv.org/abs/2004.09297 (MPNet).
Parity: `transformers.BertModel`, `RobertaModel`, `DistilBertModel`, `MPNetModel`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.bert.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2)
>>> model = zoo.bert.program(config).compile(R.out, seed=0)
>>> model(
...     token=numbers(torch.arange(9)), mask=torch.ones(9), segment=numbers(torch.zeros(9).long())
... ).shape
torch.Size([9, 16])
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Function, Statement, Variable
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, affine, dropped, layer_norm, linear, present, relative


@dataclass(frozen=True)
class Config(block.Block):
    """`first` is the position of the first token, `buckets` those of relative positions (MPNet).

    `labels` are the classes of a classifier, `pooling` is the activation of `pooled`, `guessing`
    that of the head of masked tokens, by default that of the layers (RoBERTa, MPNet and ELECTRA
    have GELU there, whatever the layers have); embeddings of another size than that of the layers
    (`embedding`) are projected to it (ELECTRA, ALBERT).
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
    guessing: Function | None = None

    OWN: ClassVar = {"norm": "post", "positions": "learned"}

    @property
    def width(self) -> int:
        """The size of embeddings."""
        return self.embedding or self.size

    @property
    def activation_of_guess(self) -> Function:
        """The activation of the head of masked tokens."""
        return self.activation if self.guessing is None else self.guessing


class EncoderSizes(Protocol):
    """What the rules after an encoder read of its configuration."""

    @property
    def vocabulary(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def labels(self) -> int: ...
    @property
    def pooling(self) -> Function: ...
    @property
    def eps(self) -> float: ...
    @property
    def dropout(self) -> float: ...


ROBERTA = Config(vocabulary=50_265, length=514, first=2, types=1, eps=1e-5)
DISTILBERT = Config(layers=6, types=0, pooling=F.relu)
MPNET = Config(vocabulary=30_527, length=514, first=2, types=0, buckets=32)
Variant = TypeVar("Variant", bound=Config)


def embeddings(y: Atom, config: Config) -> Statements:
    """Reads `token(i)` and, with types, `segment(i)`."""
    d, projects = config.width, config.embedding is not None
    word: Expression = F.lookup(W.word[config.vocabulary, d], R.token(V.I))
    made: Statements = []
    at: tuple[Expression, ...] = ()
    if config.positions == "learned":
        word, at = word + W.position(V.P)[d,], (R.special.add(V.I, config.first, V.P),)
    else:
        made, word = layers.placed(word, R.token, y, config, size=d)
    if config.types:
        word = word + F.lookup(W.type[config.types, d], R.segment(V.I))
    last = R.known if config.norm == "none" else R.embedded
    return [
        *made,
        R.known(V.I) <= (word, *at),
        *([] if config.norm == "none" else layer_norm(R.known, R.embedded, d, eps=config.eps)),
        (R.narrow if projects else y)(V.I) <= dropped(last(V.I), config.dropout),
        *(linear(R.narrow, y, d, config.size) if projects else []),
    ]


def layer(x: Atom, config: Config, edges: Edges) -> Statements:
    scores: tuple[Expression, ...] = layers.REAL
    scores += (R.relative(V.H, V.I, V.J),) if config.buckets else ()
    return layers.layer(
        x, lambda read: layers.attention(read, R.heads, config, edges, scores=scores), config
    )


def encoder(
    config: Variant,
    made: Callable[[Atom, Variant, Edges], Statements],
    embedded: Callable[[Atom, Variant], Statements] = embeddings,
    *before: Statement,
    own: tuple[Expression, ...] = (),
) -> Statements:
    """Embeddings and a stack of layers: derives `out(i)`, the last hidden row of every token."""
    edges = block.edges(config, config.layers, own=own)
    stack, (last,) = block.stacked(lambda pairs: lambda x: made(x, config, pairs), edges, R.x)
    return [
        *embedded(R.x, config),
        *present(R.mask, R.present),
        *layers.positions(R.x, config),
        *before,
        *stack,
        *layers.ended(last, R.out, config),
    ]


def pooled(config: EncoderSizes) -> Statement:
    """The row of the first token, through a layer."""
    return (R.pooled <= affine(R.out(0), "pooled", config.size, config.size)) | [config.pooling]


def readouts(config: Config) -> Statements:
    """What is made of `out(i)`: `pooled`, `logits(i)`, `embedding` and what classifiers give."""
    return [
        pooled(config),
        *masked_tokens(config, config.activation_of_guess),
        *classifiers(config),
        R.follows <= affine(dropped(R.pooled, config.dropout), "follows", config.size, 2),
        *unit_mean(R.out, R.mask, R.embedding),
    ]


def masked_tokens(config: EncoderSizes, activation: Function) -> Statements:
    """A score for every word that may stand at i, by the table that words were read from."""
    d, words = config.width, config.vocabulary
    return [
        (R.guess(V.I) <= affine(R.out(V.I), "guess", config.size, d)) | [activation],
        *layer_norm(R.guess, R.guessed, d, eps=config.eps),
        R.logits(V.I) <= (R.guessed(V.I)["word":words, d], W["logits.bias"][words,]),
    ]


def classifiers(config: EncoderSizes) -> Statements:
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
    distances: Statements = []
    if config.buckets:
        distances = relative(R.x, R.relative, config.buckets, 128)
    rules = [*encoder(config, layer, embeddings, *distances), *readouts(config)]
    return Program(rules, domains=domains(config))


def domains(config: Config) -> dict[Variable, int]:
    """Positions are counted from `first` on."""
    known = layers.domains(
        config, **({"P": config.length} if config.positions == "learned" else {})
    )
    known.pop(V.I, None)
    return known | ({V.B: config.buckets} if config.buckets else {})


def unit_mean(x: Atom, mask: Atom, y: Atom) -> Statements:
    """The mean of the rows that are not padded, made of length 1."""
    return [
        (R.total <= (mask(V.I), x(V.I))) | [F.product],
        y <= R.total * F.inverse(F.sqrt(R.total.T @ R.total)),
    ]

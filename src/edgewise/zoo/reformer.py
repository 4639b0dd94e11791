"""Reformer: shared queries and keys, attention in hash buckets.

    kⱼ = qⱼ / |qⱼ|,   scoreᵢⱼ = qᵢ · kⱼ where hashᵣ(i) = hashᵣ(j) in some round r, and j < i
    hashᵣ(i) = the largest of [Rᵣ qᵢ; -Rᵣ qᵢ],  Rᵣ random directions
    y₁ = x₁ + O attention(norm1(x₂)),   y₂ = x₂ + W₂ relu(W₁ norm2(y₁)),   out = norm([y₁; y₂])

A token attends to itself only if there is no other. Layers are reversible, x₂ = y₂ - ... and
x₁ = y₁ - ..., so training need not store activations. Here buckets are values: all pairs are scored
and those of different buckets weigh exactly 0; the published code sorts by bucket, in chunks.

Paper: https://arxiv.org/abs/2001.04451. Parity: `transformers.ReformerModel` without rounds, which
is what it computes inside a chunk; `torch`, by the equations, with them.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.reformer.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, directions=2, rounds=2
... )
>>> model = zoo.reformer.program(config).compile(R.logits, seed=0)
>>> model(token=numbers(torch.arange(9))).shape
torch.Size([9, 50])
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from edgewise.graphs.checks import integer
from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, dropped, head_size, heads, layer_norm, residual

PAST = (R.special.leq(V.J, V.I),)
SELF, OTHER = -1e4, -1e9  # a token alone in its buckets attends to itself, never to another bucket
SHARP = 1e15  # softmax of numbers that are so far apart is exactly 1 for the largest, else 0


@dataclass(frozen=True)
class Config(block.Block):
    """Tokens are hashed `rounds` times into 2 · `directions` buckets; if never, all are alike.

    A `graph` restricts the pairs inside the buckets.
    """

    vocabulary: int = 320
    size: int = 256
    heads: int = 2
    hidden: int = 512
    layers: int = 6
    length: int = 4096
    directions: int = 32
    rounds: int = 4
    activation: Function = F.relu
    eps: float = 1e-12
    dropout: float = 0.1

    OWN: ClassVar = {"scale": "none", "positions": "learned"}
    FITS: ClassVar = {
        "norm": ("pre", "none"),
        "aggregation": ("softmax",),
        "positions": ("learned", "sinusoidal", "none"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.directions, "directions", 1)
        integer(self.rounds, "rounds")


def self_bias() -> Statements:
    """`own(I, J)`: what is added to the score of a token with itself; 0 for all other pairs."""
    pair = R._token(V.I), R._token(V.J), R.special.lt(V.J, V.I)
    return [(R.own(V.I, V.J) <= pair) | [F.reverse], R.own(V.I, V.I)[SELF].fixed() <= R._token(V.I)]


def hashed(q: Atom, config: Config) -> Statements:
    """`apart(H, I, J)`: 0 where two tokens share a bucket in some round."""
    h, d = V.H, head_size(config.size, config.heads)
    turned = W.direction(V.N)[config.directions, d].fixed()
    pair = R.hash(h, V.N, V.I).T, R.hash(h, V.N, V.J), R.special.leq(V.J, V.I)
    both = F.concat(R.turned(h, V.N, V.I), R.turned(h, V.N, V.I)[-1.0].fixed())
    return [
        R.turned(h, V.N, V.I)[SHARP].fixed() <= q(h, V.I)[turned],
        R.hash(h, V.N, V.I) <= F.softmax(both),
        (R.alike(h, V.I, V.J) <= pair) | [F.product, F.max_agg],
        R.apart(h, V.I, V.J) <= F.reverse(R.alike(h, V.I, V.J))[OTHER].fixed(),
    ]


def attention(x: Atom, y: Atom, config: Config, edges: Edges) -> Statements:
    size, h = config.size, V.H
    d = head_size(size, config.heads)
    query = layers.scaled(R.q(h, V.I), layers.factor(config, d))
    scores: tuple[Expression, ...] = (R.k(h, V.J).T @ query, R.own(V.I, V.J))
    scores += (R.apart(h, V.I, V.J),) if config.rounds else ()
    return [
        *heads(x, R.q, size, d, bias=False),
        *heads(x, R.v, size, d, bias=False),
        R.k(h, V.I) <= F.rms_norm(eps=1e-6)(R.q(h, V.I))[1 / math.sqrt(d)].fixed(),
        *(hashed(R.q, config) if config.rounds else []),
        *layers.attend(x, y, R.v(h, V.J), scores, config, edges),
    ]


def layer(
    a: Atom, b: Atom, config: Config, edges: Edges
) -> tuple[list[Statement], tuple[Atom, Atom]]:
    """Carries two rows for every token, each updated by a function of the other."""
    size, p, pre = config.size, config.dropout, config.norm == "pre"
    added = dropped(R.heads(V.I)[W["y1.weight"][size, size]], p)
    total = block.everywhere(config.graph)
    rules: Statements = [
        *(layer_norm(b, R.norm1, size, eps=config.eps) if pre else []),
        *attention(R.norm1 if pre else b, R.heads, config, edges),
        *([R.y1(V.I) <= a(V.I) + added] if total else [R.y1(V.I) <= a(V.I), R.y1(V.I) <= added]),
    ]
    if config.feed_forward == "none":
        return [*rules, R.y2(V.I) <= b(V.I)], (R.y1, R.y2)
    rules += [
        *(layer_norm(R.y1, R.norm2, size, eps=config.eps) if pre else []),
        *layers.hidden_layer(R.norm2 if pre else R.y1, R.mlp, config, p=p),
        *residual(b, R.mlp, R.y2, layers.hidden_size(config), size, p),
    ]
    return rules, (R.y1, R.y2)


def embeddings(y: Atom, config: Config) -> Statements:
    size = config.size
    word = dropped(F.lookup(W.word[config.vocabulary, size], R.token(V.I)), config.dropout)
    if config.positions == "learned":
        return [y(V.I) <= word + dropped(W.position(V.I)[size,], config.dropout)]
    made, row = layers.placed(word, R.token, y, config)
    return [*made, y(V.I) <= row]


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask."""
    size, words = config.size, config.vocabulary
    edges = block.edges(config, config.layers, own=PAST, past=PAST)
    stack, (one, two) = block.stacked(
        lambda pairs: lambda a, b: layer(a, b, config, pairs), edges, R.x, R.x
    )
    both = R.out if config.norm == "none" else R.both
    rules = [
        *embeddings(R.x, config),
        *self_bias(),
        *stack,
        both(V.I) <= F.concat(one(V.I), two(V.I)),
        *(layer_norm(R.both, R.out, 2 * size, eps=config.eps) if config.norm == "pre" else []),
        R.logits(V.I) <= (R.out(V.I)["logits.weight":words, 2 * size], W["logits.bias"][words,]),
    ]
    rounds = {V.N: config.rounds} if config.rounds else {}
    return Program(rules, domains=layers.domains(config) | rounds)

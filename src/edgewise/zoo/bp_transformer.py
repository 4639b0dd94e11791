"""BP-Transformer: attention to near tokens and to far spans of a binary tree.

    nodes = tokens, and behind them the spans of a binary tree; a span begins as 0
    scoreᵢⱼ = qᵢ · (kⱼ + r(typeᵢⱼ)) / √d over the edges,  type = level, side and place of j from i
    aᵢ = norm(xᵢ + O attention(x)ᵢ),   yᵢ = norm(aᵢ + W₂ relu(W₁ aᵢ))   for tokens and spans alike

Paper: https://arxiv.org/abs/1911.04070. Parity: `torch`, by the equations, in
tests/zoo/test_bp_transformer.py.
"""

import math
from dataclasses import dataclass

import torch

from edgewise.graphs import binary_partition
from edgewise.graphs.checks import integer
from edgewise.inputs.kinds import rows
from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom
from edgewise.zoo.parts import Statements, attended, dropped, head_size, heads, post_norm


@dataclass(frozen=True)
class Config:
    """A node attends to `k` nodes per level and side; levels above `clip` share their types."""

    vocabulary: int = 10_000
    size: int = 512
    heads: int = 8
    hidden: int = 2048
    layers: int = 12
    k: int = 64
    clip: int = 6
    causal: bool = True
    eps: float = 1e-5
    dropout: float = 0.1

    def __post_init__(self) -> None:
        integer(self.k, "k", 1)
        integer(self.clip, "clip")

    @property
    def types(self) -> int:
        return (2 * self.k + 1) * (self.clip + 1)

    def edges(self, tokens: int) -> rows:
        """What `edge(i, j, type)` is for a text of so many tokens.

        >>> Config(k=1, clip=1, causal=False).edges(2).keys.T.tolist()
        [[0, 0, 2], [0, 1, 0], [1, 0, 1], [1, 1, 2], [2, 0, 5], [2, 1, 5]]
        """
        graph = binary_partition(self.k, tokens=tokens, causal=self.causal, clip=self.clip)
        return rows(torch.cat([graph.edges(graph.nodes), graph.edge_types()[None]]))


def attention(x: Atom, y: Atom, config: Config) -> Statements:
    """Attention along edges; the vector of an edge's type is added to its key, in all heads."""
    size, h = config.size, V.H
    d = head_size(size, config.heads)
    query = R.q(h, V.I)[1 / math.sqrt(d)].fixed()
    return [
        *heads(x, R.q, size, d),
        *heads(x, R.k, size, d),
        *heads(x, R.v, size, d),
        R.type(V.T) <= W.type(V.T)[d,],
        (R.to_type(h, V.I, V.J) <= (R.type(V.T).T, query, R._edge(V.I, V.J, V.T))) | [F.product],
        (R.weights(h, V.I, V.J) <= (R.k(h, V.J).T @ query, R.to_type(h, V.I, V.J)))
        | [F.sum, F.softmax_agg(agg_terms=[V.J])],
        *attended(y, R.v, config.dropout),
    ]


def layer(x: Atom, config: Config) -> Statements:
    size, hidden, p = config.size, config.hidden, config.dropout
    rest = post_norm(x, R.heads, R.norm2, size, hidden, eps=config.eps, p=p, hidden_p=p)
    return [*attention(x, R.heads, config), *rest]


def program(config: Config) -> Program:
    """Reads `token(i)` and `edge(i, j, type)`, which `config.edges(tokens)` lists.

    Derives `logits(i)`, and `out(i)` for tokens and spans, the last of them the span of all: as
    spans lie beyond the axis of the tokens, call `model.rows(...)`.
    """
    word = F.lookup(W.word[config.vocabulary, config.size], R.token(V.I))
    nothing = W.nothing[config.size,].filled(0.0).fixed()
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    rules: Statements = [
        R.x(V.I) <= dropped(word, config.dropout),
        R.x(V.I) <= (nothing, R._edge(V.I, V.J, V.T), ~R._token(V.I)),
        stack,
        R.out(V.I) <= stack.out(V.I),
        R.logits(V.I) <= (R.out(V.I)["word" : config.vocabulary, config.size], R._token(V.I)),
    ]
    return Program(rules, domains={V.H: config.heads, V.T: config.types})

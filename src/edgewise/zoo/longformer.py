"""Longformer: a window around every token, and global tokens.

    i attends to j if |i − j| ≤ radius or j is global;
    global tokens attend to all, with projections of their own

Paper: https://arxiv.org/abs/2004.05150. Parity: `transformers.LongformerModel`, whose
`attention_window` is 2 · radius.
"""

from dataclasses import dataclass

from edgewise.graphs import global_tokens, window
from edgewise.language import F, Program, R, V, W, scope
from edgewise.language.nodes import Atom
from edgewise.zoo import bert
from edgewise.zoo.parts import Statements, attention, head_size


@dataclass(frozen=True)
class Config(bert.Config):
    """The first `tokens` are global; each token attends to `radius` keys on each side."""

    vocabulary: int = 50_265
    length: int = 4098
    first: int = 2
    types: int = 1
    eps: float = 1e-5
    radius: int = 256
    tokens: int = 1


def layer(x: Atom, config: Config) -> Statements:
    d, p, g = config.size, config.dropout, config.tokens
    graph = window(config.radius) | global_tokens(g) if g else window(config.radius)
    near = attention(
        x, R.heads, d, config.heads, p=p, scores=(R.penalty(V.J),), where=(graph(V.I, V.J),)
    )
    return [
        *near[:-1],
        *(globally(x, config) if g else []),
        (R.heads(V.I) <= (R.context(V.H, V.I), R.special.geq(V.I, g))) | [F.concat_agg],
        *bert.added(x, R.heads, R.norm2, config),
    ]


def globally(x: Atom, config: Config) -> Statements:
    """The rows of global tokens."""
    d, first = config.size, R.special.lt(V.I, config.tokens)
    size = head_size(d, config.heads)
    rules = attention(x, R.all, d, config.heads, p=config.dropout, scores=(R.penalty(V.J),))
    query = x(V.I)[W["q.weight"](V.H)[size, d]], W["q.bias"](V.H)[size,], first
    joined = (R.heads(V.I) <= R["global.context"](V.H, V.I)) | [F.concat_agg]
    return [*scope("global")([R.q(V.H, V.I) <= query, *rules[1:-1]]), joined]


def program(config: Config) -> Program:
    """Reads `token(i)`, `mask(i)` (0 where padded) and `segment(i)`; derives `out(i)`, `pooled`."""
    rules = [*bert.encoder(config, layer), bert.pooled(config)]
    return Program(rules, domains={V.H: config.heads, V.P: config.length})

"""Longformer: a window around every token, and global tokens.

    i attends to j if |i − j| ≤ radius or j is global;
    global tokens attend to all, with projections of their own

Paper: https://arxiv.org/abs/2004.05150. Parity: `transformers.LongformerModel`, whose
`attention_window` is 2 · radius.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.longformer.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2)
>>> model = zoo.longformer.program(config).compile(R.out, seed=0)
>>> model(
...     token=numbers(torch.arange(9)), mask=torch.ones(9), segment=numbers(torch.zeros(9).long())
... ).shape
torch.Size([9, 16])
"""

from dataclasses import dataclass

from edgewise.graphs import global_tokens, window
from edgewise.language import Program, R, V, W, scope
from edgewise.language.nodes import Atom
from edgewise.zoo import bert, layers
from edgewise.zoo.block import Edges, everywhere
from edgewise.zoo.parts import Statements, head_size


@dataclass(frozen=True)
class Config(bert.Config):
    """The first `tokens` are global; each token attends to `radius` keys on each side.

    A `graph` replaces the window and the columns of the global tokens.
    """

    vocabulary: int = 50_265
    length: int = 4098
    first: int = 2
    types: int = 1
    eps: float = 1e-5
    radius: int = 256
    tokens: int = 1


def layer(x: Atom, config: Config, edges: Edges) -> Statements:
    # a global token attends to all, whatever the graph
    return layers.layer(
        x,
        lambda read: attention(read, config, edges),
        config,
        all_rows=everywhere(config.graph),
    )


def attention(x: Atom, config: Config, edges: Edges) -> Statements:
    """Derives `heads(i)`: near ones for most tokens, others for global ones."""
    scores, g = layers.REAL, config.tokens
    if not g:
        return layers.attention(x, R.heads, config, edges, scores=scores)
    near = layers.attention(x, R.near, config, edges, scores=scores)
    return [
        *near,
        *globally(x, config),
        R.heads(V.I) <= (R.near(V.I), R.special.geq(V.I, g)),
    ]


def globally(x: Atom, config: Config) -> Statements:
    """The rows of global tokens."""
    d, first = config.size, R.special.lt(V.I, config.tokens)
    size = head_size(d, config.heads)
    rules = layers.attention(x, R.all, config, ((config.heads, ()),), scores=layers.REAL)
    query = x(V.I)[W["q.weight"](V.H)[size, d]], W["q.bias"](V.H)[size,], first
    if config.aggregation == "softmax":
        rules = [R.q(V.H, V.I) <= query, *rules[1:]]
    return [*scope("global")(rules), R.heads(V.I) <= (R["global.all"](V.I), first)]


def program(config: Config) -> Program:
    """Reads `token(i)`, `mask(i)` (0 where padded) and `segment(i)`; derives `out(i)`, `pooled`."""
    near = window(config.radius)
    graph = near | global_tokens(config.tokens) if config.tokens else near
    rules = [*bert.encoder(config, layer, own=(graph(V.I, V.J),)), bert.pooled(config)]
    return Program(rules, domains=bert.domains(config))

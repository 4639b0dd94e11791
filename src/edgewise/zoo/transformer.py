"""The Transformer: an encoder, and a decoder that attends to it.

    encoder   aᵢ = xᵢ + attention(x)ᵢ,  yᵢ = aᵢ + W₂ relu(W₁ aᵢ)
    decoder   the same over j ≤ i, and between the two + attention over the encoder's rows

A norm stands after each sum (post-norm, as in the paper) or before each sublayer, and once at the
end (pre-norm). A `graph` is that of both stacks; the decoder attends to all rows of the encoder.

Papers: https://arxiv.org/abs/1706.03762, https://arxiv.org/abs/2002.04745 (pre-norm),
https://arxiv.org/abs/2108.12409 (ALiBi), https://arxiv.org/abs/1910.10683 (relative).
Parity: `torch.nn.TransformerEncoder` and `torch.nn.TransformerDecoder`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.transformer.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, decoder_layers=2
... )
>>> model = zoo.transformer.program(config).compile(R.logits, seed=0)
>>> model(
...     source=numbers(torch.arange(9)), mask=torch.ones(9), target=numbers(torch.arange(5))
... ).shape
torch.Size([5, 50])
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W, scope
from edgewise.language.nodes import Atom, Expression, Function, Statement
from edgewise.zoo import block, layers
from edgewise.zoo.block import Edges, everywhere
from edgewise.zoo.parts import Statements, dropped, linear, present

PAST = (R.special.leq(V.J, V.I),)


@dataclass(frozen=True)
class Config(block.Block):
    vocabulary: int = 37_000
    size: int = 512
    heads: int = 8
    hidden: int = 2048
    layers: int = 6
    decoder_layers: int = 6
    length: int = 1024
    activation: Function = F.relu
    eps: float = 1e-5
    dropout: float = 0.1
    tied: bool = False  # whether the table of words is that of the logits too

    OWN: ClassVar = {"norm": "post", "positions": "sinusoidal"}
    MASKED: ClassVar[bool] = True  # rows of the encoder may be padding
    KEY_BIAS: ClassVar[bool] = True

    @property
    def hidden_dropout(self) -> float:
        """The dropout of hidden layers."""
        return self.dropout


def embedded(token: Atom, y: Atom, config: Config) -> Statements:
    """√d · word(token), and where positions are vectors the vector of the place."""
    d = config.size
    word = F.lookup(W.word[config.vocabulary, d], token(V.I))[math.sqrt(d)].fixed()
    made, row = layers.placed(word, token, y, config)
    return [*made, y(V.I) <= dropped(row, config.dropout)]


def names(y: Atom, norm: str, config: Config) -> tuple[Atom, Atom]:
    """The relations of the sum and of the norm of a sublayer, one of which is y."""
    return (R[f"{y.relation}_sum"], y) if config.norm == "post" else (y, R[norm])


def attended(
    name: str, x: Atom, y: Atom, config: Config, edges: Edges, *scores: Expression,
    to: Atom | None = None,
) -> Statements:  # fmt: skip
    """A sublayer of attention, of x to itself or to another relation."""

    def rules(read: Atom) -> Statements:
        return scope(name)(
            layers.attention(
                read,
                R.heads,
                config,
                edges,
                to=to,
                scores=scores if config.MASKED else (),
                placed=to is None,
                key_bias=config.KEY_BIAS,
            )
        )

    total = to is not None or everywhere(config.graph)
    return layers.sublayer(
        x, *names(y, f"{name}_norm", config), rules, R[f"{name}.heads"], config.size, config,
        all_rows=total,
    )[0]  # fmt: skip


def encoder_layer(x: Atom, config: Config, edges: Edges) -> Statements:
    return [
        *attended("self", x, R.attended, config, edges, *layers.REAL),
        *feed_forward(R.attended, config),
    ]


def decoder_layer(y: Atom, config: Config, edges: Edges) -> Statements:
    every = ((config.heads, ()),)
    return [
        *attended("self", y, R.attended, config, edges),
        *attended("cross", R.attended, R.crossed, config, every, layers.REAL_KEY, to=R.memory),
        *feed_forward(R.crossed, config),
    ]


def feed_forward(x: Atom, config: Config) -> Statements:
    sums, norm = names(R.out, "mlp_norm", config)
    return layers.feed_forward(x, sums, norm, config, p=config.hidden_dropout)


def stacked(name: str, x: Atom, count: int, config: Config) -> list[Statement]:
    """A stack in a scope of its own; with norms inside there is one more at its end."""
    decodes = name == "decoder"
    made, past = (decoder_layer, PAST) if decodes else (encoder_layer, ())
    edges = block.edges(config, count, own=past, past=past)
    stack, (last,) = block.stacked(lambda pairs: lambda u: made(u, config, pairs), edges, x)
    before = layers.positions(x, config, both=not decodes)
    return scope(name)([*before, *stack, *layers.ended(last, R.out, config)])


def readout(x: Atom, config: Config) -> Statements:
    """A score for every word; tied, how much the row is like the word."""
    d, words = config.size, config.vocabulary
    if not config.tied:
        return linear(x, R.logits, d, words)
    return [R.logits(V.I) <= (x(V.I)[W.word[words, d]], W["logits.bias"][words,])]


def program(config: Config) -> Program:
    """Reads `source(i)`, `mask(i)` (0 where padded) and `target(i)`; derives `logits(i)`."""
    rules = [
        *embedded(R.source, R.x, config),
        *embedded(R.target, R.y, config),
        *present(R.mask, R.present),
        *stacked("encoder", R.x, config.layers, config),
        R.memory(V.I) <= R["encoder.out"](V.I),
        *stacked("decoder", R.y, config.decoder_layers, config),
        *readout(R["decoder.out"], config),
    ]
    return Program(rules, domains=layers.domains(config))

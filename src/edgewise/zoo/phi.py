"""Phi: Llama's attention with some features rotated, beside a hidden layer, both from one norm.

    yᵢ = xᵢ + O attention(z)_{j ≤ i} + W₂ gelu(W₁ zᵢ),   z = norm(x)

Papers: https://arxiv.org/abs/2306.11644, https://arxiv.org/abs/2309.05463.
Parity: `transformers.PhiForCausalLM`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.phi.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, groups=2, d=8, rotated=4
... )
>>> model = zoo.phi.program(config).compile(R.logits, seed=0)
>>> model(token=numbers(torch.arange(9))).shape
torch.Size([9, 50])
"""

from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression, Function
from edgewise.zoo import block, layers, llama
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import Statements, affine, dropped, layer_norm
from edgewise.zoo.rope_scaling import Scaling


@dataclass(frozen=True)
class Config(block.Block):
    """`rotated` features of each head are rotated; `dropout` is that of attention."""

    vocabulary: int = 51_200
    size: int = 2048
    heads: int = 32
    groups: int = 32
    d: int = 64
    hidden: int = 8192
    layers: int = 24
    length: int = 2048
    base: float = 10_000.0
    scaling: Scaling | None = None
    rotated: int | None = 32
    activation: Function = F.gelu_tanh
    eps: float = 1e-5
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    residual_dropout: float = 0.0
    tied: bool = False

    OWN: ClassVar = llama.Config.OWN
    FITS: ClassVar = {"norm": ("pre", "none")}

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.attention  # checks the graph against the groups

    @property
    def attention(self) -> llama.Config:
        """What attention is like."""
        return llama.Config(
            size=self.size, heads=self.heads, groups=self.groups, d=self.d, base=self.base,
            scaling=self.scaling, rotated=self.rotated, dropout=self.dropout,
            biases=("q", "k", "v"), layers=self.layers, graph=self.graph, scale=self.scale,
            aggregation=self.aggregation, positions=self.positions,
            attention_dropout=self.attention_dropout,
        )  # fmt: skip


def layer(x: Atom, config: Config, edges: Edges) -> Statements:
    size, p, normed = config.size, config.residual_dropout, config.norm == "pre"
    weight, bias = affine(R.heads(V.I), "attended", config.heads * config.d, size)
    out, out_bias = affine(R.mlp(V.I), "out", layers.hidden_size(config), size)
    read, attended = R.norm if normed else x, dropped(weight + bias, p)
    rows: Expression = x(V.I)
    rules: Statements = [
        *(layer_norm(x, R.norm, size, eps=config.eps) if normed else []),
        *llama.attention(read, config.attention, edges, local=False),
    ]
    if config.feed_forward != "none":
        rules += layers.hidden_layer(read, R.mlp, config)
        rows = rows + dropped(out + out_bias, p)
    if block.everywhere(config.graph):
        return [*rules, R.out(V.I) <= rows + attended]
    return [*rules, R.out(V.I) <= attended, R.out(V.I) <= F.identity(rows)]


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask."""
    size, words = config.size, config.vocabulary
    stack, (last,) = block.stacked(
        lambda edges: lambda x: layer(x, config, edges), llama.edges_of(config.attention), R.x
    )
    table = W["word" if config.tied else "logits.weight"]
    word = F.lookup(W.word[words, size], R.token(V.I))
    made, row = layers.placed(word, R.token, R.x, config)
    rules = [
        *made,
        R.x(V.I) <= dropped(row, config.embedding_dropout),
        *llama.positions(config.attention),
        *stack,
        *layers.ended(last, R.out, config),
        R.logits(V.I) <= (R.out(V.I)[table[words, size]], W["logits.bias"][words,]),
    ]
    return Program(rules, domains=llama.domains(config))

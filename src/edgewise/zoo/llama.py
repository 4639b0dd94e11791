"""Llama, and the decoders of its family: Mistral, Qwen2 and 3, Gemma 1 to 3, Phi-3.

    aᵢ = xᵢ + O attention(norm1(x))_{j ≤ i},   yᵢ = aᵢ + W₃ (silu(W₁ zᵢ) ⊙ W₂ zᵢ),  z = norm2(a)

Each of the `groups` of keys and values (G) serves `heads / groups` queries (U).

Papers: https://arxiv.org/abs/2302.13971, https://arxiv.org/abs/2305.13245 (grouped queries),
https://arxiv.org/abs/2002.05202 (SwiGLU), https://arxiv.org/abs/2104.09864 (rotary),
https://arxiv.org/abs/2310.06825 (Mistral), https://arxiv.org/abs/2505.09388 (Qwen3),
https://arxiv.org/abs/2408.00118 (Gemma 2), https://arxiv.org/abs/2503.19786 (Gemma 3),
https://arxiv.org/abs/2404.14219 (Phi-3).
Parity: `transformers.LlamaForCausalLM`, and those of the others.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.llama.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2, groups=1, d=8)
>>> model = zoo.llama.program(config).compile(R.logits, seed=0)
>>> model(token=numbers(torch.arange(9))).shape
torch.Size([9, 50])
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from edgewise.errors import caller
from edgewise.graphs import causal, window
from edgewise.language import F, Program, R, V, W, scope
from edgewise.language.nodes import Atom, Expression, Function, Variable
from edgewise.zoo import block, layers
from edgewise.zoo.block import BadConfig, Edges, check_positive
from edgewise.zoo.parts import Statements, rotary, speeds
from edgewise.zoo.rope_scaling import Scaling, scaled_rotary

PAST = (R.special.leq(V.J, V.I),)


@dataclass(frozen=True)
class Config(block.Block):
    """`d` features per head; `tied`: words are scored by the table that they were read from.

    - scaling: how rotary positions are scaled for long texts, one of `zoo.rope_scaling`.
    - rotated: how many features of a head are rotated, by default all.
    - biases: the projections with a bias, of `q`, `k`, `v`, `attended`, `gate`, `up`, `out`.
    - window: in the layers `local` a token attends to the last `window` tokens, itself included;
      their rotary base is `local_base`, if it differs.
    - cap: scores are cap · tanh(score / cap).
    - qk_norm: queries and keys are normed; post_norm: what a sublayer gives is, too.
    - shifted: the gain of a norm is 1 + weight. scaled: embeddings are multiplied by √size.
    """

    vocabulary: int = 32_000
    size: int = 4096
    heads: int = 32
    groups: int = 32
    d: int = 128
    hidden: int = 11_008
    layers: int = 32
    length: int = 2048
    base: float = 10_000.0
    scaling: Scaling | None = None
    eps: float = 1e-6
    dropout: float = 0.0
    tied: bool = False
    activation: Function = F.silu
    rotated: int | None = None
    biases: tuple[str, ...] = ()
    window: int | None = None
    local: tuple[int, ...] = ()
    local_base: float | None = None
    cap: float | None = None
    logits_cap: float | None = None
    qk_norm: bool = False
    post_norm: bool = False
    shifted: bool = False
    scaled: bool = False

    OWN: ClassVar = {"positions": "rotary"}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "heads", "groups", "d")
        if self.heads % self.groups:
            raise BadConfig(
                f"`heads={self.heads}` is not a multiple of `groups={self.groups}`",
                caller(),
                f"give a divisor, such as `groups={self.heads}`",
            )
        turned = self.d if self.rotated is None else self.rotated
        if self.positions == "rotary" and (turned % 2 or not 0 < turned <= self.d):
            raise BadConfig(
                f"{turned} of `d={self.d}` features of a head cannot be rotated in pairs",
                caller(),
                "give an even number, at most `d`",
            )
        for heads, _ in {run for edges in block.edges(self, self.layers) for run in edges}:
            if heads * self.groups % self.heads:
                raise BadConfig(
                    f"{self.heads // self.groups} heads share keys, and so a graph",
                    caller(),
                    f"give at most {self.groups} patterns, a divisor of it",
                )


def norm(x: Expression, name: str, size: int, config: Config) -> Expression:
    """Division by the root of the mean square, with a learnable gain."""
    gain = W[f"{name}.gain"][size,]
    return F.rms_norm(eps=config.eps)(x) * (
        gain.filled(0.0) + 1.0 if config.shifted else gain.filled(1.0)
    )


def projected(
    x: Atom, y: Atom, inputs: int, outputs: int, config: Config, *keys: Variable
) -> Statements:
    """A linear map of every row, one for each value of the keys."""
    name = y.relation
    weight, bias = W[f"{name}.weight"], W[f"{name}.bias"]
    row = x(V.I)[(weight(*keys) if keys else weight)[outputs, inputs]]
    items = (row, (bias(*keys) if keys else bias)[outputs,]) if name in config.biases else (row,)
    return [y(*keys, V.I) <= items]


def turned(x: Atom, y: Atom, config: Config, at: str, *keys: Variable) -> Statements:
    """Queries or keys, rotated by the angles of their position, normed before that."""
    row: Expression = x(*keys, V.I)
    if config.qk_norm:
        row = norm(row, f"{x.relation}_norm", config.d, config)
    r, cos, sin = config.rotated, R[f"{at}cos"](V.I), R[f"{at}sin"](V.I)
    if config.positions != "rotary":
        return [y(*keys, V.I) <= row]
    if r is None:
        return [y(*keys, V.I) <= F.rotate(row, cos, sin)]
    first, rest = F.slice(rows=(0, r))(row), F.slice(rows=(r, config.d))(row)
    return [y(*keys, V.I) <= F.concat(F.rotate(first, cos, sin), rest)]


def attention(x: Atom, config: Config, edges: Edges, *, local: bool) -> Statements:
    """Derives `heads(i)`."""
    d, size = config.d, config.size
    at = "local." if local and config.local_base else ""
    heads = (V.G, V.U)
    runs = tuple((count * config.groups // config.heads, where) for count, where in edges)
    values = projected(x, R.v, size, d, config, V.G)
    attend = partial(layers.attend, x, R.heads, R.v(V.G, V.J), keys=heads)
    if config.aggregation != "softmax":
        return [*values, *attend((), config, runs)]
    scale = layers.factor(config, d) / (config.cap or 1.0)
    score = R.rotated_k(V.G, V.J).T @ layers.scaled(R.rotated_q(V.G, V.U, V.I), scale)
    score = F.tanh(score) * config.cap if config.cap else score
    return [
        *projected(x, R.q, size, d, config, V.G, V.U),
        *projected(x, R.k, size, d, config, V.G),
        *values,
        *turned(R.q, R.rotated_q, config, at, V.G, V.U),
        *turned(R.k, R.rotated_k, config, at, V.G),
        *attend((score, *layers.score_terms(config, heads)), config, runs),
    ]


def added(
    x: Atom, z: Atom, y: Atom, inputs: int, size: int, p: float, *, config: Config,
    everywhere: bool, bias: bool,
) -> Statements:  # fmt: skip
    """A residual connection: y = x + W z, the latter normed with `post_norm`."""
    name = y.relation
    items: tuple[Expression, ...] = (z(V.I)[W[f"{name}.weight"][size, inputs]],)
    items += (W[f"{name}.bias"][size,],) if name in config.biases else ()
    made: Statements = []
    if config.post_norm:
        made = [R[f"{name}_sublayer"](V.I) <= items]
        items = (norm(R[f"{name}_sublayer"](V.I), f"{name}_norm", size, config),)
    if everywhere:
        return [*made, y(V.I) <= (x(V.I), *items)]
    return [*made, y(V.I) <= x(V.I), y(V.I) <= items]


def hidden_layer(x: Atom, config: Config) -> Statements:
    """silu(W₁ x) ⊙ W₂ x, or another kind."""
    size, hidden, kind = config.size, layers.hidden_size(config), str(config.feed_forward)
    if kind in block.ACTIVATIONS:
        made = projected(x, R.up, size, hidden, config)
        return [*made, R.mlp(V.I) <= block.ACTIVATIONS[kind](R.up(V.I))]
    activation = block.GATED.get(kind, config.activation)
    return [
        *projected(x, R.gate, size, hidden, config),
        *projected(x, R.up, size, hidden, config),
        R.mlp(V.I) <= activation(R.gate(V.I)) * R.up(V.I),
    ]


def layer(x: Atom, config: Config, edges: Edges, *, local: bool = False) -> Statements:
    hidden = layers.hidden_size(config)

    def normed(x: Atom, y: Atom, size: int, *, eps: float) -> Statements:
        return [y(V.I) <= norm(x(V.I), y.relation, size, config)]

    sublayer = partial(
        layers.sublayer, config=config, norm=normed, adds=partial(added, config=config)
    )
    rules, mid = sublayer(
        x, R.attended, R.norm1, lambda read: attention(read, config, edges, local=local),
        R.heads, config.heads * config.d, all_rows=block.everywhere(config.graph),
    )  # fmt: skip
    if config.feed_forward == "none":
        return rules
    rest, _ = sublayer(mid, R.out, R.norm2, lambda read: hidden_layer(read, config), R.mlp, hidden)
    return [*rules, *rest]


def edges_of(config: Config) -> tuple[Edges, ...]:
    """A local layer attends to the last `window` tokens."""
    if config.graph is not None:
        return block.edges(config, config.layers, past=PAST)
    near = (causal() & window(config.window - 1))(V.I, V.J) if config.window else None
    return tuple(
        ((config.heads, (near,) if near is not None and i in config.local else PAST),)
        for i in range(config.layers)
    )


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask."""
    size, words = config.size, config.vocabulary
    kinds = [(edges, i in config.local) for i, edges in enumerate(edges_of(config))]
    stack, (last,) = block.stacked(
        lambda kind: lambda x: layer(x, config, kind[0], local=kind[1]), kinds, R.x
    )
    word = F.lookup(W.word[words, size], R.token(V.I))
    made, row = layers.placed(
        word[math.sqrt(size)].fixed() if config.scaled else word, R.token, R.x, config
    )
    score = R.out(V.I)["word" if config.tied else "logits.weight" : words, size]
    capped = config.logits_cap
    end = norm(last(V.I), "out", size, config) if config.norm == "pre" else last(V.I)
    rules = [
        *made,
        R.x(V.I) <= row,
        *positions(config),
        *stack,
        R.out(V.I) <= end,
        *([R.score(V.I) <= score] if capped else []),
        R.logits(V.I) <= (F.tanh(R.score(V.I) * (1 / capped)) * capped if capped else score),
    ]
    return Program(rules, domains=domains(config))


def domains(config: Any) -> dict[Variable, int]:
    """Those of groups, of the heads of a group, and of learned positions."""
    found = {v: n for v, n in layers.domains(config).items() if v != V.H}
    return found | head_sizes(config)


def head_sizes(config: Any) -> dict[Variable, int]:
    return {V.G: config.groups, V.U: config.heads // config.groups}


def positions(config: Config) -> Statements:
    """Those that are part of scores: rotary ones also have the angles of local layers."""
    if config.positions != "rotary":
        return layers.positions(R.token, config, both=False, heads=head_sizes(config))
    d = config.rotated or config.d
    local = rotary(R.token, speeds(d, config.local_base or 1.0))
    own = scaled_rotary(R.token, config.scaling, speeds(d, config.base), d, config.base)
    return [*own, *(scope("local")(local) if config.local_base else [])]

"""Llama, and the decoders of its family: Mistral, Qwen2 and 3, Gemma 1 to 3, Phi-3.

    aᵢ = xᵢ + O attention(norm1(x))_{j ≤ i},   yᵢ = aᵢ + W₃ (silu(W₁ zᵢ) ⊙ W₂ zᵢ),  z = norm2(a)

Each of the `groups` of keys and values (G) serves `heads / groups` queries (U).

Papers: https://arxiv.org/abs/2302.13971, https://arxiv.org/abs/2305.13245 (grouped queries),
https://arxiv.org/abs/2002.05202 (SwiGLU), https://arxiv.org/abs/2104.09864 (rotary),
https://arxiv.org/abs/2310.06825 (Mistral), https://arxiv.org/abs/2505.09388 (Qwen3),
https://arxiv.org/abs/2408.00118 (Gemma 2), https://arxiv.org/abs/2503.19786 (Gemma 3),
https://arxiv.org/abs/2404.14219 (Phi-3).
Parity: `transformers.LlamaForCausalLM`, and those of the others.
"""

import math
from dataclasses import dataclass

from edgewise.graphs import causal, window
from edgewise.language import F, Program, R, V, W, repeat, scope
from edgewise.language.nodes import Atom, Expression, Function, Statement, Variable
from edgewise.zoo.parts import Statements, dropped, rotary, speeds


@dataclass(frozen=True)
class Config:
    """`d` features per head; `tied`: words are scored by the table that they were read from.

    - stretch: slows rotary positions down, by a factor, or (factor, low, high, length) as Llama 3.
    - rotated: how many features of a head are rotated, by default all.
    - biases: the projections with a bias, of `q`, `k`, `v`, `attended`, `gate`, `up`, `out`.
    - window: in the layers `local` a token attends to so many tokens, itself included; their
      rotary base is `local_base`, if that is another.
    - scale: of scores, by default 1 / √d. cap: scores are cap · tanh(score / cap).
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
    stretch: tuple[float, ...] | None = None
    eps: float = 1e-6
    dropout: float = 0.0
    tied: bool = False
    activation: Function = F.silu
    rotated: int | None = None
    biases: tuple[str, ...] = ()
    window: int | None = None
    local: tuple[int, ...] = ()
    local_base: float | None = None
    scale: float | None = None
    cap: float | None = None
    logits_cap: float | None = None
    qk_norm: bool = False
    post_norm: bool = False
    shifted: bool = False
    scaled: bool = False

    @property
    def speeds(self) -> tuple[float, ...]:
        found = speeds(self.rotated or self.d, self.base)
        match self.stretch:
            case None:
                return found
            case (factor,):
                return tuple(speed / factor for speed in found)
            case (factor, low, high, length):
                return tuple(_slowed(speed, factor, low, high, length) for speed in found)
        raise AssertionError(self.stretch)


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
    if r is None:
        return [y(*keys, V.I) <= F.rotate(row, cos, sin)]
    first, rest = F.slice(rows=(0, r))(row), F.slice(rows=(r, config.d))(row)
    return [y(*keys, V.I) <= F.concat(F.rotate(first, cos, sin), rest)]


def attention(x: Atom, config: Config, *, local: bool) -> Statements:
    """Derives `heads(i)`; a local layer attends to the last `window` tokens."""
    d, size = config.d, config.size
    at = "local." if local and config.local_base else ""
    where: Expression = R.special.leq(V.J, V.I)
    if local and config.window:
        where = (causal() & window(config.window - 1))(V.I, V.J)
    scale = 1 / math.sqrt(d) if config.scale is None else config.scale
    query = R.rotated_q(V.G, V.U, V.I)[scale / (config.cap or 1.0)].fixed()
    score = R.rotated_k(V.G, V.J).T @ query
    score = F.tanh(score) * config.cap if config.cap else score
    weights = dropped(R.weights(V.G, V.U, V.I, V.J), config.dropout)
    return [
        *projected(x, R.q, size, d, config, V.G, V.U),
        *projected(x, R.k, size, d, config, V.G),
        *projected(x, R.v, size, d, config, V.G),
        *turned(R.q, R.rotated_q, config, at, V.G, V.U),
        *turned(R.k, R.rotated_k, config, at, V.G),
        (R.weights(V.G, V.U, V.I, V.J) <= (score, where)) | [F.sum, F.softmax_agg(agg_terms=[V.J])],
        (R.context(V.G, V.U, V.I) <= (weights, R.v(V.G, V.J))) | [F.product],
        (R.heads(V.I) <= R.context(V.G, V.U, V.I)) | [F.concat_agg],
    ]


def added(x: Atom, z: Atom, y: Atom, inputs: int, config: Config) -> Statements:
    """A residual connection: y = x + W z, the latter normed with `post_norm`."""
    size, name = config.size, y.relation
    items: tuple[Expression, ...] = (z(V.I)[W[f"{name}.weight"][size, inputs]],)
    items += (W[f"{name}.bias"][size,],) if name in config.biases else ()
    if not config.post_norm:
        return [y(V.I) <= (x(V.I), *items)]
    made = R[f"{name}_sublayer"]
    return [made(V.I) <= items, y(V.I) <= x(V.I) + norm(made(V.I), f"{name}_norm", size, config)]


def layer(x: Atom, config: Config, *, local: bool = False) -> Statements:
    size, hidden = config.size, config.hidden
    return [
        R.norm1(V.I) <= norm(x(V.I), "norm1", size, config),
        *attention(R.norm1, config, local=local),
        *added(x, R.heads, R.attended, config.heads * config.d, config),
        R.norm2(V.I) <= norm(R.attended(V.I), "norm2", size, config),
        *projected(R.norm2, R.gate, size, hidden, config),
        *projected(R.norm2, R.up, size, hidden, config),
        R.mlp(V.I) <= config.activation(R.gate(V.I)) * R.up(V.I),
        *added(R.attended, R.mlp, R.out, hidden, config),
    ]


def stacked(config: Config) -> tuple[list[Statement], Atom]:
    """All layers and their output; those that differ are written one by one."""
    kinds = [i in config.local for i in range(config.layers)]
    if len(set(kinds)) == 1:
        stack = repeat(lambda x: layer(x, config, local=kinds[0]), config.layers)(R.x)
        return [stack], stack.out
    rules: list[Statement] = []
    x = R.x
    for i, local in enumerate(kinds):
        rules += scope(f"layer.{i}")(layer(x, config, local=local))
        x = R[f"layer.{i}.out"]
    return rules, x


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask."""
    size, words = config.size, config.vocabulary
    word = F.lookup(W.word[words, size], R.token(V.I))
    rules, last = stacked(config)
    local = rotary(R.token, speeds(config.rotated or config.d, config.local_base or 1.0))
    score = R.out(V.I)["word" if config.tied else "logits.weight" : words, size]
    capped = config.logits_cap
    rules = [
        R.x(V.I) <= (word[math.sqrt(size)].fixed() if config.scaled else word),
        *rotary(R.token, config.speeds),
        *(scope("local")(local) if config.local_base else []),
        *rules,
        R.out(V.I) <= norm(last(V.I), "out", size, config),
        *([R.score(V.I) <= score] if capped else []),
        R.logits(V.I) <= (F.tanh(R.score(V.I) * (1 / capped)) * capped if capped else score),
    ]
    groups = {V.G: config.groups, V.U: config.heads // config.groups}
    return Program(rules, domains=groups)


def _slowed(speed: float, factor: float, low: float, high: float, length: float) -> float:
    """Slow turns are slowed by `factor`, fast ones not at all, those between in part."""
    turns = length * speed / (2 * math.pi)
    share = min(max((turns - low) / (high - low), 0.0), 1.0)
    return (1 - share) * speed / factor + share * speed

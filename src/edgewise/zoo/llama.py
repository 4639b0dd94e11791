"""Llama-style decoder: rotary positions, grouped queries, SwiGLU, RMS norms.

    aᵢ = xᵢ + O attention(norm1(x))_{j ≤ i},   yᵢ = aᵢ + W₃ (silu(W₁ zᵢ) ⊙ W₂ zᵢ),  z = norm2(a)

Each of the `groups` of keys and values (G) serves `heads / groups` queries (U).

Papers: https://arxiv.org/abs/2302.13971, https://arxiv.org/abs/2305.13245 (grouped queries),
https://arxiv.org/abs/2002.05202 (SwiGLU), https://arxiv.org/abs/2104.09864 (rotary).
Parity: `transformers.LlamaForCausalLM`.
"""

import math
from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom
from edgewise.zoo.parts import Statements, dropped, rms_norm, rotary, speeds


@dataclass(frozen=True)
class Config:
    """`d` features per head; `tied`: words are scored by the table that they were read from.

    `stretch` slows rotary positions down: (factor, low, high, length) as in Llama 3.
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
    stretch: tuple[float, float, float, float] | None = None
    eps: float = 1e-6
    dropout: float = 0.0
    tied: bool = False

    @property
    def speeds(self) -> tuple[float, ...]:
        found = speeds(self.d, self.base)
        return tuple(_slowed(s, *self.stretch) for s in found) if self.stretch else found


def layer(x: Atom, config: Config) -> Statements:
    d, size, hidden = config.d, config.size, config.hidden
    query = R.rotated_q(V.G, V.U, V.I)[1 / math.sqrt(d)].fixed()
    weights = dropped(R.weights(V.G, V.U, V.I, V.J), config.dropout)
    return [
        *rms_norm(x, R.norm1, size, eps=config.eps),
        R.q(V.G, V.U, V.I) <= R.norm1(V.I)[W["q.weight"](V.G, V.U)[d, size]],
        R.k(V.G, V.I) <= R.norm1(V.I)[W["k.weight"](V.G)[d, size]],
        R.v(V.G, V.I) <= R.norm1(V.I)[W["v.weight"](V.G)[d, size]],
        R.rotated_q(V.G, V.U, V.I) <= F.rotate(R.q(V.G, V.U, V.I), R.cos(V.I), R.sin(V.I)),
        R.rotated_k(V.G, V.I) <= F.rotate(R.k(V.G, V.I), R.cos(V.I), R.sin(V.I)),
        (R.weights(V.G, V.U, V.I, V.J) <= (R.rotated_k(V.G, V.J).T, query, R.special.leq(V.J, V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.context(V.G, V.U, V.I) <= (weights, R.v(V.G, V.J))) | [F.product],
        (R.heads(V.I) <= R.context(V.G, V.U, V.I)) | [F.concat_agg],
        R.attended(V.I) <= (x(V.I), R.heads(V.I)[W["attended.weight"][size, config.heads * d]]),
        *rms_norm(R.attended, R.norm2, size, eps=config.eps),
        (R.gate(V.I) <= R.norm2(V.I)[W["gate.weight"][hidden, size]]) | [F.silu],
        R.up(V.I) <= R.norm2(V.I)[W["up.weight"][hidden, size]],
        R.mlp(V.I) <= R.gate(V.I) * R.up(V.I),
        R.out(V.I) <= (R.attended(V.I), R.mlp(V.I)[W["out.weight"][size, hidden]]),
    ]


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`. Padding at the end needs no mask."""
    table = "word" if config.tied else "logits.weight"
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    rules = [
        R.x(V.I) <= F.lookup(W.word[config.vocabulary, config.size], R.token(V.I)),
        *rotary(R.token, config.speeds),
        stack,
        *rms_norm(stack.out, R.out, config.size, eps=config.eps),
        R.logits(V.I) <= R.out(V.I)[table : config.vocabulary, config.size],
    ]
    groups = {V.G: config.groups, V.U: config.heads // config.groups}
    return Program(rules, domains=groups)


def _slowed(speed: float, factor: float, low: float, high: float, length: float) -> float:
    """Slow turns are slowed by `factor`, fast ones not at all, those between in part."""
    turns = length * speed / (2 * math.pi)
    share = min(max((turns - low) / (high - low), 0.0), 1.0)
    return (1 - share) * speed / factor + share * speed

"""Attention written in many ways, and programs that look like attention and are not."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from edgewise import F, Program, R, V, W
from edgewise.graphs import causal, strided, window

N, M, D = 6, 4, 3
SOFTMAX = F.softmax_agg(agg_terms=[V.J])


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def projected(*names: str, variable: Any = V.I, source: str = "x") -> list[Any]:
    return [R[name](variable) <= R[source](variable)[D, D] for name in names]


QKV = projected("q", "k", "v")
D_K = R.d_k[1 / math.sqrt(D)].fixed()
WEIGHTS = (R.w(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I))) | [F.product, SOFTMAX]
OUT = (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product]
DOT = R.k(V.J).T @ R.q(V.I)


def weights(*body: Any) -> Any:
    return (R.w(V.I, V.J) <= body) | [SOFTMAX]


def one_input() -> dict[str, torch.Tensor]:
    return {"x": numbers(N, D)}


@dataclass(frozen=True)
class Case:
    """A program for `out`, with dense inputs for its data relations."""

    name: str
    rules: list[Any]
    inputs: Callable[[], dict[str, torch.Tensor]] = one_input
    options: dict[str, Any] = field(default_factory=dict)
    fill: float | None = None
    output: str = "out"

    @property
    def program(self) -> Program:
        return Program(self.rules, **self.options)


def also(**shapes: tuple[int, ...]) -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: one_input() | {n: numbers(*s, seed=7) for n, s in shapes.items()}


HEADS = {"domains": {V.H: 2}}
PER_HEAD = [
    R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[2, D]],
    R.k(V.H, V.I) <= R.x(V.I)[W.k(V.H)[2, D]],
    R.v(V.H, V.I) <= R.x(V.I)[W.v(V.H)[2, D]],
]
OUT_PER_HEAD = (R.out(V.H, V.I) <= (R.w(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product]
HEAD_DOT = R.k(V.H, V.J).T @ R.q(V.H, V.I)

REWRITINGS = [
    Case("as published", [*QKV, D_K, WEIGHTS, OUT]),
    Case(
        "renamed variables and relations",
        [
            *projected("ask", "offer", "say", variable=V.T),
            (R.hears(V.To, V.From) <= (R.offer(V.From).T, R.ask(V.To)))
            | [F.product, F.softmax_agg(agg_terms=[V.From])],
            (R.out(V.A) <= (R.hears(V.A, V.B), R.say(V.B))) | [F.product],
        ],
    ),
    Case("the key is the first term", [
        *QKV,
        (R.w(V.J, V.I) <= (R.k(V.J).T, R.q(V.I))) | [F.product, SOFTMAX],
        (R.out(V.I) <= (R.w(V.J, V.I), R.v(V.J))) | [F.product],
    ]),
    Case("the query is transposed", [*QKV, weights(R.q(V.I).T @ R.k(V.J)), OUT]),
    Case("the value before the weights", [
        *QKV, D_K, WEIGHTS, (R.out(V.I) <= (R.v(V.J), R.w(V.I, V.J))) | [F.product],
    ]),
    Case("the scale last", [
        *QKV, D_K,
        (R.w(V.I, V.J) <= (R.q(V.I).T, R.k(V.J), R.d_k)) | [F.product, SOFTMAX], OUT,
    ]),
    Case("the scale as a number", [*QKV, weights(0.5 * DOT), OUT]),
    Case("a learnable scale", [*QKV, R.d_k["scale":0.7], WEIGHTS, OUT]),
    Case("the scale on the score", [*QKV, weights(DOT[0.5].fixed()), OUT]),
    Case("elementwise operators", [
        *QKV, D_K, weights(R.d_k * DOT), R.out(V.I) <= R.w(V.I, V.J) * R.v(V.J),
    ]),
    Case("a score helper", [
        *QKV, R.s(V.I, V.J) <= DOT, weights(R.s(V.I, V.J)), OUT,
    ]),
    Case("a scaled helper", [
        *QKV, D_K, R.s(V.I, V.J) <= DOT,
        (R.t(V.I, V.J) <= (R.d_k, R.s(V.I, V.J))) | [F.product],
        weights(R.t(V.I, V.J)), OUT,
    ]),
    Case("a helper for weighted values", [
        *QKV, D_K, WEIGHTS, (R.g(V.I, V.J) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product],
        R.out(V.I) <= R.g(V.I, V.J),
    ]),
    Case("no projections", [
        weights(R.x(V.J).T @ R.x(V.I)), (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]),
    Case("projections inside", [
        weights(R.x(V.J).T @ R.x(V.I)["bilinear": D, D]),
        (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]),
    Case("a matrix between", [
        (R.w(V.I, V.J) <= (R.x(V.J).T, R.m, R.x(V.I))) | [F.product, SOFTMAX],
        R.m[D, D],
        (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]),
    Case("heads as a family of weights", [
        *PER_HEAD, (R.w(V.H, V.I, V.J) <= HEAD_DOT) | [SOFTMAX], OUT_PER_HEAD,
    ], options=HEADS),
    Case("heads in another order", [
        *PER_HEAD, (R.w(V.I, V.J, V.H) <= HEAD_DOT) | [SOFTMAX],
        (R.out(V.I, V.H) <= (R.w(V.I, V.J, V.H), R.v(V.H, V.J))) | [F.product],
    ], options=HEADS),
    Case("heads in the data", [
        (R.w(V.H, V.I, V.J) <= R.x(V.H, V.J).T @ R.x(V.H, V.I)) | [SOFTMAX],
        (R.out(V.H, V.I) <= (R.w(V.H, V.I, V.J), R.x(V.H, V.J))) | [F.product],
    ], lambda: {"x": numbers(2, N, D)}),
    Case("keys shared by heads", [
        PER_HEAD[0], R.k(V.I) <= R.x(V.I)[2, D], R.v(V.I) <= R.x(V.I)[2, D],
        (R.w(V.H, V.I, V.J) <= R.k(V.J).T @ R.q(V.H, V.I)) | [SOFTMAX],
        (R.out(V.H, V.I) <= (R.w(V.H, V.I, V.J), R.v(V.J))) | [F.product],
    ], options=HEADS),
    Case("a scale for each head", [
        *PER_HEAD, (R.w(V.H, V.I, V.J) <= (W.scale(V.H)[1.5], HEAD_DOT)) | [F.product, SOFTMAX],
        OUT_PER_HEAD,
    ], options=HEADS),
    Case("a bias for each pair", [
        *QKV, weights(DOT, R.bias(V.I, V.J)), OUT,
    ], also(bias=(N, N))),
    Case("a weighted bias for each key", [
        *QKV, weights(DOT, R.bias(V.J)[0.5]), OUT,
    ], also(bias=(N,))),
    Case("a bias for each query, head and pair", [
        *PER_HEAD,
        (R.w(V.H, V.I, V.J) <= (HEAD_DOT, R.a(V.I), R.b(V.I, V.J) * W.slope(V.H)[0.5])) | [SOFTMAX],
        OUT_PER_HEAD,
    ], also(a=(N,), b=(N, N)), HEADS),
    Case("other lengths", [
        *projected("q"), *projected("k", "v", variable=V.J, source="memory"), D_K, WEIGHTS, OUT,
    ], also(memory=(M, D))),
    Case("causal", [*QKV, weights(DOT, R.special.leq(V.J, V.I)), OUT]),
    Case("strictly causal", [*QKV, weights(DOT, R.special.lt(V.J, V.I)), OUT], fill=0.0),
    Case("local", [
        *QKV, weights(DOT, R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 2)), OUT,
    ]),
    Case("strided", [
        *QKV, weights(DOT, R.special.sub(V.I, V.J, V.D), R.special.mod(V.D, 2, 0)), OUT,
    ]),
    Case("a pattern", [*QKV, weights(DOT, window(1)(V.I, V.J)), OUT]),
    Case("a pattern the other way", [*QKV, weights(DOT, causal()(V.J, V.I)), OUT]),
    Case("a negated pattern", [*QKV, weights(DOT, ~window(1)(V.I, V.J)), OUT]),
    Case("two conditions", [
        *QKV, weights(DOT, strided(2)(V.I, V.J), R.special.leq(V.J, V.I)), OUT,
    ]),
    Case("a condition beside the sum", [
        *QKV, R.s(V.I, V.J) <= (DOT, R.special.leq(V.J, V.I)), weights(R.s(V.I, V.J)), OUT,
    ]),
    Case("a negated comparison", [*QKV, weights(DOT, ~R.special.lt(V.I, V.J)), OUT]),
    Case("two dot products", [
        *QKV, *projected("r"), weights(DOT, R.r(V.J).T @ R.q(V.I)), OUT,
    ]),
    Case("relative terms", [
        *QKV, R.u[D,], R.p(V.I) <= R.x(V.I)[D, D],
        weights(DOT, R.p(V.J).T @ R.q(V.I), R.u.T @ R.k(V.J)), OUT,
    ]),
    Case("a product of sums", [
        *QKV, *projected("r"), weights((R.k(V.J) + R.r(V.J)).T @ (R.q(V.I) + R.r(V.I))), OUT,
    ]),
    Case("a weighted value", [
        *QKV, D_K, WEIGHTS, (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J)[2, D])) | [F.product],
    ]),
    Case("a gated value", [
        *QKV, D_K, WEIGHTS,
        (R.out(V.I) <= (R.w(V.I, V.J), R.gate(V.J), R.v(V.J))) | [F.product],
    ], also(gate=(N,))),
    Case("a nonlinear value", [
        *QKV, D_K, WEIGHTS, (R.out(V.I) <= (R.w(V.I, V.J), F.relu(R.v(V.J)))) | [F.product],
    ]),
    Case("a weight on the sum", [
        *QKV, D_K, WEIGHTS, (R.out(V.I)[D, D] <= (R.w(V.I, V.J), R.v(V.J))) | [F.product],
    ]),
    Case("dropout on the weights", [
        *QKV, D_K, WEIGHTS,
        (R.out(V.I) <= (F.dropout(0.25)(R.w(V.I, V.J)), R.v(V.J))) | [F.product],
    ]),
    Case("a batch", [*QKV, D_K, WEIGHTS, OUT], lambda: {"x": numbers(2, N, D)}),
    Case("not itself", [*QKV, weights(DOT, R.special.neq(V.I, V.J)), OUT]),
    Case("a transformation of the scores", [
        *QKV, (R.w(V.I, V.J) <= DOT) | [F.exp, SOFTMAX], OUT,
    ]),
    Case("a nonlinear score", [*QKV, weights(F.relu(DOT)), OUT]),
    Case("a soft cap", [*QKV, weights(5.0 * F.tanh(0.2 * DOT), window(2)(V.I, V.J)), OUT]),
    Case("a soft cap that is learned", [
        *QKV, weights(W.cap[5.0] * F.tanh(W.narrow[0.2] * DOT), R.bias(V.I, V.J)), OUT,
    ], also(bias=(N, N))),
    Case("ALiBi", [
        *PER_HEAD, (R.w(V.H, V.I, V.J) <= (
            HEAD_DOT, W.slope(V.H)[0.5] * R.special.sub_eval(V.J, V.I), causal()(V.I, V.J),
        )) | [SOFTMAX], OUT_PER_HEAD,
    ], options=HEADS),
    Case("places on both sides", [
        *QKV, OUT,
        weights(DOT * F.sigmoid(0.3 * R.special.min_eval(V.I, V.J)), strided(2)(V.I, V.J)),
    ]),
    Case("a condition on the key alone", [*QKV, weights(DOT, R.special.lt(V.J, 3)), OUT]),
    Case("positions of one residue, causal", [
        *QKV, OUT,
        weights(DOT, R.special.mod(V.I, 2, V.A), R.special.mod(V.J, 2, V.A), causal()(V.I, V.J)),
    ]),
    Case("a mask of each head", [
        *PER_HEAD, (R.w(V.H, V.I, V.J) <= (
            HEAD_DOT, R.special.mod(V.J, 2, V.H),
        )) | [SOFTMAX], OUT_PER_HEAD,
    ], options=HEADS),
    Case("ALiBi with a mask", [
        *PER_HEAD, (R.w(V.H, V.I, V.J) <= (
            HEAD_DOT, W.slope(V.H)[0.5] * R.special.sub_eval(V.J, V.I), causal()(V.I, V.J),
            R.special.mod(V.J, 2, 0),
        )) | [SOFTMAX], OUT_PER_HEAD,
    ], options=HEADS),
]  # fmt: skip

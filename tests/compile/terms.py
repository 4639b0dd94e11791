"""Scores with terms that kernels compute pair by pair: tables, places, factors, caps."""

from edgewise import F, R, V, W
from edgewise.graphs import causal, window
from tests.compile.rewritings import (
    DOT,
    HEAD_DOT,
    HEADS,
    OUT,
    OUT_PER_HEAD,
    PER_HEAD,
    QKV,
    SOFTMAX,
    Case,
    D,
    M,
    N,
    also,
    numbers,
    projected,
    weights,
)

FAR = F.abs(R.special.sub_eval(V.I, V.J))
ROWS = R._x(V.I), R._x(V.J)
SUB = R.special.sub(V.I, V.J, V.D)
DISTANCES = {"domains": {V.D: N}}
BUCKETS = {"domains": {V.B: 8}}
BUCKET = R.special.bucket(V.I, V.J, 8, 5, V.B)


def per_head(*body):
    return (R.w(V.H, V.I, V.J) <= body) | [SOFTMAX]


def halved(distance):
    return distance // 2


TERMS = [
    Case("T5's buckets", [*QKV, weights(DOT, W.table(V.B)[1,], BUCKET), OUT], options=BUCKETS),
    Case("T5's buckets, before and in a batch", [
        *QKV, OUT,
        weights(DOT, W.table(V.B)[1,], R.special.bucket_before(V.I, V.J, 8, 5, V.B)),
    ], lambda: {"x": numbers(2, N, D)}, BUCKETS),
    Case("T5's buckets for each head, in a rule of their own", [
        *PER_HEAD, OUT_PER_HEAD, per_head(HEAD_DOT, R.near(V.H, V.I, V.J)),
        R.near(V.H, V.I, V.J) <= (W.table(V.B, V.H)[1,], BUCKET, *ROWS),
    ], options={"domains": {V.B: 8, V.H: 2}}),
    Case("a table for other lengths", [
        *projected("q"), *projected("k", "v", variable=V.J, source="memory"), OUT,
        weights(DOT, W.table(V.B)[1,], BUCKET),
    ], also(memory=(M, D)), BUCKETS),
    Case("a table of distances", [*QKV, weights(DOT, W.table(V.D)[1,], SUB), OUT],
         options=DISTANCES),
    Case("a table of distances, turned", [
        *QKV, weights(DOT, W.table(V.D)[1,], R.special.add(V.I, V.D, V.J)), OUT,
    ], options=DISTANCES),
    Case("a table of near distances", [
        *QKV, weights(DOT, W.table(V.D)[1,], SUB, window(2)(V.I, V.J)), OUT,
    ], options={"domains": {V.D: 3}}),
    Case("a table of some distances", [
        *QKV, weights(DOT, W.table(V.D)[1,], SUB, R.special.leq(V.D, 3), R.special.geq(V.D, 0)),
        OUT,
    ], options=DISTANCES),
    Case("a table of both sides", [
        *QKV, OUT,
        weights(DOT, W.table(V.D)[1,], R.special.add(V.I, N, V.S), R.special.sub(V.S, V.J, V.D)),
    ], options={"domains": {V.D: 2 * N}}),
    Case("a table of remainders", [
        *QKV, weights(DOT, W.table(V.B)[1,], SUB, R.special.mod(V.D, 3, V.B)), OUT,
    ], options=BUCKETS),
    Case("a table by a function", [
        *QKV, weights(DOT, W.table(V.B)[1,], SUB, R.special.fn(halved)(V.D, V.B)), OUT,
    ], options=BUCKETS),
    Case("a table in the data", [*QKV, weights(DOT, R.table(V.D), SUB), OUT], also(table=(N,))),
    Case("a short table in the data", [*QKV, weights(DOT, R.table(V.D), SUB), OUT],
         also(table=(3,))),
    Case("two tables, bent", [
        *PER_HEAD, OUT_PER_HEAD, per_head(
            HEAD_DOT + F.tanh(W.one(V.D)[1,]), 0.5 * W.two(V.B, V.H)[1,], SUB,
            R.special.div(V.D, 2, V.B), causal()(V.I, V.J),
        ),
    ], options={"domains": {V.B: 8, V.D: N, V.H: 2}}),
    Case("a table times the dot product", [
        *QKV, OUT, (R.w(V.I, V.J) <= (W.table(V.B)[1,], R.k(V.J).T, R.q(V.I), BUCKET))
        | [F.product, SOFTMAX],
    ], options=BUCKETS),
    Case("a table beside biases", [
        *QKV, weights(DOT, W.table(V.B)[1,], BUCKET, R.a(V.I), R.b(V.J), R.c(V.I, V.J)), OUT,
    ], also(a=(N,), b=(N,), c=(N, N)), BUCKETS),
    Case("ALiBi, in a rule of its own", [
        *PER_HEAD, R.far(V.I, V.J) <= (FAR, *ROWS), OUT_PER_HEAD,
        R.slope(0)[-0.5].fixed(), R.slope(1)[-0.25],
        per_head(HEAD_DOT, R.slope(V.H) * R.far(V.I, V.J)),
    ], options=HEADS),
    Case("decay", [*QKV, weights(DOT * F.exp(-0.5 * FAR)), OUT]),
    Case("decay, learned for each head", [
        *PER_HEAD, per_head(F.exp(W.rate(V.H)[-0.3] * FAR) * HEAD_DOT), OUT_PER_HEAD,
    ], options=HEADS),
    Case("numbers for all and for each head", [
        *PER_HEAD, OUT_PER_HEAD,
        per_head(W.a[0.7] * F.tanh(W.b(V.H)[1.5] * HEAD_DOT) + R.c(V.H)),
    ], also(c=(2,)), HEADS),
    Case("a soft cap and a bias for each query", [
        *QKV, weights(5.0 * F.tanh(0.2 * DOT), R.a(V.I), W.c(V.J)[0.3]), OUT,
    ], also(a=(N,)), {"domains": {V.J: N}}),
    Case("a value of the key times the score", [
        *QKV, (R.w(V.I, V.J) <= (R.gate(V.J), R.k(V.J).T, R.q(V.I))) | [F.product, SOFTMAX], OUT,
    ], also(gate=(N,))),
    Case("a value of the query times the score", [*QKV, weights(R.gate(V.I) * DOT), OUT],
         also(gate=(N,))),
    Case("a value of the pair times the score", [*QKV, weights(R.e(V.I, V.J) * DOT), OUT],
         also(e=(N, N))),
    Case("a value of the pair and head times the score, capped", [
        *PER_HEAD, OUT_PER_HEAD, per_head(
            F.tanh(R.e(V.H, V.I, V.J) * HEAD_DOT), window(1)(V.I, V.J), R.b(V.I, V.J),
        ),
    ], also(e=(2, N, N), b=(N, N)), HEADS),
    Case("rows that are there", [*QKV, weights(DOT, *ROWS), OUT]),
]  # fmt: skip

"""Programs that look like attention and are not, each with the reason that must be given."""

from edgewise import F, R, V
from tests.compile.rewritings import (
    D_K,
    DOT,
    OUT,
    QKV,
    SOFTMAX,
    WEIGHTS,
    Case,
    D,
    N,
    also,
    projected,
    weights,
)

LOOK_ALIKES = [
    ("`w` is the output", Case("the weights are the output", [*QKV[:2], D_K, WEIGHTS], output="w")),
    ("`w` is read in 2 places", Case("weights that are also summed", [
        *QKV, D_K, WEIGHTS, OUT, R.both(V.I) <= (R.out(V.I), R.w(V.I, V.J)),
    ], output="both")),
    ("`w` is read in 2 places", Case("two users of the weights", [
        *QKV, D_K, WEIGHTS, OUT, (R.more(V.I) <= (R.w(V.I, V.J), R.k(V.J))) | [F.product],
        R.both(V.I) <= (R.out(V.I), R.more(V.I)),
    ], output="both")),
    ("does not sum over `I` alone", Case("a softmax over the queries", [
        *QKV, (R.w(V.I, V.J) <= DOT) | [F.softmax_agg(agg_terms=[V.I])], OUT,
    ])),
    ("the softmax is over 2 variables", Case("a softmax over both", [
        *QKV, (R.w(V.I, V.J) <= DOT) | [F.softmax_agg(agg_terms=[V.I, V.J])], OUT,
    ])),
    ("aggregates by avg_agg", Case("an average", [
        *QKV, D_K, WEIGHTS, (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product, F.avg_agg],
    ])),
    ("aggregates by max_agg", Case("a maximum", [
        *QKV, D_K, WEIGHTS, (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product, F.max_agg],
    ])),
    ("`out` is transformed by relu", Case("a transformation of each product", [
        *QKV, D_K, WEIGHTS, (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product, F.relu],
    ])),
    ("is not a sum of `w` times a value", Case("a transformation of the weights", [
        *QKV, D_K, WEIGHTS, (R.out(V.I) <= (F.sqrt(R.w(V.I, V.J)), R.v(V.J))) | [F.product],
    ])),
    ("`w` has a weight of its own", Case("a weight on the weights", [
        *QKV, (R.w(V.I, V.J)[2.0] <= DOT) | [SOFTMAX], OUT,
    ])),
    ("is not a sum of `w` times a value", Case("a weight where the weights are read", [
        *QKV, D_K, WEIGHTS, (R.out(V.I) <= (R.w(V.I, V.J)[2.0], R.v(V.J))) | [F.product],
    ])),
    ("`w` has a line of its own", Case("a line on the weights", [
        *QKV, D_K, WEIGHTS, R.w / 2 | [F.sqrt], OUT,
    ])),
    ("`w` has facts", Case("a fact among the weights", [
        *QKV, weights(DOT, R.special.lt(V.I, N - 1)), R.w(N - 1, 0)[1.0].fixed(), OUT,
    ])),
    ("2 rules derive `w`", Case("two softmaxes, added", [
        *QKV, weights(DOT), weights(R.q(V.J).T @ R.k(V.I)), OUT,
    ])),
    ("dot products in different places", Case("two dot products, bent apart", [
        *QKV, weights(F.tanh(DOT) + F.exp(R.q(V.J).T @ R.k(V.I))), OUT,
    ])),
    ("is not computed pair by pair", Case("a function that kernels do not have", [
        *QKV, weights(F.gelu(DOT)), OUT,
    ])),
    ("no part of the score is a dot product", Case("additive attention", [
        *QKV, R.u[D,], (R.w(V.I, V.J) <= (R.u.T, F.tanh(R.q(V.I) + R.k(V.J))))
        | [F.product, SOFTMAX], OUT,
    ])),
    ("no part of the score is a dot product", Case("a score for each feature", [
        *QKV, weights(R.q(V.I) * R.k(V.J)), R.out(V.I) <= R.w(V.I, V.J) * R.v(V.J),
    ])),
    ("every variable of the query is one of the keys or values", Case("a value of each pair", [
        *QKV, D_K, WEIGHTS,
        (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.I) + R.v(V.J))) | [F.product],
    ])),
    ("the score has variables that its head does not have", Case("a score with two groundings", [
        *QKV, weights(DOT, R.bias(V.I, V.J, V.Z)), OUT,
    ], also(bias=(N, N, 2)))),
    ("the sum in `out` has conditions", Case("a condition on the sum", [
        *QKV, D_K, WEIGHTS,
        (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J), R.special.leq(V.J, V.I))) | [F.product],
    ])),
    ("`out` is recursive", Case("attention on its own output", [
        *projected("q", "k"), R.v(V.I) <= (R.x(V.I), R.hidden.first(V.I)),
        R.v(V.I) <= (R.out(V.J), R.special.next(V.J, V.I)),
        weights(DOT, R.special.leq(V.J, V.I)), OUT,
    ], also(first=(1,)), fill=0.0)),
]  # fmt: skip

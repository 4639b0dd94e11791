"""Attention in which some inputs have a batch axis and the others are the same for all samples."""

from itertools import combinations

import pytest
import torch

from edgewise import F, Program, R, V, W
from edgewise.graphs import window

N, BATCH = 5, 3
SOFTMAX = F.softmax_agg(agg_terms=[V.J])
DOT = R.k(V.J).T @ R.q(V.I)
OUT = (R.o(V.I) <= (R.a(V.I, V.J), R.v(V.J))) | [F.product]
HEADS = [
    R.qh(V.H, V.I) <= R.q(V.I)[W.q(V.H)[2, 4]],
    R.kh(V.H, V.J) <= R.k(V.J)[W.k(V.H)[2, 4]],
]
MANY = [
    (R.oh(V.H, V.I) <= (R.a(V.H, V.I, V.J), R.v(V.J))) | [F.product],
    (R.o(V.I) <= R.oh(V.H, V.I)) | [F.concat_agg],
]
PAIRS = {
    "every pair": (),
    "a window": (window(1)(V.I, V.J),),
    "edges": (R._edge(V.I, V.J),),
}


def programs(pairs):
    along = PAIRS[pairs]
    yield "a dot product", [(R.a(V.I, V.J) <= (DOT, *along)) | [SOFTMAX], OUT]
    yield "a bias", [(R.a(V.I, V.J) <= (DOT + R.e(V.I, V.J), *along)) | [SOFTMAX], OUT]
    yield "a factor", [(R.a(V.I, V.J) <= (DOT * R.e(V.I, V.J), *along)) | [SOFTMAX], OUT]
    capped = F.tanh(DOT) + R.e(V.I, V.J)
    yield "a soft cap", [(R.a(V.I, V.J) <= (capped, *along)) | [SOFTMAX], OUT]
    added = F.leaky_relu(R.k(V.J) + R.q(V.I))[1, 4]
    yield "a sum", [(R.a(V.I, V.J) <= (added, *along)) | [SOFTMAX], OUT]
    score = R.kh(V.H, V.J).T @ R.qh(V.H, V.I) + R.e(V.I, V.J)
    yield "heads", [*HEADS, (R.a(V.H, V.I, V.J) <= (score, *along)) | [SOFTMAX], *MANY]


CASES = {(kind, pairs): rules for pairs in PAIRS for kind, rules in programs(pairs)}


@pytest.mark.parametrize(("kind", "pairs"), CASES)
def test_each_sample_is_itself(kind, pairs):
    domains = {V.H: 2} if kind == "heads" else None
    program = Program(CASES[kind, pairs], domains=domains)
    model = program.compile(R.o, fill=0.0, seed=0, dtype=torch.float64)
    torch.manual_seed(0)
    x = {r: torch.randn(BATCH, N, 4, dtype=torch.float64) for r in "qkv"}
    x["e"] = torch.randn(BATCH, N, N, 1, dtype=torch.float64)
    names = [name for name in x if name in model.inputs]
    edges = [R.edge(i, j) for i in range(N) for j in range(N) if (i + 2 * j) % 3]
    facts = edges if "edge" in model.inputs else []
    for size in {1, len(names) - 1}:
        for moving in combinations(names, size):
            shared = {name: x[name][0] for name in names if name not in moving}
            batch = {name: x[name] for name in moving}
            data = model.ground(facts=facts, **shared)
            found = model(data, **batch)
            alone = [model(data, **{n: x[n][b] for n in moving}) for b in range(BATCH)]
            torch.testing.assert_close(found, torch.stack(alone))

"""Weights of families directly in a body: rows that meet are computed once, all scores at once."""

import pytest
import torch

from edgewise import F, Program, R, V, W

MEMBERS, QUERIES, D = 300, 20, 4
QUERY = torch.stack(
    [torch.arange(QUERIES), torch.arange(QUERIES) % 7 * 40, torch.arange(QUERIES) % 3]
)
FORMS = {
    "a vector of one family, and all of it": W.ent(V.A)[D,].T @ W.ent(V.E)[D,],
    "a product of two families": F.elproduct(W.ent(V.A)[D,], W.rel(V.B)[D,]).T @ W.ent(V.E)[D,],
    "a sum, transformed": F.tanh(W.ent(V.A)[D,] + W.rel(V.B)[D,]).T @ W.ent(V.E)[D,],
    "all first": W.ent(V.E)[D,].T @ F.elproduct(W.rel(V.B)[D,], W.ent(V.A)[D,]),
}


def results(form, query, **options):
    program = Program(
        [R.s(V.Q, V.E) <= (form, R._q(V.Q, V.A, V.B))],
        domains={V.E: MEMBERS, V.A: MEMBERS, V.B: 3},
    )
    model = program.compile(R.s, seed=0, dtype=torch.float64, **options)
    held = model.ground(q=query)
    out = model.rows(held)
    weight = torch.randn(out.data.shape, generator=torch.manual_seed(0), dtype=torch.float64)
    grads = torch.autograd.grad((out.data * weight).sum(), list(model.parameters()))
    relations = model.explain(held, stage="kernels", json=True)["kernels"]["relations"]
    return max(s["largest"] for r in relations for s in r["steps"]), [out.data, *grads]


@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.parametrize("name", FORMS)
def test_no_vector_is_materialised_for_a_grounding(name, order):
    query = QUERY
    if order == "shuffled":
        query = torch.cat([query[:1], query[1:].roll(5, 1)])
    largest, found = results(FORMS[name], query)
    assert largest < 2 * QUERIES * MEMBERS
    plain = results(FORMS[name], query, without=["project rows", "dots as products"])[1]
    for mine, right in zip(found, plain, strict=True):
        torch.testing.assert_close(mine, right)

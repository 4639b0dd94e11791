"""Values of edges in scores of attention: added, multiplied, per head; as by the reference."""

import pytest
import torch

from edgewise import F, Program, R, V, W, rows
from edgewise.graphs import window

SOFTMAX = F.softmax_agg(agg_terms=[V.J])
QKV = [R[name](V.H, V.I) <= R.x(V.I)[W[name](V.H)[3, 4]] for name in "qkv"]
DOT = R.k(V.H, V.J).T @ R.q(V.H, V.I)
OUT = (R.out(V.H, V.I) <= (R.w(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product]
PAIRS = torch.tensor([[0, 0, 0, 1, 3, 3, 4, 5, 5], [1, 2, 5, 1, 0, 2, 4, 0, 3]])  # 2 hears nobody
EDGE = R.e(V.H, V.I, V.J) <= R.edge(V.I, V.J)[W.e(V.H)[1, 2]]


def weights(*body):
    return (R.w(V.H, V.I, V.J) <= body) | [SOFTMAX]


CASES = {
    "a bias": ([weights(DOT, R.edge(V.I, V.J)[W.e(V.H)[1, 2]])], {"edge_bias"}),
    "a bias in a rule of its own": ([EDGE, weights(DOT, R.e(V.H, V.I, V.J))], {"edge_bias"}),
    "a product with a bias, as Exphormer": (
        [EDGE, weights(R.e(V.H, V.I, V.J) * DOT, R.far(V.I, V.J))],
        {"edge_scale", "edge_bias"},
    ),
    "a product, scaled and capped": (
        [EDGE, weights(5.0 * F.tanh(0.2 * (DOT * R.e(V.H, V.I, V.J))))],
        {"edge_scale", "score"},
    ),
    "a product along a window": (
        [EDGE, weights(DOT * R.e(V.H, V.I, V.J), window(2)(V.I, V.J))],
        {"edge_scale"},
    ),
    "a product, turned edges, a table": (
        [
            R.e(V.H, V.I, V.J) <= R.edge(V.J, V.I)[W.e(V.H)[1, 2]],
            weights(
                DOT * R.e(V.H, V.I, V.J),
                W.table(V.B, V.H)[1,],
                R.special.bucket(V.I, V.J, 4, 4, V.B),
            ),
        ],
        {"edge_scale", "score"},
    ),
    "a bias and listed pairs": (
        [EDGE, weights(DOT, R.e(V.H, V.I, V.J), R._near(V.I, V.J))],
        {"edge_bias"},
    ),
}


def given(program):
    numbers = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(*shape, generator=numbers, dtype=torch.float64)

    have = {
        "edge": rows(PAIRS, drawn(9, 2)),
        "far": rows(PAIRS[:, 1:], drawn(8)),
        "near": rows(PAIRS[:, :7]),
    }
    read = program.compile(R.out).inputs
    return drawn(6, 4), {name: value for name, value in have.items() if name in read}


def results(program, x, data, **options):
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0, **options).eval()
    x = x.clone().requires_grad_()
    values = {n: r.values.clone().requires_grad_() for n, r in data.items() if r.values is not None}
    held = model.ground(**data | {n: rows(data[n].keys, v) for n, v in values.items()})
    out = model(held, x=x)
    weight = torch.randn(out.shape, dtype=out.dtype, generator=torch.manual_seed(1))
    grads = torch.autograd.grad(
        (out * weight).sum(), [x, *values.values(), *model.parameters()], allow_unused=True
    )
    return model, held, [out, *grads]


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_reference(name):
    rules, terms = CASES[name]
    program = Program([*QKV, *rules, OUT], domains={V.H: 2, V.B: 4})
    x, data = given(program)
    model, held, found = results(program, x, data)
    relations = model.explain(held, stage="kernels", json=True, x=x)["kernels"]["relations"]
    (step,) = next(r["steps"] for r in relations if r["relation"] == "out")
    assert step["kernel"].startswith("attention (")
    assert set(step["terms"]) == terms
    _, _, listed = results(program, x, data, without=["fuse attention"])
    for mine, right in zip(found, listed, strict=True):
        torch.testing.assert_close(mine, right)
    facts = [R.x(i)[row.tolist()] for i, row in enumerate(x)]
    for relation, table in data.items():
        values = [None] * table.keys.shape[1] if table.values is None else table.values.tolist()
        for (i, j), value in zip(table.keys.T.tolist(), values, strict=True):
            atom = R[relation](i, j)
            facts.append(atom if value is None else atom[value])
    given_ = {key: model.weight(key).detach() for key in program.weights(seed=0)}
    solved = program.solve(facts, weights=given_)[R.out(V.H, V.I)]
    expected = torch.zeros_like(found[0])  # where nobody is heard
    for atom, value in solved.items():
        expected[atom.terms] = value.detach()
    torch.testing.assert_close(found[0], expected)


def test_a_batch_is_each_of_its_elements():
    rules, _ = CASES["a product with a bias, as Exphormer"]
    program = Program([*QKV, *rules, OUT], domains={V.H: 2, V.B: 4})
    x, data = given(program)
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0)
    held, both = model.ground(**data), torch.stack([x, 2 * x])
    torch.testing.assert_close(model(held, x=both), torch.stack([model(held, x=y) for y in both]))


def test_other_pairs_in_other_heads_are_listed():
    program = Program([*QKV, weights(DOT, R.e(V.H, V.I, V.J)), OUT], domains={V.H: 2})
    model = program.compile(R.out, dtype=torch.float64, fill=0.0)
    keys = torch.tensor([[0, 0, 1], [0, 1, 0], [1, 1, 2]])
    held = model.ground(e=rows(keys, torch.ones(3, dtype=torch.float64)))
    x = torch.ones(3, 4, dtype=torch.float64)
    relations = model.explain(held, stage="kernels", json=True, x=x)["kernels"]["relations"]
    reason = next(r["not attention"] for r in relations if r["relation"] == "out")
    assert "lists different pairs for different heads" in reason
    assert model(held, x=x).isfinite().all()

"""Wanted rows: exactly those of the full output, and only what they need is computed."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, ragged, rows
from edgewise.graphs import bigbird, causal, dilated, from_edges, global_tokens, strided, window

torch.manual_seed(0)
N = 60
EDGES = torch.randint(N, (2, 200), generator=torch.Generator().manual_seed(0)).unique(dim=1)
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def sage(most=None):
    return Program(
        [
            R.h(V.I) <= R.x(V.I)[8, 4],
            (R.h(V.I) <= (R.x(V.J)[8, 4], R.hidden.edge(V.J, V.I))) | [F.avg_agg],
            R.h / 1 | [F.relu],
            R.o(V.I) <= R.h(V.I)[3, 8],
            (R.o(V.I) <= (R.h(V.J)[3, 8], R.hidden.edge(V.J, V.I))) | [F.avg_agg],
        ]
    )


def heads(condition):
    d = 4
    score = (R.w(V.I, V.J) <= (R.k(V.J).T, R.q(V.I), condition)) | [
        F.product,
        F.softmax_agg(agg_terms=[V.J]),
    ]
    return Program(
        [
            R.q(V.I) <= R.x(V.I)[d, d],
            R.k(V.I) <= R.x(V.I)[d, d],
            score,
            (R.a(V.I) <= (R.w(V.I, V.J), R.x(V.J)[d, d])) | [F.product],
        ]
    )


def assert_rows(model, want, *data, **inputs):
    """Values, and gradients of weights and of x, are those of the same rows of the full output."""
    grads = []
    for chosen in (None, want):
        x = inputs["x"].detach().clone().requires_grad_()
        out = model(*data, **{**inputs, "x": x}, **({} if chosen is None else {"want": chosen}))
        out = out[torch.as_tensor(want)] if chosen is None else out
        total = (out * torch.linspace(1, 2, out.numel(), dtype=out.dtype).reshape(out.shape)).sum()
        leaves = [x, *model.parameters()]
        grads.append([out, *torch.autograd.grad(total, leaves)])
    for full, part in zip(*grads, strict=True):
        torch.testing.assert_close(part, full)


@pytest.mark.parametrize("want", [[3], [7, 3, 7, 0], list(range(N)), torch.tensor([59, 1])])
def test_rows_of_a_graph_network(want):
    model = sage().compile(R.o, seed=0, dtype=torch.float64)
    assert_rows(model, want, model.ground(edge=EDGES), x=X)


@pytest.mark.parametrize(
    "condition",
    [
        R.special.leq(V.J, V.I),
        causal()(V.I, V.J),
        window(2)(V.I, V.J),
        (window(1) | global_tokens(2))(V.I, V.J),
        strided(7)(V.I, V.J),
        dilated(3, 4)(V.I, V.J),
        bigbird(block=4)(V.I, V.J),
        from_edges(EDGES)(V.I, V.J),
        R.hidden.edge(V.I, V.J),
        (R.special.neq(V.I, V.J)),
    ],
    ids=str,
)
@pytest.mark.parametrize("want", [[30], [5, 41, 5], [59]])
def test_rows_of_attention(condition, want):
    model = heads(condition).compile(R.a, seed=0, dtype=torch.float64, fill=0.0)
    given = {"edge": EDGES} if "edge" in model.inputs else {}
    assert_rows(model, want, model.ground(**given), x=X)


def test_only_attended_keys_are_computed():
    model = heads(window(3)(V.I, V.J)).compile(R.a, seed=0, dtype=torch.float64)
    found = model.explain(model.ground(want=[20, 50]), x=X, stage="kernels", json=True)["kernels"]
    computed = {r["relation"]: r["layouts"][0] for r in found["relations"]}
    assert {n: (c["rows"], c["of"]) for n, c in computed.items()} == {
        "q": (2, N),
        "k": (14, N),
        "a": (2, N),
    }
    (attention,) = [s for r in found["relations"] for s in r["steps"] if "pairs" in s]
    assert attention["pairs"] == 14


def test_explain_prints_rows_of_rows():
    model = sage().compile(R.o, seed=0, dtype=torch.float64)
    assert "o: 2 of 60 rows" in str(model.explain(model.ground(edge=EDGES, want=[1, 2]), x=X))


def test_constants_compute_only_what_they_need():
    program = sage()
    full = program.compile(R.o, seed=0, dtype=torch.float64)
    one = program.compile(R.o(3), seed=0, dtype=torch.float64)
    data = one.ground(edge=EDGES)
    torch.testing.assert_close(one(data, x=X), full(full.ground(edge=EDGES), x=X)[3])
    found = one.explain(data, x=X, stage="kernels", json=True)["kernels"]["relations"]
    assert found[-1]["layouts"] == [{"kind": "rows", "rows": 1, "of": N}]


def test_recursion_computes_what_comes_before():
    program = Program(
        [
            R.s(0) <= R.x(0),
            (R.s(V.T) <= (R.s(V.P)["w":4, 4], R.special.next(V.P, V.T), R.x(V.T)))
            | [F.sum, F.tanh],
        ]
    )
    model = program.compile(R.s, seed=0, dtype=torch.float64)
    full = model.rows(x=X)
    part = model(x=X, want=[9, 2])
    torch.testing.assert_close(part, full.data[[9, 2]])
    found = model.explain(model.ground(want=[9]), x=X, stage="kernels", json=True)["kernels"]
    assert found["relations"][-1]["layouts"][0]["rows"] == 10


def test_several_outputs_batches_and_samples():
    model = sage().compile([R.h, R.o], seed=0, dtype=torch.float64)
    data = model.ground(edge=EDGES)
    full = model(data, x=X)
    some = model(data, x=X, want={"o": [4, 2]})
    torch.testing.assert_close(some["o"], full["o"][[4, 2]])
    torch.testing.assert_close(some["h"], full["h"])
    one = sage().compile(R.o, weights=model, dtype=torch.float64)
    batch = torch.stack([X, X * 2, -X])
    expected = one(one.ground(edge=EDGES), x=batch)[:, [8, 8, 1]]
    torch.testing.assert_close(one(one.ground(edge=EDGES), x=batch, want=[8, 8, 1]), expected)
    lines = ragged([X[:5], X[5:20]])
    own = heads(R.special.leq(V.J, V.I)).compile(R.a, seed=0, dtype=torch.float64)
    rows_ = own.rows(x=lines)
    got = own(x=lines, want=[(1, 3), (0, 4)])
    for value, key in zip(got, [(1, 3), (0, 4)], strict=True):
        torch.testing.assert_close(value, rows_[R.a(*key)])


def test_wanted_rows_are_traced_exported_and_repeated():
    model = sage().compile(R.o, seed=0, dtype=torch.float64)
    data = model.ground(edge=EDGES, want=torch.tensor([7, 3]))
    expected = model(model.ground(edge=EDGES), x=X)[[7, 3]]
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for found in (model(data, x=X), model(data, x=X), compiled(data, x=X)):
        torch.testing.assert_close(found, expected)

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(data, x=x)

    torch.testing.assert_close(torch.export.export(Wrapped(), (X,)).module()(X), expected)


def test_strings_facts_and_absent_rows():
    program = Program([R.g(V.X) <= (R.a(V.X), R.special.neq(V.X, "c"))])
    facts = [R.a("b")[2.0], R.a("a")[1.0], R.a("c")[3.0], R.a(4)[5.0]]
    model = program.compile(R.g)
    data = model.ground(facts=facts)
    assert model(data, want=["a", 4, "b", "a"]).tolist() == [1.0, 5.0, 2.0, 1.0]
    assert model(data, want=[R.g("b")]).tolist() == [2.0]
    assert model(data, want=[]).tolist() == []
    filled = program.compile(R.g, fill=-1.0)
    assert filled(filled.ground(facts=facts), want=["c", "a"]).tolist() == [-1.0, 1.0]
    assert list(model.rows(data, want=["b"])) == [R.g("b")]
    listed = rows(torch.tensor([[4, 7]]), torch.tensor([1.0, 2.0]))
    assert model(a=listed, want=[7]).tolist() == [2.0]


@pytest.mark.parametrize("early", [False, True])
def test_a_name_that_the_data_lacks_has_the_value_fill(early):
    program = Program([
        R.h(V.X) <= (R.x(V.Y), R._e(V.X, V.Y)),
        (R.g(V.X, V.Z) <= (R.h(V.X), R.h(V.Z), R._e(V.X, V.Z))) | [F.product],
    ])  # fmt: skip
    facts = [R.x("a")[1.0], R.x("b")[2.0], R.e("a", "b"), R.e("b", "a")]

    def wanted(model, keys):
        data = model.ground(facts=facts, want=keys) if early else model.ground(facts=facts)
        return (model(data) if early else model(data, want=keys)).tolist()

    one, pairs = program.compile(R.h, fill=0.5), program.compile(R.g, fill=-1.0)
    assert wanted(one, ["zoe", "a", "yan", 5, "zoe"]) == [0.5, 2.0, 0.5, 0.5, 0.5]
    assert wanted(pairs, [("a", "zoe"), ("b", "a"), ("zoe", 3)]) == [-1.0, 2.0, -1.0]
    with pytest.raises(EdgewiseError, match=r"nothing derives `R.h\('zoe'\)`"):
        wanted(program.compile(R.h), ["a", "zoe"])


def test_a_recursion_along_edges_that_are_not_there():
    program = Program([R.s(V.X) <= R.a(V.X), R.s(V.Y) <= (R.s(V.X), R.e(V.X, V.Y))], rounds=2)
    model = program.compile(R.s)
    assert model(model.ground(facts=[R.a(2)[1.5]]), want=[2]).tolist() == [1.5]


MODEL = Program([R.h(V.I, V.J) <= (R.x(V.I), R.x(V.J))]).compile(R.h)
ONES = torch.ones(3)


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        (lambda: MODEL(x=ONES, want=[0]), "bad-want"),
        (lambda: MODEL(x=ONES, want=0), "bad-want"),
        (lambda: MODEL(x=ONES, want="ab"), "bad-want"),
        (lambda: MODEL(x=ONES, want={(0, 1)}), "bad-want"),  # a set has no order
        (lambda: MODEL.samples(MODEL.ground(want=[(0, 1)])), "bad-want"),
        (lambda: MODEL(x=ONES, want=[(0, 1.5)]), "bad-want"),
        (lambda: MODEL(x=ONES, want=[(0, True)]), "bad-want"),
        (lambda: MODEL(x=ONES, want=torch.ones(2, 3)), "bad-want"),
        (lambda: MODEL(x=ONES, want=torch.ones(3, 3, dtype=torch.int64)), "bad-want"),
        (lambda: MODEL(x=ONES, want={"h": [(0, 0)]}), "bad-want"),
        (lambda: MODEL(x=ONES, want=[R.g(0, 0)]), "bad-want"),
        (lambda: MODEL(x=ONES, want=[(0, 9)]), "not-derivable"),
        (lambda: MODEL(x=ONES, want=[("a", 0)]), "not-derivable"),
        (lambda: MODEL(MODEL.ground(want=[(0, 0)]), x=ONES, want=[(0, 1)]), "bad-want"),
        (lambda: torch.compile(MODEL, backend="eager")(x=ONES, want=[(0, 0)]), "bad-want"),
        (lambda: sage().compile([R.h]).ground(want=[1]), "bad-want"),
        (lambda: sage().compile([R.h]).ground(want={"g": [1]}), "bad-want"),
        (lambda: Program([R.h(V.X) <= R.want(V.X)]).compile(R.h), "reserved-name"),
    ],
)
def test_mistakes_have_a_code(mistake, code):
    with pytest.raises(EdgewiseError) as caught:
        mistake()
    assert caught.value.code == code


def test_masks_over_data_and_vectors_of_edges():
    """What is one kernel for all rows is computed in full, or rule by rule, and says so."""
    speaker = torch.arange(N) % 3
    said = rows(torch.stack([torch.arange(N), speaker]))
    same = (R.hidden.speaker(V.I, V.S), R.hidden.speaker(V.J, V.S))
    weights = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), *same)) | [
        F.product,
        F.softmax_agg(agg_terms=[V.J]),
    ]
    masked = Program([weights, (R.a(V.I) <= (R.w(V.I, V.J), R.x(V.J)[3, 4])) | [F.product]])
    model = masked.compile(R.a, seed=0, dtype=torch.float64)
    assert_rows(model, [50, 2, 50], model.ground(speaker=said), x=X)
    vectors = rows(EDGES, torch.randn(EDGES.shape[1], 2, dtype=torch.float64))
    score = R.x(V.J).T @ R.x(V.I) + R.e(V.I, V.J)["k":1, 2]
    along = Program(
        [
            (R.w(V.I, V.J) <= score) | [F.softmax_agg(agg_terms=[V.J])],
            (R.a(V.I) <= (R.w(V.I, V.J), R.x(V.J)[3, 4])) | [F.product],
            (R.a(V.I) <= (R.w(V.I, V.J), R.e(V.I, V.J)[3, 2])) | [F.product],
        ]
    )
    model = along.compile(R.a, seed=0, dtype=torch.float64, fill=0.0)
    assert_rows(model, [7, 3], model.ground(e=vectors), x=X)

"""Attention with vectors of edges in keys, values and queries: fused, and as by the reference."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import F, Program, R, V, W, ragged, rows

N, D, C, DE = 6, 4, 3, 2
PAIRS = torch.tensor([[0, 0, 0, 1, 3, 3, 4, 5, 5], [1, 2, 5, 1, 0, 2, 4, 0, 3]])  # 2 has none
SCALE = R.d_k[1 / math.sqrt(C)].fixed()
pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")


def attention(*body, h=(V.H,), value=None):
    """weights(H, I, J) from a score, and the sum of values."""
    pair, one = (*h, V.I, V.J), (*h, V.I)
    value = R.v(*pair) if value is None else value
    return [
        (R.w(*pair) <= body) | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.out(*one) <= (R.w(*pair), value)) | [F.product],
    ]


def node(name, at=V.I):
    return R.x(at)[W[name](V.H)[C, D]]


def edge(name="e", of=None):
    return (R.edge(V.I, V.J) if of is None else of)[W[name](V.H)[C, DE]]


Q = R.q(V.H, V.I) <= node("q")
K = R.k(V.H, V.I, V.J) <= (node("k", V.J), edge())
VALUE = R.v(V.H, V.I, V.J) <= (node("v", V.J), edge())
SCORE = (R.d_k, R.k(V.H, V.I, V.J).T, R.q(V.H, V.I))
CASES = {
    "TransformerConv": [SCALE, Q, K, VALUE, *attention(*SCORE)],
    "the rules of the article, with edges in queries": [
        SCALE,
        R.q(V.I, V.J) <= (R.x(V.I)[W.qn[C, D]], R.edge(V.I, V.J)[W.qe[C, DE]]),
        R.k(V.I, V.J) <= (R.x(V.J)[W.kn[C, D]], R.edge(V.I, V.J)[W.ke[C, DE]]),
        R.v(V.I, V.J) <= (R.x(V.J)[W.vn[C, D]], R.edge(V.I, V.J)[W.ve[C, DE]]),
        *attention(R.d_k, R.k(V.I, V.J).T, R.q(V.I, V.J), h=()),
    ],
    "edges in values alone": [
        Q,
        R.k(V.H, V.J) <= node("k", V.J),
        VALUE,
        *attention(R.k(V.H, V.J).T, R.q(V.H, V.I), R._edge(V.I, V.J)),
    ],
    "edges in keys alone": [Q, K, *attention(*SCORE[1:], value=node("v", V.J))],
    "edges without a weight": [
        Q,
        R.k(V.H, V.I, V.J) <= (node("k", V.J), R.wide(V.I, V.J)),
        R.v(V.H, V.I, V.J) <= (node("v", V.J), R.wide(V.I, V.J)),
        *attention(*SCORE[1:]),
    ],
    "vectors of each head, in a rule of their own": [
        Q,
        R.e(V.H, V.I, V.J) <= edge(),
        R.k(V.H, V.I, V.J) <= (node("k", V.J), R.e(V.H, V.I, V.J)),
        R.v(V.H, V.I, V.J) <= (node("v", V.J), R.e(V.H, V.I, V.J)),
        *attention(*SCORE[1:]),
    ],
    "other vectors in values, a bias, listed pairs": [
        Q,
        R.v(V.H, V.I, V.J) <= (node("v", V.J), edge("f", R.other(V.J, V.I))),
        (
            R.w(V.H, V.I, V.J)
            <= (
                (node("k", V.J) + edge()).T @ R.q(V.H, V.I),
                R.far(V.I, V.J),
                R._near(V.I, V.J),
            )
        )
        | [F.softmax_agg(agg_terms=[V.J])],
        (R.out(V.H, V.I) <= (R.w(V.H, V.I, V.J), R.v(V.H, V.I, V.J))) | [F.product],
    ],
    "numbers of edges with a vector as weight": [
        Q,
        R.k(V.H, V.I, V.J) <= (node("k", V.J), R.far(V.I, V.J)[W.e(V.H)[C, 1]]),
        R.v(V.H, V.I, V.J) <= (node("v", V.J), R.far(V.I, V.J)[W.e(V.H)[C, 1]]),
        *attention(*SCORE[1:]),
    ],
    "typed edges: a vector of each type": [
        Q,
        R.e(V.I, V.J) <= (W.sort(V.T)[DE,], R._kind(V.I, V.J, V.T)),
        R.k(V.H, V.I, V.J) <= (node("k", V.J), edge(of=R.e(V.I, V.J))),
        R.v(V.H, V.I, V.J) <= (node("v", V.J), edge("f", of=R.e(V.I, V.J))),
        *attention(*SCORE[1:]),
    ],
    "typed edges: a matrix of each type": [
        R.q(V.I) <= R.x(V.I)[W.q[C, D]],
        R.k(V.I, V.J) <= (R.x(V.J)[W.k(V.T)[C, D]], R._kind(V.I, V.J, V.T)),
        R.v(V.I, V.J) <= (R.x(V.J)[W.v(V.T)[C, D]], R._kind(V.I, V.J, V.T)),
        *attention(R.k(V.I, V.J).T, R.q(V.I), h=()),
    ],
    "an edge update between two layers": [
        R.q(V.I) <= R.x(V.I)[W.q[C, D]],
        R.k(V.I, V.J) <= (R.x(V.J)[W.k[C, D]], R.edge(V.I, V.J)[W.e[C, DE]]),
        R.v(V.I, V.J) <= (R.x(V.J)[W.v[C, D]], R.edge(V.I, V.J)[W.e[C, DE]]),
        (R.w1(V.I, V.J) <= (R.k(V.I, V.J).T, R.q(V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.h(V.I) <= (R.w1(V.I, V.J), R.v(V.I, V.J))) | [F.product],
        (
            R.e2(V.I, V.J)
            <= (R.edge(V.I, V.J)[W.u[DE, DE]], R.h(V.I)[W.t[DE, C]], R.x(V.J)[W.s[DE, D]])
        )
        | [F.relu],
        R.k2(V.I, V.J) <= (R.x(V.J)[W.k2[C, D]], R.e2(V.I, V.J)[W.ke2[C, DE]]),
        R.v2(V.I, V.J) <= (R.x(V.J)[W.v2[C, D]], R.e2(V.I, V.J)[W.ve2[C, DE]]),
        *attention(R.k2(V.I, V.J).T, R.h(V.I), h=(), value=R.v2(V.I, V.J)),
    ],
}


def drawn(*shape, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=numbers, dtype=torch.float64)


HAVE = {
    "edge": rows(PAIRS, drawn(9, DE)),
    "wide": rows(PAIRS, drawn(9, C, seed=1)),
    "other": rows(PAIRS.flip(0), drawn(9, DE, seed=2)),
    "far": rows(PAIRS[:, 1:], drawn(8, seed=3)),
    "near": rows(PAIRS[:, :7]),
    "kind": rows(torch.cat([PAIRS, torch.arange(9)[None] % 3])),
}


def results(program, x, data, **options):
    model = program.compile(R.out, seed=0, dtype=torch.float64, **options)
    x = x.clone().requires_grad_()
    values = {n: r.values.clone().requires_grad_() for n, r in data.items() if r.values is not None}
    held = model.ground(**data | {n: rows(data[n].keys, v) for n, v in values.items()})
    out = model.rows(held, x=x)
    weight = drawn(*out.data.shape, seed=4)
    leaves = [x, *values.values(), *model.parameters()]
    grads = torch.autograd.grad((out.data * weight).sum(), leaves, allow_unused=True)
    return model, out, [out.data, *(torch.zeros(1) if g is None else g for g in grads)]


def program_of(rules):
    return Program(rules, domains={V.H: 2, V.T: 3})


def data_of(program):
    read = program.compile(R.out).inputs
    return {name: value for name, value in HAVE.items() if name in read}


def kernels(program, data, x):
    model = program.compile(R.out, fill=0.0, dtype=torch.float64)
    relations = model.explain(x=x, **data, stage="kernels", json=True)["kernels"]["relations"]
    return [step["kernel"] for relation in relations for step in relation["steps"]]


@pytest.mark.parametrize("name", CASES)
def test_it_is_fused_and_what_its_rules_are(name):
    program = program_of(CASES[name])
    data, x = data_of(program), drawn(N, D, seed=5)
    _, _, found = results(program, x, data)
    assert any(k.startswith("relational attention") for k in kernels(program, data, x))
    plain = results(program, x, data, without=["fuse attention"])[2]
    for mine, right in zip(found, plain, strict=True):
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_reference(name):
    program = program_of(CASES[name])
    data, x = data_of(program), drawn(N, D, seed=5)
    model, out, _ = results(program, x, data)
    facts = [R.x(i)[row] for i, row in enumerate(x)]
    for relation, held in data.items():
        values = [None] * held.keys.shape[1] if held.values is None else held.values
        for key, value in zip(held.keys.T.tolist(), values, strict=True):
            atom = R[relation](*key)
            facts.append(atom if value is None else atom[value])
    weights = {n: w.detach() for n, w in model.named_parameters()}
    solved = program.solve(facts, weights=weights)
    found = dict(out.items())
    assert found
    for atom, value in found.items():
        torch.testing.assert_close(value, solved[atom])
    assert len(found) == len(solved[R.out(*[V.H, V.I][-len(atom.terms) :])])


@given(
    pairs=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1),
    heads=st.integers(1, 3),
    batch=st.sampled_from([None, 2]),
    seed=st.integers(0, 9),
)
@settings(max_examples=15, deadline=None, derandomize=True)
def test_random_graphs(pairs, heads, batch, seed):
    """Also with a batch, of which every element has nodes of its own."""
    program = Program(CASES["TransformerConv"], domains={V.H: heads})
    keys = torch.tensor(sorted(pairs)).T
    lead = () if batch is None else (batch,)
    data = {"edge": rows(keys, drawn(keys.shape[1], DE, seed=seed))}
    x = drawn(*lead, 4, D, seed=seed + 20)
    found = results(program, x, data)[2]
    for mine, right in zip(
        found, results(program, x, data, without=["fuse attention"])[2], strict=True
    ):
        torch.testing.assert_close(mine, right)


def test_values_of_some_pairs_alone_are_not_fused():
    """The softmax is over all pairs, the sum over those that have values."""
    rules = [
        Q,
        R.k(V.H, V.J) <= node("k", V.J),
        VALUE,
        *attention(R.k(V.H, V.J).T, R.q(V.H, V.I)),
    ]
    program, x = program_of(rules), drawn(N, D, seed=5)
    found = results(program, x, {"edge": HAVE["edge"]})[2]
    plain = results(program, x, {"edge": HAVE["edge"]}, without=["fuse attention"])[2]
    for mine, right in zip(found, plain, strict=True):
        torch.testing.assert_close(mine, right)
    assert not any("relational" in k for k in kernels(program, {"edge": HAVE["edge"]}, x))


def test_no_edges_and_one_node():
    program = program_of(CASES["TransformerConv"])
    none = torch.zeros(2, 0, dtype=torch.int64)
    model = program.compile(R.out, fill=0.0)
    assert not model(x=torch.randn(3, D), edge=rows(none, torch.zeros(0, DE))).any()
    one = torch.zeros(2, 1, dtype=torch.int64)
    out = model(x=torch.randn(1, D), edge=rows(one, torch.ones(1, DE)))
    assert out.shape == (2, 1, C)


def test_ragged_graphs():
    """Each sample has nodes and edges of its own: one call, as each alone."""
    program = program_of(CASES["TransformerConv"])
    nodes = [drawn(n, D, seed=n) for n in (3, 5, 1)]
    pairs = [torch.tensor(p) for p in ([[0, 1, 2], [1, 2, 0]], [[0, 4, 4], [3, 2, 4]], [[0], [0]])]
    edges = [rows(p, drawn(p.shape[1], DE, seed=n)) for n, p in enumerate(pairs)]
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    batch = {"x": ragged(nodes), "edge": ragged(edges)}
    found = dict(model.rows(**batch).items())
    assert "relational attention" in repr(model.explain(**batch))
    for sample, (x, edge) in enumerate(zip(nodes, edges, strict=True)):
        for atom, value in model.rows(x=x, edge=edge).items():
            torch.testing.assert_close(found.pop(R.out(sample, *atom.terms)), value)
    assert not found


def test_a_model_with_dropout_drops_in_training_alone():
    rules = [SCALE, Q, K, VALUE, *attention(*SCORE)[:1]]
    pair = (V.H, V.I, V.J)
    rules.append((R.out(V.H, V.I) <= (F.dropout(R.w(*pair), p=0.5), R.v(*pair))) | [F.product])
    program, x = program_of(rules), drawn(N, D, seed=5)
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0)
    plain = program_of(CASES["TransformerConv"]).compile(
        R.out, seed=0, dtype=torch.float64, fill=0.0
    )
    read = {"x": x, "edge": HAVE["edge"]}
    assert "relational attention" in repr(model.explain(**read))
    torch.testing.assert_close(model.eval()(**read), plain(**read))
    torch.manual_seed(0)
    held = model.ground(**read)
    with torch.no_grad():
        mean = torch.stack([model.train()(held) for _ in range(200)]).mean(0)
        assert float((mean - plain(**read)).abs().max()) < 0.5
        assert not torch.equal(model(held), model(held))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_lower_precision(dtype):
    program, x = program_of(CASES["TransformerConv"]), drawn(N, D, seed=5)
    exact = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0)
    model = program.compile(R.out, seed=0, fill=0.0).to(dtype)
    edge = HAVE["edge"]
    found = model(x=x.to(dtype), edge=rows(edge.keys, edge.values.to(dtype)))
    assert found.dtype == dtype
    near = 30 * torch.finfo(dtype).eps
    expected = exact(x=x, edge=edge)
    torch.testing.assert_close(found.double(), expected, atol=near, rtol=near)


def test_it_compiles_and_exports():
    program, x = program_of(CASES["TransformerConv"]), drawn(N, D, seed=5)
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0)
    held = model.ground(edge=HAVE["edge"])
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(held, x=x), model(held, x=x))


@pytest.mark.parametrize("name", ["TransformerConv", "an edge update between two layers"])
def test_wanted_rows_read_their_edges_alone(name):
    program, x = program_of(CASES[name]), drawn(N, D, seed=5)
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0)
    every = dict(model.rows(x=x, edge=HAVE["edge"]).items())
    atom = list(every)[2]
    wanted = [tuple(atom.terms) if len(atom.terms) > 1 else atom.terms[0]]
    part = dict(model.rows(x=x, edge=HAVE["edge"], want=wanted).items())
    assert list(part) == [atom]
    torch.testing.assert_close(part[atom], every[atom])

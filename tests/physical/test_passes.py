"""Both sides of every pass over the graph: it changes the program it is for, and no value."""

from inspect import unwrap

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import F, Program, R, V, W, rows
from edgewise.graphs import window
from edgewise.passes import GRAPH
from edgewise.physical.merge import added_at
from edgewise.physical.passes import ON_GRAPH, gathers
from edgewise.physical.passes.dots import edge_dots
from edgewise.pipeline import PASSES
from edgewise.zoo import relational_attention
from tests.physical.test_plan import CASES, EDGE, assert_equal, values_and_gradients

NAMES = [step.name for step in ON_GRAPH]
PROJECTIONS = Program(
    [
        R.a(V.X) <= R.x(V.X)["a":4, 4],
        R.b(V.X) <= R.x(V.X)["b":2, 4] + W.shift[2,],
        R.c(V.X) <= R.x(V.X)["c":4, 4],
        (R.out(V.X) <= (R.a(V.X).T, R.c(V.X))) | [F.product],
        R.out(V.X) <= R.b(V.X)["d":1, 2],
    ]
)
HEADS = Program(
    [
        R.q(V.H, V.X) <= R.x(V.X)[W.q(V.H)[2, 4]] + W.qb(V.H)[2,],
        R.k(V.H, V.X) <= R.x(V.X)[W.k(V.H)[2, 4]],
        (R.out(V.H, V.X) <= (R.q(V.H, V.X).T, R.k(V.H, V.X))) | [F.product],
    ],
    domains={V.H: 3},
)
PROGRAMS = {**CASES, "projections of one relation": (PROJECTIONS, ()), "heads": (HEADS, ())}


@pytest.fixture(autouse=True, scope="module")
def kernels_of_any_size():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathers, "SMALL_ROWS", 0)
        yield


def compiled(program, left_out):
    return program.compile(R.out, seed=0, fill=0.0, dtype=torch.float64, without=left_out)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("left_out", [*([name] for name in NAMES), NAMES], ids=str)
def test_without_passes_everything_is_the_same(name, left_out):
    program, keys = PROGRAMS[name]
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.manual_seed(1))
    found = []
    for without in ((), left_out):
        model = compiled(program, without)
        data = model.ground(**{key: EDGE for key in keys})
        found.append(values_and_gradients(model, data, x))
    assert_equal(*found)


def test_passes_over_the_graph_are_in_the_list_of_all():
    assert tuple(step for step in PASSES if step.on == GRAPH) == ON_GRAPH


# the program that a pass is for, and a target of which the graph has less with it


def edges(n):
    return rows(torch.tensor([[i % 5 for i in range(n)], [i % 7 for i in range(n)]]).unique(dim=1))


def sums(*body):
    return Program([(R.out(V.I) <= (R.edge(V.I, V.J), *body)) | [F.product]])


RELATIONS = Program(
    [(R.out(V.I) <= (R.edge(V.I, V.K), R.x(V.K)[W.w(V.K)[3, 4]])) | [F.product]], domains={V.K: 7}
)
DISTANCES = Program(
    [(R.out(V.I, V.J) <= (R.x(V.I).T, R.y(V.D), R.special.add(V.J, V.D, V.I))) | [F.product]]
)
TWICE = Program([
    R.once(V.I) <= (R.x(V.J), R._next(V.I, V.J)),
    R.out(V.I) <= (R.once(V.J), R._next(V.I, V.J)),
])  # fmt: skip
NEXT = rows(torch.stack([torch.arange(7), torch.arange(7) * 3 % 7]))
X = {"x": torch.randn(7, 4, dtype=torch.float64)}
BETWEEN = F.sqrt(F.square(R.x(V.I)) + F.square(R.x(V.J)))
EQUAL = Program([
    R.near(V.I, V.J) <= BETWEEN * R.edge(V.I, V.J),
    R.out(V.I, V.J) <= (R.near(V.I, V.J), BETWEEN),
])  # fmt: skip
LONG = {n: torch.randn(96, 4, dtype=torch.float64) for n in ("x", "y")}
SUMS = Program([
    R.inner(V.I, V.J) <= R.y(V.I, V.J, V.K),
    R.out(V.I) <= R.inner(V.I, V.J),
])  # fmt: skip
ADDED = Program(
    [(R.out(V.I) <= (R.edge(V.I, V.J), R.x(V.J))) | [F.product], R.out(V.I) <= R.x(V.I)]
)
FOR = {
    "merge aggregates": (SUMS, {"y": torch.randn(7, 3, 2, 4, dtype=torch.float64)}, None),
    "fill rows": (ADDED, {"edge": edges(35), **X}, unwrap(added_at)),
    "fuse messages": (
        Program([(R.out(V.I) <= (R._edge(V.I, V.J), R.x(V.J), R.x(V.I))) | [F.relu]]),
        {"edge": edges(35), **X},
        "index_select",
    ),
    "fold biases": (Program([R.out(V.X) <= R.x(V.X)["w":3, 4] + W.b[3,]]), X, "add"),
    "project rows": (sums(R.x(V.J)["w":3, 4]), {"edge": edges(35), **X}, None),
    "aggregate first": (
        sums(R.x(V.J)["w":3, 4]),
        {"edge": rows(torch.tensor([[0] * 7 + [1] * 7, [*range(7)] * 2])), **X},
        None,
    ),
    "family products": (HEADS, X, "matmul"),
    "merge gathers": (TWICE, {"next": NEXT, **X}, "index_select"),
    "dots as products": (DISTANCES, LONG, unwrap(edge_dots)),
    "dots along edges": (
        Program([(R.out(V.I, V.J) <= (R.x(V.I).T, R.x(V.J), window(12)(V.I, V.J))) | [F.product]]),
        {"x": torch.randn(200, 4, dtype=torch.float64)},
        "index_select",
    ),
    "merge equal calls": (EQUAL, {"edge": edges(35), **X}, "sqrt"),
    "fuse gathers": (sums(R.x(V.J)), {"edge": edges(35), **X}, "index_select"),
    "strided views": (
        Program([R.out(V.I, V.J) <= (R.x(V.I), R.y(V.J))]),
        LONG,
        "index_select",
    ),
    "fold gains": (
        Program([R.out(V.X) <= F.norm(R.x(V.X)) * W.gain[4,] + W.bias[4,]]),
        X,
        "mul",
    ),
    "merge projections": (PROJECTIONS, X, torch.nn.functional.linear),
}


def plan_of(model, inputs):
    keyed = {n: item for n, item in inputs.items() if not isinstance(item, torch.Tensor)}
    data = model.ground(**keyed)
    found = model.rows(data, **{n: item for n, item in inputs.items() if n not in keyed})
    (step,) = data.built.values()
    (plan,) = step.plans.values()
    return plan, found.data


@pytest.mark.parametrize("name", FOR)
def test_a_pass_changes_the_program_that_it_is_for(name):
    program, inputs, target = FOR[name]
    (plan, found), (plain, expected) = (
        plan_of(compiled(program, left_out), inputs) for left_out in ((), (name,))
    )
    torch.testing.assert_close(found, expected)
    assert plan.passes[name]
    assert name not in plain.passes
    assert plan.text != plain.text
    if target is not None:
        fast, slow = (sum(n.target == target for n in p.graph.nodes) for p in (plan, plain))
        assert fast < slow


@pytest.mark.parametrize(("nodes", "width"), [(20, 4), (2000, 4), (500, 100)])
def test_small_graphs_are_left_to_torch(nodes, width, monkeypatch):
    monkeypatch.setattr(gathers, "SMALL_ROWS", 1 << 10)
    i = torch.arange(nodes)
    edge = torch.stack([i.repeat(2), torch.cat([i, i.roll(1)])])
    inputs = {"edge": rows(edge), "x": torch.randn(nodes, width)}
    plan, _ = plan_of(sums(R.x(V.J)).compile(R.out), inputs)
    assert plan.kernels == ([] if nodes == 20 else ["segment_sum"])


def test_matrices_are_read_once_where_rows_are_appended():
    rules = [
        (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R.special.leq(V.J, V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J)[4, 4])) | [F.product],
    ]
    x = torch.randn(5, 4, dtype=torch.float64)
    found = []
    for left_out in ((), ("read matrices once",), NAMES):
        growing = compiled(Program(rules), left_out).growing(8)
        found.append(torch.cat([growing(x=x[:3]), growing(x=x[3:])]))
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=30),
    st.sampled_from([F.sum_agg, F.avg_agg, F.max_agg, F.min_agg]),
    st.sets(st.sampled_from(NAMES)),
)
@settings(max_examples=60, deadline=None)
def test_any_set_of_passes_gives_the_same(pairs, aggregation, left_out):
    body = (R.edge(V.I, V.J), F.tanh(R.x(V.J)["w":3, 4] + W.b[3,]) + R.y(V.I)["u":3, 4])
    program = Program([(R.out(V.I) <= body) | [F.product, aggregation]])
    edge = rows(torch.tensor(sorted(set(pairs))).T, torch.arange(1.0, len(set(pairs)) + 1).double())
    inputs = {"edge": edge, **X, "y": torch.randn(5, 4, dtype=torch.float64)}
    found = []
    for without in ((), tuple(left_out)):
        model = compiled(program, without)
        (plan, values) = plan_of(model, inputs)
        assert set(plan.passes) == {n for n in NAMES if n not in without} - {"read matrices once"}
        weights = [p for p in model.parameters() if p.requires_grad]
        found.append((values, *torch.autograd.grad(values.square().sum(), weights)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("aggregation", [F.sum_agg, F.avg_agg])
def test_products_of_sums_are_added_to_all_rows(aggregation):
    """Rows without a grounding get 0, also of a mean."""
    neighbours = (R.out(V.I) <= (R._edge(V.I, V.J), R.x(V.J)["w":3, 4])) | [aggregation]
    program = Program([neighbours, R.out(V.I) <= R.x(V.I)["u":3, 4] + W.b[3,]])
    inputs, found = {"edge": edges(35), **X}, []
    for left_out in ((), ("fill rows",)):
        model = compiled(program, left_out)
        plan, values = plan_of(model, inputs)
        added = sum(n.target == unwrap(added_at) for n in plan.graph.nodes)
        assert added == len(left_out)
        gradients = torch.autograd.grad(values.square().sum(), list(model.parameters()))
        found.append((values, *gradients))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_an_index_whose_readers_went_is_written_again():
    """Of relational attention one pass removes a gather whose index a later rewriting reads."""
    n = 40
    config = relational_attention.Network(inputs=4, hidden=8, outputs=2, layers=2)
    program = relational_attention.network(config)
    i = torch.arange(n)
    edge = torch.stack([i.repeat(2), torch.cat([(7 * i + 1) % n, (7 * i + 3) % n])])
    x = torch.randn(n, 4, dtype=torch.float64, generator=torch.manual_seed(1))
    found = []
    for without in ((), ["project rows"]):
        model = program.compile(R.logits, seed=0, dtype=torch.float64, without=without)
        found.append(values_and_gradients(model, model.ground(edge=rows(edge)), x))
    assert_equal(*found)

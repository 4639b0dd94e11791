"""Magic sets: only the rows of data that wanted atoms may read are joined, and the values are those
of the reference."""

import pytest
import torch

from edgewise import F, Program, R, V, ragged, rows
from edgewise.graphs import window
from edgewise.ground import magic_sets
from edgewise.physical.demand import partial_grounding

N = 40
RANDOM = torch.Generator().manual_seed(0)
EDGES = torch.randint(N, (2, 90), generator=RANDOM).unique(dim=1)
X = torch.randn(N, 3, generator=RANDOM, dtype=torch.float64)
EDGE = R.hidden.edge(V.J, V.I)
UP = EDGES[:, EDGES[0] < EDGES[1]]


@pytest.fixture(autouse=True, params=["indexed", "scanned"])
def small_data(request, monkeypatch):
    monkeypatch.setattr(partial_grounding, "LEAST", 0)
    if request.param == "scanned":
        monkeypatch.setattr(magic_sets, "SMALL", 0)


def layers(count):
    found = []
    for k in range(count):
        x, y = R.x if k == 0 else R[f"h{k}"], R[f"h{k + 1}"]
        found += [y(V.I) <= x(V.I)[3, 3], (y(V.I) <= (x(V.J)[3, 3], EDGE)) | [F.avg_agg]]
        found += [y / 1 | [F.tanh]]
    return Program(found), R[f"h{count}"]


def attention():
    weights = (R.w(V.I, V.J) <= (R.k(V.J).T, R.x(V.I), EDGE)) | [
        F.product,
        F.softmax_agg(agg_terms=[V.J]),
    ]
    mix = (R.o(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product]
    sides = [R.k(V.I) <= R.x(V.I)[3, 3], R.v(V.I) <= R.x(V.I)[2, 3]]
    return Program([*sides, weights, mix]), R.o


def unseen():
    new = R.new(V.I) <= (R.hidden.edge(V.I, V.J), ~R.hidden.old(V.I))
    return Program([new, (R.o(V.I) <= (R.x(V.J)[2, 3], EDGE, ~R.new(V.J))) | [F.sum]]), R.o


def triangles():
    body = (R.x(V.J)[2, 3], EDGE, R.hidden.edge(V.K, V.J), R.special.lt(V.K, V.I))
    return Program([R.o(V.I) <= body]), R.o


def recursion():
    near = R.s(V.I) <= (R.x(V.I)[1, 3], R.hidden.leaf(V.I))
    return Program([near, (R.s(V.I) <= (R.s(V.J)[1, 1], R.hidden.up(V.J, V.I))) | [F.avg_agg]]), R.s


PROGRAMS = [layers(2), layers(3), attention(), unseen(), triangles(), recursion()]
LEAVES = torch.tensor([[i for i in range(N) if i not in set(UP[1].tolist())]])
KEYS = {"edge": EDGES, "old": torch.arange(5)[None], "up": UP, "leaf": LEAVES}


def solved(program, model, given, x):
    """The values of the reference, by key."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    facts = [R[name](*key) for name, keys in given.items() for key in keys.T.tolist()]
    facts += [R.x(i)[row] for i, row in enumerate(x)]
    return program.solve(facts, weights=weights)


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_values_and_gradients_are_those_of_the_reference(program, output):
    model = program.compile(output, seed=0, dtype=torch.float64)
    given = {name: KEYS[name] for name in model.inputs if name != "x"}
    leaf = X.clone().requires_grad_()
    solution = solved(program, model, given, leaf)[output(V.I)]
    for key in [*solution][:: max(len(solution) // 5, 1)]:
        x = X.clone().requires_grad_()
        data = model.ground(**given)
        found = model(data, x=x, want=[key])[0]
        torch.testing.assert_close(found, solution[key].reshape(found.shape))
        (mine,) = torch.autograd.grad(found.sum(), x)
        (theirs,) = torch.autograd.grad(solution[key].sum(), leaf, retain_graph=True)
        torch.testing.assert_close(mine, theirs)
        assert "complete" not in vars(next(iter(data.parts.values())))


def joined(model, data, **inputs):
    """The rows of data that were joined, of those there are."""
    found = model.explain(data, **inputs, stage="kernels", json=True)["kernels"]["joined"]
    return {name: (one["rows"], one["of"]) for name, one in found.items()}


def test_rows_that_are_joined_are_those_of_the_hops():
    program, output = layers(2)
    model = program.compile(output, seed=0, dtype=torch.float64)
    near = EDGES[:, EDGES[1] == 7]
    reached = torch.cat([near[0], torch.tensor([7])]).unique()
    hops = EDGES[:, torch.isin(EDGES[1], reached)]
    x = torch.cat([reached, hops[0]]).unique()
    found = joined(model, model.ground(edge=EDGES, want=[7]), x=X)
    assert found == {"edge": (hops.shape[1], EDGES.shape[1]), "x": (len(x), N)}


def test_a_recursion_is_followed_as_far_as_it_goes():
    far = [
        R.far(V.X, V.Y) <= R.hidden.up(V.X, V.Y),
        R.far(V.X, V.Z) <= (R.far(V.X, V.Y), R.hidden.up(V.Y, V.Z)),
    ]
    chain = torch.stack([torch.arange(N - 1), torch.arange(1, N)])
    program = Program(far)
    every = program.compile(R.far).rows(up=chain)
    model = program.compile(R.far)
    for source, target in [(0, 5), (30, 39)]:
        data = model.ground(up=chain)
        got = model(data, want=[(source, target)])
        torch.testing.assert_close(got[0], every[R.far(source, target)])
    assert joined(model, model.ground(up=chain, want=[(3, 9)])) == {"up": (9, N - 1)}
    one = program.compile(R.far(35, V.Y)).rows(up=chain)
    assert sorted(key.terms[1] for key in one) == [36, 37, 38, 39]


def test_attention_reads_the_edges_of_its_queries():
    program, output = attention()
    model = program.compile(output, seed=0, dtype=torch.float64)
    wanted = [int(EDGES[1, 0]), int(EDGES[1, 50])]
    found = joined(model, model.ground(edge=EDGES, want=wanted), x=X)
    some = int(torch.isin(EDGES[1], torch.tensor(wanted)).sum())
    assert found["edge"] == (some, EDGES.shape[1])


def test_of_ragged_samples_the_wanted_ones_are_joined():
    score = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), window(1)(V.I, V.J))) | [
        F.product,
        F.softmax_agg(agg_terms=[V.J]),
    ]
    program = Program([score, (R.o(V.I) <= (R.w(V.I, V.J), R.x(V.J)[2, 3])) | [F.product]])
    model = program.compile(R.o, seed=0, dtype=torch.float64)
    lines = ragged([X[:5], X[5:20], X[20:]])
    every = model.rows(x=lines)
    got = model(x=lines, want=[(1, 14), (1, 0)])
    for value, key in zip(got, [(1, 14), (1, 0)], strict=True):
        torch.testing.assert_close(value, every[R.o(*key)])
    assert joined(model, model.ground(x=lines, want=[(1, 3)])) == {"x": (15, N)}


def test_parts_that_have_read_everything_are_taken_from_all():
    program, output = layers(1)
    model = program.compile(output, seed=0, dtype=torch.float64)
    data = model.ground(edge=EDGES)
    full = model(model.ground(edge=EDGES), x=X)
    for wanted in range(N):
        torch.testing.assert_close(model(data, x=X, want=[wanted])[0], full[wanted])
    (held,) = data.parts.values()
    assert "complete" in vars(held)
    assert held.read > held.magic[1].total


def test_time_is_linear_in_layers():
    """Twenty layers of two rules each: what holds is not derived once more for each path."""
    program, output = layers(20)
    model = program.compile(output, seed=0, dtype=torch.float64)
    chain = rows(torch.stack([torch.arange(N - 1), torch.arange(1, N)]))
    torch.testing.assert_close(
        model(edge=chain, x=X, want=[3])[0], model(model.ground(edge=chain), x=X)[3]
    )


@pytest.mark.parametrize("want", [[], [(0, 0)], [(8, 3), (0, 0)]])
def test_a_variable_that_nothing_binds_reads_all_rows(want):
    body = (R.a(V.I), R.b(V.J), R.a(V.K))
    model = Program([(R.o(V.I, V.J) <= body) | [F.product]]).compile(R.o)
    a = rows(torch.arange(9)[None], torch.arange(1.0, 10.0))
    expected = [(i + 1.0) * (j + 1.0) * 45.0 for i, j in want]
    assert model(a=a, b=a, want=want).tolist() == expected

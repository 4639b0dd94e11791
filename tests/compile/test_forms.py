"""Scores that bend the sum of a query and a key are one attention: the same with and without."""

import pytest
import torch

from edgewise import F, Program, R, V, W

SOFTMAX = F.softmax_agg(agg_terms=[V.J])
Z = [R.z(V.I) <= R.x(V.I)["z":3, 4]]
SIDES = [R.l(V.I) <= R.z(V.I)["l":1, 3], R.r(V.I) <= R.z(V.I)["r":1, 3]]
OUT = [(R.out(V.I) <= (R.w(V.I, V.J), R.z(V.J))) | [F.product]]
HEADS = {V.H: 2}


BENT = (F.sum, F.leaky_relu(0.2))


def weights(*body, functions=BENT):
    return (R.w(V.I, V.J) <= (*body, R._edge(V.I, V.J))) | [*functions, SOFTMAX]


FUSED = {
    "GAT": [*Z, *SIDES, weights(R.l(V.I), R.r(V.J)), *OUT],
    "GAT inside": [*Z, *SIDES, weights(F.leaky_relu(0.3)(R.l(V.I) + R.r(V.J)), functions=()), *OUT],
    "relu": [*Z, *SIDES, weights(R.r(V.J), R.l(V.I), functions=(F.sum, F.relu)), *OUT],
    "three terms": [*Z, *SIDES, weights(R.l(V.I), R.r(V.J), R.l(V.J)), *OUT],
    "turned edges": [
        *Z,
        *SIDES,
        (R.w(V.I, V.J) <= (R.l(V.I), R.r(V.J), R._edge(V.J, V.I)))
        | [F.sum, F.leaky_relu(0.2), SOFTMAX],
        *OUT,
    ],
    "dropout in evaluation": [
        *Z,
        *SIDES,
        weights(R.l(V.I), R.r(V.J)),
        (R.out(V.I) <= (F.dropout(0.5)(R.w(V.I, V.J)), R.z(V.J))) | [F.product],
    ],
    "GATv2": [
        *Z,
        weights(F.leaky_relu(0.2)(R.z(V.I) + R.z(V.J))["a":1, 3], functions=()),
        *OUT,
    ],
    "GATv2 with heads": [
        R.s(V.H, V.I) <= R.x(V.I)[W.s(V.H)[3, 4]],
        R.t(V.H, V.I) <= R.x(V.I)[W.t(V.H)[3, 4]],
        (
            R.w(V.H, V.I, V.J)
            <= (F.leaky_relu(0.1)(R.t(V.H, V.I) + R.s(V.H, V.J))[W.a(V.H)[1, 3]], R._edge(V.I, V.J))
        )
        | [SOFTMAX],
        (R.context(V.H, V.I) <= (R.w(V.H, V.I, V.J), R.s(V.H, V.J))) | [F.product],
        (R.out(V.I) <= R.context(V.H, V.I)) | [F.concat_agg],
    ],
}
NOT_FUSED = {
    "tanh": [*Z, *SIDES, weights(R.l(V.I), R.r(V.J), functions=(F.sum, F.tanh)), *OUT],
    "a term of pairs": [*Z, *SIDES, weights(R.l(V.I), R.r(V.J), R.edge(V.I, V.J)), *OUT],
    "keys alone": [*Z, *SIDES, weights(R.r(V.J)), *OUT],
    "all pairs": [
        *Z,
        *SIDES,
        (R.w(V.I, V.J) <= (R.l(V.I), R.r(V.J))) | [F.sum, F.leaky_relu(0.2), SOFTMAX],
        *OUT,
    ],
}


def drawn(rules, n=6):
    """The program, x of n rows, and edges: row 2 hears nobody."""
    torch.manual_seed(0)
    heads = any("V.H" in repr(rule) for rule in rules)
    program = Program(rules, domains=HEADS if heads else {})
    edge = torch.tensor([[0, 0, 0, 1, 3, 3, 4, 5, 5], [1, 2, 5, 1, 0, 2, 4, 0, 3]])
    return program, torch.randn(n, 4, dtype=torch.float64), edge


def results(program, x, edge, **options):
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0, **options).eval()
    x = x.clone().requires_grad_()
    out = model(model.ground(edge=edge), x=x)
    weight = torch.randn(out.shape, dtype=out.dtype, generator=torch.manual_seed(1))
    grads = torch.autograd.grad((out * weight).sum(), [x, *model.parameters()])
    return model, [out, *grads]


@pytest.mark.parametrize("name", FUSED)
def test_it_is_one_attention_and_the_same(name):
    program, x, edge = drawn(FUSED[name])
    model, found = results(program, x, edge)
    assert "leaky_relu(" in str(model.explain(stage="passes")).split("fuse attention")[1]
    _, listed = results(program, x, edge, without=["fuse attention"])
    for mine, right in zip(found, listed, strict=True):
        torch.testing.assert_close(mine, right)
    kernels = str(model.explain(model.ground(edge=edge), stage="kernels", x=x))
    assert "additive attention (" in kernels


@pytest.mark.parametrize("name", FUSED)
def test_it_is_the_reference(name):
    program, x, edge = drawn(FUSED[name])
    model, found = results(program, x, edge)
    facts = [R.x(i)[row.tolist()] for i, row in enumerate(x)]
    facts += [R.edge(int(i), int(j)) for i, j in edge.T]
    given = {key: model.weight(key).detach() for key in program.weights(seed=0)}
    solved = program.solve(facts, weights=given)
    for atom, value in solved[R.out(V.I)].items():
        torch.testing.assert_close(found[0][atom.terms[0]], value)


@pytest.mark.parametrize("name", NOT_FUSED)
def test_other_scores_are_not(name):
    program, x, edge = drawn(NOT_FUSED[name])
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0)
    assert "leaky_relu(R" not in str(model.explain(stage="passes"))
    data = model.ground(edge=edge) if "edge" in model.inputs else None
    assert model.rows(data, x=x).data.isfinite().all()


def test_dropout_drops_in_training():
    program, x, edge = drawn(FUSED["dropout in evaluation"])
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0).train()
    data = model.ground(edge=edge)
    torch.manual_seed(0)
    first, second = model(data, x=x), model(data, x=x)
    assert not torch.equal(first, second)


def test_a_batch_is_each_of_its_elements():
    program, x, edge = drawn(FUSED["GATv2 with heads"])
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0)
    data, both = model.ground(edge=edge), torch.stack([x, 2 * x])
    torch.testing.assert_close(model(data, x=both), torch.stack([model(data, x=y) for y in both]))

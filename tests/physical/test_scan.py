"""A recursion as one loop is what it is level by level, and what the reference computes."""

import copy

import pytest
import torch

import edgewise
from edgewise import F, Program, R, V, W, ragged, rows
from edgewise.kernels.scan import autograd

NEXT = R.special.next(V.S, V.T)
OFF = ["scan levels"]


def gates(*names, d=3):
    """One relation for each gate, with biases."""
    for name in names:
        kind = F.tanh if name == "g" else F.sigmoid
        body = (R.x(V.T)[W[f"{name}.u"][d, 2]], W[f"{name}.b"][d,], R.p(V.T)[W[f"{name}.w"][d, d]])
        yield (R[name](V.T) <= body) | [kind]


BEFORE = [R.p(0) <= W.first[3,], R.p(V.T) <= (R.h(V.S), NEXT)]
SEQUENCES = {
    "rnn": [
        R.h(0) <= R.x(0)["i":3, 2],
        (R.h(V.T) <= (R.h(V.S)["w":3, 3], R.x(V.T)["u":3, 2], NEXT)) | [F.tanh],
    ],
    "rnn with a line": [
        R.h(0) <= R.x(0)["i":3, 2],
        R.h(V.T) <= (R.h(V.S)["w":3, 3], R.x(V.T)["u":3, 2], NEXT),
        R.h / 1 | [F.tanh],
    ],
    "weights of rule heads": [
        R.h(0) <= R.x(0)["i":3, 2],
        (R.h(V.T)["o":3, 4] <= (R.h(V.S)["w":4, 3], R.x(V.T)["u":4, 2], NEXT)) | [F.relu],
    ],
    "weights of rule heads that give numbers": [
        R.h(0) <= R.x(0)["i":1, 2],
        (R.h(V.T)["o":1, 4] <= (R.h(V.S)["w":4, 1], R.x(V.T)["u":4, 2], NEXT)) | [F.relu],
    ],
    "the same with a line": [
        R.h(0) <= R.x(0)["i":1, 2],
        (R.h(V.T)["o":1, 4] <= (R.h(V.S)["w":4, 1], R.x(V.T)["u":4, 2], NEXT)) | [F.relu],
        R.h / 1 | [F.relu],
    ],
    "gru": [
        *BEFORE,
        *gates("z", "r"),
        (R.n(V.T) <= (R.x(V.T)["nu":3, 2], R.r(V.T) * (R.p(V.T)["nw":3, 3] + W.nb[3,]))) | [F.tanh],
        R.h(V.T) <= F.reverse(R.z(V.T)) * R.n(V.T) + R.z(V.T) * R.p(V.T),
    ],
    "lstm": [
        *BEFORE,
        *gates("i", "f", "o", "g"),
        R.cp(0) <= W.start[3,],
        R.cp(V.T) <= (R.c(V.S), NEXT),
        R.c(V.T) <= R.f(V.T) * R.cp(V.T) + R.i(V.T) * R.g(V.T),
        R.h(V.T) <= R.o(V.T) * F.tanh(R.c(V.T)),
    ],
    "differences and numbers": [
        R.h(0) <= R.x(0)["i":3, 2],
        (R.h(V.T) <= (2 * R.h(V.S) - R.x(V.T)["u":3, 2] - R.h(V.S)["w":3, 3], NEXT)) | [F.sigmoid],
    ],
    "a number scales a vector": [
        R.h(0) <= R.x(0)["i":3, 2],
        (R.s(V.T) <= (R.h(V.S)["v":1, 3], NEXT)) | [F.sigmoid],
        (R.h(V.T) <= (R.s(V.T) * R.h(V.S), R.x(V.T)["u":3, 2], NEXT)) | [F.tanh],
    ],
    "a number for each": [
        R.h(0) <= R.x(0)["i":1, 2],
        (R.h(V.T) <= (R.h(V.S), R.x(V.T)["u":1, 2], NEXT)) | [F.elproduct, F.tanh],
    ],
    "two rules": [
        R.h(0) <= R.x(0)["i":3, 2],
        (R.h(V.T) <= (R.h(V.S)["w":3, 3], NEXT, R._x(V.T))) | [F.tanh],
        (R.h(V.T) <= (R.x(V.T)["u":3, 2], R.h(V.S), NEXT)) | [F.sigmoid],
    ],
    "the mean of two steps": [
        R.h(0) <= R.x(0)["i":3, 2],
        R.h(1) <= R.x(1)["i":3, 2],
        (R.h(V.T) <= (R.h(V.S)["w":3, 3], R._x(V.T), R.special.sub(V.T, V.S, V.D),
                      R.special.leq(V.D, 2), R.special.leq(1, V.D))) | [F.tanh, F.avg_agg],
    ],
    "backwards": [
        (R.h(V.S) <= (R.h(V.T)["w":3, 3], R.x(V.S)["u":3, 2], NEXT)) | [F.tanh],
        R.h(V.T) <= (R._last(V.T), R.x(V.T)["i":3, 2]),
    ],
}  # fmt: skip


def models(rules, dtype=torch.float64, **options):
    program = Program(rules)
    both = [program.compile(R.h, seed=0, dtype=dtype, without=w, **options) for w in ([], OFF)]
    return program, *both


def inputs(name, x):
    n = x.shape[-2]
    return {"x": x} | ({"last": rows(torch.tensor([n - 1]))} if name == "backwards" else {})


def assert_same(one, two, read, tolerance=None):
    """The same values and gradients of weights and inputs."""
    found = []
    for model in (one, two):
        given = {
            n: t.detach().clone().requires_grad_() if isinstance(t, torch.Tensor) else t
            for n, t in read.items()
        }
        out = model(**given)
        out = out if isinstance(out, torch.Tensor) else out.data
        factor = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        wanted = [p for p in model.parameters() if p.requires_grad]
        wanted += [t for t in given.values() if isinstance(t, torch.Tensor)]
        found.append((out, torch.autograd.grad((out * factor).sum(), wanted, allow_unused=True)))
    (a, mine), (b, theirs) = found
    torch.testing.assert_close(a, b, **(tolerance or {}))
    for left, right in zip(mine, theirs, strict=True):
        zero = torch.zeros(()) if left is None and right is None else None
        left = zero if left is None and right is None else left
        right = zero if zero is not None else right
        left = torch.zeros_like(right) if left is None else left
        right = torch.zeros_like(left) if right is None else right
        torch.testing.assert_close(left, right, **(tolerance or {}))


def kernels(model, **read):
    return str(model.explain(stage="kernels", **read))


@pytest.mark.parametrize("native", [True, False], ids=["numba", "torch"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_loop_is_what_levels_are(name, native, monkeypatch):
    if not native:
        monkeypatch.setattr(autograd, "refuses_numba", lambda *_: "switched off")
    torch.manual_seed(0)
    _, scan, levels = models(SEQUENCES[name])
    for shape in ((7, 2), (3, 5, 2), (2, 2), (1, 2)):
        if name == "backwards" and len(shape) == 3:
            continue
        assert_same(scan, levels, inputs(name, torch.randn(shape, dtype=torch.float64)))
    text = kernels(scan, **inputs(name, torch.randn(7, 2, dtype=torch.float64)))
    assert "one loop" in text
    assert "one loop" not in kernels(levels, **inputs(name, torch.randn(7, 2, dtype=torch.float64)))


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_loop_is_what_the_reference_computes(name):
    torch.manual_seed(0)
    program, scan, _ = models(SEQUENCES[name])
    x = torch.randn(6, 2, dtype=torch.float64)
    out = scan(**inputs(name, x))
    weights = {n: w.detach().clone().requires_grad_() for n, w in scan.named_parameters()}
    facts = [R.x(i)[row] for i, row in enumerate(x)] + [R.last(5)] * (name == "backwards")
    found = program.solve(facts, weights=weights)[R.h(V.I)]
    right = torch.stack([found[atom] for atom in sorted(found, key=lambda atom: atom.terms[0])])
    torch.testing.assert_close(out, right)
    ours = torch.autograd.grad(out.square().sum(), list(scan.parameters()))
    theirs = torch.autograd.grad(right.square().sum(), list(weights.values()))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


TREES = {
    "recursive net": [
        R.h(V.N) <= R.leaf(V.N)["e":3, 2],
        (R.h(V.N) <= (R.h(V.A)["l":3, 3], R.h(V.B)["r":3, 3], R._node(V.N, V.A, V.B))) | [F.tanh],
    ],
    "child sum": [
        R.sum(V.N) <= (R.h(V.C), R._child(V.N, V.C)),
        (R.h(V.N) <= R.leaf(V.N)["e":3, 2]) | [F.tanh],
        (R.h(V.N) <= R.sum(V.N)["w":3, 3]) | [F.tanh],
    ],
    "child mean": [
        (R.h(V.N) <= R.leaf(V.N)["e":3, 2]) | [F.tanh],
        (R.h(V.N) <= (R.h(V.C)["w":3, 3], R._child(V.N, V.C))) | [F.tanh, F.avg_agg],
    ],
}


def tree(leaves, seed):
    """A random binary tree: keys of leaves, and (node, left, right)."""
    random = torch.Generator().manual_seed(seed)
    tops, made, number = list(range(leaves)), [], leaves
    while len(tops) > 1:
        at = int(torch.randint(len(tops) - 1, (1,), generator=random))
        made.append((number, tops[at], tops[at + 1]))
        tops[at : at + 2] = [number]
        number += 1
    return torch.tensor(made, dtype=torch.int64).reshape(-1, 3)


def tree_inputs(name, leaves, seed):
    made = tree(leaves, seed)
    value = torch.randn(leaves, 2, dtype=torch.float64)
    leaf = rows(torch.arange(leaves), value)
    if name == "recursive net":
        return {"leaf": leaf, "node": rows(made.T)}
    pairs = torch.cat([made[:, [0, 1]], made[:, [0, 2]]])
    return {"leaf": leaf, "child": rows(pairs.T)}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("leaves", [2, 3, 9])
def test_trees(name, leaves):
    _, scan, levels = models(TREES[name])
    read = tree_inputs(name, leaves, leaves)
    assert_same(scan, levels, read)
    one_row = name == "child sum" and leaves == 2
    assert ("a relation has one row" if one_row else "one loop") in kernels(scan, **read)


@pytest.mark.parametrize("name", TREES)
def test_samples_of_trees(name):
    _, scan, levels = models(TREES[name])
    samples = [tree_inputs(name, n, n) for n in (4, 2, 7, 3)]
    read = {key: ragged([sample[key] for sample in samples]) for key in samples[0]}
    assert_same(scan, levels, read)


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_sequences_of_different_lengths(name):
    _, scan, levels = models(SEQUENCES[name])
    x = ragged([torch.randn(n, 2, dtype=torch.float64) for n in (5, 1, 3, 3, 8)])
    assert_same(scan, levels, {"x": x})


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision(name, dtype):
    """No further from float64 than levels are, but for rounding."""
    torch.manual_seed(0)
    exact, (_, scan, levels) = models(SEQUENCES[name])[1], models(SEQUENCES[name], dtype)
    exact.load_state_dict({k: v.double() for k, v in scan.state_dict().items()})
    x = torch.randn(2, 40, 2).to(dtype)
    right = exact(x=x.double())
    ours, theirs = ((m(x=x).double() - right).abs().max() for m in (scan, levels))
    assert ours <= 2 * theirs + 4 * torch.finfo(dtype).eps
    assert_same(scan, levels, {"x": x}, {"atol": 40 * torch.finfo(dtype).eps, "rtol": 0.1})


def test_functions_of_float32_are_those_of_torch():
    numbers = pytest.importorskip("edgewise.kernels.tape.numba_loops")
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-30, 88.5, -104.0])
    x = torch.cat([torch.linspace(-20, 20, 4001), 10 ** torch.linspace(-9, 2, 500), special])
    for op, right in ((numbers.TANH, torch.tanh), (numbers.SIGMOID, torch.sigmoid)):
        y, z = torch.empty_like(x), x.clone()
        assert numbers.vector(op, False, y.numpy(), x.numpy())
        assert numbers.vector(op, True, z.numpy(), z.numpy())
        torch.testing.assert_close(y, right(x), equal_nan=True, rtol=1e-6, atol=1e-30)
        torch.testing.assert_close(z, y, equal_nan=True)


@pytest.mark.parametrize("name", ["rnn", "gru", "a number scales a vector"])
def test_gradients_of_gradients_and_transforms(name):
    _, scan, levels = models(SEQUENCES[name])
    x = torch.randn(4, 2, dtype=torch.float64)
    weights = dict(scan.named_parameters())
    for loss in (lambda y: y.square().sum(), lambda y: y.sum()):
        penalties = []
        for model in (scan, levels):
            mine = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(loss(model(x=mine)), mine, create_graph=True)
            wanted = list(model.parameters())
            penalties.append(torch.autograd.grad(slope.square().sum(), wanted, allow_unused=True))
        for left, right in zip(*penalties, strict=True):
            zero = torch.zeros(())
            torch.testing.assert_close(
                zero if left is None else left, zero if right is None else right
            )

    def loss(held):
        return torch.func.functional_call(scan, held, (), {"x": x}).square().sum()

    held = {n: w.detach() for n, w in weights.items()}
    found = torch.func.grad(loss)(held)
    right = torch.autograd.grad(levels(x=x).square().sum(), list(levels.parameters()))
    for left, other in zip(found.values(), right, strict=True):
        torch.testing.assert_close(left, other)


@pytest.mark.parametrize("name", ["rnn", "lstm"])
def test_memory_of_inference_serves_training(name):
    _, scan, levels = models(SEQUENCES[name])
    x = torch.randn(7, 2, dtype=torch.float64)
    with torch.inference_mode():
        right = levels(x=x).clone()
        torch.testing.assert_close(scan(x=x), right)
    with torch.no_grad():
        torch.testing.assert_close(scan(x=x), right.clone())
    scan(x=x).sum().backward()
    levels(x=x).sum().backward()
    for left, other in zip(scan.parameters(), levels.parameters(), strict=True):
        torch.testing.assert_close(left.grad, other.grad)


def test_values_of_used_memory_are_never_read():
    _, scan, levels = models(SEQUENCES["gru"])
    x = torch.randn(2, 5, 2, dtype=torch.float64)
    for _ in range(2):
        for waiting in autograd._SPARE.values():
            for numbers in waiting:
                numbers.fill_(torch.nan)
        scan.zero_grad()
        levels.zero_grad()
        torch.testing.assert_close(scan(x=x), levels(x=x))
        scan(x=x).square().sum().backward()
        levels(x=x).square().sum().backward()
        for left, other in zip(scan.parameters(), levels.parameters(), strict=True):
            torch.testing.assert_close(left.grad, other.grad)


def test_traces_see_operations_of_torch():
    _, scan, _ = models(SEQUENCES["gru"], torch.float32)
    x = torch.randn(5, 2)
    compiled = torch.compile(scan, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x=x), scan(x=x))
    exported = torch.export.export(scan, (), {"x": x})
    torch.testing.assert_close(exported.module()(x=x), scan(x=x))


def test_models_are_saved_copied_and_profiled(tmp_path):
    rules = SEQUENCES["rnn"]
    _, scan, levels = models(rules)
    x = torch.randn(6, 2, dtype=torch.float64)
    scan.save(tmp_path / "a.edgewise")
    torch.testing.assert_close(edgewise.load(tmp_path / "a.edgewise")(x=x), levels(x=x))
    torch.testing.assert_close(copy.deepcopy(scan)(x=x), levels(x=x))
    assert "100%" in str(scan.profile(x=x))


REFUSED = {
    "there is no loop for `": [
        R.h(0) <= R.x(0),
        (R.h(V.T) <= (R.h(V.S), R.x(V.T), NEXT)) | [F.max],
    ],
    "a softmax reads its group": [
        R.h(0) <= R.x(0),
        (R.w(V.T, V.S) <= (R.h(V.S).T, R.h(V.S), NEXT, R._x(V.T)))
        | [F.product, F.softmax_agg(agg_terms=[V.S])],
        (R.h(V.T) <= (R.w(V.T, V.S), R.h(V.S))) | [F.product],
    ],
    "there are more than 8 groundings for each row": [
        R.h(0) <= R.x(0),
        (R.h(V.T) <= (R.h(V.S), R.x(V.T), R.special.lt(V.S, V.T))) | [F.avg_agg],
    ],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_loop_says_why(reason):
    _, scan, levels = models(REFUSED[reason])
    x = torch.rand(20, 2, dtype=torch.float64)
    assert_same(scan, levels, {"x": x})
    assert f"not scan: {reason}" in kernels(scan, x=x)


def test_samples_of_a_recursion_whose_rule_head_has_a_weight():
    """Where it is refused, nothing of it stays in the graph."""
    program = Program(
        [
            (R.h(V.T)["o":1, 4] <= (R.x(V.T)["u":4, 1], R.h(V.S)["w":4, 1], NEXT)) | [F.tanh],
            (R.h(0) <= R.x(0)) | [F.tanh],
        ]
    )
    model = program.compile(R.h, seed=0, dtype=torch.float64)
    samples = [[R.x(t)[t / 3 + s] for t in range(2 + s)] for s in range(3)]
    found = model.rows(model.ground(facts=ragged(samples)))
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    for s, facts in enumerate(samples):
        solved = program.solve(facts, weights=weights)
        for t in range(len(facts)):
            torch.testing.assert_close(found[R.h(s, t)], solved[R.h(t)])

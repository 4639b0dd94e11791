"""Attention fuses however it is written, look-alikes do not, and both give the same numbers."""

import itertools
import subprocess
import sys
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from edgewise import F, Program, R, V, W, numbers, rows, zoo
from edgewise.errors import EdgewiseError, EdgewiseWarning
from edgewise.graphs import strided, window
from edgewise.language import nodes
from tests.compile.look_alikes import LOOK_ALIKES
from tests.compile.rewritings import D_K, OUT, QKV, REWRITINGS, WEIGHTS, D
from tests.compile.rewritings import numbers as drawn
from tests.compile.terms import TERMS

REWRITINGS = [*REWRITINGS, *TERMS]
ALL = [*REWRITINGS, *(case for _, case in LOOK_ALIKES)]


def compiled(case, **options):
    options = {"seed": 0, "dtype": torch.float64, "fill": case.fill} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        return case.program.compile(R[case.output], **options).eval()


def facts(model, inputs):
    """Dense inputs as facts, value by value."""
    for name, tensor in inputs.items():
        sizes = tensor.shape[: model._reader.arities[name]]
        for key in itertools.product(*map(range, sizes)):
            yield R[name](*key)[tensor[key]]


def solved(case, model, inputs):
    """The output by the reference: atom → value."""
    weights = {name: model.weight(name) for name in model._paths}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        solution = case.program.solve(list(facts(model, inputs)), weights=weights)
    places = tuple(nodes.Variable(f"P{i}") for i in range(len(model.plan.outputs[0].terms)))
    return solution[nodes.Atom(case.output, places)]


def samples(model, inputs):
    """The inputs of each sample of a batch."""
    batched = {n for n, t in inputs.items() if t.ndim > model._reader.arities[n] + 1}
    if not batched:
        return [inputs]
    count = len(inputs[min(batched)])
    return [{n: t[b] if n in batched else t for n, t in inputs.items()} for b in range(count)]


def leaves(model, inputs):
    return [*(p for p in model.parameters() if p.requires_grad), *inputs.values()]


def gradients(values, model, inputs):
    total = sum((v * torch.arange(1.0, v.numel() + 1).view_as(v)).sum() for v in values)
    found = torch.autograd.grad(total, leaves(model, inputs), allow_unused=True)
    return [0.0 if g is None else g for g in found]


def assert_reference(case, model):
    inputs = {n: t.requires_grad_() for n, t in case.inputs().items()}
    parts = samples(model, inputs)
    expected = [solved(case, model, part) for part in parts]
    relation = model.rows(**inputs)
    assert [list(relation)] * len(parts) == [list(e) for e in expected]
    batches = relation.data if relation.batched else relation.data.unsqueeze(0)
    assert len(batches) == len(parts)
    ours = [value for batch in batches for value in batch]
    theirs = [value for e in expected for value in e.values()]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-9)
    for a, b in zip(gradients(ours, model, inputs), gradients(theirs, model, inputs), strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), atol=1e-10, rtol=1e-8)


def kernels(model, *data, **inputs):
    """Relation → the kernels of its steps, as `explain` shows them."""
    found = model.explain(*data, stage="kernels", json=True, **inputs)["kernels"]["relations"]
    return {r["relation"]: [step["kernel"] for step in r["steps"]] for r in found}


def test_there_are_enough():
    assert len({case.name for case in REWRITINGS}) >= 20
    assert len({case.name for _, case in LOOK_ALIKES}) >= 10


@pytest.mark.parametrize("case", REWRITINGS, ids=lambda case: case.name)
def test_it_fuses(case):
    model = compiled(case)
    passes = model.explain(stage="passes", json=True)["passes"]
    assert "fuse attention" in [fired["pass"] for fired in passes["fired"]]
    assert not passes["not fused"]
    ran = kernels(model, **case.inputs())
    assert ran["out"][0].startswith("attention (")
    assert "w" not in ran


@pytest.mark.parametrize(("reason", "case"), LOOK_ALIKES, ids=lambda x: getattr(x, "name", ""))
def test_it_does_not_fuse(reason, case):
    model = compiled(case)
    passes = model.explain(stage="passes", json=True)["passes"]
    assert "fuse attention" not in [fired["pass"] for fired in passes["fired"]]
    assert reason in passes["not fused"]["w"]
    assert not any("attention" in k for ks in kernels(model, **case.inputs()).values() for k in ks)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_it_is_the_reference(case):
    assert_reference(case, compiled(case))


@pytest.mark.parametrize("case", REWRITINGS, ids=lambda case: case.name)
def test_it_is_itself_without_fusing(case):
    fused, plain = compiled(case), compiled(case, without=["fuse attention"])
    plain.load_state_dict(fused.state_dict())
    inputs = case.inputs()
    torch.testing.assert_close(fused(**inputs), plain(**inputs), atol=1e-12, rtol=1e-9)


X = drawn(6, D)
SPARSE = {
    "rows": {"x": rows(torch.tensor([[0, 2, 3]]), X[:3])},
    "no rows": {"x": X[:0]},
}


@pytest.mark.parametrize("inputs", SPARSE.values(), ids=SPARSE)
def test_data_without_axes_falls_back_with_a_reason(inputs):
    model = Program([*QKV, D_K, WEIGHTS, OUT]).compile(R.out, dtype=torch.float64, fill=0.0)
    found = model.explain(model.ground(**inputs), stage="kernels", json=True)["kernels"]
    out = next(r for r in found["relations"] if r["relation"] == "out")
    assert out["not attention"] == "`R.q(V.I)` is not dense"
    assert "w" in [r["relation"] for r in found["relations"]]


class Largest(TorchDispatchMode):
    """The most elements that any tensor made here has."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [t.untyped_storage().nbytes() for t in tree_leaves(out) if torch.is_tensor(t)]
        self.elements = max([self.elements, *(size // 4 for size in made)])
        return out


CONDITIONS = {
    "causal": [R.special.leq(V.J, V.I)],
    "window": [R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 32)],
    "both sides": [window(16)(V.I, V.J)],
    "strided": [R.special.sub(V.I, V.J, V.D), R.special.mod(V.D, 64, 0)],
    "a union": [(window(8) | strided(128))(V.I, V.J)],
}


@pytest.mark.parametrize("conditions", CONDITIONS.values(), ids=CONDITIONS)
def test_nothing_of_pairs_is_stored(conditions):
    n, d = 8192, 8
    body = (R.x(V.J).T, R.x(V.I), *conditions)
    model = Program(
        [
            (R.w(V.I, V.J) <= body) | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J)[d, d])) | [F.product],
        ]
    ).compile(R.out)
    x = torch.randn(n, d, requires_grad=True)
    with Largest() as largest:
        model(x=x).sum().backward()
    assert x.grad is not None
    assert largest.elements < n * n / 4, f"{largest.elements:,} elements at {n:,} tokens"


TABLES = {
    "T5's buckets": [R.special.bucket(V.I, V.J, 32, 128, V.B)],
    "distances": [
        R.special.sub(V.I, V.J, V.D),
        R.special.div(V.D, 128, V.B),
        window(512)(V.I, V.J),
    ],
}


@pytest.mark.parametrize("conditions", TABLES.values(), ids=TABLES)
def test_nothing_of_pairs_is_stored_for_a_table(conditions):
    n, d = 4096, 8
    body = (R.x(V.J).T @ R.x(V.I), W.table(V.B)[1,], *conditions)
    model = Program(
        [
            (R.w(V.I, V.J) <= body) | [F.softmax_agg(agg_terms=[V.J])],
            (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J)[d, d])) | [F.product],
        ],
        domains={V.B: 32},
    ).compile(R.out)
    x = torch.randn(n, d, requires_grad=True)
    with Largest() as largest:
        model(x=x).sum().backward()
    assert model.weight("table").grad.count_nonzero() > 1
    assert largest.elements < n * n, f"{largest.elements:,} elements at {n:,} tokens"
    (step,) = _steps(model, "out", x=x)
    assert step["terms"]["score"].startswith("the score S + table0[I - J + ")


def test_nothing_of_pairs_is_stored_in_t5():
    n = 3072
    config = zoo.t5.Config(8, size=8, heads=2, d=4, hidden=8, layers=1, decoder_layers=1, dropout=0)
    model = zoo.t5.program(config).compile(R.logits)
    words = torch.randint(8, (n,))
    with Largest() as largest:
        out = model(source=numbers(words), target=numbers(words), mask=torch.ones(n))
        out.sum().backward()
    assert model.weight("encoder.relative").grad.count_nonzero() > 1
    assert largest.elements < n * n, f"{largest.elements:,} elements at {n:,} tokens"
    for layer in ("encoder.layer.0.self", "decoder.layer.0.self"):
        (step,) = _steps(model, f"{layer}.context")
        assert "table0" in step["terms"]["score"]


def _steps(model, relation, **inputs):
    found = model.explain(stage="kernels", json=True, **inputs)["kernels"]["relations"]
    return next(r["steps"] for r in found if r["relation"] == relation)


FRESH = """
import resource, torch
from edgewise import F, Program, R, V
n, d = 16384, 8
model = Program([
    (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 32)))
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
    (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J)[d, d])) | [F.product],
]).compile(R.out)
model(x=torch.randn(64, d, requires_grad=True)).sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model(x=torch.randn(n, d, requires_grad=True)).sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_process_at_16k_tokens_stays_small():
    ran = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    kibibytes = int(ran.stdout)
    assert kibibytes < 16384 * 16384 * 4 / 1024 / 8  # an eighth of a matrix of pairs


EDGES = torch.tensor([[0, 0, 2, 3, 5, 5], [1, 4, 2, 0, 5, 3]])
LISTED = {
    "edges": [R._edge(V.I, V.J)],
    "edges the other way": [R._edge(V.J, V.I)],
    "edges below": [R._edge(V.I, V.J), R.special.leq(V.J, V.I)],
    "edges of two kinds": [R._edge(V.I, V.J), R._link(V.I, V.J)],
}


@pytest.mark.parametrize("conditions", LISTED.values(), ids=LISTED)
def test_pairs_that_relations_list_fuse(conditions):
    score = R.w(V.I, V.J) <= (R.k(V.J).T @ R.q(V.I), *conditions)
    program = Program([*QKV, score | [F.softmax_agg(agg_terms=[V.J])], OUT])
    model = program.compile(R.out, seed=0, dtype=torch.float64)
    given = {n: EDGES[:, 1:] if n == "link" else EDGES for n in model.inputs if n != "x"}
    data = model.ground(**given)
    assert kernels(model, data, x=X)["out"][0].startswith("attention (")
    atoms = [R[n](*key) for n, keys in given.items() for key in keys.T.tolist()]
    weights = {name: model.weight(name) for name in model._paths}
    expected = program.solve([*facts(model, {"x": X}), *atoms], weights=weights)[R.out(V.A)]
    found = model.rows(data, x=X)
    assert list(found) == list(expected)
    torch.testing.assert_close(found.data, torch.stack(list(expected.values())))


@pytest.mark.parametrize("named", [False, True])
def test_data_of_a_relation_inside_an_attention_is_read(named):
    score = (R.w(V.I, V.J) <= R.x(V.J).T @ R.x(V.I)) | [F.softmax_agg(agg_terms=[V.J])]
    program = Program([score, (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]])
    model = program.compile(R.out, dtype=torch.float64)
    own = [R.x(i)[row] for i, row in enumerate(X)]

    def ground(key):
        if named:
            return model.ground(w=rows(torch.tensor(key)[:, None], torch.tensor([0.5]).double()))
        return model.ground(facts=[R.w(*key)[0.5]])

    expected = program.solve([*own, R.w(9, 0)[0.5]])[R.out(V.A)]
    found = model.rows(ground((9, 0)), x=X)
    assert list(found) == list(expected)
    torch.testing.assert_close(found.data, torch.stack(list(expected.values())))
    with pytest.raises(EdgewiseError, match="fact-and-rule"):
        model.rows(ground((0, 0)), x=X)

"""Attention over a ragged batch runs as one node: = rule by rule = each sample alone."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from edgewise import F, Program, R, V, W, ragged, rows
from edgewise.errors import EdgewiseWarning
from edgewise.graphs import causal, ring, strided, window
from tests.compile.rewritings import HEAD_DOT, HEADS, OUT_PER_HEAD, REWRITINGS, D, M, N, numbers

SOFTMAX = F.softmax_agg(agg_terms=[V.J])
LENGTHS = st.lists(st.tuples(st.integers(0, N), st.integers(0, M)), min_size=1, max_size=4)
CUT = {"causal": causal(), "window": window(1), "strided": strided(2), "both": causal() & window(2)}


def fused(model, data):
    return "attention (" in repr(model.explain(data))


def compiled(program, output="out", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        return program.compile(R[output], seed=0, dtype=torch.float64, **options).eval()


def with_gradients(model, leaves, **inputs):
    """The rows of the output, and the gradients of weights and of inputs."""
    values = dict(model.rows(**inputs))
    total = sum((v.sin().sum() for v in values.values()), torch.zeros((), dtype=torch.float64))
    leaves = [*model.parameters(), *leaves]
    found = [None] * len(leaves)
    if total.requires_grad:
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    zero = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, found, strict=True)]
    return values, zero


def assert_same(program, batch, output="out", fill=None):
    """`batch` is name → the samples. Says whether the model ran as one attention."""
    leaves = [x.requires_grad_() for samples in batch.values() for x in samples]
    given_ = {name: ragged(samples) for name, samples in batch.items()}
    model = compiled(program, output, fill=fill)
    plain = compiled(program, output, fill=fill, without=("fuse attention",))
    got, expected = (with_gradients(m, leaves, **given_) for m in (model, plain))
    assert list(got[0]) == list(expected[0])
    for atom, value in expected[0].items():
        assert_close(got[0][atom], value)
    for one, other in zip(got[1], expected[1], strict=True):
        assert_close(one, other)
    count = len(next(iter(batch.values())))
    alone = [
        v
        for s in range(count)
        if all(len(x[s]) for x in batch.values())
        for v in dict(model.rows(**{name: x[s] for name, x in batch.items()})).values()
    ]
    assert len(alone) == len(got[0])
    for one, other in zip(got[0].values(), alone, strict=True):
        assert_close(one, other)
    return fused(model, model.ground(**given_))


def samples_of(lengths, seed=0):
    return [numbers(n, D, seed=seed + s) for s, n in enumerate(lengths)]


@pytest.mark.parametrize(
    "case", [c for c in REWRITINGS if c.name != "a batch"], ids=lambda case: case.name
)
def test_every_rewriting_is_one_node_in_a_ragged_batch(case):
    inputs = case.inputs()

    def cut(tensor, n, m):
        keys = tensor.ndim - (tensor.shape[-1] == D)
        ends = [{N: n, M: m}.get(size, size) for size in tensor.shape[:keys]]
        return tensor[tuple(slice(end) for end in ends)].clone()

    lengths = [(3, 2), (N, M), (1, 1)]
    batch = {name: [cut(t, n, m) for n, m in lengths] for name, t in inputs.items()}
    assert assert_same(case.program, batch, case.output, case.fill), case.name


@settings(max_examples=25, deadline=None)
@given(LENGTHS, st.sampled_from([None, *CUT]), st.booleans())
def test_any_lengths_and_patterns(lengths, pattern, cross):
    keys = "y" if cross else "x"
    rules = [
        R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[2, D]],
        R.k(V.H, V.I) <= R[keys](V.I)[W.k(V.H)[2, D]],
        R.v(V.H, V.I) <= R[keys](V.I)[W.v(V.H)[2, D]],
        (R.w(V.H, V.I, V.J) <= (HEAD_DOT, *([CUT[pattern](V.I, V.J)] if pattern else ())))
        | [SOFTMAX],
        OUT_PER_HEAD,
    ]
    batch = {"x": samples_of([n for n, _ in lengths])}
    if cross:
        batch["y"] = samples_of([m for _, m in lengths], seed=9)
    ran = assert_same(Program(rules, **HEADS), batch)
    assert ran == any(n and (m or not cross) for n, m in lengths)


def test_a_pattern_that_depends_on_the_length_stays_rule_by_rule():
    rules = [
        (R.w(V.I, V.J) <= (R.x(V.J).T @ R.x(V.I), ring(1)(V.I, V.J))) | [SOFTMAX],
        (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]
    batch = {"x": samples_of([4, 6])}
    assert not assert_same(Program(rules), batch)
    model = compiled(Program(rules))
    shown = repr(model.explain(model.ground(x=ragged(batch["x"]))))
    assert "not one attention: ring(1) is a different pattern in shorter samples" in shown
    assert assert_same(Program(rules), {"x": samples_of([5, 5])})  # of one length: one pattern


def test_a_sample_with_gaps_or_far_longer_than_the_others_stays_rule_by_rule():
    rules = [
        (R.w(V.I, V.J) <= R.x(V.J).T @ R.x(V.I)) | [SOFTMAX],
        (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]
    model = compiled(Program(rules))
    gaps = rows(torch.tensor([[0, 2]]), numbers(2, D))
    data = model.ground(x=ragged([gaps, numbers(3, D)]))
    assert "is not dense in every sample" in repr(model.explain(data))
    alone = torch.cat([model.rows(x=gaps).data, model.rows(x=numbers(3, D)).data])
    assert_close(model.rows(data).data, alone)
    data = model.ground(x=ragged([numbers(100, D), *[numbers(1, D)] * 99]))
    assert "samples are too different: 10,000 places for 199 rows" in repr(model.explain(data))


def test_what_is_the_same_for_all_samples_is_shared():
    """Learnt queries hear the tokens of each sample; the scale is one of each sample."""
    rules = [
        (R.w(V.I, V.J) <= (R.warm * (R.x(V.J).T @ R.q(V.I)))) | [SOFTMAX],
        (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]
    model = compiled(Program(rules))
    plain = compiled(Program(rules), without=("fuse attention",))
    given_ = {
        "q": numbers(2, D, seed=1),
        "warm": ragged([torch.tensor(0.5).double(), torch.tensor(2.0).double()]),
        "x": ragged(samples_of([3, 5])),
    }
    data = model.ground(**given_)
    assert fused(model, data)
    assert_close(model.rows(data).data, plain.rows(**given_).data)


def test_a_compiled_step_over_a_ragged_batch_is_the_same():
    rules = [
        R.q(V.I) <= R.x(V.I)[D, D],
        (R.w(V.I, V.J) <= (R.x(V.J).T @ R.q(V.I), window(1)(V.I, V.J))) | [SOFTMAX],
        (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ]
    model = compiled(Program(rules))
    data = model.ground(x=ragged(samples_of([3, 5, 1])))
    assert fused(model, data)
    step = torch.compile(lambda: model(data).data, backend="aot_eager", fullgraph=True)
    assert_close(step(), model(data).data)


def test_a_sample_of_one_is_not_padded():
    model = compiled(REWRITINGS[0].program)
    data = model.ground(x=ragged(samples_of([4, 4])))
    assert fused(model, data)
    both = torch.stack(samples_of([4, 4]))
    assert_close(model.rows(data).data, model(x=both).flatten(0, 1))


@pytest.mark.parametrize("where", [(), (causal()(V.I, V.J),)], ids=["all", "causal"])
def test_a_table_by_distance_is_that_of_each_sample(where):
    rows_ = R._x(V.I), R._x(V.J)
    rules = [
        *(R[name](V.H, V.I) <= R.x(V.I)[W[name](V.H)[2, D]] for name in "qkv"),
        R.near(V.H, V.I, V.J)
        <= (W.table(V.B, V.H)[1,], R.special.bucket(V.I, V.J, 8, 6, V.B), *rows_),
        (R.w(V.H, V.I, V.J) <= (HEAD_DOT, R.near(V.H, V.I, V.J), *where)) | [SOFTMAX],
        OUT_PER_HEAD,
    ]
    program = Program(rules, domains={V.H: 2, V.B: 8})
    model, plain = compiled(program), compiled(program, without=("fuse attention",))
    given_ = [s.requires_grad_() for s in samples_of([5, 1, 7])]
    assert fused(model, model.ground(x=ragged(given_)))
    ours, mine = with_gradients(model, given_, x=ragged(given_))
    theirs, right = with_gradients(plain, given_, x=ragged(given_))
    assert_close(ours, theirs)
    assert_close(mine, right)


ADDED = {
    "gat": [R.q(V.H, V.I)[W.a(V.H)[1, 2]], R.q(V.H, V.J)[W.b(V.H)[1, 2]]],
    "one head": [R.x(V.I)["a":1, D], R.x(V.J)["b":1, D]],
}
PAIRS = {"edges": R._edge(V.I, V.J), "all": None, "causal": causal()(V.I, V.J)}


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("added", ADDED)
@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_additive_attention_is_one_node_in_a_ragged_batch(added, pairs, lengths, seed):
    heads, value = ((V.H,), R.q(V.H, V.J)) if added == "gat" else ((), R.x(V.J))
    body = (*ADDED[added], *([] if PAIRS[pairs] is None else [PAIRS[pairs]]))
    program = Program(
        [
            R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[2, D]],
            (R.w(*heads, V.I, V.J) <= body) | [F.sum, F.leaky_relu(0.2), SOFTMAX],
            (R.out(*heads, V.I) <= (R.w(*heads, V.I, V.J), value)) | [F.product],
        ],
        domains={V.H: 3},
    )
    batch = {"x": samples_of(lengths, seed)}
    if pairs == "edges":
        random = torch.Generator().manual_seed(seed)
        batch["edge"] = [(torch.rand(n, n, generator=random) < 0.5).nonzero().T for n in lengths]
    model, plain = (compiled(program, without=w) for w in ((), ("fuse attention",)))
    leaves = [x.requires_grad_() for x in batch["x"]]
    inputs = {name: ragged(samples) for name, samples in batch.items()}
    got, expected = (with_gradients(m, leaves, **inputs) for m in (model, plain))
    assert got[0].keys() == expected[0].keys()
    for one, other in zip(
        [*got[0].values(), *got[1]], [*expected[0].values(), *expected[1]], strict=True
    ):
        assert_close(one, other)
    if got[0] and pairs == "edges":
        assert "additive attention (" in repr(model.explain(model.ground(**inputs)))

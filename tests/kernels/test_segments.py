"""Reductions of segments: every kernel against plain torch, values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_cases import KINDS, Call, assert_like_reference, assert_no_worse_than_plain, calls
from torch.library import opcheck

from edgewise import F, Program, R, V, rows
from edgewise.kernels.edges import (
    KERNELS,
    EdgeOperation,
    choose,
    edge_index,
    segment_extreme,
    segment_index,
    segment_sum,
)
from edgewise.kernels.edges.operators import edge_dots, equal_sum, extreme_along, sum_along
from edgewise.kernels.edges.registry import SEGMENTS
from edgewise.kernels.kernel_choices import no_numba
from edgewise.physical.passes.gathers import along

HUB = Call(4, 6, 30, 3, hub=900)
NO_NUMBA = no_numba("cpu")
NAMED = {kernel.name: kernel for kernel in KERNELS}


@pytest.mark.parametrize("kind", KINDS)
@given(call=calls)
@settings(max_examples=40, deadline=None)
def test_it_is_as_exact_as_plain_torch(kind, call):
    assert_no_worse_than_plain(kind, call)


@given(call=calls)
@settings(max_examples=20, deadline=None)
def test_a_scale_has_a_gradient(call):
    assert_no_worse_than_plain("sum", Call(**{**vars(call), "scaled": True}))


@given(call=calls, count=st.sampled_from([0, 1, 2, 3]))
@settings(max_examples=30, deadline=None)
def test_copies_are_one_after_another(call, count):
    which = call.which()
    copies = which.repeated(count)
    shape = count, which.edges
    x = torch.randn(count, call.rows, call.d, dtype=torch.float64, requires_grad=True)
    scale = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found = segment_sum(x.flatten(0, 1), copies, scale.flatten())
    parts = [segment_sum(a, which, b) for a, b in zip(x, scale, strict=True)]
    expected = torch.cat([x.new_zeros(0, call.d), *parts])
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    leaves = (x, scale)
    ours = torch.autograd.grad((found * weight).sum(), leaves)
    if count:
        torch.testing.assert_close(ours, torch.autograd.grad((expected * weight).sum(), leaves))
    assert which.repeated(count) is copies


@pytest.mark.parametrize("operation", SEGMENTS)
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize(
    "call",
    [HUB, Call(), Call(3, 2, 0), Call(9, 8, 90, 33, 700, torch.float64), Call(2, 3, 40, 200)],
    ids=["hub", "small", "empty", "float64", "wide"],
)
def test_every_kernel_is_the_reference(name, operation, call):
    case = EdgeOperation(operation, call.d, call.dtype, "cpu", many=name == "numba")
    if (reason := NAMED[name].refuses(case)) is not None:
        assert reason.startswith(("it runs on", "it does not", "triton", "numba"))
        return
    assert_like_reference(operation, NAMED[name].operations, call)


def test_a_hub_is_split_both_ways():
    which = HUB.which()
    assert which.rows.is_split
    assert which.columns.is_split
    assert which.rows.pieces.diff().max() <= 512
    assert which.rows.slots == len(which.rows.slot[which.rows.slot >= 0])


@pytest.mark.parametrize("call", [HUB, Call()], ids=["hub", "small"])
@pytest.mark.parametrize("traced", [False, True])
def test_gradients_of_gradients(call, traced):
    which = call.which()
    x = torch.randn(call.rows, call.d, dtype=torch.float64, requires_grad=True)
    scale = torch.randn(which.edges, dtype=torch.float64, requires_grad=True)

    def sums(x, w, s):
        return sum_along.operator(x, s, None, w.tensors) if traced else segment_sum(x, w, s)

    small = call.hub == 0
    assert torch.autograd.gradcheck(lambda x: sums(x, which, scale), x)
    if small:
        assert torch.autograd.gradcheck(lambda x, s: sums(x, which, s), (x, scale))
        assert torch.autograd.gradgradcheck(lambda x, s: sums(x, which, s), (x, scale))
    full = which.rows.ptr.diff() > 0
    top = (
        (lambda x: extreme_along.operator(x, True, which.tensors)[0][full])
        if traced
        else lambda x: segment_extreme(x, which, largest=True)[full]
    )
    assert torch.autograd.gradcheck(top, x)
    assert torch.autograd.gradgradcheck(top, x)


@pytest.mark.parametrize("call", [HUB, Call()], ids=["hub", "small"])
def test_operators_are_what_torch_expects(call):
    which = call.which().tensors
    x = torch.randn(call.rows, call.d, requires_grad=True)
    y = torch.randn(call.segments, call.d, requires_grad=True)
    scale = torch.randn(len(which[1]), requires_grad=True)
    opcheck(sum_along.operator, (x, None, None, which))
    opcheck(sum_along.operator, (x, scale, None, which))
    opcheck(edge_dots.operator, (y, x, which))
    opcheck(extreme_along.operator, (x, True, which))
    opcheck(equal_sum.operator, (x, x.detach(), y.detach(), which))


def test_what_is_not_a_number_stays_so():
    which = Call(2, 2, 6, 1).which()
    x = torch.tensor([[float("nan")], [1.0]])
    reads = torch.zeros(2).index_add_(0, which.rows.ids.long(), (which.rows.index == 0).float()) > 0
    assert torch.equal(segment_extreme(x, which, largest=True)[:, 0].isnan(), reads)


def test_the_same_sums_whatever_the_threads():
    call = Call(50, 60, 4000, 16, hub=3000)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append([KINDS[kind](call.tensors(torch.float32)[0], call.which()) for kind in KINDS])
    torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_the_choice_says_why_not():
    choice = choose(EdgeOperation("edge_dots", 3, torch.float32, "cpu"))
    assert choice.kernel.name in ("numba", "reference")
    assert NAMED["embedding_bag"].refuses(EdgeOperation("edge_dots", 3, torch.float32, "cpu")) == (
        "it does not compute edge_dots"
    )
    assert (
        choose(EdgeOperation("segment_sum", 3, torch.float32, "cpu")).kernel.name == "embedding_bag"
    )
    many = choose(EdgeOperation("segment_sum", 3, torch.float32, "cpu", many=True))
    assert many.kernel.name == ("numba" if NO_NUMBA is None else "embedding_bag")
    half = choose(EdgeOperation("segment_sum", 3, torch.float16, "cpu", many=True))
    assert half.kernel.name == "embedding_bag"
    assert dict(half.refusals)["numba"].startswith(("it would copy rows of float16", "numba"))
    cuda = choose(EdgeOperation("segment_sum", 3, torch.float64, "cuda"))
    assert cuda.kernel.name == "reference"
    assert dict(cuda.refusals)["triton"] in (
        "it does not compute in float64",
        'triton is not installed: pip install "edgewise[gpu]"',
    )


@pytest.mark.parametrize("aggregation", ["sum_agg", "avg_agg", "max_agg", "min_agg"])
@pytest.mark.parametrize("read", [False, True], ids=["own rows", "rows of another"])
def test_rules_aggregate_many_rows(aggregation, read):
    """More groundings than torch's own sums are used for, with heads of different sizes."""
    torch.manual_seed(0)
    i, j = torch.randint(40, (6000,)), torch.arange(6000) % 700
    keys = torch.unique(torch.stack([i, j]), dim=1)
    values = torch.randn(keys.shape[1], 3, dtype=torch.float64)
    x = torch.randn(700, 3, dtype=torch.float64, requires_grad=True)
    body = (R.x(V.J), R._edge(V.I, V.J)) if read else (R.edge(V.I, V.J),)
    rule = (R.h(V.I) <= body) | [getattr(F, aggregation)]
    model = Program([rule]).compile(R.h, dtype=torch.float64)
    data = model.ground(edge=keys if read else rows(keys, values))
    out = model(data, x=x) if read else model(data)
    out = out if isinstance(out, torch.Tensor) else out.data
    each = x[keys[1]] if read else values
    name = {"sum_agg": "sum", "avg_agg": "mean", "max_agg": "amax", "min_agg": "amin"}[aggregation]
    places = keys[0][:, None].expand_as(each)
    expected = each.new_zeros(40, 3).scatter_reduce(0, places, each, name, include_self=False)
    torch.testing.assert_close(out, expected)
    if read:
        mine, right = (torch.autograd.grad(y.square().sum(), x)[0] for y in (out, expected))
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("batch", [1, 2])
def test_columns_of_any_shape(shape, batch):
    """What a rule hands to the kernels: numbers, vectors and matrices, of one sample or several."""
    ids = torch.tensor([0, 0, 2, 2, 2])
    x = torch.randn(batch, 5, *shape)
    which = segment_index(ids, 3)
    found = along("sum_agg", x, which)
    torch.testing.assert_close(found, x.new_zeros(batch, 3, *shape).index_add(1, ids, x))


@pytest.mark.parametrize("aggregation", ["sum_agg", "avg_agg"])
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("batches", [(2, 2), (1, 2), (2, 1)])
def test_rows_times_a_number_of_each_sample(aggregation, shape, batches):
    """Nothing is written out where samples have numbers of their own, or rows, or both."""
    i, j = torch.tensor([[0, 0, 2, 2, 2, 3], [1, 4, 0, 0, 2, 4]])
    x = torch.randn(batches[0], 5, *shape, dtype=torch.float64, requires_grad=True)
    scale = torch.randn(batches[1], 6, dtype=torch.float64, requires_grad=True)
    found = along(aggregation, x, edge_index(i, j, 4, 5), scale)
    each = x[:, j] * scale.reshape(*scale.shape, *(1,) * len(shape))
    expected = each.new_zeros(2, 4, *shape).index_add(1, i, each)
    if aggregation == "avg_agg":
        expected = expected / torch.tensor([2, 1, 3, 1]).reshape(-1, *(1,) * len(shape))
        expected, found = expected[:, [0, 2, 3]], found[:, [0, 2, 3]]  # no head is empty
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(y.square().sum(), (x, scale)) for y in (found, expected))
    torch.testing.assert_close(ours, theirs)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_a_rule_that_weighs_rows_in_samples(batch, n, seed):
    """As the reference computes each sample, values and gradients."""
    torch.manual_seed(seed)
    rules = [
        (R.w(V.I, V.J) <= (R.a(V.I), R.b(V.J), R._edge(V.I, V.J))) | [F.product],
        (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J)[3, 2])) | [F.product],
    ]
    program = Program(rules)
    model = program.compile(R.h, seed=seed, dtype=torch.float64)
    pairs = [(i, j) for i in range(n) for j in range(n) if (i + 2 * j + seed) % 3] + [(0, 0)]
    x, a, b = (torch.randn(batch, n, *more, dtype=torch.float64) for more in ((2,), (1,), (1,)))
    data = model.ground(edge=torch.tensor(sorted(set(pairs))).T)
    found = model.rows(data, x=x, a=a, b=b).data
    weight = model.weight("h.x")
    expected = []
    for sample in range(batch):
        facts = [R.edge(i, j) for i, j in sorted(set(pairs))]
        for name, values in (("x", x), ("a", a), ("b", b)):
            facts += [R[name](i)[values[sample, i].tolist()] for i in range(n)]
        solved = program.solve(facts, weights={"h.x": weight})[R.h(V.I)]
        expected.append(torch.stack(list(solved.values())))
    expected = torch.stack(expected)
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(y.square().sum(), weight) for y in (found, expected))
    torch.testing.assert_close(ours, theirs)

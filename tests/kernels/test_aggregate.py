"""Aggregation along entries: every kernel against plain torch, values and gradients."""

import pytest
import torch
from aggregate_cases import KINDS, Call, assert_like_reference, assert_no_worse_than_plain, calls
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.library import opcheck

from edgewise import F, Program, R, V, rows
from edgewise.kernels import aggregate
from edgewise.kernels.aggregate import IMPLEMENTATIONS, Case, choose
from edgewise.kernels.aggregate.contract import OPERATIONS
from edgewise.kernels.aggregate.operators import (
    gather_dots,
    gather_equal_total,
    gather_extreme,
    gather_total,
    traced,
)
from edgewise.run.column import Column, Gathered

HUB = Call(4, 6, 30, 3, hub=900)
KERNELS = {kernel.name: kernel for kernel in IMPLEMENTATIONS}


@pytest.mark.parametrize("kind", KINDS)
@given(call=calls)
@settings(max_examples=40, deadline=None)
def test_it_is_as_exact_as_plain_torch(kind, call):
    assert_no_worse_than_plain(kind, call)


@given(call=calls)
@settings(max_examples=20, deadline=None)
def test_a_scale_has_a_gradient(call):
    assert_no_worse_than_plain("total", Call(**{**vars(call), "scaled": True}))


@given(call=calls, count=st.sampled_from([0, 1, 2, 3]))
@settings(max_examples=30, deadline=None)
def test_copies_are_one_after_another(call, count):
    which = call.which()
    copies = which.copies(count)
    shape = count, which.forth.entries
    x = torch.randn(count, call.rows, call.d, dtype=torch.float64, requires_grad=True)
    scale = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found = aggregate.total(x.flatten(0, 1), copies, scale.flatten())
    parts = [aggregate.total(a, which, b) for a, b in zip(x, scale, strict=True)]
    expected = torch.cat([x.new_zeros(0, call.d), *parts])
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    leaves = (x, scale)
    ours = torch.autograd.grad((found * weight).sum(), leaves)
    if count:
        torch.testing.assert_close(ours, torch.autograd.grad((expected * weight).sum(), leaves))
    assert which.copies(count) is copies


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("call", [HUB, Call(), Call(3, 2, 0)], ids=["hub", "small", "empty"])
def test_every_kernel_is_the_reference(name, operation, call):
    case = Case(operation, 10, 3, call.dtype, "cpu")
    if (reason := KERNELS[name].refuses(case)) is not None:
        assert reason.startswith(("it runs on", "it does not", "triton", "numba"))
        return
    assert_like_reference(operation, KERNELS[name], call)


def test_a_hub_is_cut_both_ways():
    which = HUB.which()
    assert which.forth.cut
    assert which.back.cut
    assert which.forth.pieces.diff().max() <= 512
    assert which.forth.slots == len(which.forth.slot[which.forth.slot >= 0])


@pytest.mark.parametrize("call", [HUB, Call()], ids=["hub", "small"])
@pytest.mark.parametrize("run", [None, traced], ids=["called", "traced"])
def test_gradients_of_gradients(call, run):
    which = call.which()
    x = torch.randn(call.rows, call.d, dtype=torch.float64, requires_grad=True)
    scale = torch.randn(which.forth.entries, dtype=torch.float64, requires_grad=True)
    sums = aggregate.total if run is None else lambda x, w, s: run.total(x, s, None, w)
    small = call.hub == 0
    assert torch.autograd.gradcheck(lambda x: sums(x, which, scale), x)
    if small:
        assert torch.autograd.gradcheck(lambda x, s: sums(x, which, s), (x, scale))
        assert torch.autograd.gradgradcheck(lambda x, s: sums(x, which, s), (x, scale))
    full = which.forth.ptr.diff() > 0
    top = (
        (lambda x: aggregate.extreme(x, which, largest=True)[full])
        if run is None
        else lambda x: run.extreme(x, True, which)[full]
    )
    assert torch.autograd.gradcheck(top, x)
    assert torch.autograd.gradgradcheck(top, x)


@pytest.mark.parametrize("call", [HUB, Call()], ids=["hub", "small"])
def test_operators_are_what_torch_expects(call):
    which = call.which().tensors
    x = torch.randn(call.rows, call.d, requires_grad=True)
    y = torch.randn(call.segments, call.d, requires_grad=True)
    scale = torch.randn(len(which[1]), requires_grad=True)
    opcheck(gather_total, (x, None, None, which))
    opcheck(gather_total, (x, scale, None, which))
    opcheck(gather_dots, (y, x, which))
    opcheck(gather_extreme, (x, True, which))
    opcheck(gather_equal_total, (x, x.detach(), y.detach(), which))


def test_what_is_not_a_number_stays_so():
    which = Call(2, 2, 6, 1).which()
    x = torch.tensor([[float("nan")], [1.0]])
    reads = torch.zeros(2).index_add_(0, which.forth.ids.long(), (which.rows == 0).float()) > 0
    assert torch.equal(aggregate.extreme(x, which, largest=True)[:, 0].isnan(), reads)


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
    choice = choose(Case("dots", 10, 3, torch.float32, "cpu"))
    assert choice.refusals["bags"] == "it does not compute dots"
    assert choose(Case("total", 10, 3, torch.float32, "cpu")).name == "bags"
    cuda = choose(Case("total", 10, 3, torch.float64, "cuda"))
    assert cuda.name == "reference"
    assert cuda.refusals["triton_rows"] in (
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
    which = aggregate.runs(ids, 3)
    found = Gathered(x, which).aggregated("sum_agg")
    torch.testing.assert_close(found, x.new_zeros(batch, 3, *shape).index_add(1, ids, x))


@pytest.mark.parametrize("aggregation", ["sum_agg", "avg_agg"])
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("batches", [(2, 2), (1, 2), (2, 1)])
def test_rows_times_a_number_of_each_sample(aggregation, shape, batches):
    """Nothing is written out where samples have numbers of their own, or rows, or both."""
    i, j = torch.tensor([[0, 0, 2, 2, 2, 3], [1, 4, 0, 0, 2, 4]])
    x = torch.randn(batches[0], 5, *shape, dtype=torch.float64, requires_grad=True)
    scale = torch.randn(batches[1], 6, dtype=torch.float64, requires_grad=True)
    column = Gathered(x, aggregate.gather(j, i, 4, 5)).times(Column(scale))
    assert isinstance(column, Gathered)
    assert column.aggregates(aggregation)
    found = column.aggregated(aggregation)
    each = x[:, j] * scale.reshape(*scale.shape, *(1,) * len(shape))
    torch.testing.assert_close(column.data, each)
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

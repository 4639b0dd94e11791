"""Additive attention along edges: every kernel against the reference, that against autograd."""

from dataclasses import replace

import pytest
import torch
from additive_cases import KINDS, Call, assert_no_worse_than_reference, calls, plain, results
from hypothesis import given, settings
from torch.library import opcheck

from edgewise.kernels.attention.errors import SecondDerivative
from edgewise.kernels.edges import EdgeOperation, additive_attention, choose, operators
from edgewise.kernels.edges.attention import Dropout
from edgewise.kernels.edges.operators import attend_along
from edgewise.kernels.edges.registry import function


@given(call=calls)
@settings(max_examples=80, deadline=None)
def test_it_is_as_exact_as_the_reference(call):
    assert_no_worse_than_reference(call)


@given(call=calls)
@settings(max_examples=40, deadline=None)
def test_it_is_what_autograd_gives(call):
    call = replace(call, dtype=torch.float64, dropout=0.0)
    for mine, right in zip(results(call, call.dtype), plain(call, call.dtype), strict=True):
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradients(vector, dropout):
    call = Call(vector, 2, 3, 4, 9, 2, 2, dtype=torch.float64, dropout=dropout)
    index = call.index()

    def run(*leaves):
        return attend_along(*call.inputs(leaves), index=index)[0]

    assert torch.autograd.gradcheck(run, call.leaves(torch.float64))


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("hub", [0, 600])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_operators_are_what_torch_expects(vector, beside, hub, dropout):
    call = Call(vector, beside=beside, hub=hub, dropout=dropout)
    inputs = call.inputs(call.leaves(torch.float32))
    opcheck(attend_along.operator, (*inputs, call.index().tensors))


@pytest.mark.parametrize("call", KINDS.values(), ids=KINDS)
def test_a_second_derivative_is_refused(call):
    leaves = call.leaves(torch.float64)
    out = attend_along(*call.inputs(leaves), index=call.index())[0]
    grads = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
    for grad in grads:
        with pytest.raises(SecondDerivative, match="cannot be differentiated"):
            torch.autograd.grad(grad.sum(), leaves, retain_graph=True)


def test_a_row_without_edges_is_zero():
    call = Call(n=3, m=3, entries=0)
    q, k, v = call.leaves(torch.float32)
    assert not additive_attention(q, k, v, call.index(), slope=0.2).any()


@pytest.mark.parametrize("beside", [False, True])
def test_dropout_drops_what_attention_drops(beside):
    """Equal scores: weights are one over the number of edges, so that what is left shows."""
    call = Call(b=3, n=4, m=6, entries=17, dtype=torch.float64, beside=beside)
    index, seed = call.index(), torch.tensor(11)
    _, _, v = call.leaves(torch.float64)
    zeros = v.new_zeros(3, 4, 1), v.new_zeros(3, 6, 1)
    out = attend_along(*zeros, v, None, seed, 0.2, 0.4, index=index)[0]
    i, j = index.rows.ids.long(), index.rows.index.long()
    weight = Dropout(0.4, 11).keep(3, i, j, torch.float64) / torch.bincount(i, minlength=4)[i]
    expected = v.new_zeros(3, 4, 4).index_add(1, i, weight[..., None] * v[:, j])
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_the_same_sums_whatever_the_threads(vector, beside):
    call = Call(vector, 2, 60, 50, 4000, 8, 8, hub=3000, beside=beside)
    leaves, index = call.leaves(torch.float32), call.index()
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        out = attend_along(*call.inputs(leaves), index=index)[0]
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_the_choice_says_why_not():
    choice = choose(EdgeOperation("additive_attention", 8, torch.float64, "cuda"))
    refused = dict(choice.refusals)
    assert choice.kernel.name == "reference"
    assert refused["numba"] == "it runs on a CPU, not on cuda"
    assert refused["triton"].startswith(("it does not compute", "triton is not"))
    chosen = choose(EdgeOperation("additive_attention", 8, torch.float32, "cpu")).kernel
    assert chosen.name in ("numba", "reference")


def test_the_width_of_a_call_is_that_of_its_rows(monkeypatch):
    """And not how many rows there are, which no kernel would take."""
    widths = []

    def noted(operation, width, *rest):
        widths.append(width)
        return function(operation, width, *rest)

    monkeypatch.setattr(operators, "function", noted)
    call = Call(vector=True, n=300, m=300, entries=400, d=3, dv=5)
    leaves = call.leaves(torch.float32)
    out = attend_along(*call.inputs(leaves), index=call.index())[0]
    torch.autograd.grad(out.sum(), leaves)
    assert widths == [5, 5]

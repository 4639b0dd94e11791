"""Attention with scores that are not dot products: every kernel against the reference."""

import pytest
import torch
from hypothesis import given, settings
from scored_cases import Call, assert_no_worse_than_reference, calls, leaves
from torch.library import opcheck

from edgewise.kernels.scored import KINDS, choose, scored
from edgewise.kernels.scored.operators import scored_attention


@given(call=calls)
@settings(max_examples=80, deadline=None)
def test_it_is_as_exact_as_the_reference(call):
    assert_no_worse_than_reference(call)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropped", [False, True])
def test_gradients(kind, dropped):
    call = Call(kind, 2, 3, 4, 9, 2, 2, dtype=torch.float64, dropped=dropped)
    asked, which = call.inputs(torch.float64), call.which()

    def run(*tensors):
        q, k, v, *t = tensors
        options = {"t": t[0] if t else None, "slope": 0.2, "keep": asked.keep}
        return scored(kind, q, k, v, which, **options)

    assert torch.autograd.gradcheck(run, leaves(asked))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("hub", [0, 600])
def test_operators_are_what_torch_expects(kind, beside, hub):
    call = Call(kind, beside=beside, hub=hub)
    asked, which = call.inputs(torch.float32), call.which()
    tensors = (asked.q, asked.k, asked.v, asked.t, asked.keep)
    opcheck(scored_attention, (kind, 0.2, *tensors, which.tensors))


def test_a_row_without_edges_is_zero():
    call = Call("additive", n=3, m=3, entries=0)
    asked, which = call.inputs(torch.float32), call.which()
    assert not scored("additive", asked.q, asked.k, asked.v, which, slope=0.2).any()


@pytest.mark.parametrize("kind", ["additive", "of sums"])
@pytest.mark.parametrize("beside", [False, True])
def test_the_same_sums_whatever_the_threads(kind, beside):
    call = Call(kind, 2, 60, 50, 4000, 8, 8, hub=3000, beside=beside)
    asked, which = call.inputs(torch.float32), call.which()
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        out = scored(kind, asked.q, asked.k, asked.v, which, t=asked.t, slope=0.2)
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves(asked))])
    torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_the_choice_says_why_not():
    kernel, refused = choose(torch.float64, "cuda", 8)
    assert kernel.name == "reference"
    assert dict(refused)["numba_scored"] == "it runs on a CPU, not on cuda"
    assert dict(refused)["triton_scored"].startswith(("it does not compute", "triton is not"))
    assert choose(torch.float32, "cpu", 8)[0].name in ("numba_scored", "reference")

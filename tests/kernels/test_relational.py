"""Attention with vectors on edges: every kernel against the reference, that against autograd."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from relational_cases import Call, assert_no_worse_than_reference, calls, plain, results
from torch.library import opcheck

from edgewise.kernels.attention.errors import SecondDerivative
from edgewise.kernels.edges import EdgeOperation, choose, relational
from edgewise.kernels.edges.attention import Dropout
from edgewise.kernels.edges.relational_operator import relate

ALL = Call(keys=True, bias=True, own=True, batch=2)


@given(call=calls)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_it_is_as_exact_as_the_reference(call):
    assert_no_worse_than_reference(call)


@given(call=calls)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_reference_is_what_autograd_gives(call):
    call = replace(call, dtype=torch.float64, dropout=0.0)
    found = results(call, call.dtype, relational.OPERATIONS)
    for mine, right in zip(found, plain(call), strict=True):
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("call", [Call(), ALL, replace(ALL, dropout=0.4)], ids=repr)
def test_gradients(call):
    call = replace(call, n=3, m=4, entries=7)
    leaves, index = call.leaves(torch.float64), call.index()

    def run(*tensors):
        named = dict(zip(leaves, tensors, strict=True))
        return relate(*call.inputs(named), index=index)[0]

    assert torch.autograd.gradcheck(run, list(leaves.values()))


@pytest.mark.parametrize("call", [Call(), ALL, replace(ALL, hub=600, dropout=0.4)], ids=repr)
def test_operators_are_what_torch_expects(call):
    opcheck(relate.operator, (*call.inputs(call.leaves(torch.float32)), call.index().tensors))


def test_a_second_derivative_is_refused():
    leaves = Call().leaves(torch.float64)
    out = relate(*Call().inputs(leaves), index=Call().index())[0]
    found = list(leaves.values())
    grads = torch.autograd.grad(out.square().sum(), found, create_graph=True)
    with pytest.raises(SecondDerivative, match="cannot be differentiated"):
        torch.autograd.grad(grads[0].sum(), found)


@pytest.mark.parametrize("own", [False, True])
def test_dropout_drops_what_attention_drops(own):
    """Equal scores: weights are one over the number of edges, so that what is left shows."""
    call = Call(queries=False, own=own, n=4, m=6, entries=17, d=1, batch=2, dtype=torch.float64)
    index, seed = call.index(), torch.tensor(11)
    leaves = call.leaves(torch.float64)
    q, k, v, x = (leaves[name] for name in "qkvx")
    out = relate(0 * q, 0 * k, v, x, None, None, None, seed, True, 0.4, index=index)[0]
    i, j = index.rows.ids.long(), index.rows.index.long()
    weight = Dropout(0.4, 11).keep(6, i, j, torch.float64) / torch.bincount(i, minlength=4)[i]
    weight = weight.view(2, 3, -1).transpose(1, 2)[..., None]
    parts = [v[:, j], x.expand(-1, -1, 3, -1)]
    sums = [torch.zeros(2, 4, 3, p.shape[-1]).double().index_add(1, i, weight * p) for p in parts]
    torch.testing.assert_close(out, torch.cat([s.flatten(2) for s in sums], -1))


def test_the_same_sums_whatever_the_threads():
    call = Call(keys=True, bias=True, n=60, m=50, entries=4000, hub=3000)
    leaves, index = call.leaves(torch.float32), call.index()
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        out = relate(*call.inputs(leaves), index=index)[0]
        found.append([out, *torch.autograd.grad(out.square().sum(), list(leaves.values()))])
    torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_wider_than_a_number_is_materialised_per_edge_and_head(threads):
    """The backward pass allocates the gradient of vectors and two numbers per edge and head."""
    call = Call(n=50, m=50, entries=3000, h=4, d=16, dv=16, w=8)
    leaves, index = call.leaves(torch.float32), call.index()
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **kwargs or {})
            sizes.extend(x.numel() for x in torch.utils._pytree.tree_leaves(found))
            return found

    operations = choose(EdgeOperation("relational_attention", 16, torch.float32, "cpu")).kernel
    with torch.no_grad(), Watch():
        found = operations.operations["relational_attention"](*call.inputs(leaves), index)
        backward = operations.operations["relational_attention_backward"]
        backward(torch.ones_like(found[0]), *found, *call.inputs(leaves), index)
    if operations.name == "numba":
        assert max(sizes) == index.edges * 8


FLAGS = ("QUERIES", "KEYS", "BIAS", "VALUES", "DROP", "SPLIT")
LISTS = ("Pieces", "Owner", "Slot", "Index", "Perm", "Ids")
WIDE = ("Lse", "Used", "DS")  # in float32 whatever the precision


@pytest.mark.parametrize("name", ["forward", "backward_rows", "backward_edges", "backward_columns"])
@pytest.mark.parametrize("apart", [0, 16])
def test_kernels_compile_for_a_gpu(name, apart):
    """Which needs none: the interpreter checks no types."""
    pytest.importorskip("triton", reason="triton is not installed")
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from edgewise.kernels.edges import triton_relational_kernels

    kernel = getattr(triton_relational_kernels, name)
    sizes = {"H": 2, "E": 8, "D": 16, "DV": 5, "W": 16, "DB": 16, "VB": 8, "WB": 16}
    known = {**dict.fromkeys(FLAGS, True), **sizes, "APART": apart, "STEP": apart * 4 or 16}
    known = {at: value for at, value in known.items() if at in kernel.arg_names}
    types = dict.fromkeys(known, "constexpr") | dict.fromkeys(LISTS, "*i32")
    types |= dict.fromkeys(WIDE, "*fp32") | {"keep": "fp32"}
    tensors = {at: "*fp16" for at in kernel.arg_names if at[0].isupper() and at not in types}
    signature = {at: (types | tensors).get(at, "i32") for at in kernel.arg_names}
    places = {(kernel.arg_names.index(at),): value for at, value in known.items()}
    made = compiled(ASTSource(kernel, signature, places), target=GPUTarget("cuda", 90, 32))
    assert "ld.global" in made.asm["ptx"]

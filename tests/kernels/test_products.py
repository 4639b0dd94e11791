"""Sums of products of two rows along edges: the kernels, their gradients, and the fused plan."""

import pytest
import torch
from torch.autograd import gradcheck

from edgewise import F, Program, R, V, rows
from edgewise.kernels.edges import product_index, products, segment_product
from edgewise.kernels.edges.products import ProductIndex

CASES = {  # segments, rows of x, rows of w, edges, width, edges of a hub
    "usual": (5, 7, 3, 40, 6, 0),
    "one edge": (1, 1, 1, 1, 2, 0),
    "no edges": (3, 2, 2, 0, 4, 0),
    "no segments": (0, 2, 2, 0, 4, 0),
    "odd width": (4, 3, 2, 17, 33, 0),
    "hubs that are split": (4, 5, 2, 30, 3, 1300),
}


def edges(segments, xs, ws, count, hub):
    draw = torch.Generator().manual_seed(count + hub)
    ends = [torch.randint(max(n, 1), (count,), generator=draw) for n in (segments, xs, ws)]
    return [torch.cat([end, torch.zeros(hub, dtype=torch.int64)]) for end in ends]


def plain(x, w, ends, segments, scale=None):
    each = x[ends[1]] * w[ends[2]]
    each = each if scale is None else each * scale[:, None]
    return x.new_zeros(segments, x.shape[1]).index_add(0, ends[0], each)


def made(case, dtype=torch.float64):
    segments, xs, ws, count, d, hub = CASES[case]
    ends = edges(segments, xs, ws, count, hub)
    draw = torch.Generator().manual_seed(1)
    x, w = (torch.randn(n, d, generator=draw).to(dtype).requires_grad_() for n in (xs, ws))
    scale = torch.randn(count + hub, generator=draw).to(dtype).requires_grad_()
    return ends, product_index(ends, (segments, xs, ws)), x, w, scale, segments


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_gather_and_scatter(case, scaled):
    ends, index, x, w, scale, segments = made(case)
    scale = scale if scaled else None
    ours, theirs = segment_product(x, w, index, scale), plain(x, w, ends, segments, scale)
    assert torch.allclose(ours, theirs, atol=1e-9)
    inputs = [x, w, scale] if scaled else [x, w]
    for a, b in zip(
        *(torch.autograd.grad(y.sin().sum(), inputs) for y in (ours, theirs)), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-9)
    assert torch.allclose(products.reference(x, w, scale, index), theirs, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precisions_add_in_float32(dtype):
    ends, index, x, w, _, segments = made("hubs that are split", dtype)
    exact = plain(x.double(), w.double(), ends, segments)
    error = (segment_product(x, w, index).double() - exact).abs().max()
    rounding = torch.finfo(dtype).eps + 32 * torch.finfo(torch.float32).eps  # of the sums
    assert error <= exact.abs().max() * rounding


def test_gradients_can_be_differentiated():
    _, index, x, w, _, _ = made("usual")
    assert gradcheck(lambda x, w: segment_product(x, w, index), (x, w))
    assert torch.autograd.gradgradcheck(lambda x, w: segment_product(x, w, index), (x, w))


def test_an_index_survives_the_way_through_an_operator():
    _, index, x, w, scale, _ = made("usual")
    again = ProductIndex.of(index.tensors)
    assert torch.equal(segment_product(x, w, again, scale), segment_product(x, w, index, scale))


def test_transforms_see_an_operator():
    _, index, x, w, _, _ = made("usual")
    torch.library.opcheck(
        torch.ops.edgewise.segment_product.default,
        (x.detach(), w.detach(), None, index.tensors),
        test_utils=["test_schema", "test_faketensor"],
    )


def messages(*more, functions=()):
    body = (R.x(V.J), R.w(V.K), R._edge(V.I, V.K, V.J), *more)
    return Program([(R.y(V.I) <= body) | [F.elproduct, *functions], R.y(V.I) <= R.x(V.I)])


def graph(n=300, k=4, e=4000):
    draw = torch.Generator().manual_seed(0)
    sizes = (n, k, n)
    return torch.stack([torch.randint(s, (e,), generator=draw) for s in sizes]).unique(dim=1)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", ["sum", "mean", "hidden", "scaled"])
def test_a_plan_that_multiplies_rows_equals_the_one_that_writes_them_out(case, batch):
    edge, n, k, d = graph(), 300, 4, 8
    more = {"hidden": (~R._hide(V.I, V.K, V.J),), "scaled": (R.s(V.I, V.K, V.J),)}.get(case, ())
    program = messages(*more, functions=[F.avg_agg] if case == "mean" else [])
    if case == "scaled":
        program = Program([
            (R.y(V.I) <= (R.s(V.I, V.K, V.J), R.x(V.J) * R.w(V.K))) | [F.product],
            R.y(V.I) <= R.x(V.I),
        ])  # fmt: skip
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(batch, n, d, generator=draw, dtype=torch.float64, requires_grad=True)
    w = torch.randn(batch, k, d, generator=draw, dtype=torch.float64, requires_grad=True)
    s = torch.randn(edge.shape[1], generator=draw, dtype=torch.float64)
    found = []
    for without in ([], ["fuse gathers"]):
        model = program.compile(R.y, dtype=torch.float64, without=without)
        data = model.ground(s=rows(edge, s)) if case == "scaled" else model.ground(edge=rows(edge))
        hide = {"hide": rows(edge[:, ::7])} if case == "hidden" else {}
        y = model(data, x=x, w=w, **hide)
        found.append([y, *torch.autograd.grad(y.sin().sum(), [x, w])])
        if not without:
            text = str(model.explain(data, x=x, w=w, **hide, stage="kernels"))
            assert "aggregate sum (numba)" in text or "aggregate avg (numba)" in text, text
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, atol=1e-9)


def test_a_compiled_trace_gives_the_same():
    edge = graph()
    model = messages().compile(R.y, dtype=torch.float64)
    data = model.ground(edge=rows(edge))
    draw = torch.Generator().manual_seed(2)
    x, w = (torch.randn(2, m, 8, generator=draw, dtype=torch.float64) for m in (300, 4))
    traced = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.allclose(traced(data, x=x, w=w), model(data, x=x, w=w))

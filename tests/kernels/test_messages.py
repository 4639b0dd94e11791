"""Sums of messages along edges: the code of expressions, their gradients, and the fused plan."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from edgewise import F, Program, R, V, W, rows
from edgewise.kernels.edges import MessageIndex, Messages, message_index, segment_messages
from edgewise.kernels.edges.messages import BINARY, FUNCTIONS, reference

CASES = {  # segments, rows of the other ends, edges, width, edges of a hub
    "usual": (5, (7, 3), 40, 6, 0),
    "one edge": (1, (1, 1), 1, 2, 0),
    "no edges": (3, (2, 2), 0, 4, 0),
    "no segments": (0, (2, 2), 0, 4, 0),
    "numbers": (4, (3, 2), 17, 1, 0),
    "odd width": (4, (3, 2), 17, 33, 0),
    "several blocks": (4, (3, 2), 17, 130, 0),
    "a batch of samples": (4, (3, 2), 17, 300, 0),
    "hubs that are split": (4, (5, 2), 30, 3, 1300),
}
MESSAGES = {
    "a product": "1w 2w; 0 1 mul",
    "scaled": "1w 2w es; 0 1 mul 2 mul",
    "GINE": "1w ew; 0 1 add relu",
    "gated": "0w 1w 2w ew *w; 0 1 add 3 add 4 add sigmoid; 0 1 add 3 add 4 add sigmoid 2 mul",
    "numbers of all ends": "0s 1s es *s 2w; 0 1 mul 2 add 3 sub 4 mul",
    "twice the same leaf": "1w; 0 0 mul 0 add",
    "a sum that reads less": "1w 2w; 0; 0 1 add tanh",
}


def edges(case):
    segments, sizes, count, width, hub = CASES[case]
    draw = torch.Generator().manual_seed(count + hub)
    sizes = (segments, *sizes)
    ends = [torch.randint(max(n, 1), (count,), generator=draw) for n in sizes]
    ends = [torch.cat([end, torch.zeros(hub, dtype=torch.int64)]) for end in ends]
    return ends, sizes, width


def leaves_of(messages, ends, sizes, width, dtype=torch.float64):
    draw = torch.Generator().manual_seed(1)
    found = []
    for leaf in messages.leaves:
        count = {"e": len(ends[0]), "*": 1}.get(leaf.end) or (
            sizes[int(leaf.end)] if leaf.end.isdecimal() else len(ends[0])
        )
        shape = (count, width if leaf.wide else 1)
        found.append(torch.randn(shape, generator=draw).to(dtype).requires_grad_())
    return found


def plain(messages, leaves, ends, sizes):
    """Gathered and scattered, in the order in which edges are given."""
    width = max(x.shape[1] for x in leaves)
    each = []
    for leaf, x in zip(messages.leaves, leaves, strict=True):
        each.append(x[ends[int(leaf.end)]] if leaf.end.isdecimal() else x)
    return [
        x.new_zeros(sizes[0], width).index_add(0, ends[0], y.expand(len(ends[0]), width))
        for y, x in zip(messages(each), [leaves[0]] * len(messages.outputs), strict=True)
    ]


def made(case, text, dtype=torch.float64):
    ends, sizes, width = edges(case)
    messages = Messages.of(text)
    return messages, ends, sizes, leaves_of(messages, ends, sizes, width, dtype)


@pytest.mark.parametrize("text", MESSAGES.values(), ids=list(MESSAGES))
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_gather_and_scatter(case, text):
    messages, ends, sizes, leaves = made(case, text)
    index = message_index(ends, sizes)
    ours, theirs = segment_messages(leaves, messages, index), plain(messages, leaves, ends, sizes)
    grads = []
    for found in (ours, theirs):
        total = sum((y * (k + 1)).sin().sum() for k, y in enumerate(found))
        grads.append(torch.autograd.grad(total, leaves))
    for a, b in zip((*ours, *grads[0]), (*theirs, *grads[1]), strict=True):
        assert torch.allclose(a, b, atol=1e-9)
    for a, b in zip(reference(messages, leaves, index), theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_the_one_of_torch_with_its_slope(name, dtype):
    text = {"leaky_relu": "1w; 0 #0.2 leaky_relu"}.get(name)
    binary = name in BINARY and text is None
    text = text or ("1w 2w; 0 1 " if binary else "1w; 0 ") + name
    messages, x = Messages.of(text), torch.linspace(-6, 6, 97, dtype=dtype)
    x = torch.cat([x, torch.tensor([0.0, 1e-4, -1e-4, 30.0, -30.0, 100.0, -100.0], dtype=dtype)])
    x = (x.abs() + 1e-3 if name == "sqrt" else x)[None]
    other = torch.linspace(1, 2, x.shape[1], dtype=dtype)[None]
    leaves = [t.clone().requires_grad_() for t in ([x, other] if binary else [x])]
    ends = [torch.zeros(1, dtype=torch.int64)] * 3
    index = message_index(ends, (1, 1, 1))
    ours = segment_messages(leaves, messages, index)[0]
    theirs = reference(messages, leaves, index)[0]
    keep = torch.isfinite(theirs.detach())
    tolerance = {"atol": 1e-6, "rtol": 2e-6} if dtype == torch.float32 else {"atol": 1e-12}
    torch.testing.assert_close(ours, theirs, **{"rtol": 1e-11} | tolerance)
    for a, b in zip(
        *(torch.autograd.grad(y[keep].sum(), leaves) for y in (ours, theirs)), strict=True
    ):
        torch.testing.assert_close(a, b, equal_nan=True, **{"rtol": 1e-11} | tolerance)


def test_what_is_not_a_number_stays_so():
    messages = Messages.of("1w; 0 relu; 0 sigmoid; 0 tanh; 0 exp; 0 #0.1 leaky_relu")
    x = torch.tensor([[math.nan, 1.0, math.inf]])
    index = message_index([torch.zeros(1, dtype=torch.int64)] * 2, (1, 1))
    for ours, theirs in zip(
        segment_messages([x], messages, index), reference(messages, [x], index), strict=True
    ):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precisions_add_in_float32(dtype):
    messages, ends, sizes, leaves = made("hubs that are split", MESSAGES["gated"], dtype)
    found = segment_messages(leaves, messages, message_index(ends, sizes))
    exact = plain(messages, [x.double() for x in leaves], ends, sizes)
    for ours, theirs in zip(found, exact, strict=True):
        rounding = torch.finfo(dtype).eps + 64 * torch.finfo(torch.float32).eps
        assert (ours.double() - theirs).abs().max() <= theirs.abs().max() * rounding


def test_rows_that_are_part_of_wider_ones_are_read_where_they_are():
    messages, ends, sizes, _ = made("usual", MESSAGES["GINE"])
    wide = torch.randn(7, 18, dtype=torch.float64)
    edge = torch.randn(6, 40, dtype=torch.float64).T
    index = message_index(ends, sizes)
    for x in (wide[:, 6:12], wide[:, :6], wide[:, ::3]):
        [ours], [theirs] = (
            segment_messages([x, edge], messages, index),
            plain(messages, [x, edge], ends, sizes),
        )
        assert torch.allclose(ours, theirs)


def test_gradients_can_be_differentiated():
    messages, ends, sizes, leaves = made("usual", "1w 2w ew; 0 1 mul 2 add tanh")
    index = message_index(ends, sizes)
    assert gradcheck(lambda *x: segment_messages(x, messages, index), leaves)
    assert gradgradcheck(lambda *x: segment_messages(x, messages, index), leaves)


def test_a_text_and_an_index_survive_the_way_through_an_operator():
    messages, ends, sizes, leaves = made("usual", MESSAGES["numbers of all ends"])
    index = message_index(ends, sizes)
    assert Messages.of(messages.text) == messages
    again = MessageIndex.of(index.tensors)
    for a, b in zip(*(segment_messages(leaves, messages, i) for i in (index, again)), strict=True):
        assert torch.equal(a, b)


def test_transforms_see_an_operator():
    messages, ends, sizes, leaves = made("usual", MESSAGES["gated"])
    index = message_index(ends, sizes)
    torch.library.opcheck(
        torch.ops.edgewise.segment_messages.default, (leaves, messages.text, index.tensors)
    )
    batch = [torch.stack([x.detach(), 2 * x.detach()]) for x in leaves]
    found = torch.vmap(lambda *x: segment_messages(x, messages, index))(*batch)
    for n in range(2):
        for a, b in zip(
            found, segment_messages([x[n] for x in batch], messages, index), strict=True
        ):
            assert torch.allclose(a[n], b)


N, E, D = 300, 4000, 8


def graph():
    draw = torch.Generator().manual_seed(0)
    keys = torch.randint(N, (2, E), generator=draw).unique(dim=1)
    return keys[:, keys[0] != 5]  # a node without edges


PROGRAMS = {
    "relu of a sum": [(R.y(V.I) <= (R.x(V.J), R.e(V.I, V.J))) | [F.relu]],
    "mean": [(R.y(V.I) <= (R.x(V.J), R.e(V.I, V.J))) | [F.tanh, F.avg_agg]],
    "two of them": [
        (R.gate(V.I, V.J) <= (R.e(V.I, V.J), R.x(V.I), R.x(V.J))) | [F.sigmoid],
        R.total(V.I) <= R.gate(V.I, V.J),
        (R.some(V.I) <= (R.gate(V.I, V.J), R.x(V.J))) | [F.elproduct],
        R.y(V.I) <= R.some(V.I) * F.inverse(R.total(V.I)),
    ],
    "read by others": [
        (R.gate(V.I, V.J) <= (R.e(V.I, V.J), R.x(V.I))) | [F.sigmoid],
        (R.z(V.I) <= (R.gate(V.I, V.J), R.x(V.J))) | [F.elproduct],
        (R.m(V.I) <= R.gate(V.I, V.J)) | [F.max_agg],
        R.y(V.I) <= (R.z(V.I), R.m(V.I)),
    ],
    "a vector for all": [(R.y(V.I) <= F.relu(R.x(V.J) + R.e(V.I, V.J)) * W.w[D,])],
    "of types": [
        R.y(V.I) <= F.exp((R.x(V.J) * R.e(V.I, V.J))[0.1].fixed()),
        R.y(V.I) <= R.x(V.I),
    ],
    "sums of sums": [
        (R.inner(V.I, V.J) <= (R.e(V.I, V.J), R.k(V.J, V.K))) | [F.elproduct],
        (R.y(V.I) <= R.inner(V.I, V.J)) | [F.avg_agg],
        R.y(V.I) <= R.x(V.I),
    ],
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", PROGRAMS)
def test_a_plan_with_messages_equals_the_one_that_writes_rows_out(case, batch):
    program, edge = Program(PROGRAMS[case]), graph()
    draw = torch.Generator().manual_seed(2)
    kind = {"dtype": torch.float64}
    x = torch.randn(batch, N, D, generator=draw, **kind).requires_grad_()
    e = torch.randn(edge.shape[1], D, generator=draw, **kind).requires_grad_()
    k = torch.randn(N, 3, D, generator=draw, **kind).requires_grad_()
    inputs, leaves = {"x": x}, [x, e]
    if case == "sums of sums":
        inputs["k"], leaves = k, [x, e, k]
    found = []
    off = ["fuse messages", "fuse gathers", "merge aggregates", "fill rows"]
    for without in ([], off):
        model = program.compile(R.y, seed=0, without=without, **kind)
        data = model.ground(e=rows(edge, e), **({} if "k" not in inputs else {"k": k}))
        y = model.rows(data, x=x).data
        every = [*leaves, *(p for p in model.parameters() if p.requires_grad)]
        grads = torch.autograd.grad(y.sin().sum(), every, allow_unused=True)
        found.append([y, *(g for g in grads if g is not None)])
        if not without and case != "sums of sums":
            text = str(model.explain(data, x=x, stage="kernels"))
            assert "(numba)" in text, text
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, atol=1e-9)


def test_a_compiled_trace_gives_the_same():
    program, edge = Program(PROGRAMS["two of them"]), graph()
    model = program.compile(R.y, dtype=torch.float64, fill=0.0)
    x = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    data = model.ground(e=rows(edge, torch.randn(edge.shape[1], D, dtype=torch.float64)))
    traced = torch.compile(model, backend="aot_eager", fullgraph=True)
    for a, b in zip(*([y, *torch.autograd.grad(y.sum(), x)]
                      for y in (traced(data, x=x), model(data, x=x))), strict=True):  # fmt: skip
        assert torch.allclose(a, b)

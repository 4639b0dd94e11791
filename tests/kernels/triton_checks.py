"""The GPU kernels in Triton's interpreter: run by test_triton.py in a process of its own."""

from dataclasses import replace

import pytest
import torch
from cases import (
    NAN_GRAPHS,
    TERMS,
    Call,
    assert_no_worse_than_reference,
    irregular,
    minus_infinite_row,
    nan_rows,
)

from edgewise.graphs import bigbird, cache, causal, documents, global_tokens, grid, strided, window
from edgewise.kernels.attention import attention, case_of, tiled
from edgewise.kernels.attention.errors import KernelRefuses, SecondDerivative
from edgewise.kernels.attention.triton import blocks as triton_blocks
from edgewise.kernels.attention.triton import lists as triton_lists
from edgewise.kernels.attention.triton import settings as triton_settings
from edgewise.kernels.attention.triton.launch import Launch
from edgewise.kernels.edges import index
from edgewise.scores import relative


@pytest.fixture(autouse=True)
def small_items(monkeypatch):
    """So that rows are split, too."""
    monkeypatch.setattr(triton_lists, "LEAST", 2)
    monkeypatch.setattr(index, "MOST", 4)
    cache.clear()


GRAPHS = [
    window(20) & causal(),
    global_tokens(1) | window(3),
    documents([40, 60]),
    bigbird(8, 1),
    strided(7) - causal(),
]


@pytest.mark.parametrize(
    ("graph", "dtype"),
    [*((graph, torch.float32) for graph in GRAPHS), (GRAPHS[0], torch.float16)],
    ids=repr,
)
def test_blocks_are_as_exact_as_the_reference(graph, dtype):
    call = Call(graph, (1,), 1, 2, 100, 100, 8, 4, dtype)
    assert_no_worse_than_reference(call, "triton_blocks")


@pytest.mark.parametrize(("dtype", "terms"), [(torch.float32, ()), (torch.float16, ("bias",))])
def test_bits_are_as_exact_as_the_reference(dtype, terms):
    """Pairs without an order, a block without any, one with all, rows without a key."""
    graph = irregular(140, 100)
    call = Call(graph, (1,), 1, 2, 140, 100, 8, 4, dtype, terms=terms)
    assert_no_worse_than_reference(call, "triton_blocks")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_boxes_of_a_grid_are_as_exact_as_the_reference(dtype):
    graph = grid(9, 20)(window(2), causal() & window(5))
    call = Call(graph, (1,), 1, 2, 180, 180, 8, 4, dtype, terms=("softcap",))
    assert_no_worse_than_reference(call, "tiled")
    assert tiled._plan(case_of(*[torch.zeros(1, 180, 8)] * 3, graph))[1] is triton_blocks


@pytest.mark.parametrize(
    ("d", "dv", "dtype", "terms"),
    [
        *((20, 20, torch.float32, ()), (33, 130, torch.float32, ())),
        *((80, 8, torch.float16, ()), (3, 24, torch.float16, ("bias",))),
    ],
)
def test_heads_have_any_size(d, dv, dtype, terms):
    """Tiles are powers of two, of which only features are read and written."""
    graph = window(20) & causal() | global_tokens(1)
    call = Call(graph, (1,), 1, 2, 70, 70, d, dv, dtype, terms=terms)
    assert_no_worse_than_reference(call, "triton_blocks")


def test_wide_heads_on_a_chip_that_copies_tiles(monkeypatch):
    """It has larger blocks for them."""
    monkeypatch.setattr(triton_settings, "has_engine", lambda: True)
    call = Call(window(20) & causal(), (1,), 1, 2, 70, 70, 192, 256, torch.float16)
    assert_no_worse_than_reference(call, "triton_blocks")


def test_float32_in_three_parts(monkeypatch):
    """The setting of another block and precision is all that changes."""
    for step in ("forward", "rows", "columns"):
        passes = triton_settings.SETTINGS["float32", 64]
        monkeypatch.setitem(passes, step, passes[step]._replace(block=16, precision="tf32x3"))
    call = Call(window(20) & causal(), (1,), 1, 2, 70, 70, 24, 24)
    assert_no_worse_than_reference(call, "triton_blocks")


def test_nothing_beyond_the_features_is_read_or_written():
    """Heads are parts of wider rows, with what is not a number beside them."""
    rows = torch.full((3, 2, 70, 48), float("nan"))
    rows[..., 8:32] = torch.randn(3, 2, 70, 24)
    q, k, v = (x[..., 8:32].requires_grad_() for x in rows)
    found = both_ways((q, k, v), window(5))
    right = attention(q, k, v, window(5), kernel="reference")
    grads = torch.autograd.grad(right.sum(), (q, k, v))
    for mine, other in zip(found, (right, *grads), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("terms", [(), *((x,) for x in TERMS if "edge" not in x)])
def test_blocks_take_terms(terms):
    call = Call(window(20) & causal(), (1,), 1, 2, 70, 70, 8, 4, terms=terms)
    assert_no_worse_than_reference(replace(call, options={"dropout": 0.2}), "triton_blocks")


def test_tables_of_distances_are_learned_far_from_the_diagonal_too():
    call = Call(causal(), (1,), 1, 2, 140, 140, 8, 4, terms=("relative",))
    assert_no_worse_than_reference(call, "triton_blocks")


@pytest.mark.parametrize("kernel", ["triton_blocks", "triton_csr"])
def test_fixed_tables_change_no_other_gradient(kernel):
    q, k, v = (torch.randn(1, 4, 30, 16, requires_grad=True) for _ in range(3))
    table, weight = torch.randn(4, 7), torch.randn(1, 4, 30, 16)
    found = []
    for learned in (False, True):
        bias = relative(table.clone().requires_grad_(learned))
        out = attention(q, k, v, window(9), bias=bias, kernel=kernel)
        found.append([out, *torch.autograd.grad(out, (q, k, v), weight)])
    for fixed, right in zip(*found, strict=True):
        assert torch.equal(fixed, right)


@pytest.mark.parametrize("score", ["relative", "places", "alibi"])
def test_tables_of_heads_side_by_side_are_learned_one_edge_at_a_time(score):
    """In float32 a program takes two heads of up to 64 features, and one edge."""
    call = Call(window(1), (), 2, 1, 5, 5, 4, 40, terms=(score,))
    assert_no_worse_than_reference(call, "triton_csr")


EDGE_CASES = [(window(2), (term,)) for term in TERMS]
EDGE_CASES += [
    (graph, some) for graph in (window(2), global_tokens(1)) for some in ((), TERMS[2:7])
]


@pytest.mark.parametrize(("graph", "terms"), EDGE_CASES)
def test_edges_are_as_exact_as_the_reference(graph, terms):
    call = Call(graph, (1,), 2, 2, 7, 7, 8, 4, terms=terms, options={"dropout": 0.2})
    assert_no_worse_than_reference(call, "triton_csr")


def test_edges_write_results_as_their_inputs_lie():
    """Tokens before heads, as projections give them: nothing is transposed in memory."""
    graph, shape = global_tokens(1) | window(2), (9, 4, 16)
    leaves = [torch.randn(shape, requires_grad=True) for _ in range(3)]
    found = []
    for kernel in ("triton_csr", "reference"):
        q, k, v = (x.transpose(0, 1) for x in leaves)
        out = attention(q, k, v, graph, kernel=kernel)
        grads = torch.autograd.grad(out.square().sum(), [q, k, v])
        found.append([out, *grads])
    for mine, right in zip(*found, strict=True):
        torch.testing.assert_close(mine, right)
        assert mine.transpose(0, 1).is_contiguous()


@pytest.mark.parametrize("lead", [(), (2,), (2, 4)], ids=str)
@pytest.mark.parametrize("d", [16, 5])
def test_edges_are_bound_to_tensors_of_any_shape(lead, d):
    """Twice: the second call is looked up. The gradient of a sum has no strides."""
    graph, shared = global_tokens(1) | window(2), (*lead[:-1], 2) if lead else ()
    q = torch.randn(*lead, 9, d, requires_grad=True)
    k, v = (torch.randn(*shared, 9, d, requires_grad=True) for _ in range(2))
    for weigh in (torch.sum, lambda out: out.square().sum()) * 2:
        found = []
        for kernel in ("triton_csr", "reference"):
            out = attention(q, k, v, graph, kernel=kernel)
            found.append([out, *torch.autograd.grad(weigh(out), [q, k, v])])
        for mine, right in zip(*found, strict=True):
            torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("kernel", ["triton_blocks", "triton_csr"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 70), (70, 3)])
def test_queries_and_keys_differ_in_number(kernel, n, m):
    call = Call(window(1), (), 1, 1, n, m, 4, 4)
    assert_no_worse_than_reference(call, kernel)


def test_dropout_is_the_same_as_on_a_cpu():
    q, k, v = (torch.randn(2, 9, 4) for _ in range(3))
    outs = []
    for kernel in ("triton_csr", "reference"):
        torch.manual_seed(0)
        outs.append(attention(q, k, v, window(3), dropout=0.4, kernel=kernel))
    torch.testing.assert_close(*outs)


@pytest.mark.parametrize("kernel", ["triton_blocks", "triton_csr"])
def test_it_says_what_it_does_not_compute(kernel):
    x = torch.zeros(1, 8, 4, dtype=torch.float64)
    with pytest.raises(KernelRefuses, match="float64"):
        attention(x, x, x, window(1), kernel=kernel)
    wide = torch.zeros(1, 8, 400)
    with pytest.raises(KernelRefuses, match="400 features"):
        attention(wide, wide, wide, window(1), kernel=kernel)


def test_blocks_read_any_layout():
    """Heads beside one another, keys that all heads share, and an odd place in memory."""
    torch.manual_seed(0)
    q = torch.randn(70, 3, 16).transpose(0, 1)
    k = torch.randn(70, 16).expand(3, 70, 16)
    v = torch.randn(3 * 70 * 16 + 1)[1:].view(3, 70, 16)
    found, right = (
        attention(q, k, v, window(5), kernel=kernel) for kernel in ("triton_blocks", "reference")
    )
    torch.testing.assert_close(found, right)


@pytest.mark.parametrize("graph", [x for x in NAN_GRAPHS if x is not None], ids=repr)
@pytest.mark.parametrize("kernel", ["triton_blocks", "triton_csr"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_a_number_stays_so(graph, kernel):
    nan_rows(graph, kernel, float("nan"), "q")
    if kernel == "triton_csr":
        nan_rows(graph, kernel, float("nan"), "edge_bias")


@pytest.mark.parametrize(
    ("kernel", "term"), [("triton_blocks", "bias"), ("triton_csr", "edge_bias")]
)
def test_a_row_of_minus_infinite_scores_is_as_one_without_keys(kernel, term):
    minus_infinite_row(window(2), kernel, term)


def heads_of(*shape, tokens_first, d=16):
    """(batch, heads, n, d), with tokens before heads in memory, as a projection gives them."""
    *batch, heads, n = shape
    x = torch.randn(*batch, heads, n, d)
    if tokens_first:
        x = x.transpose(-3, -2).contiguous().transpose(-3, -2)
    return x.requires_grad_()


def both_ways(tensors, graph):
    out = attention(*tensors, graph, kernel="triton_blocks")
    return out, *torch.autograd.grad(out, tensors, torch.ones_like(out))


@pytest.mark.parametrize("shape", [(2,), (1, 2), (2, 2)], ids=str)
@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize("d", [16, 20])
def test_what_lies_otherwise_is_the_same_and_lies_as_it_did(shape, shared, d):
    torch.manual_seed(0)
    *batch, heads = shape
    graph, n = window(5) | global_tokens(1), 70
    sizes = [(*batch, heads, n), *[(*batch, heads // shared, n)] * 2]
    beside = [heads_of(*size, tokens_first=True, d=d) for size in sizes]
    before = [x.detach().contiguous().requires_grad_() for x in beside]
    found, right = both_ways(beside, graph), both_ways(before, graph)
    assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
    if d == 16:
        assert [x.stride() for x in found] == [beside[0].stride(), *(x.stride() for x in beside)]
        assert all(x.is_contiguous() for x in right)
    plain = attention(*before, graph, kernel="reference")
    torch.testing.assert_close(right[0], plain)
    grads = torch.autograd.grad(plain.sum(), before)
    for a, b in zip(right[1:], grads, strict=True):
        torch.testing.assert_close(a, b)


def test_a_window_and_global_tokens_are_one_launch_and_what_puts_parts_together(monkeypatch):
    torch.manual_seed(0)
    tensors = [heads_of(1, 2, 700, tokens_first=True) for _ in range(3)]
    both_ways(tensors, window(5) | global_tokens(1))
    names, call = [], Launch.__call__
    monkeypatch.setattr(
        Launch,
        "__call__",
        lambda self, *x, **y: (names.append(self.kernel.__name__), call(self, *x, **y)),
    )
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, acc_events=True) as ran:
        monkeypatch.setattr(triton_blocks, "forward_pass", None)  # nothing is looked up again
        monkeypatch.setattr(Launch, "_plainly", lambda *_: None)  # whose interpreter copies
        both_ways(tensors, window(5) | global_tokens(1))
    assert names == [
        "forward",
        "merge",
        "backward_rows",
        "backward_columns",
        "add_up",
        "add_up_both",
    ]
    done = {event.name for event in ran.events() if event.name.startswith("aten::")}
    made = {"aten::new_empty", "aten::new_empty_strided", "aten::empty", "aten::empty_strided"}
    views = {"aten::view", "aten::as_strided", "aten::slice"}  # the interpreter takes no addresses
    assert done <= {*made, *views, "aten::ones_like", "aten::empty_like", "aten::fill_"}


def test_calls_that_are_cached_find_mistakes_and_come_back():
    tensors = [heads_of(2, 40, tokens_first=False) for _ in range(3)]
    first = both_ways(tensors, window(3))
    cache.clear()  # as if many others had come between
    assert all(torch.equal(a, b) for a, b in zip(first, both_ways(tensors, window(3)), strict=True))
    out = attention(*tensors, window(3), kernel="triton_blocks")
    with pytest.raises(SecondDerivative):
        torch.autograd.grad(out.sum(), tensors, create_graph=True)
    with torch.no_grad():
        assert not attention(*tensors, window(3), kernel="triton_blocks").requires_grad

"""One or few queries over a cache: values and gradients are those of the same rows of the graph,
and no step of decoding plans anything."""

import pytest
import torch
from cases import Call, assert_no_worse_than_reference
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.errors import EdgewiseError
from edgewise.graphs import (
    bigbird,
    causal,
    full,
    global_tokens,
    per_head,
    prefix,
    strided,
    window,
)
from edgewise.kernels.attention import attention, case_of, choose, sliced
from edgewise.kernels.attention.calls import prepared

PAST = [causal(), window(7) & causal(), window(3), prefix(4), (window(4) | global_tokens(2)),
        strided(3) & causal(), bigbird(4, 1), window(2) - window(0)]  # fmt: skip


@given(
    graph=st.sampled_from(PAST),
    offset=st.integers(0, 40),
    n=st.integers(1, 3),
    keys=st.sampled_from([(1, 1), (1, 4), (2, 2)]),
)
@settings(max_examples=60, deadline=None)
def test_rows_after_an_offset_are_those_of_the_graph(graph, offset, n, keys):
    heads, shared = keys
    call = Call(graph, (2,), heads, shared, n, 33, 8, 4, options={"offset": offset})
    assert_no_worse_than_reference(call, None)


@given(
    graph=st.sampled_from(PAST[:6]),
    offset=st.integers(1, 39),
    shared=st.sampled_from([1, 4]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]),
)
@settings(max_examples=40, deadline=None)
def test_one_query_without_more_is_the_reference(graph, offset, shared, dtype):
    random = torch.Generator().manual_seed(offset)
    q = torch.randn(2, 2 * shared, 1, 8, generator=random).to(dtype).requires_grad_()
    k, v = (torch.randn(2, 2, 40, 8, generator=random).to(dtype).requires_grad_() for _ in "kv")
    out = attention(q, k, v, graph, offset=offset)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    right = attention(*wide, graph, offset=offset, kernel="reference")
    grads = torch.autograd.grad(out.double().square().sum(), (q, k, v))
    others = torch.autograd.grad(right.square().sum(), wide)
    near = 20 * torch.finfo(dtype).eps
    for mine, other in zip((out, *grads), (right, *others), strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=near, atol=near)


SINKS = (window(7) | global_tokens(2)) & causal()


@pytest.mark.parametrize("graph", [causal(), window(7) & causal(), SINKS], ids=repr)
def test_a_step_prepares_nothing(graph, monkeypatch):
    """A new offset, or a longer cache, is no new call to plan."""
    q, k = torch.randn(1, 4, 1, 8), torch.randn(1, 2, 64, 8)
    attention(q, k, k, graph, offset=40)
    monkeypatch.setattr(prepared, "Prepared", None)
    for step in range(41, 50):
        out = attention(q, k[:, :, : step + 3], k[:, :, : step + 3], graph, offset=step)
        right = attention(q, k[:, :, : step + 1], k[:, :, : step + 1], graph, offset=step)
        torch.testing.assert_close(out, right)


def test_a_slice_of_the_cache_is_dense():
    q, k = torch.empty(1, 4, 1, 8), torch.empty(1, 2, 64, 8)
    found = choose(case_of(q, k, k, (window(7) & causal()).shift(-40, 0)))
    assert found.name == "sliced"
    assert choose(case_of(q, k, k, full())).refusals["sliced"] == "the run of keys is all of them"
    two = (window(7) | global_tokens(2)).shift(-40, 0)
    reason = "queries do not all attend to one and the same run of keys"
    assert choose(case_of(q, k, k, two)).refusals["sliced"] == reason


def test_what_is_not_few_runs_is_not_sliced(monkeypatch):
    for graph, row in (
        (causal(), 40), (per_head(causal()), 3), (None, 3), (window(2) - window(2), 3),
    ):  # fmt: skip
        assert sliced.runs_at(graph, row, 40) is None
    assert sliced.runs_at(window(7) & causal(), 39, 40) == [slice(32, 40, 1)]
    assert sliced.runs_at(window(7), 35, 40) == [slice(28, 40, 1)]
    two = window(4) | global_tokens(2)
    assert sliced.runs_at(two, 30, 40) == [slice(0, 2, 1), slice(26, 35, 1)]
    monkeypatch.setattr(sliced, "MOST_COPIED", 10)
    assert sliced.runs_at(two, 30, 40) is None
    found = sliced.runs_at(strided(3), 9, 40)
    assert found is None or [list(range(40))[x] for x in found] == [list(range(0, 40, 3))]


@pytest.mark.parametrize("graph", PAST, ids=repr)
def test_runs_are_the_keys_of_the_row(graph):
    for row in range(33):
        keys = graph.dense(33)[row].nonzero().flatten().tolist()
        found = sliced.runs_at(graph, row, 33)
        if found is not None:
            assert sorted(x for run in found for x in range(33)[run]) == keys


@pytest.mark.parametrize(
    ("k", "v", "offset"),
    [
        ((1, 2, 9, 8), (1, 2, 8, 8), 3),
        ((1, 2, 9, 4), (1, 2, 9, 8), 3),
        ((1, 3, 9, 8), (1, 3, 9, 8), 3),
        ((2, 2, 9, 8), (2, 2, 9, 8), 3),
        ((1, 2, 9, 8), (1, 2, 9, 8), 3.5),
    ],
)
def test_mistakes_are_refused_as_elsewhere(k, v, offset):
    with pytest.raises(EdgewiseError):
        attention(torch.zeros(1, 4, 1, 8), torch.zeros(k), torch.zeros(v), causal(), offset=offset)


@pytest.mark.parametrize("extra", [{"return_lse": True}, {"return_weights": True}])
@pytest.mark.parametrize("graph", [window(3) & causal(), SINKS, SINKS | strided(5)], ids=repr)
def test_what_else_is_returned_is_that_of_the_run(graph, extra):
    q, k, v = torch.randn(1, 4, 1, 8), torch.randn(1, 2, 20, 8), torch.randn(1, 2, 20, 8)
    found = attention(q, k, v, graph, offset=12, **extra)
    right = attention(q, k, v, graph, offset=12, kernel="reference", **extra)
    for mine, other in zip(found, right, strict=True):
        torch.testing.assert_close(mine, other)


def test_a_query_of_nan_stays_so():
    q, k = torch.full((1, 2, 1, 4), torch.nan), torch.randn(1, 2, 9, 4)
    assert attention(q, k, k, causal(), offset=5).isnan().all()


def test_lengths_that_were_checked_are_not_read_again():
    """Until they are changed, or there are fewer keys: on a GPU every look waits for it."""
    q, k = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 20, 8)
    lengths = torch.tensor([5, 20])
    looks = []
    looked = torch.Tensor.tolist
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "tolist", lambda x: looks.append(1) or looked(x))
        for _ in range(3):
            attention(q, k, k, lengths=lengths)
    assert len(looks) <= 1 + 1  # the check, and what preparing it may read
    lengths.add_(1)
    with pytest.raises(EdgewiseError, match=r"from 0 to 20, got \[6, 21\]"):
        attention(q, k, k, lengths=lengths)
    lengths.sub_(1)
    attention(q, k, k, lengths=lengths)
    with pytest.raises(EdgewiseError, match="from 0 to 19"):
        attention(q, k[:, :, :19], k[:, :, :19], lengths=lengths)

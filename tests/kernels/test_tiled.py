"""Products over a grid, box by box."""

import pytest
import torch
from cases import Call, assert_no_worse_than_reference, calls
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_attention import assert_gradients

from edgewise.graphs import (
    blocks,
    causal,
    clamped_window,
    dilated,
    extra_global_tokens,
    fixed,
    full,
    grid,
    random_edges,
    window,
)
from edgewise.kernels.attention import attention, case_of, choose, tiled
from edgewise.kernels.attention.errors import KernelRefuses
from edgewise.layouts.boxes import BoxOrder
from edgewise.scores import I, S

AXES = st.one_of(
    st.sampled_from([full(), causal(), fixed(3), random_edges(2, seed=1)]),
    st.integers(0, 5).map(window),
    st.builds(dilated, st.integers(0, 3), st.integers(1, 3)),
    st.builds(clamped_window, st.integers(0, 3), st.integers(1, 2)),
    st.builds(blocks, st.integers(1, 6), offset=st.integers(0, 3)),
)


@st.composite
def products(draw):
    sizes = draw(st.sampled_from([(1,), (7,), (300,), (2, 3), (17, 19), (1, 40), (3, 5, 7)]))
    return grid(*sizes)(*(draw(AXES) for _ in sizes))


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_it_is_as_exact_as_the_reference(data):
    graph = data.draw(products())
    call = data.draw(calls(st.just(graph), terms=("softcap",)))
    call.options.pop("offset", None)
    call.options.pop("lengths", None)
    call = Call(**{**vars(call), "n": graph.tokens, "m": graph.tokens})
    try:
        assert_no_worse_than_reference(call, "tiled")
    except KernelRefuses:
        assume(False)


def test_gradients_are_those_of_the_function():
    graph = grid(2, 3)(window(1), causal())
    call = Call(graph, heads=1, shared=2, n=6, m=6, d=3, dv=2, dtype=torch.float64)
    assert_gradients(call, "tiled")


@pytest.mark.parametrize(
    "sizes", [(1,), (5,), (256,), (3, 4), (16, 16), (33, 40), (2, 1000), (5, 6, 7)]
)
def test_every_cell_has_a_place_and_blocks_are_boxes(sizes):
    order = BoxOrder(sizes)
    assert sorted(order.at[order.places].tolist()) == list(range(len(order.places)))
    for bits in range(len(order.turns) + 1):
        box = order.box(bits)
        cells = [
            x.unique() for x in torch.unravel_index(torch.from_numpy(order.at[: 1 << bits]), sizes)
        ]
        assert all(len(x) <= side for x, side in zip(cells, box, strict=True))


def test_a_large_neighbourhood_is_computed_in_boxes_and_planned_by_them():
    """3×3 boxes of 64 pixels are computed for each, where reading order needs 39 blocks."""
    graph = grid(128, 128)(window(6), window(6))
    case = case_of(*[torch.zeros(1, 4, 16384, 32)] * 3, graph)
    assert choose(case).name == "tiled"
    inner, _ = tiled._plan(case)
    found = inner.graph.bitmap.tiling(64)
    assert found.count == (16 * 3 - 2) ** 2
    assert len(found.masks) < 20


def test_what_it_refuses_it_says():
    q = torch.zeros(1, 1, 6, 4)
    graph = grid(2, 3)(window(1), window(1))
    for options, reason in (
        ({"score": S + I}, "reads positions"),
        ({"dropout": 0.5}, "does not take dropout"),
        ({"edge_bias": torch.zeros(1, graph.count(6))}, "edge_bias"),
    ):
        with pytest.raises(KernelRefuses, match=reason):
            attention(q, q, q, graph, kernel="tiled", **options)
    with pytest.raises(KernelRefuses, match="not a product over a grid"):
        attention(q, q, q, extra_global_tokens(1, grid(5, 1)(full(), full())), kernel="tiled")


def test_neighbourhoods_of_an_image_with_a_class_token():
    """What is around a product takes other kernels, with the same result."""
    graph = extra_global_tokens(1, grid(9, 11)(window(2), window(2)))
    call = Call(graph, (1,), 2, 1, 100, 100, 8, 8, torch.float64)
    assert_no_worse_than_reference(call, None)

"""Residue classes as they are written, against matrices; and what a case knows of its graph."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.graphs import (
    Pattern,
    causal,
    dilated,
    documents,
    full,
    global_tokens,
    random_edges,
    strided,
    window,
)
from edgewise.graphs.residues import class_of, residue_groups, symbolic_step
from edgewise.kernels.attention.contract import facts, pieces_of
from edgewise.kernels.attention.permuted import step_of

steps = st.integers(1, 5)
simple = st.one_of(
    st.builds(strided, steps),
    st.builds(dilated, st.integers(0, 4), steps),
    st.builds(window, st.integers(0, 9)),
    st.sampled_from([causal(), full(), global_tokens(1)]),
)
expressions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(Pattern.__and__, inner, inner),
        st.builds(Pattern.__or__, inner, inner),
        st.builds(Pattern.__sub__, inner, inner),
    ),
    max_leaves=4,
)
sizes = st.integers(0, 21)


@given(expressions, sizes, sizes)
@settings(deadline=None, max_examples=200)
def test_classes_are_as_written(graph: Pattern, n: int, m: int) -> None:
    matrix, step = graph.dense(n, m).numpy(), symbolic_step(graph)
    i, j = np.nonzero(matrix)
    assert not ((i - j) % step).any()
    inner = class_of(graph, step)
    if inner is not None:
        for r in range(min(step, n, m)):
            part = matrix[r::step, r::step]
            assert np.array_equal(inner.dense(*part.shape).numpy(), part)


@given(expressions, sizes, sizes)
@settings(deadline=None, max_examples=200)
def test_groups_are_all_classes(graph: Pattern, n: int, m: int) -> None:
    groups, step = residue_groups(graph, n, m), symbolic_step(graph)
    if groups is None:
        return
    matrix = graph.dense(n, m).numpy()
    assert [r for g in groups for r in range(g.first, g.last)] == list(range(step))
    for group in groups:
        for r in range(group.first, group.last):
            part = matrix[r::step, r::step]
            assert part.shape == (group.n, group.m)
            assert np.array_equal(group.graph.dense(*part.shape).numpy(), part)


scattered = st.builds(random_edges, st.integers(1, 6), seed=st.integers(0, 9))


@given(expressions | st.builds(Pattern.__or__, expressions, scattered), sizes, sizes)
@settings(deadline=None, max_examples=200)
def test_facts_without_rows(graph: Pattern, n: int, m: int) -> None:
    matrix, found = graph.dense(n, m).numpy(), facts(graph, n, m)
    assert found.pairs == graph.count(n, m) == matrix.sum()
    assert found.full == bool(matrix.all())
    assert found.no_empty_row == bool(matrix.any(1).all())
    assert found.causal == (n == m and np.array_equal(matrix, np.tri(n, dtype=bool)))
    assert pieces_of(graph, n, m) >= min(found.pairs, 1)
    i, j = np.nonzero(matrix)
    step = step_of(graph, n, m)
    assert not ((i - j) % step).any() if step else (i == j).all()


def test_what_is_not_alike_in_all_classes_is_not_written() -> None:
    assert class_of(global_tokens(1) & strided(2), 2) is None
    assert class_of(documents([3, 4]) & strided(2), 2) is None
    assert residue_groups(strided(8), 7, 20) is None
    assert residue_groups(window(3), 20, 20) is None

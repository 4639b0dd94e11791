"""Colours are exact: equal only where rows are, whatever the hashes do."""

from collections import Counter

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from edgewise.ground import colour_refinement as colours
from edgewise.layouts.ragged import segments

SMALL = st.lists(st.tuples(st.integers(0, 5), st.integers(-2, 2)), max_size=30)


def partition(keys):
    """Which places hold the same thing, whatever it is called."""
    return [keys.index(key) for key in keys]


def finer(found, exact):
    """Equal colours only where the exact ones are equal."""
    return all(
        exact[a] == exact[b]
        for a in range(len(found))
        for b in range(a)
        if found[a] == found[b]
    )  # fmt: skip


@given(SMALL, st.booleans())
@settings(deadline=None)
def test_segments_are_multisets(pairs, in_order):
    check_segments(pairs, in_order, "hashes")


@given(SMALL, st.booleans())
@settings(deadline=None, max_examples=50)
def test_collisions_are_found_out(pairs, in_order):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(colours, "_hash", torch.zeros_like)
        check_segments(pairs, in_order, "collisions")


def check_segments(pairs, in_order, hashing):
    pairs = sorted(pairs, key=lambda pair: pair[0])
    names = sorted({segment for segment, _ in pairs})
    ids = torch.tensor([names.index(segment) for segment, _ in pairs], dtype=torch.int64)
    values = torch.tensor([colour for _, colour in pairs], dtype=torch.int64)
    parts = segments(ids, len(names))
    found = colours.of_segments(values, parts, in_order=in_order).of.tolist()
    held = [[c for s, c in pairs if s == name] for name in names]
    exact = [tuple(h) if in_order else tuple(sorted(h)) for h in held]
    if hashing == "hashes":
        assert partition(found) == partition(exact)
    else:
        assert finer(found, exact)


@given(st.lists(st.tuples(*[st.sampled_from([0.0, -0.0, 1.5, 2.0])] * 3), max_size=20))
@settings(deadline=None)
def test_values_are_compared_bit_by_bit(table):
    values = torch.tensor(table, dtype=torch.float64).reshape(-1, 3)
    found = colours.of_values(values).tolist()
    assert partition(found) == partition([repr(row) for row in table])
    assert partition(colours.of_values(values[:, 0]).tolist()) == partition(
        [repr(row[0]) for row in table]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_values_of_any_precision(dtype):
    values = torch.tensor([[1, 2], [1, 3], [1, 2]], dtype=dtype)
    assert partition(colours.of_values(values).tolist()) == [0, 1, 0]


def test_values_survive_collisions(monkeypatch):
    monkeypatch.setattr(colours, "_hash", torch.zeros_like)
    values = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])
    assert finer(colours.of_values(values).tolist(), [0, 1, 0])


@given(st.lists(st.integers(-3, 3), max_size=20))
def test_classes_are_numbered_by_their_first_rows(values):
    found = colours.classes(torch.tensor(values, dtype=torch.int64))
    firsts = list(dict.fromkeys(values))
    assert found.of.tolist() == [firsts.index(value) for value in values]
    assert found.first.tolist() == [values.index(value) for value in firsts]
    assert found.count == len(Counter(values))


@given(st.lists(st.tuples(*[st.integers(-(1 << 62), 1 << 62)] * 3), max_size=12))
@settings(deadline=None)
def test_columns_are_mixed_whatever_they_hold(table):
    columns = [torch.tensor([row[c] for row in table], dtype=torch.int64) for c in range(3)]
    assert partition(colours.mixed(columns, len(table)).tolist()) == partition(table)

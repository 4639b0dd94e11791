"""The normal form and what derives from it, on random trapezoids against matrices."""

from unittest.mock import patch

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.layouts import (
    AND,
    MINUS,
    NOT,
    NOTHING,
    OR,
    Membership,
    Rows,
    RowTable,
    Trapezoids,
    blocks_of_rows,
    by_residue,
    combine,
    common_step,
    composed,
    compressed,
    csr_of_rows,
    joined,
    residue_order,
    rows_of_blocks,
    rows_of_trapezoids,
    small_sweep,
    transposed,
    trapezoids,
)
from edgewise.layouts.blocks import nonempty_blocks


@st.composite
def random_trapezoids(draw: st.DrawFn) -> Trapezoids:
    """Up to three trapezoids and at most one progression with a step, inside and outside."""
    integer = st.integers(-5, 22)
    parts = [NOTHING]
    for _ in range(draw(st.integers(0, 3))):
        top, start = draw(integer), draw(integer)
        rows, keys = draw(st.integers(0, 25)), draw(st.integers(-3, 20))
        slope = draw(st.sampled_from([(0, 0), (0, 1), (1, 0), (1, 1)]))
        parts.append(trapezoids((top, top + rows), start, start + keys, slope=slope))
    if draw(st.booleans()):
        top, start, slope = draw(integer), draw(integer), draw(st.integers(0, 1))
        rows, keys, step = (
            draw(st.integers(0, 25)),
            draw(st.integers(-3, 25)),
            draw(st.integers(2, 7)),
        )
        parts.append(
            trapezoids((top, top + rows), start, start + keys, slope=(slope, slope), step=step)
        )
    return joined(*parts)


def matrix(n: int, m: int, p: Trapezoids) -> np.ndarray:
    out = np.zeros((n, m), bool)
    for k in range(len(p)):
        for i in range(max(p.top[k], 0), min(p.bottom[k], n)):
            down = i - p.top[k]
            start, stop = p.start[k] + down * p.dstart[k], p.stop[k] + down * p.dstop[k]
            keys = [j for j in range(start, stop, p.step[k]) if 0 <= j < m]
            out[i, keys] = True
    return out


def assert_is(rows: Rows, wanted: np.ndarray) -> None:
    """The rows are those of the matrix, in normal form."""
    assert (rows.n, rows.m) == wanted.shape
    assert ((rows.dstart == rows.dstop) | (rows.step == 1)).all()
    assert np.array_equal(rows.dense().numpy(), wanted)
    assert np.array_equal(rows.degrees(), wanted.sum(1))
    assert rows.count() == wanted.sum()  # so no key is in two pieces of its row
    wide = rows.expand()
    last = wide.start + (wide.size - 1) * wide.step + 1
    assert (wide.start < wide.stop).all()
    assert np.array_equal(last, wide.stop)


sizes = st.integers(0, 18)


@given(random_trapezoids(), random_trapezoids(), sizes, sizes)
@settings(deadline=None, max_examples=150)
def test_set_algebra(a: Trapezoids, b: Trapezoids, n: int, m: int) -> None:
    left, right = matrix(n, m, a), matrix(n, m, b)
    first, second = rows_of_trapezoids(n, m, a), rows_of_trapezoids(n, m, b)
    assert_is(first, left)
    laws = ((OR, left | right), (AND, left & right), (MINUS, left & ~right), (NOT, ~left))
    for keep, wanted in laws:
        assert_is(combine(n, m, first.trapezoids(), second.trapezoids(), keep), wanted)


@given(random_trapezoids(), random_trapezoids(), sizes, sizes)
@settings(deadline=None, max_examples=150)
def test_the_same_in_python_and_in_arrays(a: Trapezoids, b: Trapezoids, n: int, m: int) -> None:
    """Up to eight trapezoids without a step go through Python, others through NumPy."""
    a, b = a[a.step == 1], b[b.step == 1]
    left, right = matrix(n, m, a), matrix(n, m, b)
    assert small_sweep.applies(a, b)
    for keep in (OR, AND, MINUS, NOT):
        wanted = keep[left.astype(int), right.astype(int)]
        in_python = small_sweep.combine(n, m, a, b, keep)
        assert_is(in_python, wanted)
        with patch.object(small_sweep, "applies", return_value=False):
            in_arrays = combine(n, m, a, b, keep)
        assert_is(in_arrays, wanted)
        assert len(in_python.top) <= len(in_arrays.top)
        assert ((in_python.dstart == 0) | (in_python.height > 1)[in_python.slab]).all()


@given(random_trapezoids(), random_trapezoids(), sizes, sizes, sizes)
@settings(deadline=None, max_examples=100)
def test_transposed_and_composed(a: Trapezoids, b: Trapezoids, n: int, m: int, k: int) -> None:
    left, right = matrix(n, m, a), matrix(m, k, b)
    first, second = rows_of_trapezoids(n, m, a), rows_of_trapezoids(m, k, b)
    assert_is(transposed(first), left.T)
    assert_is(composed(first, second), left.astype(int) @ right.astype(int) > 0)


@given(random_trapezoids(), sizes, sizes, st.integers(1, 6), st.booleans())
@settings(deadline=None, max_examples=150)
def test_blocks(p: Trapezoids, n: int, m: int, block: int, turned: bool) -> None:
    rows, wanted = rows_of_trapezoids(n, m, p), matrix(n, m, p)
    if turned:
        rows, wanted = combine(n, m, rows.trapezoids(), NOTHING, NOT), ~wanted
    high, wide = -(-n // block), -(-m // block)
    padded = np.zeros((high * block, wide * block), int)
    padded[:n, :m] = wanted
    count = padded.reshape(high, block, wide, block).sum((1, 3))
    found = blocks_of_rows(rows, block).dense().numpy()
    assert np.array_equal(found, (count > 0).astype(int) + (count == block * block))
    assert np.array_equal(nonempty_blocks(rows, block), count > 0)


@given(random_trapezoids(), sizes, sizes, st.integers(1, 5), st.data())
@settings(deadline=None, max_examples=100)
def test_other_views(p: Trapezoids, n: int, m: int, step: int, data: st.DataObject) -> None:
    rows, wanted = rows_of_trapezoids(n, m, p), matrix(n, m, p)
    assert_is(compressed(rows.expand()), wanted)
    first, last = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    assert_is(rows.between(first, last), wanted[first:last])
    order, keys = residue_order(n, step).numpy(), residue_order(m, step).numpy()
    assert_is(by_residue(rows, step), wanted[order][:, keys])
    assert common_step(rows) == np.gcd.reduce(np.abs(np.subtract(*np.nonzero(wanted))), initial=0)
    csr = csr_of_rows(rows)
    assert_is(csr.rows(), wanted)
    assert_is(csr.T.rows(), wanted.T)
    i, j = torch.meshgrid(torch.arange(n), torch.arange(m), indexing="ij")
    assert np.array_equal(Membership(rows)(i, j).numpy(), wanted)
    assert np.array_equal(RowTable(rows)(i, j).numpy(), wanted)


def test_slabs_are_few_where_the_pattern_is_simple() -> None:
    n = 1 << 20
    band = rows_of_trapezoids(n, n, trapezoids((0, n), -256, 257, slope=(1, 1)))
    assert len(band.top) - 1 <= 3
    both = combine(
        n, n, band.trapezoids(), rows_of_trapezoids(n, n, trapezoids((0, n), 0, 2)).trapezoids(), OR
    )
    assert len(both.top) - 1 <= 6


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 7), st.data())
@settings(deadline=None, max_examples=100)
def test_blocks_as_rows(n: int, m: int, block: int, data: st.DataObject) -> None:
    high, wide = -(-n // block), -(-m // block)
    marks = data.draw(st.lists(st.booleans(), min_size=high * wide, max_size=high * wide))
    chosen = np.array(marks, bool).reshape(high, wide)
    row, column = np.nonzero(chosen)
    ptr = np.searchsorted(row, np.arange(high + 1))
    wanted = chosen.repeat(block, 0).repeat(block, 1)[:n, :m]
    assert_is(rows_of_blocks(n, m, block, ptr, column), wanted)

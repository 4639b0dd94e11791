"""Blocks by kind, on random pieces against matrices."""

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.layouts import (
    NOT,
    NOTHING,
    Trapezoids,
    combine,
    joined,
    rows_of_trapezoids,
    trapezoids,
)
from edgewise.layouts import tiling as module
from edgewise.layouts.tiling import FULL, tile_rows
from tests.layouts.test_rows import matrix, random_trapezoids


@given(
    random_trapezoids(), st.integers(0, 18), st.integers(0, 18), st.integers(1, 7), st.booleans()
)  # fmt: skip
@settings(deadline=None, max_examples=300)
def test_every_pair_is_in_its_block(
    p: Trapezoids, n: int, m: int, block: int, turned: bool
) -> None:
    rows, wanted = rows_of_trapezoids(n, m, p), matrix(n, m, p)
    if turned:
        rows, wanted = combine(n, m, rows.trapezoids(), NOTHING, NOT), ~wanted
    with patch.object(module, "AT_ONCE", 2):
        found = tile_rows(rows, block)
        found.kinds  # noqa: B018
    high, wide = found.shape
    assert (high, wide) == (-(-n // block), -(-m // block))
    padded = np.zeros((high * block, wide * block), bool)
    padded[:n, :m] = wanted
    tiles = padded.reshape(high, block, wide, block).transpose(0, 2, 1, 3)
    row, column, kinds = found.listed()
    assert found.count == len(row) == len(set(zip(row.tolist(), column.tolist(), strict=True)))
    assert found.count == tiles.any((2, 3)).sum()
    for r, c, kind in zip(row, column, kinds, strict=True):
        assert (kind == FULL) == tiles[r, c].all()
        assert kind == FULL or np.array_equal(found.masks[kind], tiles[r, c])


def test_alike_blocks_are_of_one_kind_at_any_length() -> None:
    for slope, step, most in (((1, 1), 1, 15), ((1, 1), 3, 19), ((0, 1), 1, 4)):
        found = []
        for n in (4096, 65_536):
            band = trapezoids((0, n), -90, 91, slope=slope, step=step)
            rows = rows_of_trapezoids(
                n, n, joined(band, trapezoids((0, n), 0, 2)) if step == 1 else band
            )
            found.append(len(tile_rows(rows, 64).masks))
        assert found[0] == found[1] <= most


def test_a_step_longer_than_a_block_lists_no_empty_ones() -> None:
    rows = rows_of_trapezoids(512, 512, trapezoids((0, 512), 3, 512, step=100))
    assert tile_rows(rows, 16).count == 32 * 6

"""Pairs as bits: rows, blocks and masks of blocks are those of the pairs, stored or not."""

import numpy as np
import pytest
import torch

from edgewise.ground.masks.pattern import tested
from edgewise.kernels.attention import attention
from edgewise.layouts import bitmap
from edgewise.layouts.bitmap import SLAB, Bitmap, BitTiling


def made(n, m):
    """Pairs without an order; blocks of a slab without any, with all, and with some."""
    random = np.random.default_rng(0)
    mask = random.random((n, m)) < 0.3
    mask[:SLAB, :SLAB], mask[SLAB : 2 * SLAB, :SLAB], mask[-1] = False, True, False
    cells = [
        [mask[i : i + SLAB, j : j + SLAB] for j in range(0, m, SLAB)] for i in range(0, n, SLAB)
    ]
    possible = np.array([[cell.any() for cell in row] for row in cells])
    certain = np.array([[cell.all() for cell in row] for row in cells])

    def test(first, last, keys):
        return mask[first:last, keys]

    return mask, Bitmap(n, m, test, possible, certain)


@pytest.mark.parametrize("shape", [(300, 300), (257, 140), (300, 33)])
@pytest.mark.parametrize("stored", [True, False])
def test_bits_are_the_pairs(shape, stored, monkeypatch):
    if not stored:
        monkeypatch.setattr(bitmap, "STORED", 0)
    n, m = shape
    mask, found = made(n, m)
    assert found.count() == mask.sum()
    assert (found.degrees() == mask.sum(1)).all()
    assert (found.rows().dense().numpy() == mask).all()
    for block in (32, 64, 256):
        wide = np.zeros((-(-n // block) * block, -(-m // block) * block), bool)
        wide[:n, :m] = mask
        tiles = wide.reshape(len(wide) // block, block, -1, block).transpose(0, 2, 1, 3)
        assert (found.pairs_in(block) == tiles.sum((2, 3))).all()
        tiling = BitTiling(found, block)
        row, column, kinds = tiling.listed()
        masks = tiling.masks_of(torch.from_numpy(kinds)).numpy()
        assert len(row) == tiling.count == found.blocks(block).count
        assert (masks == tiles[row, column]).all()


@pytest.mark.parametrize("kernel", ["blocks", "csr", "reference"])
def test_kernels_read_bits(kernel):
    mask, found = made(200, 170)
    q, k, v = (torch.randn(2, size, 8, requires_grad=True) for size in (200, 170, 170))
    out = attention(q, k, v, tested(found), kernel=kernel)
    plain = torch.from_numpy(mask)
    some = plain.any(1, keepdim=True)
    score = (q @ k.mT / 8**0.5).masked_fill(~plain, -torch.inf)
    expected = torch.where(some, score, 0.0).softmax(-1).where(some, 0.0) @ v
    torch.testing.assert_close(out, expected)
    weight = torch.randn_like(out)
    for got, want in zip(
        torch.autograd.grad(out, (q, k, v), weight),
        torch.autograd.grad(expected, (q, k, v), weight),
        strict=True,
    ):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)

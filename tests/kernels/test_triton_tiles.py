"""The lists that drive the block kernels say exactly which pairs there are."""

import numpy as np
import pytest
import torch

from edgewise.graphs import bigbird, causal, documents, global_tokens, strided, window
from edgewise.kernels.attention.triton.lists import LAYERS, ONE, tile_lists
from edgewise.layouts.tiling import FULL

GRAPHS = [
    window(9), window(9) | global_tokens(1), window(20) & causal(), documents([40, 60]),
    bigbird(8, 1), strided(7), strided(3) | window(2),
]  # fmt: skip


def pairs(made, lists, n, turned):
    """How often each pair is in the lists."""
    block, size = made.ends.shape[1], made.height
    total = np.zeros((size * block, size * block), int)
    work = lists.work.view(torch.int32).view(-1, 2).tolist()
    ends, layer_ptr = made.ends.numpy(), made.layer_ptr.tolist()
    for row, _, low, high in lists.items.tolist():
        for other, kind in work[low:high]:
            i, j = (other, row) if turned else (row, other)
            part = total[i * block : (i + 1) * block, j * block : (j + 1) * block]
            if kind == FULL:
                part += 1
                continue
            layers = [kind] if made.form == ONE else range(*layer_ptr[kind : kind + 2])
            for layer in layers:
                first, last = ends[layer] & 0xFFFF, ends[layer] >> 16
                across = np.arange(block)
                part += (across >= first[:, None]) & (across < last[:, None])
    return total[:n, :n]


@pytest.mark.parametrize(
    ("graph", "n"), [*((graph, 100) for graph in GRAPHS), (GRAPHS[1], 1)], ids=repr
)
def test_every_pair_is_there_once(graph, n):
    made = tile_lists(graph, n, n, 16, "cpu")
    for lists, turned in ((made.rows, False), (made.columns, True)):
        assert (pairs(made, lists, n, turned) == graph.dense(n).numpy()).all()


def test_a_block_of_two_runs_is_two_blocks_where_there_are_few():
    """So that no kernel looks for a second run in each of thousands of blocks."""
    assert tile_lists(window(512) | global_tokens(1), 4096, 4096, 64, "cpu").form == ONE
    assert tile_lists(strided(7), 512, 512, 64, "cpu").form == LAYERS


def test_long_items_come_first():
    rows = tile_lists(window(512) | global_tokens(1), 16_384, 16_384, 64, "cpu").rows
    size = rows.items[:, 3] - rows.items[:, 2]
    assert 0 < rows.first < 10
    assert size[: rows.first].min() > size[rows.first :].max()
    assert tile_lists(window(64), 4096, 4096, 64, "cpu").rows.first == 0

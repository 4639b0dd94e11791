"""Conversion to FlexAttention's `BlockMask`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from edgewise.graphs.checks import available_device, check_memory, integer, nonempty
from edgewise.layouts import Blocks

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def block_mask_sizes(
    n: int, m: int | None, block: int, device: Any
) -> tuple[int, int, torch.device]:
    """The checked arguments of a `BlockMask`, which has an entry for every block."""
    n, m = nonempty(n, "mask"), None if m is None else nonempty(m, "mask", "m")
    m = n if m is None else m
    block = integer(block, "block", 1)
    high, wide = -(-n // block), -(-m // block)
    check_memory(6 * high * wide, f"a `BlockMask` of {high:,}×{wide:,} blocks")
    return n, m, available_device(device)


def block_mask(heads: Sequence[Blocks], mask_mod: MaskMod) -> BlockMask:
    """A `BlockMask` from the blocks of one head for all, or of each head."""
    partial = [_partitioned(blocks, ~blocks.full) for blocks in heads]
    full = [_partitioned(blocks, blocks.full) for blocks in heads]
    one = heads[0]
    return BlockMask.from_kv_blocks(
        torch.stack([count for count, _ in partial])[None],
        torch.stack([index for _, index in partial])[None],
        torch.stack([count for count, _ in full])[None],
        torch.stack([index for _, index in full])[None],
        BLOCK_SIZE=one.block,
        mask_mod=mask_mod,
        seq_lengths=(one.n, one.m),
    )


def _partitioned(blocks: Blocks, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Per block row the number of chosen blocks, and all block columns, the chosen first.

    FlexAttention's index has an entry for every block, so this costs (n / block)².
    """
    rows, columns = blocks.shape
    chosen_row, chosen_index = blocks.row[chosen].long(), blocks.index[chosen].long()
    count = torch.bincount(chosen_row, minlength=rows)
    taken = torch.zeros(rows, columns, dtype=torch.bool)
    taken[chosen_row, chosen_index] = True
    place = torch.where(taken, taken.cumsum(1), count[:, None] + (~taken).cumsum(1)) - 1
    index = torch.empty(rows, columns, dtype=torch.int32)
    index.scatter_(1, place, torch.arange(columns, dtype=torch.int32).expand(rows, columns))
    return count.to(torch.int32), index

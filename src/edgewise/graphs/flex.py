"""To FlexAttention's `BlockMask`."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from edgewise.layouts import Blocks

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def block_mask(heads: Sequence[Blocks], mask_mod: MaskMod) -> BlockMask:
    """The blocks of one head for all, or of each head, as a `BlockMask`."""
    partial = [_ordered(blocks, ~blocks.full) for blocks in heads]
    full = [_ordered(blocks, blocks.full) for blocks in heads]
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


def _ordered(blocks: Blocks, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Per block row how many blocks are chosen, and all block columns, the chosen first.

    FlexAttention's index has a place for every block, so this costs (n / block)².
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

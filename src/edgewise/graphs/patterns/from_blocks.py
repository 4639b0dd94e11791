"""Block-sparse masks from a list of blocks or a FlexAttention `BlockMask`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.graphs.errors import BadChoice, EdgeOutOfRange, SizeMismatch
from edgewise.graphs.int_array import IntArray, Integers
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.from_edges import from_edges, not_a
from edgewise.layouts import Rows, rows_of_trapezoids, trapezoids

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True, repr=False)
class from_blocks(Pattern):
    """Full blocks: {(i, j) : (⌊i / block⌋, ⌊j / block⌋) ∈ pairs}.

    >>> from_blocks([(0, 1)], 2).edges(4).T.tolist()
    [[0, 2], [0, 3], [1, 2], [1, 3]]
    """

    pairs: Integers
    block: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", from_edges(self.pairs).pairs)
        integer(self.block, "block", 1)
        assert isinstance(self.pairs, IntArray)
        integer(
            int(self.pairs.array.max(initial=0)) * self.block, "the tokens before the last block"
        )

    def compute_rows(self, n: int, m: int) -> Rows:
        assert isinstance(self.pairs, IntArray)
        row, column = self.pairs.array.T
        if len(row) and (row.max() * self.block >= n or column.max() * self.block >= m):
            raise EdgeOutOfRange(
                f"a block lies outside {n} queries and {m} keys",
                caller(),
                f"use n = {int(max(row.max(), column.max())) * self.block + 1} or more",
            )
        top, first = row * self.block, column * self.block
        return rows_of_trapezoids(
            n, m, trapezoids((top, top + self.block), first, first + self.block)
        )


def from_block_mask(mask: "BlockMask", head: int = 0) -> Pattern:
    """The pairs of one head of FlexAttention's `BlockMask`.

    `mask_mod` is evaluated in partial blocks only; time and memory O(partial blocks).

    >>> from torch.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 256, 256, device="cpu")
    >>> from_block_mask(mask).count(256)
    32896
    """
    from torch.nn.attention.flex_attention import BlockMask

    if not isinstance(mask, BlockMask):
        raise not_a(mask, "a `BlockMask` of FlexAttention", "what `create_block_mask` returns")
    batch, heads = mask.kv_num_blocks.shape[:2]
    if batch > 1:
        raise SizeMismatch(
            f"the mask has {batch} batch elements, a graph has one", caller(), "use `mask[b]`"
        )
    head = integer(head, "head", most=max(heads - 1, 0)) if heads > 1 else integer(head, "head")
    size, other = mask.BLOCK_SIZE
    if size != other:
        raise BadChoice(f"blocks of {size}×{other} are not square", caller(), "use one block size")
    full = _listed(mask.full_kv_num_blocks, mask.full_kv_indices, head)
    partial = _listed(mask.kv_num_blocks, mask.kv_indices, head)
    n, m = mask.seq_lengths
    inside = torch.arange(size)
    found = [np.zeros((2, 0), np.int64)]
    for chunk in np.array_split(partial, max(1, len(partial) // 256)):
        row, column = torch.from_numpy(chunk).T
        i = (row[:, None, None] * size + inside[None, :, None]).expand(-1, size, size).reshape(-1)
        j = (
            (column[:, None, None] * size + inside[None, None, :])
            .expand(-1, size, size)
            .reshape(-1)
        )
        some = (i < n) & (j < m)
        i, j = i[some], j[some]
        held = (
            torch.vmap(mask.mask_mod, in_dims=(None, None, 0, 0))(
                torch.tensor(0), torch.tensor(head), i, j
            )
            if len(i)
            else i.bool()
        )
        found.append(torch.stack([i[held], j[held]]).numpy())
    edges = from_edges(np.concatenate(found, axis=1))
    return from_blocks(full.T, size) | edges if len(full) else edges


def _listed(count: torch.Tensor | None, index: torch.Tensor | None, head: int) -> np.ndarray:
    if count is None or index is None:
        return np.zeros((0, 2), np.int64)
    count, index = count[0, head % count.shape[1]].long(), index[0, head % index.shape[1]].long()
    row = torch.repeat_interleave(torch.arange(len(count)), count)
    taken = torch.arange(index.shape[1])[None, :] < count[:, None]
    return torch.stack([row, index[taken]], dim=1).cpu().numpy()

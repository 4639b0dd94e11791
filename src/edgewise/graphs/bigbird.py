"""BigBird (Zaheer et al. 2020, arXiv 2007.14062): window, global and random blocks."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.bigbird_draws import drawn_like_the_paper
from edgewise.graphs.checks import one_of, room, seeded, whole
from edgewise.graphs.errors import BadSize, SizeMismatch
from edgewise.graphs.families import per_head
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import distinct
from edgewise.graphs.sizes import sizes
from edgewise.layouts import Rows, rows_of_blocks
from edgewise.layouts.ragged import Ints, starts_of_runs

VARIANTS = ("uniform", "paper", "hf_train", "hf_eval")
MOST_HEADS = 4096


@dataclass(frozen=True, repr=False)
class bigbird(Pattern):
    """Blocks: {(i, j) : with b = ⌊i / block⌋, c = ⌊j / block⌋: b or c is one of the first
    `global_first` or last `global_last` blocks, or |b - c| ≤ window div 2, or c ∈ S(b)}.

    S(b) are `random` blocks that are not in the set already ("uniform"), or those which the
    paper's code ("paper") and Hugging Face's ("hf_train", "hf_eval") take: there a block can be
    counted more than once (`multiplicities`), and in evaluation S(b) is `random` times block 0.
    `attention` counts each pair once, as a graph is a set, and warns of it: their numbers need
    `edge_bias=graph.log_bias(n)`. `seed` is the number of the layer, 0 unless given, and always
    printed; each of the `heads` has blocks of its own. More tokens are another graph.

    >>> bigbird(block=2, random=0).blocks(12, block=2).dense().bool().int()[2].tolist()
    [1, 1, 1, 1, 0, 1]
    """

    always_written = ("seed",)
    block: int = 64
    random: int = 3
    window: int = field(default=3, kw_only=True)
    global_first: int = field(default=1, kw_only=True)
    global_last: int = field(default=1, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    variant: str = field(default="uniform", kw_only=True)
    heads: int = field(default=1, kw_only=True)
    head: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        whole(self.block, "block", 1)
        for name in ("random", "global_first", "global_last", "head"):
            whole(getattr(self, name), name)
        whole(self.heads, "heads", 1, MOST_HEADS)
        seeded(self.seed, "bigbird")
        if one_of(self.variant, "variant", VARIANTS) != "uniform":
            whole(self.seed, "seed", most=2**32 - 1)  # as the published code takes it
        if whole(self.window, "window", 1) % 2 == 0:
            raise BadSize(
                f"`window` must be odd, got {self.window}", caller(), "a block and its neighbours"
            )
        if self.head >= self.heads:
            raise BadSize(
                f"there is no head {self.head} of {self.heads}", caller(), "heads count from 0"
            )
        shape = (self.window, self.global_first, self.global_last)
        if self.variant != "uniform" and shape != (3, 1, 1):
            raise BadSize(
                f'the variant "{self.variant}" has 3 window and 1 + 1 global blocks, got {shape}',
                caller(),
                'use variant="uniform" for other shapes',
            )

    def per_head(self) -> per_head:
        """The patterns of all heads."""
        return per_head(*(replace(self, head=head) for head in range(self.heads)))

    @property
    def counts_twice(self) -> bool:
        return self.variant != "uniform"

    def form(self, n: int, m: int) -> Rows:
        row, column, _ = self._blocks(n, m)
        ptr = np.searchsorted(row, np.arange(-(-n // self.block) + 1))
        return rows_of_blocks(n, m, self.block, ptr, column)

    def multiplicities(self, n: int, m: int | None = None) -> Tensor:
        """How often each pair of `edges(n)` counts in the softmax."""
        n, m = sizes(n, m)
        row, column, count = self._blocks(n, m)
        wide = -(-m // self.block)
        i, j = self.edges(n, m).numpy() // self.block
        at = np.searchsorted(row * wide + column, i * wide + j)
        return torch.from_numpy(count[at])

    def _blocks(self, n: int, m: int) -> tuple[Ints, Ints, Ints]:
        """The pairs of blocks in order, and how often each counts."""
        high, wide = -(-n // self.block), -(-m // self.block)
        most = min(self.random, wide)
        room(16 * (high * (most + 3) + 2 * wide), f"the blocks of {n:,} tokens")
        if self.variant.startswith("hf") and n == m <= (5 + 2 * self.random) * self.block:
            room(4 * high * wide, f"all blocks of {n:,} tokens")
            every = np.arange(high * wide)  # Hugging Face switches to full attention
            return every // max(wide, 1), every % max(wide, 1), np.ones_like(every)
        drawn = self.variant in ("paper", "hf_train")
        if (n != m and self.variant != "uniform") or (drawn and n % self.block):
            raise SizeMismatch(
                f'the variant "{self.variant}" needs whole blocks of {self.block}, got {n}×{m}',
                caller(),
                f"pad to {high * self.block} tokens",
            )
        fixed_row, fixed_column = self._fixed(high, wide)
        if self.variant == "uniform":
            row, column = self._uniform(high, wide)
        elif self.variant == "hf_eval":
            row = np.repeat(np.arange(1, high - 1), self.random)
            column = np.zeros_like(row)
        else:
            row, column = drawn_like_the_paper(self, n)
        key = np.sort(np.concatenate([fixed_row * wide + fixed_column, row * wide + column]))
        first = starts_of_runs(key)
        key, count = key[first], np.diff(np.append(first, len(key)))
        return key // max(wide, 1), key % max(wide, 1), count

    def _fixed(self, high: int, wide: int) -> tuple[Ints, Ints]:
        """Window and global blocks, each once."""
        middle = self._middle(high)
        columns = self._heard(middle, wide)
        row, column = np.repeat(middle, columns.shape[1]), columns.ravel()
        some = column >= 0
        top = np.setdiff1d(np.arange(high), middle)
        every = np.repeat(top, wide), np.tile(np.arange(wide), len(top))
        return np.concatenate([every[0], row[some]]), np.concatenate([every[1], column[some]])

    def _middle(self, high: int) -> Ints:
        """The block rows that do not hear everything."""
        return np.arange(min(self.global_first, high), max(high - self.global_last, 0))

    def _heard(self, row: Ints, wide: int) -> Ints:
        """The window and global blocks of each row, ascending; -1 where there are fewer."""
        reach = min(self.window // 2, max(len(row), wide) + self.global_first)
        room(4 * len(row) * (2 * reach + 1), f"a window of {self.window:,} blocks")
        near = row[:, None] + np.arange(-reach, reach + 1)[None, :]
        first, last = min(self.global_first, wide), max(wide - self.global_last, 0)
        ends = np.concatenate([np.arange(first), np.arange(max(first, last), wide)])
        near = np.where((near >= first) & (near < last), near, -1)
        both = np.concatenate([near, np.broadcast_to(ends, (len(row), len(ends)))], axis=1)
        return np.sort(both, axis=1)

    def _uniform(self, high: int, wide: int) -> tuple[Ints, Ints]:
        """`random` blocks per row among those that it does not hear yet."""
        row = self._middle(high)
        heard = self._heard(row, wide)
        free = wide - (heard >= 0).sum(axis=1)
        count = min(self.random, wide)
        drawn = distinct(self.seed, row, count, free, stream=self.head)
        for k in range(heard.shape[1]):  # the t-th free block: step over those heard, in order
            passed = (heard[:, k : k + 1] >= 0) & (drawn >= heard[:, k : k + 1])
            drawn = np.where(drawn >= 0, drawn + passed, drawn)
        some = drawn.ravel() >= 0
        return np.repeat(row, count)[some], drawn.ravel()[some]

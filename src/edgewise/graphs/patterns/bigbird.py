"""BigBird (Zaheer et al. 2020, arXiv 2007.14062): window, global and random blocks."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import check_memory, integer, one_of, required_seed, sequence_lengths
from edgewise.graphs.errors import BadSize, SizeMismatch
from edgewise.graphs.families import per_head
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.philox import distinct
from edgewise.layouts import Rows, rows_of_blocks
from edgewise.layouts.ragged import Ints, starts_of_runs

VARIANTS = ("uniform", "paper", "hf_train", "hf_eval")
MOST_HEADS = 4096
LONGEST = 4096  # the published lists are drawn for this many tokens and truncated
REACH = 1024  # and hold only blocks of the first of them
LIST_LENGTHS = {"paper": (1024, 2048, 3072, 4096), "hf_train": (1024, 3072, 4096)}


@dataclass(frozen=True, repr=False)
class bigbird(Pattern):
    """Blocks: {(i, j) : with b = ⌊i / block⌋, c = ⌊j / block⌋: b or c is one of the first
    `global_first` or last `global_last` blocks, or |b - c| ≤ window div 2, or c ∈ S(b)}.

    S(b) are `random` blocks not in the set already ("uniform"), or those of the paper's code
    ("paper") and of Hugging Face's ("hf_train", "hf_eval"): there a block can count more than once
    (`multiplicities`), and in evaluation S(b) is `random` times block 0. `attention` counts each
    pair once, as a graph is a set, and warns of it: to match their outputs pass
    `edge_bias=graph.log_bias(n)`. `seed` is the index of the layer, 0 by default, and always
    printed; each of the `heads` has its own blocks. The graph of more tokens does not extend this
    one.

    >>> bigbird(block=2, random=0).blocks(12, block=2).dense().bool().int()[2].tolist()
    [1, 1, 1, 1, 0, 1]
    """

    always_printed = ("seed",)
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
        integer(self.block, "block", 1)
        for name in ("random", "global_first", "global_last", "head"):
            integer(getattr(self, name), name)
        integer(self.heads, "heads", 1, MOST_HEADS)
        required_seed(self.seed, "bigbird")
        if one_of(self.variant, "variant", VARIANTS) != "uniform":
            integer(self.seed, "seed", most=2**32 - 1)  # the range of the published code
        if integer(self.window, "window", 1) % 2 == 0:
            raise BadSize(
                f"`window` must be odd, got {self.window}", caller(), "a block and its neighbours"
            )
        if self.head >= self.heads:
            raise BadSize(
                f"`head` must be below `heads` = {self.heads}, got {self.head}",
                caller(),
                "heads count from 0",
            )
        shape = (self.window, self.global_first, self.global_last)
        if self.variant != "uniform" and shape != (3, 1, 1):
            raise BadSize(
                f'the variant "{self.variant}" has 3 window and 1 + 1 global blocks, got {shape}',
                caller(),
                'use variant="uniform" for other shapes',
            )

    def per_head(self) -> per_head:
        """The patterns of all heads.

        >>> bigbird(block=2, random=1, heads=3).per_head().dense(16).shape
        torch.Size([3, 16, 16])
        """
        return per_head(*(replace(self, head=head) for head in range(self.heads)))

    @property
    def counts_twice(self) -> bool:
        return self.variant != "uniform"

    def compute_rows(self, n: int, m: int) -> Rows:
        row, column, _ = self._blocks(n, m)
        ptr = np.searchsorted(row, np.arange(-(-n // self.block) + 1))
        return rows_of_blocks(n, m, self.block, ptr, column)

    def multiplicities(self, n: int, m: int | None = None) -> Tensor:
        """How often each pair of `edges(n)` counts in the softmax."""
        n, m = sequence_lengths(n, m)
        row, column, count = self._blocks(n, m)
        wide = -(-m // self.block)
        i, j = self.edges(n, m).numpy() // self.block
        at = np.searchsorted(row * wide + column, i * wide + j)
        return torch.from_numpy(count[at])

    def _blocks(self, n: int, m: int) -> tuple[Ints, Ints, Ints]:
        """The pairs of blocks, sorted, and their multiplicities."""
        high, wide = -(-n // self.block), -(-m // self.block)
        most = min(self.random, wide)
        check_memory(16 * (high * (most + 3) + 2 * wide), f"the blocks of {n:,} tokens")
        if self.variant.startswith("hf") and n == m <= (5 + 2 * self.random) * self.block:
            check_memory(4 * high * wide, f"all blocks of {n:,} tokens")
            every = np.arange(high * wide)  # Hugging Face switches to full attention
            return every // max(wide, 1), every % max(wide, 1), np.ones_like(every)
        drawn = self.variant in ("paper", "hf_train")
        if (n != m and self.variant != "uniform") or (drawn and n % self.block):
            raise SizeMismatch(
                f'variant "{self.variant}" needs n = m, a multiple of {self.block}; got {n}×{m}',
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
            row, column = _published_blocks(self, n)
        key = np.sort(np.concatenate([fixed_row * wide + fixed_column, row * wide + column]))
        first = starts_of_runs(key)
        key, count = key[first], np.diff(np.append(first, len(key)))
        return key // max(wide, 1), key % max(wide, 1), count

    def _fixed(self, high: int, wide: int) -> tuple[Ints, Ints]:
        """Window and global blocks."""
        middle = self._middle(high)
        columns = self._fixed_columns(middle, wide)
        row, column = np.repeat(middle, columns.shape[1]), columns.ravel()
        some = column >= 0
        top = np.setdiff1d(np.arange(high), middle)
        every = np.repeat(top, wide), np.tile(np.arange(wide), len(top))
        return np.concatenate([every[0], row[some]]), np.concatenate([every[1], column[some]])

    def _middle(self, high: int) -> Ints:
        """The block rows that are not global."""
        return np.arange(min(self.global_first, high), max(high - self.global_last, 0))

    def _fixed_columns(self, row: Ints, wide: int) -> Ints:
        """The window and global blocks of each row, ascending, padded with -1."""
        reach = min(self.window // 2, max(len(row), wide) + self.global_first)
        check_memory(4 * len(row) * (2 * reach + 1), f"a window of {self.window:,} blocks")
        near = row[:, None] + np.arange(-reach, reach + 1)[None, :]
        first, last = min(self.global_first, wide), max(wide - self.global_last, 0)
        ends = np.concatenate([np.arange(first), np.arange(max(first, last), wide)])
        near = np.where((near >= first) & (near < last), near, -1)
        both = np.concatenate([near, np.broadcast_to(ends, (len(row), len(ends)))], axis=1)
        return np.sort(both, axis=1)

    def _uniform(self, high: int, wide: int) -> tuple[Ints, Ints]:
        """`random` blocks per row among those that are neither window nor global."""
        row = self._middle(high)
        fixed = self._fixed_columns(row, wide)
        free = wide - (fixed >= 0).sum(axis=1)
        count = min(self.random, wide)
        drawn = distinct(self.seed, row, count, free, stream=self.head)
        for k in range(fixed.shape[1]):  # the t-th free block: skip the fixed ones, in order
            passed = (fixed[:, k : k + 1] >= 0) & (drawn >= fixed[:, k : k + 1])
            drawn = np.where(drawn >= 0, drawn + passed, drawn)
        some = drawn.ravel() >= 0
        return np.repeat(row, count)[some], drawn.ravel()[some]


def _published_blocks(pattern: "bigbird", n: int) -> tuple[Ints, Ints]:
    """The random blocks that the published code draws, for checkpoints trained with them.

    They come from NumPy's legacy generator, whose stream never changes, seeded with the index of
    the layer and read in the order in which that code draws permutations. Duplicates are included.
    """
    generator = np.random.RandomState(pattern.seed)
    blocks = n // pattern.block
    if n in LIST_LENGTHS[pattern.variant]:
        for _ in range(pattern.head + 1):  # heads are drawn one after another
            drawn = [
                generator.permutation(_allowed(row, pattern.block))[: pattern.random]
                for row in range(1, LONGEST // pattern.block - 1)
            ]
        chosen = dict(enumerate(drawn[: blocks - 2], start=1))
    else:
        chosen = _planned(pattern, blocks, generator)
    if any(len(columns) != pattern.random for columns in chosen.values()):
        raise SizeMismatch(
            f"{n} tokens are not enough for {pattern.random} random blocks of {pattern.block}",
            caller(),
            'use fewer random blocks, or variant="uniform"',
        )
    row = np.repeat(np.array(list(chosen), dtype=np.int64), pattern.random)
    return row, np.concatenate([np.zeros(0, np.int64), *chosen.values()])


def _allowed(row: int, block: int) -> Ints:
    """The candidates of the published lists: blocks of the first 1024 tokens outside the window.

    The last rows ignore their window, and so may draw its blocks again.
    """
    rows = LONGEST // block
    last = REACH // block - 1 if 2 * block < REACH else rows - 1
    before, after = np.arange(1, row - 1), np.arange(row + 2, last + 1)
    inside = np.arange(1, rows - 1)
    inside = inside[inside <= last]
    if row >= rows - 3 or row - 2 > last:
        return inside
    if row in (1, 2):
        return after[after < rows - 1]
    if row + 1 == last:
        return before
    return np.concatenate([before, after[after < rows - 1]])


def _planned(pattern: "bigbird", blocks: int, generator: np.random.RandomState) -> dict[int, Ints]:
    """For other lengths: stages of columns, each with its share of the random blocks."""
    r = pattern.random
    if 2 * r + 5 < blocks:
        plan = [(2 * r + 5, r), (blocks, 0)]
    elif r + 5 < blocks:
        plan = [(r + 5, r // 2), (blocks, r - r // 2)]
    else:
        plan = [(blocks, r)]
    drawn: dict[tuple[int, int], Ints] = {}
    for stage, (end, share) in enumerate(plan):
        begin = plan[stage - 1][0] if stage else 0
        tasks = [(range(1, begin), stage)] if stage and share else []
        tasks += [(range(begin, end), earlier) for earlier in range(stage) if plan[earlier][1]]
        tasks += [(range(begin or 1, end), stage)] if share else []
        for rows, of in tasks:
            low, (high, count) = plan[of - 1][0] if of else 0, plan[of]
            for row in rows:
                for head in range(pattern.heads):
                    found = _row(row, low, high, count, generator)
                    if head == pattern.head:
                        drawn[row, of] = found
    return {
        row: np.concatenate(
            [drawn.get((row, of), np.zeros(0, np.int64)) for of in range(len(plan))]
        )
        for row in range(1, blocks - 1)
    }


def _row(row: int, low: int, high: int, count: int, generator: np.random.RandomState) -> Ints:
    """The first `count` of the blocks low to high, in random order, that the row may draw."""
    order = generator.permutation(np.arange(low, high))
    banned = {row - 1, row, row + 1, 0, high - 1}
    banned |= {high - 2} if row == 1 else set()
    banned |= {1} if row == high - 2 else set()
    return np.array([block for block in order if block not in banned][:count], dtype=np.int64)

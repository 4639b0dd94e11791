"""The random blocks that BigBird's published code draws, for checkpoints trained with them.

They come from NumPy's legacy generator, whose stream never changes, seeded with the layer's number
and read in the order in which that code asks for permutations.
"""

from typing import TYPE_CHECKING

import numpy as np

from edgewise.errors import caller
from edgewise.graphs.errors import SizeMismatch
from edgewise.layouts.ragged import Ints

if TYPE_CHECKING:
    from edgewise.graphs.bigbird import bigbird

LONGEST = 4096  # the old lists are drawn for this many tokens and cut
REACH = 1024  # and hold only blocks of the first of them
OLD_LENGTHS = {"paper": (1024, 2048, 3072, 4096), "hf_train": (1024, 3072, 4096)}


def drawn_like_the_paper(pattern: "bigbird", n: int) -> tuple[Ints, Ints]:
    """Block rows and their random blocks, repeated ones included."""
    generator = np.random.RandomState(pattern.seed)
    blocks = n // pattern.block
    if n in OLD_LENGTHS[pattern.variant]:
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
            f"{n} tokens are too few for {pattern.random} random blocks of {pattern.block}",
            caller(),
            'use fewer random blocks, or variant="uniform"',
        )
    row = np.repeat(np.array(list(chosen), dtype=np.int64), pattern.random)
    return row, np.concatenate([np.zeros(0, np.int64), *chosen.values()])


def _allowed(row: int, block: int) -> Ints:
    """What the old lists choose from: blocks of the first 1024 tokens outside the row's window.

    The rows before the end forget their window, and then draw what they hear already.
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
    """The first `count` of the blocks low to high, in random order, that the row may choose."""
    order = generator.permutation(np.arange(low, high))
    banned = {row - 1, row, row + 1, 0, high - 1}
    banned |= {high - 2} if row == 1 else set()
    banned |= {1} if row == high - 2 else set()
    return np.array([block for block in order if block not in banned][:count], dtype=np.int64)

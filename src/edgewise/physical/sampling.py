"""Sampled groundings: at most this many of each rule head, drawn without replacement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewise.errors import EdgewiseError, caller, counted
from edgewise.layouts.ragged import Ints, pointer, ranges


class BadBatches(EdgewiseError):
    """A batch is a number of seeds, with at most a number of groundings per rule head and hop."""

    code = "bad-batches"
    example = """\
model = Program([R.h(V.X) <= (R.a(V.Y), R._edge(V.Y, V.X))]).compile(R.h)
data = model.ground(edge=torch.tensor([[0, 1], [1, 0]]))
next(iter(model.batches([0, 1], data, most=[2, 2], a=torch.ones(2))))"""
    instead = """\
model = Program([R.h(V.X) <= (R.a(V.Y), R._edge(V.Y, V.X))]).compile(R.h)
data = model.ground(edge=torch.tensor([[0, 1], [1, 0]]))
next(iter(model.batches([0, 1], data, most=[2], a=torch.ones(2))))"""


class Sampler:
    """Chooses at most `most[hop]` groundings of each rule head, None for all.

    A hop is a rule that aggregates several groundings, counted from the output.
    """

    def __init__(self, most: Sequence[int | None], random: np.random.Generator) -> None:
        self.most = most
        self.random = random

    def __call__(self, start: Ints, count: Ints, hop: int) -> tuple[Ints, Ints]:
        """The groundings that are chosen, of one head after another, and how many of each."""
        most = self.most[hop]
        if most is None:
            return ranges(start, count), count
        taken = np.minimum(count, most)
        large = np.flatnonzero(count > most)
        if not len(large):
            return ranges(start, count), count
        ends = pointer(taken)
        which = ranges(start, taken)
        places = ends[large][:, None] + np.arange(most)
        which[places] = start[large][:, None] + drawn(count[large], most, self.random)
        return which, taken

    def refuse(self, relation: str, reason: str, hop: int) -> None:
        """Refuse to sample the keys of an attention; all of them are fine."""
        if self.most[hop] is not None:
            raise BadBatches(
                f"the keys of the attention `{relation}` are not sampled: {reason}",
                caller(),
                f"take all of them: None as number {hop + 1} of `most`",
            )

    def check(self, hops: int) -> None:
        """Refuse another number of limits than there are hops."""
        if hops != len(self.most):
            raise BadBatches(
                f"`most` has {counted(len(self.most), 'number')}, and the outputs are "
                f"{counted(hops, 'hop')} from the data",
                caller(),
                f"give one for each hop: `most={[10] * hops}`",
            )


def drawn(sizes: Ints, count: int, random: np.random.Generator) -> Ints:
    """For each size n, `count` < n different numbers below it, ascending: each set as likely.

    Floyd's algorithm, one step for all rows: t ≤ j is taken, or j itself where t was taken before.
    """
    found = np.empty((len(sizes), count), np.int64)
    for step in range(count):
        last = sizes - count + step
        one = (random.random(len(sizes)) * (last + 1)).astype(np.int64)
        before = (found[:, :step] == one[:, None]).any(axis=1)
        found[:, step] = np.where(before, last, one)
    found.sort(axis=1)
    return found

"""Atoms that hold while a recursion runs, as sorted runs of doubling size.

A round of n adds few of N atoms: adding them to one sorted table costs N for each round, to runs
of doubling size log N for each atom.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.ground.index import Index, Keys, distinct_rows, index_of, rows_of


class KeyRuns:
    """Disjoint sets of keys, each less than half as large as the one before.

    >>> runs = KeyRuns(Keys(torch.tensor([[3], [5]])))
    >>> runs.add(torch.tensor([[4]]))
    >>> runs.knows(torch.tensor([[4], [6]])).tolist(), runs.merged().keys.tolist()
    ([True, False], [[3], [4], [5]])
    """

    def __init__(self, have: Index | None) -> None:
        self.runs: list[Index] = [] if have is None or not have.rows else [have]

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    def knows(self, keys: Tensor) -> Tensor:
        """Which keys hold."""
        held = torch.zeros(len(keys), dtype=torch.bool)
        for run in self.runs:
            held |= rows_of(run, keys) >= 0
        return held

    def add(self, keys: Tensor) -> None:
        """Add sorted keys, none of which holds."""
        run: Index = Keys(keys)
        while self.runs and self.runs[-1].rows <= 2 * run.rows:
            run = Keys(distinct_rows(torch.cat([self.runs.pop().keys, run.keys])))
        self.runs.append(run)

    def merged(self) -> Index | None:
        """All of them; None if there are none."""
        if not self.runs:
            return None
        if len(self.runs) == 1:
            run = self.runs[0]
            return index_of(run.keys) if isinstance(run, Keys) else run
        return index_of(distinct_rows(torch.cat([run.keys for run in self.runs])))

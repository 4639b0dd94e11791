"""Long rows in pieces: a hub would keep one thread busy while the others wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Pieces:
    """Piece p has the entries ptr[p] to ptr[p+1], all of row owner[p] of `rows`.

    Its result is row place[p]: that of its row, or from `rows` on that of a part. Row split[k] is
    made of the parts from split_ptr[k] to split_ptr[k+1]. Where no row is cut, all but `ptr` are
    empty.
    """

    rows: int
    ptr: np.ndarray
    owner: np.ndarray
    place: np.ndarray
    split: np.ndarray
    split_ptr: np.ndarray

    @property
    def results(self) -> int:
        """The rows of results, those of parts behind the others."""
        return self.rows + (int(self.split_ptr[-1]) if len(self.split) else 0)

    def summed(self, x: Tensor) -> Tensor:
        """From results (..., results, width), parts added up, to (..., rows, width)."""
        if len(self.split):
            self._put(x, self._added(x[..., self.rows :, :]))
        return x[..., : self.rows, :]

    def merged(self, lse: Tensor, *weighed: Tensor) -> tuple[Tensor, ...]:
        """The log-sum-exp (..., results) and what it weighs (..., results, width), of rows."""
        if not len(self.split):
            return lse, *weighed
        parts = lse[..., self.rows :]
        most = np.maximum.reduceat(parts.numpy(), self.split_ptr[:-1], axis=-1)
        top = torch.from_numpy(np.where(most == -np.inf, 0, most))
        sizes = torch.from_numpy(np.diff(self.split_ptr)).long()
        share = torch.exp(parts - top.repeat_interleave(sizes, -1))[..., None]
        total = self._added(share)
        for x in weighed:
            new = self._added(x[..., self.rows :, :] * share)
            self._put(x, new / torch.where(total == 0, 1, total))
        self._put(lse[..., None], total.log() + top[..., None])
        return lse[..., : self.rows], *(x[..., : self.rows, :] for x in weighed)

    def _added(self, parts: Tensor) -> Tensor:
        return torch.from_numpy(np.add.reduceat(parts.numpy(), self.split_ptr[:-1], axis=-2))

    def _put(self, x: Tensor, rows: Tensor) -> None:
        x[..., torch.from_numpy(self.split).long(), :] = rows


def whole(ptr: np.ndarray) -> Pieces:
    none = ptr[:0]
    return Pieces(len(ptr) - 1, ptr, none, none, none, none)


def cut(ptr: np.ndarray, most: int) -> Pieces:
    """Rows of more than `most` entries in pieces about equal.

    >>> found = cut(np.array([0, 1, 6]), 2)
    >>> found.ptr.tolist(), found.owner.tolist(), found.place.tolist()
    ([0, 1, 2, 4, 6], [0, 1, 1, 1], [0, 2, 3, 4])
    """
    sizes = np.diff(ptr)
    if not len(sizes) or sizes.max() <= most:
        return whole(ptr)
    parts = np.maximum(-(-sizes // most), 1)
    several = parts > 1
    owner = np.repeat(np.arange(len(sizes)), parts)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    low = ptr[:-1][owner] + nth * sizes[owner] // parts[owner]
    place = owner.copy()
    of = several[owner]
    place[of] = len(sizes) + np.arange(int(of.sum()))
    split_ptr = np.concatenate([[0], np.cumsum(parts[several])])
    found = (np.append(low, ptr[-1]), owner, place, np.flatnonzero(several), split_ptr)
    return Pieces(len(sizes), *(x.astype(ptr.dtype) for x in found))

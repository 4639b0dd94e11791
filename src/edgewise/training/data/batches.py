"""Examples → batches: the examples of any step are drawn from the seed and its number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from edgewise.training.data.tokens import size_of
from edgewise.training.randomness import generator

Batch = dict[str, Tensor]
IGNORED = -100  # the target at places without a loss
BUCKET = 8  # widths of batches of similar length are multiples of this


def examples(count: int, size: int, seed: int, step: int) -> Tensor:
    """Indices of the examples of a step; each epoch has its own order, drawn from the seed."""
    found, at = [], step * size
    while size > 0:
        epoch, first = divmod(at, count)
        order = _order(count, seed, epoch)
        found.append(order[first : first + size])
        at, size = at + len(found[-1]), size - len(found[-1])
    return torch.cat(found)


@lru_cache(2)
def _order(count: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(count, generator=generator(seed, "round", epoch))


class RowBatches:
    """A corpus whose batches have a row for each example in all tensors."""

    def count(self, batch: Batch) -> int:
        """How many examples a batch has."""
        return len(next(iter(batch.values())))

    def part(self, batch: Batch, first: int, last: int) -> Batch:
        """Some examples of a batch, one after another."""
        return {name: tensor[first:last] for name, tensor in batch.items()}


class SentenceCorpus(RowBatches):
    """Sentences as rows of tokens, with labels; batches of similar length if a recipe says so."""

    tokenizer: Any
    labels: list[str]
    longest: int
    parts: Mapping[str, list[Any]]
    batch_tokens: int
    _buckets: Buckets | None = None

    @property
    def words(self) -> int:
        return size_of(self.tokenizer)

    @property
    def classes(self) -> int:
        return len(self.labels)

    @property
    def sizes(self) -> dict[str, int]:
        """What models read of a corpus, for `config.json`."""
        return {"words": self.words, "longest": self.longest, "classes": self.classes}

    def batch(self, size: int, seed: int, step: int) -> Batch:
        rows = self.parts["train"]
        if not self.batch_tokens:
            return self._batch([rows[i] for i in examples(len(rows), size, seed, step).tolist()])
        if self._buckets is None or self._buckets.size != size:
            self._buckets = Buckets([self._length(row) for row in rows], size, self.batch_tokens)
        width, chosen = self._buckets.batch(seed, step)
        return self._batch([rows[i] for i in chosen.tolist()], width)

    def _length(self, row: Any) -> int:
        raise NotImplementedError

    def _batch(self, rows: list[Any], width: int = 0) -> Batch:
        raise NotImplementedError


def digest(tensors: Iterable[Tensor], *names: str) -> str:
    """A fingerprint of tensors and names."""
    found = hashlib.sha256("\n".join(names).encode())
    for tensor in tensors:
        found.update(f"{tuple(tensor.shape)}".encode())
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


class Buckets:
    """Batches of examples of similar length: at most `size` examples and `tokens` tokens.

    Lengths are rounded up to multiples of 8, so a model is grounded for a handful of shapes; every
    example comes once in each epoch, in batches whose order is drawn from the seed.
    """

    def __init__(self, lengths: Sequence[int], size: int, tokens: int) -> None:
        self.widths = [-(-length // BUCKET) * BUCKET for length in lengths]
        self.size, self.tokens = size, tokens
        self._epoch: tuple[int, int, list[tuple[int, Tensor]]] | None = None

    def batch(self, seed: int, step: int) -> tuple[int, Tensor]:
        """The width of a batch and its examples."""
        if self._epoch is None or self._epoch[0] != seed:
            self._epoch = (seed, 0, self._order(seed, 0))
        epoch, at = divmod(step, len(self._epoch[2]))  # all epochs have as many batches
        if self._epoch[1] != epoch:
            self._epoch = (seed, epoch, self._order(seed, epoch))
        return self._epoch[2][at]

    def _order(self, seed: int, epoch: int) -> list[tuple[int, Tensor]]:
        draws = generator(seed, "buckets", epoch)
        order = torch.randperm(len(self.widths), generator=draws)
        widths = torch.tensor(self.widths)[order]
        found = [
            (width, chosen)
            for width in sorted(set(self.widths))
            for chosen in order[widths == width].split(self._most(width))
        ]
        return [found[i] for i in torch.randperm(len(found), generator=draws).tolist()]

    def _most(self, width: int) -> int:
        return max(1, min(self.size, self.tokens // width))


def padded(rows: Sequence[Sequence[int]], fill: int = 0, width: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor of at least `width` columns, and their lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    out = torch.full((len(rows), max([width, *map(len, rows)])), fill)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    return out, lengths

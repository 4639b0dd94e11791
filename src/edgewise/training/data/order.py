"""Which examples a step sees: all of them once in each round, in an order drawn from the seed."""

import torch
from torch import Tensor

from edgewise.training.draws import generator


def examples(count: int, size: int, seed: int, step: int) -> Tensor:
    """The numbers of the examples of a step (from 0); batches go on from round to round."""
    found, at = [], step * size
    while size > 0:
        round_, first = divmod(at, count)
        order = torch.randperm(count, generator=generator(seed, "round", round_))
        found.append(order[first : first + size])
        at, size = at + len(found[-1]), size - len(found[-1])
    return torch.cat(found)


def padded(rows: list[list[int]], fill: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor, and their lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    out = torch.full((len(rows), max(map(len, rows), default=0)), fill)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    return out, lengths

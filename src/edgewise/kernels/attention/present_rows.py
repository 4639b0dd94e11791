"""Attention of the rows that are there: padded rows of a sample are neither queries nor keys.

Samples are (batch, heads, rows, features). `keys` (batch, m) and `queries` (batch, n) are added to
scores: 0, or −∞ where there is no such row. Samples next to each other that are equally long are
one call, so that the pairs computed are those of real rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.graphs import causal, full, strided, window
from edgewise.graphs.algebra import complement, difference, intersection, transpose, union
from edgewise.kernels.attention.flash import fused

CALL = 1 << 17  # what a call costs beside its pairs: multiplications
MOST_REAL = 0.9  # of all pairs: beyond, rows are not copied to save the others
CAUSAL = causal()
Span = tuple[int, int]  # from, to


@dataclass(frozen=True)
class SampleRun:
    """So many samples from `first` on, whose rows are there from one place to another."""

    first: int
    samples: int
    queries: Span
    keys: Span

    @property
    def pairs(self) -> int:
        (a, b), (c, d) = self.queries, self.keys
        return self.samples * (b - a) * (d - c)


def is_relative(graph: Any) -> bool:
    """Whether a pair of a pattern depends on the distance of its rows alone."""
    match graph:
        case union() | intersection():
            return all(map(is_relative, graph.members))
        case difference():
            return is_relative(graph.left) and is_relative(graph.right)
        case complement() | transpose():
            return is_relative(graph.pattern)
    return graph is None or isinstance(graph, causal | full | window | strided)


def is_causal(graph: Any) -> bool:
    """Whether no query of a pattern attends to a later key."""
    if isinstance(graph, intersection):
        return any(map(is_causal, graph.members))
    return isinstance(graph, causal) or (isinstance(graph, difference) and is_causal(graph.left))


def runs_of(
    keys: Tensor, queries: Tensor | None, batch: int, n: int, graph: Any = None
) -> list[SampleRun]:
    """The runs of a batch; one row of `keys` or `queries` stands for all samples."""
    held = _spans(keys)
    asking = [(0, n)] if queries is None else _spans(queries)
    held, asking = (x * batch if len(x) == 1 else x for x in (held, asking))
    if is_causal(graph):  # keys after the last query are those of none
        held = [(a, max(a, min(b, end))) for (a, b), (_, end) in zip(held, asking, strict=True)]
    found, first = [], 0
    for (of, to), same in groupby(zip(asking, held, strict=True)):
        count = len(list(same))
        found.append(SampleRun(first, count, of, to))
        first += count
    return found


def _spans(there: Tensor) -> list[Span]:
    """From the first row of each sample that is there to the last."""
    real = there > -torch.inf
    some = real.any(1)
    first = real.int().argmax(1)
    last = real.shape[1] - real.flip(1).int().argmax(1)
    ends = torch.stack([torch.where(some, first, 0), torch.where(some, last, 0)], 1)
    return [(int(a), int(b)) for a, b in ends.tolist()]


def worth_it(runs: list[SampleRun], graph: Any, shape: tuple[int, ...], m: int) -> bool:
    """Whether calls of the runs are less work than one call with a mask; and equal."""
    batch, heads, n, d = shape
    if not is_relative(graph):
        return False
    if graph is not None and any(r.queries[0] != r.keys[0] for r in runs if r.pairs):
        return False  # rows of which are at other distances
    pairs = sum(run.pairs for run in runs)
    return len(runs) == 1 or fewer(pairs, len(runs), batch * n * m, heads * d)


def fewer(pairs: int, calls: int, padded: int, width: int) -> bool:
    """Whether a call for each run is less work than one for the padded rows."""
    return pairs * width + CALL * calls < MOST_REAL * padded * width


def attend_runs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    runs: list[SampleRun],
    keys: Tensor,
    bias: Tensor | None,
    graph: Any,
    dropout: float,
) -> Tensor:
    """The rows of every run by themselves; what is not there is 0."""
    parts = []
    n, heads, width = q.shape[2], q.shape[1], v.shape[3]
    for run in runs:
        if not run.pairs:
            parts.append(q.new_zeros(run.samples, heads, n, width))
            continue
        rows = [x.narrow(0, run.first, run.samples) for x in (q, k, v)]
        spans = (run.queries, run.keys, run.keys)
        ours = [x[:, :, s:e] for x, (s, e) in zip(rows, spans, strict=True)]
        out = _attend(ours[0], ours[1], ours[2], graph, _mask(run, keys, bias), dropout)
        parts.append(pad(out, (0, 0, run.queries[0], n - run.queries[1])))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _mask(run: SampleRun, keys: Tensor, bias: Tensor | None) -> Tensor | None:
    """What is added to the scores of a run; None if nothing, and nothing learns there."""
    held = keys if len(keys) == 1 else keys.narrow(0, run.first, run.samples)
    held = held[:, run.keys[0] : run.keys[1]]
    learns = held.requires_grad and torch.is_grad_enabled()
    holes = held[:, None, None] if learns or bool(held.any()) else None
    if bias is None:
        return holes
    own = bias if len(bias) == 1 else bias.narrow(0, run.first, run.samples)
    own = own if own.shape[2] == 1 else own[:, :, run.queries[0] : run.queries[1]]
    own = own if own.shape[3] == 1 else own[..., run.keys[0] : run.keys[1]]
    return own if holes is None else own + holes


def _attend(
    q: Tensor, k: Tensor, v: Tensor, graph: Any, mask: Tensor | None, dropout: float
) -> Tensor:
    if graph is None or (graph == CAUSAL and mask is None):
        return fused(q, k, v, 1.0, causal=graph is not None, mask=mask, dropout=dropout)
    from edgewise.kernels.attention import attention

    found: Tensor = attention(q, k, v, graph, scale=1.0, bias=mask, dropout=dropout)
    return found

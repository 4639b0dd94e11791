"""Which edges a graph has, to be predicted: some are held out, others that it lacks are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from edgewise.training.data.batches import Batch, examples
from edgewise.training.data.graph_corpus import GraphCorpus, stacked
from edgewise.training.randomness import generator

ATTEMPTS = 20  # draws of a pair without an edge, after which one with an edge may stay
MOST_NEW = 200_000  # pairs that links are suggested for
MOST_PATHS = 5_000_000  # of two edges that are listed together
SOURCES = 512  # edges that are ranked together


@dataclass(eq=False)
class LinkCorpus(GraphCorpus):
    """`pairs` are all edges, the graph has those of the training part.

    A batch has edges and pairs without one, `negatives` for each; they are drawn `partitions`
    times and are then reused, so that they are grounded once. In ranking an edge stands beside
    `candidates` pairs with the same source.
    """

    directed: bool = False
    negatives: int = 1
    candidates: int = 100

    @property
    def outputs(self) -> int:
        return 1

    @cached_property
    def known(self) -> Tensor:
        """Codes of all edges, sorted; of undirected ones both ways."""
        assert self.pairs is not None
        i, j = self.pairs
        n = self.graphs[0].nodes
        both = i * n + j if self.directed else torch.cat([i * n + j, j * n + i])
        return both.unique()

    def batch(self, size: int, seed: int, step: int) -> Batch:
        rows = self.parts["train"]
        count = -(-len(rows) // size)
        turns = max(self.partitions, 1) * count
        which = step % turns if self.partitions else step
        chosen = rows if size >= len(rows) else rows[examples(len(rows), size, seed, which)]
        drawn = generator(seed, "negatives", which)
        source = self.pairs[0, chosen].repeat(self.negatives)  # type: ignore[index]
        if not self.directed:  # an undirected edge has no source
            source = torch.randint(self.graphs[0].nodes, source.shape, generator=drawn)
        apart = torch.stack([source, self._apart(source, drawn)])
        return self._batch(chosen, apart, torch.tensor([-1 - which]))

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        for chosen in self.parts[part].split(SOURCES):
            source = self.pairs[0, chosen].repeat_interleave(self.candidates)  # type: ignore[index]
            drawn = generator(0, "candidates", int(chosen[0]))
            yield self._batch(chosen, torch.stack([source, self._apart(source, drawn)]), chosen)

    def first(self, batch: Batch) -> Batch:
        return batch

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def part(self, batch: Batch, first: int, last: int) -> Batch:
        """Some pairs of a batch, edges or not."""
        pair = batch["pair"][:, first:last]
        return batch | {"label": batch["label"][first:last], "pair": pair, "key": pair.flatten()}

    def of_examples(self, chosen: Tensor) -> Batch:
        """Edges alone, for predictions."""
        return self._batch(chosen, torch.zeros(2, 0, dtype=torch.int64), chosen)

    def of_pairs(self, pairs: Tensor) -> Batch:
        """Any pairs of nodes."""
        label = torch.zeros(pairs.shape[1])
        return {"label": label, "pair": pairs, "key": pairs.flatten()} | stacked(self.graphs)

    def new_pairs(self) -> Tensor:
        """Pairs without an edge whose nodes share a neighbour: links to suggest."""
        n, edge = self.graphs[0].nodes, self.graphs[0].edge.flip(0)  # from source to target
        edge = edge[:, edge[0].argsort(stable=True)]
        count = torch.bincount(edge[0], minlength=n)
        start = count.cumsum(0) - count
        found, many = [], 0
        paths = count[edge[1]]  # of two edges, by the first of them
        for some in _chunks(paths, MOST_PATHS):
            i = edge[0, some].repeat_interleave(paths[some])
            first = (
                start[edge[1, some]] - (paths[some].cumsum(0) - paths[some])
            ).repeat_interleave(paths[some])
            j = edge[1, first + torch.arange(len(first))]
            fresh = (i != j if self.directed else i < j) & ~self._are_edges(i, j)
            found.append(torch.stack([i[fresh], j[fresh]]).unique(dim=1))
            many += found[-1].shape[1]
            if many >= MOST_NEW:
                break
        every = torch.cat([*found, torch.zeros(2, 0, dtype=torch.int64)], 1)
        return every.unique(dim=1)[:, :MOST_NEW] if every.numel() else every

    def _batch(self, chosen: Tensor, apart: Tensor, key: Tensor) -> Batch:
        """Edges, then pairs without one."""
        assert self.pairs is not None
        pair = torch.cat([self.pairs[:, chosen], apart], 1)
        label = torch.zeros(pair.shape[1])
        label[: len(chosen)] = 1.0
        return {"example": chosen, "label": label, "pair": pair, "key": key} | stacked(self.graphs)

    def _are_edges(self, i: Tensor, j: Tensor) -> Tensor:
        code = i * self.graphs[0].nodes + j
        at = torch.searchsorted(self.known, code).clamp_max(max(len(self.known) - 1, 0))
        return self.known[at] == code

    def _apart(self, source: Tensor, drawn: torch.Generator) -> Tensor:
        """A target for each source to which it has no edge."""
        n = self.graphs[0].nodes
        target = torch.randint(n, source.shape, generator=drawn)
        for _ in range(ATTEMPTS):
            wrong = self._are_edges(source, target) | (source == target)
            if not bool(wrong.any()):
                break
            target[wrong] = torch.randint(n, (int(wrong.sum()),), generator=drawn)
        return target


def _chunks(sizes: Tensor, most: int) -> Iterator[Tensor]:
    """Places in order, in chunks whose sizes add up to about `most`."""
    turn = torch.div(sizes.cumsum(0), most, rounding_mode="floor")
    for chunk in turn.unique():
        yield (turn == chunk).nonzero()[:, 0]

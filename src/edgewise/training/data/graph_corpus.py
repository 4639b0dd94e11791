"""Graphs as a corpus: batches of graphs, or the nodes or pairs of one graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgewise.training.data.batches import Batch, digest, examples
from edgewise.training.randomness import generator

EXAMPLES = ("example", "label", "index")  # of a batch: what is read at every step
NODE, EDGE, GRAPH = 0, 1, 2  # levels of labels, as integers for `config.json`


@dataclass(frozen=True, eq=False)
class Graph:
    """Tensors of one graph: node i receives from node j for (i, j) of `edge`."""

    x: Tensor
    edge: Tensor
    edge_x: Tensor | None = None
    position: Tensor | None = None

    @property
    def nodes(self) -> int:
        return len(self.x)


@dataclass(eq=False)
class GraphCorpus:
    """Graphs with labels of `level`, and the numbers of examples of each part.

    `labels` are the classes by name, none of numbers. `pairs` (2, n) are what labels of edges are
    about. `names` are those of graphs, or of the nodes of one graph. `partitions` ways to divide
    graphs into batches are used in turn, so that a batch comes again and is grounded once; with 0
    every epoch has its own. A batch of nodes reads at most `neighbours[h]` edges of each node that
    is h steps away from its nodes, drawn again at every step; all of the graph if there are none.
    """

    graphs: Sequence[Graph]
    target: Tensor
    level: int
    parts: Mapping[str, Tensor]
    labels: Sequence[str] = ()
    pairs: Tensor | None = None
    names: Sequence[str] = ()
    partitions: int = 4
    neighbours: Sequence[int] = ()
    tokenizer: Any = None
    tokens: dict[str, int] = field(default_factory=dict)
    words: int = 0
    moved: ClassVar = EXAMPLES

    @property
    def fingerprint(self) -> str:
        every = [t for g in self.graphs for t in (g.x, g.edge, g.edge_x, g.position)]
        every += [self.target, self.pairs, *self.parts.values()]
        return digest(tensor for tensor in every if tensor is not None)

    @property
    def examples(self) -> int:
        return len(self.target)

    @property
    def inputs(self) -> int:
        return self.graphs[0].x.shape[1]

    @property
    def edges(self) -> int:
        values = self.graphs[0].edge_x
        return 0 if values is None else values.shape[1]

    @property
    def positions(self) -> int:
        position = self.graphs[0].position
        return 0 if position is None else position.shape[1]

    @property
    def outputs(self) -> int:
        if self.labels and self.target.ndim == 1:
            return len(self.labels)
        return 1 if self.target.ndim == 1 else self.target.shape[1]

    @property
    def sizes(self) -> dict[str, int]:
        """What models read of a corpus, for `config.json`."""
        names = ("words", "inputs", "edges", "positions", "outputs", "level")
        return {name: int(getattr(self, name)) for name in names}

    def name_of(self, example: int) -> str | list[str]:
        """The name of a node or graph, of a pair both; numbers where the data has no names."""
        if self.pairs is None:
            return self.names[example] if self.names else str(example)
        return [self.names[n] if self.names else str(n) for n in self.pairs[:, example].tolist()]

    def batch(self, size: int, seed: int, step: int) -> Batch:
        """The examples of a step: all labelled nodes of one graph, or some graphs."""
        rows = self.parts["train"]
        if self.level != GRAPH:
            chosen = rows if size >= len(rows) else rows[examples(len(rows), size, seed, step)]
            if self.neighbours:
                return self._sampled(chosen, generator(seed, "neighbours", step))
            return self.of_examples(chosen)
        count = -(-len(rows) // size)
        epoch, at = divmod(step, count)
        which = epoch % self.partitions if self.partitions else epoch
        order = torch.randperm(len(rows), generator=generator(seed, "graphs", which))
        turn = torch.randperm(count, generator=generator(seed, "turn", epoch))[at]
        return self.of_examples(rows[order.tensor_split(count)[int(turn)]])

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        rows = self.parts[part]
        for chosen in rows.split(size) if self.level == GRAPH else (rows,):
            yield self.of_examples(chosen)

    def first(self, batch: Batch) -> Batch:
        """Two graphs of a batch, or all of it where it is one graph."""
        return self.of_examples(batch["example"][:2]) if self.level == GRAPH else batch

    def count(self, batch: Batch) -> int:
        """How many examples a batch has."""
        return len(batch["example"])

    def part(self, batch: Batch, first: int, last: int) -> Batch:
        """Some examples of a batch, one after another."""
        if not len(batch["key"]):  # sampled: the same part of the graph
            return batch | {name: batch[name][first:last] for name in EXAMPLES}
        return self.of_examples(batch["example"][first:last])

    def of_examples(self, chosen: Tensor) -> Batch:
        """The graphs and labels of some examples."""
        found: Batch = {"example": chosen, "label": self.target[chosen]}
        if self.level == GRAPH:
            some = [self.graphs[at] for at in chosen.tolist()]
            return found | {"key": chosen} | stacked(some)
        found |= stacked(self.graphs)
        if self.pairs is None:
            return found | {"index": chosen, "key": torch.zeros(1, dtype=torch.int64)}
        return found | {"pair": self.pairs[:, chosen], "key": chosen}

    def _sampled(self, chosen: Tensor, draw: torch.Generator) -> Batch:
        """Some nodes with the part of the graph that is drawn around them."""
        graph, index = around(self.graphs[0], chosen, self.neighbours, draw)
        found: Batch = {"example": chosen, "label": self.target[chosen], "index": index}
        return found | {"key": chosen[:0]} | stacked([graph])


def around(
    graph: Graph, seeds: Tensor, neighbours: Sequence[int], draw: torch.Generator
) -> tuple[Graph, Tensor]:
    """The seeds with at most `neighbours[h]` edges of each node h steps away (GraphSAGE,
    https://arxiv.org/abs/1706.02216), and their places in it.

    >>> path = Graph(torch.arange(4.0)[:, None], torch.tensor([[1, 2, 3], [0, 1, 2]]))
    >>> part, index = around(path, torch.tensor([3]), [5, 5], torch.Generator())
    >>> part.x.flatten().tolist(), part.edge.tolist(), index.tolist()
    ([1.0, 2.0, 3.0], [[1, 2], [0, 1]], [2])
    """
    receiver, sender = graph.edge
    drawn = torch.zeros(len(receiver), dtype=torch.bool)
    reached = torch.zeros(graph.nodes, dtype=torch.bool).index_fill(0, seeds, True)
    last = reached.clone()
    for most in neighbours:
        edges = last[receiver].nonzero()[:, 0]
        edges = edges[torch.randperm(len(edges), generator=draw)]
        edges = edges[receiver[edges].argsort(stable=True)]  # by receiver, in random order
        starts = torch.searchsorted(receiver[edges], receiver[edges])
        edges = edges[torch.arange(len(edges)) - starts < most]
        drawn[edges] = True
        last = torch.zeros_like(reached).index_fill(0, sender[edges], True) & ~reached
        reached |= last
    place = reached.cumsum(0) - 1
    values = (
        None if t is None else t[m] for t, m in ((graph.edge_x, drawn), (graph.position, reached))
    )
    return Graph(graph.x[reached], place[graph.edge[:, drawn]], *values), place[seeds]


def stacked(graphs: Sequence[Graph]) -> Batch:
    """The tensors of graphs one after another, and how many rows each has."""
    found = {
        "x": torch.cat([g.x for g in graphs]),
        "edge": torch.cat([g.edge for g in graphs], 1),
        "nodes": torch.tensor([g.nodes for g in graphs]),
        "edges": torch.tensor([g.edge.shape[1] for g in graphs]),
    }
    for name in ("edge_x", "position"):
        parts = [getattr(g, name) for g in graphs]
        if parts[0] is not None:
            found[name] = torch.cat(parts)
    return found

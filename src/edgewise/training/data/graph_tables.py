"""Graphs in tables: a database, files of CSV or Parquet, or a graph that networkx wrote.

of = "nodes"    a column of `nodes` is the label of each node
of = "edges"    a column of `edges` is the label of each edge
of = "links"    which edges there are is predicted: some are held out
of = "graphs"   a column of `graphs` is the label of each graph; a column of `nodes` names the graph
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.data import Dataset, Schema, one_hot, read, table
from edgewise.data.networkx_graphs import FORMATS, columns_of
from edgewise.errors import Span
from edgewise.training.data.files import bad
from edgewise.training.data.graph_corpus import EDGE, GRAPH, NODE, Graph, GraphCorpus
from edgewise.training.data.graph_parts import Shares, key_bound, places_of
from edgewise.training.data.graphs import Encodings, targets
from edgewise.training.data.links import LinkCorpus
from edgewise.training.schema import Mistakes, number, one_of

OF = {"nodes": NODE, "edges": EDGE, "links": EDGE, "graphs": GRAPH}
UNLABELLED = "unlabelled"  # the part of examples whose label is null


@dataclass(frozen=True, kw_only=True)
class GraphTables(Encodings, Shares):
    """Which tables and columns are nodes, edges, graphs and labels.

    - path: of SQLite, DuckDB, a folder or file of tables, .graphml, or `postgresql://...`
    - key: the column that names a node; source, target: those of edges that name two
    - features, one_hot: columns of numbers, which are standardised, and of categories
    - directed: an edge is read by its target only; otherwise both ways
    - graph, graphs, graph_key: the column of nodes that names a graph, the table of graphs, its key
    - negatives, candidates: pairs without an edge, for each edge in training and in ranking
    """

    path: str
    of: str = one_of("nodes", *OF)
    nodes: str = "nodes"
    key: str = "id"
    features: list = field(default_factory=list)
    one_hot: list = field(default_factory=list)
    standardise: bool = True
    edges: str = "edges"
    source: str = "source"
    target: str = "target"
    edge_features: list = field(default_factory=list)
    edge_one_hot: list = field(default_factory=list)
    directed: bool = False
    graph: str = "graph"
    graphs: str = "graphs"
    graph_key: str = "id"
    label: str = ""
    nulls: str = one_of("refuse", "refuse", "drop")
    duplicates: str = one_of("refuse", "refuse", "sum", "mean", "min", "max")
    dangling: str = one_of("refuse", "refuse", "drop")
    negatives: int = number(1, least=1)
    candidates: int = number(100, least=1)

    def check(self) -> Mistakes:
        if (self.of == "links") == bool(self.label):
            what = "links have no label" if self.label else f"`label` of {self.of} is missing"
            yield "label", what, "leave it out" if self.label else 'name a column: `label = "..."`'
        yield from self.check_shares()
        yield from self.check_neighbours()
        for name in ("features", "one_hot", "edge_features", "edge_one_hot"):
            if not all(isinstance(item, str) for item in getattr(self, name)):
                yield name, f"`{name}` are names of columns", 'write `["age"]`'

    def read(self, folder: Path, tokenizer: Any = None) -> GraphCorpus:
        found = read(self._source(folder), self._schema())
        names = found.names["node"]
        if not len(names):
            raise bad(f"`{self.nodes}` has no rows", folder / self.path, "give some nodes")
        x = self._values(found, "node", torch.arange(len(names))[None])
        item: Any = found.inputs["edge"]
        edge = item.keys
        both_ways = self._both_ways(edge, self._values(found, "edge", edge))
        graph = Graph(torch.ones(len(names), 1) if x is None else x, *both_ways)
        match self.of:
            case "graphs":
                corpus = self._many(found, graph, folder)
            case "links":
                corpus = self._links(edge, graph)
            case _:
                corpus = self._one(found, graph, edge)
        if self.of != "graphs":
            corpus.names = [str(name) for name in names]
        corpus.graphs = [self.placed(one) for one in corpus.graphs]
        return self.sampled(corpus, folder / self.path)

    def _source(self, folder: Path) -> Any:
        if "://" in self.path:
            return self.path
        path = folder / self.path
        if path.suffix.lower() not in FORMATS:
            return str(path)
        of_nodes, of_edges = columns_of(path, self.key, (self.source, self.target))
        return {self.nodes: of_nodes, self.edges: of_edges}

    def _schema(self) -> Schema:
        place = Span.of("<data>", self.path)
        how: Any = {"nulls": self.nulls, "dangling": self.dangling, "place": place}
        keys, ends = {self.key: "node"}, {self.source: "node", self.target: "node"}
        along: Any = {"keys": ends, "duplicates": self.duplicates, **how}
        relations = {
            "node": table(self.nodes, keys=keys, values=self.features, **how),
            "edge": table(self.edges, values=self.edge_features, **along),
        }
        if self.one_hot:
            kinds = [one_hot(name) for name in self.one_hot]
            relations["node_kind"] = table(self.nodes, keys=keys, values=kinds, **how)
        if self.edge_one_hot:
            kinds = [one_hot(name) for name in self.edge_one_hot]
            relations["edge_kind"] = table(self.edges, values=kinds, **along)
        on = {"nodes": (self.nodes, keys), "graphs": (self.graphs, {self.graph_key: "graph"}),
              "edges": (self.edges, ends), "links": (self.edges, ends)}[self.of]  # fmt: skip
        if self.of == "graphs":
            relations["graph"] = table(on[0], keys=on[1], place=place)
            member = {self.key: "node", self.graph: "graph"}
            relations["member"] = table(self.nodes, keys=member, **how)
        if self.label:
            relations["label"] = table(on[0], keys=on[1], label=self.label, **how)
        if self.part:
            relations["part"] = table(on[0], keys=on[1], label=self.part, **how)
        return Schema(**relations)

    def _values(self, found: Dataset, relation: str, keys: Tensor) -> Tensor | None:
        """Features of rows: numbers with mean 0 and variance 1, and one-hot vectors."""
        numbers, kinds = (_rows(found, name, keys) for name in (relation, f"{relation}_kind"))
        if numbers is not None and self.standardise:
            spread = numbers.std(0, correction=0)
            numbers = (numbers - numbers.mean(0)) / spread.where(spread > 0, 1.0)
        parts = [part for part in (numbers, kinds) if part is not None]
        return torch.cat(parts, 1) if parts else None

    def _both_ways(self, edge: Tensor, values: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Edges as (receiver, sender), each once."""
        keys = edge.flip(0) if self.directed else torch.cat([edge.flip(0), edge], 1)
        if values is not None and not self.directed:
            values = torch.cat([values, values])
        if not keys.numel():
            return keys, values
        keys, place = keys.unique(dim=1, return_inverse=True)
        if values is not None:
            first = torch.full((keys.shape[1],), len(place)).scatter_reduce_(
                0, place, torch.arange(len(place)), "amin"
            )
            values = values[first]
        return keys, values

    def _one(self, found: Dataset, graph: Graph, edge: Tensor) -> GraphCorpus:
        """Labels of the nodes or edges of one graph."""
        pairs = edge if self.of == "edges" else None
        known = edge if pairs is not None else torch.arange(graph.nodes)[None]
        target, classes, parts = self._labelled(found, known)
        return GraphCorpus([graph], target, OF[self.of], parts, classes, pairs=pairs)

    def _links(self, edge: Tensor, graph: Graph) -> GraphCorpus:
        edge = edge if self.directed else edge.sort(0).values
        edge = edge[:, edge[0] != edge[1]].unique(dim=1)
        parts = self.drawn(torch.arange(edge.shape[1]), Path(self.path))
        keys = self._both_ways(edge[:, parts["train"]], None)[0]
        values = graph.edge_x
        if values is not None:
            values = values[places_of(graph.edge, keys, graph.nodes)]
        graph = replace(graph, edge=keys, edge_x=values)
        return LinkCorpus(
            [graph], torch.ones(edge.shape[1]), EDGE, parts, pairs=edge, directed=self.directed,
            negatives=self.negatives, candidates=self.candidates,
        )  # fmt: skip

    def _many(self, found: Dataset, every: Graph, folder: Path) -> GraphCorpus:
        """The graphs of a table, each with its nodes, numbered from 0 in each."""
        names = found.names["graph"]
        member: Any = found.inputs["member"]
        of = torch.full((every.nodes,), -1).index_put((member.keys[0],), member.keys[1])
        receiver, sender = of[every.edge]
        sizes, path = torch.bincount(of[of >= 0], minlength=len(names)), folder / self.path
        if bool((receiver != sender).any()):
            node = found.names["node"][int(every.edge[0, (receiver != sender).nonzero()[0, 0]])]
            raise bad(f"an edge of node `{node}` leaves its graph", path, "leave the edge out")
        if bool((sizes == 0).any()):
            empty = names[int((sizes == 0).nonzero()[0, 0])]
            raise bad(f"the graph `{empty}` has no nodes", path, "leave it out")
        order = of.argsort(stable=True)
        order = order[of[order] >= 0]
        local = torch.zeros_like(of).index_put((order,), torch.arange(len(order)))
        local = local - (sizes.cumsum(0) - sizes)[of.clamp_min(0)]
        by_graph = receiver.argsort(stable=True)
        counts = torch.bincount(receiver, minlength=len(names)).tolist()
        edges = local[every.edge][:, by_graph].split(counts, 1)
        values = (
            [None] * len(names) if every.edge_x is None else every.edge_x[by_graph].split(counts)
        )
        graphs = [Graph(every.x[rows], edge, value) for rows, edge, value in
                  zip(order.split(sizes.tolist()), edges, values, strict=True)]  # fmt: skip
        target, classes, parts = self._labelled(found, torch.arange(len(names))[None])
        corpus = GraphCorpus(graphs, target, GRAPH, parts, classes)
        corpus.names = [str(name) for name in names]
        return corpus

    def _labelled(
        self, found: Dataset, keys: Tensor
    ) -> tuple[Tensor, list[str], dict[str, Tensor]]:
        """A target for each example, the classes, and the parts of those that have a label."""
        labels = found.labels["label"]
        places = places_of(keys, labels.keys, key_bound(keys))
        names = labels.classes
        values = labels.values.numpy()
        read, classes = targets(values) if names is None else (labels.values, [*map(str, names)])
        target = torch.zeros(keys.shape[1], dtype=read.dtype).index_put((places,), read)
        if self.part:
            parts = self.named(found.labels["part"], keys, places, Path(self.path))
        else:
            parts = self.drawn(places, Path(self.path), target if classes else None)
        gone = torch.ones(keys.shape[1], dtype=torch.bool).index_fill(0, places, False)
        return target, classes, parts | ({UNLABELLED: gone.nonzero()[:, 0]} if gone.any() else {})


def _rows(found: Dataset, relation: str, keys: Tensor) -> Tensor | None:
    """The values of a relation in the order of keys, or None where it has none."""
    item: Any = found.inputs.get(relation)
    values: Tensor | None = item if isinstance(item, Tensor) else getattr(item, "values", None)
    if values is None:
        return None
    values = values.reshape(len(values), -1).float()
    if isinstance(item, Tensor):
        return values
    return values[places_of(item.keys, keys, key_bound(keys))]

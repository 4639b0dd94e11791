"""Weighted edges as a table: each says which query attends to which key, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.graphs.drawing import require_package
from edgewise.inputs.kinds import rows
from edgewise.notebook import ROWS, html_table, short_value

if TYPE_CHECKING:
    import networkx
    import pandas

Record = dict[str, int | float | str]


@dataclass(frozen=True, eq=False)
class WeightedEdges:
    """Edge e: in `head[e]` of `layer[e]`, query `query[e]` attends to `key[e]` with `weight[e]`.

    Sorted by layer, head, query and key. In a rollout, which joins layers and heads, both are -1.

    >>> from edgewise import attention_graph
    >>> found = attention_graph([torch.eye(3)[None]], tokens=["a", "b", "c"])
    >>> edges = found.edges(top=1)
    >>> len(edges.to_pandas()), edges.to_networkx().number_of_nodes()
    (3, 3)
    """

    layer: Tensor
    head: Tensor
    query: Tensor
    key: Tensor
    weight: Tensor
    tokens: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.weight)

    def __repr__(self) -> str:
        return f"WeightedEdges({len(self):,} edges between {len(self.tokens):,} tokens)"

    def records(self) -> list[Record]:
        """One dict for each edge, with the tokens at both ends.

        >>> from edgewise import attention_graph
        >>> attention_graph([torch.eye(2)[None]], tokens=["to", "be"]).edges().records()[1]
        {'layer': 0, 'head': 0, 'query': 1, 'key': 1, 'weight': 1.0, 'from': 'be', 'to': 'be'}
        """
        columns = (self.layer, self.head, self.query, self.key, self.weight)
        return [
            {
                **dict(zip(("layer", "head", "query", "key", "weight"), row, strict=True)),
                "from": self.tokens[row[2]],
                "to": self.tokens[row[3]],
            }
            for row in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """The records as a table of pandas."""
        require_package("pandas")
        import pandas

        names = ("layer", "head", "query", "key", "weight", "from", "to")
        return pandas.DataFrame(self.records(), columns=list(names))

    def to_networkx(self) -> networkx.MultiDiGraph:
        """A directed graph: nodes are positions with `token`, edges go from queries to keys with
        `weight`, `layer` and `head`."""
        require_package("networkx")
        import networkx

        graph = networkx.MultiDiGraph()
        graph.add_nodes_from((at, {"token": token}) for at, token in enumerate(self.tokens))
        columns = (self.query, self.key, self.weight, self.layer, self.head)
        for i, j, weight, layer, head in zip(*(c.tolist() for c in columns), strict=True):
            graph.add_edge(i, j, weight=weight, layer=layer, head=head)
        return graph

    def relation(self) -> rows:
        """The pairs (query, key) with their weights, as an input of the next program; a pair that
        several heads have weighs as much as in the strongest.

        >>> from edgewise import attention_graph
        >>> attention_graph([torch.eye(2)[None]]).edges().relation().keys.tolist()
        [[0, 1], [0, 1]]
        """
        n = max(len(self.tokens), 1)
        codes, inverse = (self.query * n + self.key).unique(return_inverse=True)
        weights = torch.zeros(len(codes), dtype=self.weight.dtype)
        weights = weights.scatter_reduce(0, inverse, self.weight, "amax")
        return rows(torch.stack([codes // n, codes % n]), weights)

    def _repr_html_(self) -> str:
        header = ["layer", "head", "query", "key", "weight", "from", "to"]
        columns = [x[:ROWS] for x in (self.layer, self.head, self.query, self.key, self.weight)]
        layer, head, query, key, weight = columns
        first = WeightedEdges(layer, head, query, key, weight, self.tokens).records()
        shown = ([short_value(x) if isinstance(x, float) else x for x in r.values()] for r in first)
        return html_table(repr(self), header, shown, len(self))

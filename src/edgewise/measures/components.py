"""Which tokens are joined at all."""

from dataclasses import dataclass

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.ragged import Ints
from edgewise.measures.hops import layers_from
from edgewise.measures.product import Product
from edgewise.measures.twins import Twins


@dataclass(frozen=True)
class Components:
    """How many there are, the tokens of the largest, and the places of its nodes in the graph."""

    count: int
    tokens: int
    largest: Ints


def components_of(graph: Twins) -> Components:
    """The components of a listed graph without direction."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(graph.matrix, directed=False)
    tokens = np.bincount(label, graph.size).astype(np.int64)
    # A node of twins without a single edge is as many components as it has tokens.
    alone = (graph.degree == 0) & (graph.size > 1)
    extra = int((graph.size[alone] - 1).sum())
    tokens[label[alone]] = 1
    largest = int(np.argmax(tokens))
    return Components(count + extra, int(tokens[largest]), np.flatnonzero(label == largest))


def components_by_products(rows: Rows) -> Components:
    """The same for a graph without direction that is too dense to list."""
    product, left = Product(rows), np.ones(rows.n, bool)
    parts: list[Ints] = []
    while left.any():
        layers = list(layers_from(product, int(np.argmax(left)), rows.n))
        parts.append(np.concatenate(layers))
        left[parts[-1]] = False
    largest = max(parts, key=len)
    return Components(len(parts), len(largest), np.sort(largest))

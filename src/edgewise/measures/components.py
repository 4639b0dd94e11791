"""Which tokens are joined at all."""

from dataclasses import dataclass

import numpy as np

from edgewise.layouts import Rows
from edgewise.layouts.ragged import Ints, owners
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


def components_of_rows(rows: Rows) -> Components:
    """The same for a graph that is too dense to list: the keys of a progression hang together, so
    its row with the first of them, and each with the next, are edges enough."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    wide = rows.expand()
    heads, tails = [owners(wide.ptr)], [wide.start]
    for step in np.unique(wide.step).tolist():
        some = wide.step == step
        last = wide.start[some] + (wide.size[some] - 1) * step
        turns = -(-rows.m // step)
        opened = np.bincount(wide.start[some], minlength=turns * step)
        opened -= np.bincount(last, minlength=turns * step)
        tied = np.flatnonzero(np.cumsum(opened.reshape(turns, step), axis=0).ravel() > 0)
        heads.append(tied)
        tails.append(tied + step)
    i, j = np.concatenate(heads), np.concatenate(tails)
    graph = coo_array((np.ones(len(i), np.int8), (i, j)), shape=(rows.n, rows.n))
    count, label = connected_components(graph, directed=False)
    tokens = np.bincount(label)
    largest = int(np.argmax(tokens))
    return Components(count, int(tokens[largest]), np.flatnonzero(label == largest))

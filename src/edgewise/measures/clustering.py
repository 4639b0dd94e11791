"""The clustering coefficient: the share of a token's neighbours that are adjacent."""

from typing import Any

import numpy as np
import torch

from edgewise.layouts import Membership, Rows
from edgewise.layouts.ragged import Bools, Ints
from edgewise.measures.quotient import QuotientGraph

EFFORT = 40_000_000
TOKENS, PAIRS = 1024, 32


def exact_clustering(graph: QuotientGraph, among: Ints) -> tuple[float, str] | None:
    """The mean over tokens of 2·triangles / (degree·(degree - 1)), 0 below two neighbours.

    None where counting the triangles would take too long.
    """
    from scipy.sparse import csr_array, triu

    rank = np.empty(graph.count, np.int64)
    rank[np.lexsort((np.arange(graph.count), np.diff(graph.ptr)))] = np.arange(graph.count)
    order = np.argsort(rank)
    up = csr_array(triu(graph.matrix[order][:, order], k=1))  # from low degree to high
    out, into = np.diff(up.indptr), np.bincount(up.indices, minlength=graph.count)
    if float((out.astype(float) * (into + out)).sum()) > EFFORT:
        return None
    size, loop = graph.size[order].astype(float), graph.loop[order].astype(float)
    closed = _closed_walks(up, size, loop)
    degree = graph.degree[order]
    pairs = np.maximum(degree * (degree - 1), 1)
    each = np.where(degree > 1, closed / pairs, 0)
    inside = np.zeros(graph.count, bool)
    inside[among] = True
    weight = size * inside[order]
    return float((each * weight).sum() / weight.sum()), "exact"


def _closed_walks(up: Any, size: np.ndarray, loop: np.ndarray) -> np.ndarray:
    """Walks of three edges from a token of each node back to it, along no self-loop."""
    from scipy.sparse import csr_array, diags_array

    weigh = diags_array(size)
    first = csr_array((up @ weigh @ up).multiply(up))  # u → v → w with u → w
    middle = csr_array((up.T @ weigh @ up).multiply(up))  # u → v, u → w with v → w
    three = 2 * (first @ size + middle @ size + np.asarray(first.T @ size))
    # Two of the three tokens, or all, in one node: adjacent twins.
    both = up + up.T
    others = size - 1
    with_own = 2 * loop * others * np.asarray(both @ size)
    with_theirs = np.asarray(both @ (size * loop * others))
    own = loop * others * np.maximum(size - 2, 0)
    return np.asarray(three + with_own + with_theirs + own)


def estimated_clustering(rows: Rows, loop: Bools, among: Ints) -> tuple[float, str]:
    """The same, estimated from random pairs of neighbours."""
    random = np.random.Generator(np.random.Philox(2))
    token = random.choice(among, TOKENS)
    wide = rows.expand()
    size = wide.size
    before = np.concatenate([[0], np.cumsum(size)])
    degree = before[wide.ptr[token + 1]] - before[wide.ptr[token]]
    token, degree = token[degree - loop[token] > 1], degree[degree - loop[token] > 1]
    if not len(token):
        return 0.0, f"estimate: {TOKENS} tokens"
    sampled = (random.random((2, len(token), PAIRS)) * degree[:, None]).astype(np.int64)
    place = before[wide.ptr[token]][None, :, None] + sampled
    run = np.searchsorted(before, place, side="right") - 1
    key = wide.start[run] + (place - before[run]) * wide.step[run]
    i, j = key
    joined = Membership(rows)(torch.from_numpy(i.ravel()), torch.from_numpy(j.ravel()))
    proper = (i != j) & (i != token[:, None]) & (j != token[:, None])
    hit = joined.numpy().reshape(i.shape) & proper
    each = hit.sum(axis=1) / np.maximum(proper.sum(axis=1), 1)
    share = len(token) / TOKENS
    return float(each.mean() * share), f"estimate: {TOKENS} tokens, {PAIRS} pairs of neighbours"

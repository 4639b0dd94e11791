"""The measures of rows: first of the directed graph, then of the symmetric one."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from edgewise.layouts import OR, Membership, Rows, combine, transposed
from edgewise.layouts.ragged import Bools, Ints, owners
from edgewise.measures.paths import (
    Components,
    Hops,
    components_by_rows,
    components_of,
    hops_between,
    hops_by_matvec,
)
from edgewise.measures.quotient import QuotientGraph, fingerprint, merge_twins, self_loops
from edgewise.measures.spectrum import (
    SecondEigenvalue,
    second_eigenvalue,
    second_eigenvalue_by_matvec,
)
from edgewise.measures.stats import DegreeRange, Stats

ALWAYS_EXACT = ("edges", "keys_per_query", "queries_per_key", "components", "flops", "bytes")


@dataclass(frozen=True)
class UndirectedMeasures:
    """The measures of the symmetric graph, in its largest component."""

    parts: Components
    hops: Hops
    second: SecondEigenvalue | None
    clustering: tuple[float, str]


def measured(rows: Rows, graph: str, *, flops: int, bytes: int) -> Stats:
    """All measures of a set of pairs among n ≥ 1 tokens."""
    columns = transposed(rows)
    hashes = fingerprint(rows), fingerprint(columns)
    symmetric = bool((hashes[0] == hashes[1]).all())
    columns = rows if symmetric else columns  # keeps progressions
    directed = merge_twins(rows, hashes[0] * 3 + hashes[1])
    ahead = hops_by_matvec(columns) if directed is None else hops_between(directed)
    ahead = ahead.with_neighbours(_neighbours(rows))
    if symmetric:
        plain = _undirected(rows, directed, ahead)
    else:
        both = combine(rows.n, rows.n, rows.trapezoids(), columns.trapezoids(), OR)
        plain = _undirected(both, merge_twins(both, fingerprint(both)), None)
    keys_per_query, queries_per_key = _degree_range(rows), _degree_range(columns)
    apart = plain.parts.count > 1 or _is_causal(rows) or _is_causal(columns)
    reach, layers = _reach(ahead, rows.n, apart)
    second = plain.second.value if plain.second else math.nan
    gap = max(1 - second, 0.0)
    edges = rows.count()
    return Stats(
        graph=graph,
        n=rows.n,
        edges=edges,
        density=edges / rows.n**2,
        keys_per_query=keys_per_query,
        queries_per_key=queries_per_key,
        reach=reach,
        layers=layers,
        components=plain.parts.count,
        largest=plain.parts.tokens,
        diameter=plain.hops.longest,
        average_path=plain.hops.average,
        clustering=plain.clustering[0],
        second_eigenvalue=second,
        gap=gap,
        mixing_time=math.log(max(plain.parts.tokens, 1)) / gap if gap else math.inf,
        flops=flops,
        bytes=bytes,
        how=_how(ahead, plain, symmetric, layers),
    )


def _undirected(rows: Rows, graph: QuotientGraph | None, known: Hops | None) -> UndirectedMeasures:
    """The measures of symmetric rows; `known` are the hops from all tokens, if measured already."""
    if graph is None:
        parts, loop = components_by_rows(rows), self_loops(rows)
        hops = known or hops_by_matvec(rows)
        hops = hops.with_neighbours(_neighbours(rows)) if parts.count == 1 else hops
        dense = second_eigenvalue_by_matvec(rows, parts.largest, loop.astype(float))
        return UndirectedMeasures(
            parts, hops, dense, estimated_clustering(rows, loop, parts.largest)
        )
    parts = components_of(graph)
    hops = known if known and parts.count == 1 else hops_between(graph, parts.largest)
    hops = hops.with_neighbours(_neighbours(rows)) if parts.count == 1 else hops
    second = second_eigenvalue(graph, parts.largest) if parts.tokens > 1 else None
    clustered = exact_clustering(graph, parts.largest)
    if clustered is None:
        clustered = estimated_clustering(rows, self_loops(rows), graph.token[parts.largest])
    return UndirectedMeasures(parts, hops, second, clustered)


def _neighbours(rows: Rows) -> float:
    """The mean number of other tokens that a token attends to."""
    return float(rows.count() - self_loops(rows).sum()) / rows.n


def _degree_range(rows: Rows) -> DegreeRange:
    degrees = rows.degrees()
    return DegreeRange(int(degrees.min()), float(degrees.mean()), int(degrees.max()))


def _is_causal(rows: Rows) -> bool:
    """True if no token attends to a later one."""
    wide = rows.expand()
    return rows.n > 1 and not bool((wide.stop - 1 > owners(wide.ptr)).any())


def _reach(hops: Hops, n: int, apart: bool) -> tuple[tuple[float, ...], float]:
    """The receptive field after each number of layers, and the layers to the full one; `apart` if
    some tokens never reach some others."""
    total = np.cumsum(hops.level) / n
    full = total[-1] > 1 - 0.1 / n**2  # one missing pair is more
    everything = not apart and (hops.cut or full)
    return tuple(total.tolist()), float(hops.longest) if everything else math.inf


def _how(ahead: Hops, plain: UndirectedMeasures, symmetric: bool, layers: float) -> dict[str, str]:
    out = dict.fromkeys(ALWAYS_EXACT, "exact")
    out["density"] = "exact"
    out["reach"] = "exact" if ahead.complete else f"estimate: {ahead.source}"
    hops = plain.hops
    known = ahead.complete or math.isinf(layers)
    out["layers"] = "exact" if known else f"bound: at least, {ahead.source}"
    out["diameter"] = _diameter(hops)
    if symmetric and plain.parts.count == 1:
        out["layers"] = out["diameter"]
    out["average_path"] = "exact" if hops.complete else f"estimate: {hops.source}"
    out["clustering"] = plain.clustering[1]
    out["second_eigenvalue"] = plain.second.how if plain.second else "exact: no edges"
    out["gap"] = out["second_eigenvalue"].replace("at least", "at most")
    out["mixing_time"] = f"estimate: log(n) / gap, gap {out['gap']}"
    return out


def _diameter(hops: Hops) -> str:
    """Bounded below by the largest distance found, above by twice the least eccentricity."""
    if hops.complete or (hops.longest == 2 * hops.shortest and not hops.cut):
        return "exact"
    most = "" if hops.cut else f", at most {2 * hops.shortest:,}"
    return f"bound: at least, {hops.source}{most}"


MOST_TRIANGLES = 40_000_000
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
    if float((out.astype(float) * (into + out)).sum()) > MOST_TRIANGLES:
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

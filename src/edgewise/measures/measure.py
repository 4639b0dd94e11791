"""From rows to measures: the graph as it is, then without direction."""

import math
from dataclasses import dataclass

import numpy as np

from edgewise.layouts import OR, Rows, combine, transposed
from edgewise.layouts.ragged import owners
from edgewise.measures.clustering import clustering_by_lot, clustering_of
from edgewise.measures.components import Components, components_of, components_of_rows
from edgewise.measures.hops import Hops, hops_between, hops_by_products
from edgewise.measures.spectrum import Second, second_by_products, second_of
from edgewise.measures.stats import Spread, Stats
from edgewise.measures.twins import Twins, fingerprint, loops_of, twins

ALWAYS_EXACT = ("edges", "hears", "heard_by", "components", "flops", "bytes")


@dataclass(frozen=True)
class Undirected:
    """The measures of the graph without direction, in its largest component."""

    parts: Components
    hops: Hops
    second: Second | None
    clustering: tuple[float, str]


def measured(rows: Rows, graph: str, *, flops: int, bytes: int) -> Stats:
    """All measures of a set of pairs among n ≥ 1 tokens."""
    columns = transposed(rows)
    marks = fingerprint(rows), fingerprint(columns)
    symmetric = bool((marks[0] == marks[1]).all())
    columns = rows if symmetric else columns  # progressions stay progressions
    directed = twins(rows, marks[0] * 3 + marks[1])
    ahead = hops_by_products(columns) if directed is None else hops_between(directed)
    ahead = ahead.with_neighbours(_neighbours(rows))
    if symmetric:
        plain = _undirected(rows, directed, ahead)
    else:
        both = combine(rows.n, rows.n, rows.trapezoids(), columns.trapezoids(), OR)
        plain = _undirected(both, twins(both, fingerprint(both)), None)
    hears, heard_by = _spread(rows), _spread(columns)
    apart = plain.parts.count > 1 or _one_way(rows) or _one_way(columns)
    reach, layers = _reach(ahead, rows.n, apart)
    second = plain.second.value if plain.second else math.nan
    gap = max(1 - second, 0.0)
    edges = rows.count()
    return Stats(
        graph=graph,
        n=rows.n,
        edges=edges,
        density=edges / rows.n**2,
        hears=hears,
        heard_by=heard_by,
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


def _undirected(rows: Rows, graph: Twins | None, known: Hops | None) -> Undirected:
    """Of symmetric rows; `known` are the hops from all tokens, if they were measured already."""
    if graph is None:
        parts, loop = components_of_rows(rows), loops_of(rows)
        hops = known or hops_by_products(rows)
        hops = hops.with_neighbours(_neighbours(rows)) if parts.count == 1 else hops
        dense = second_by_products(rows, parts.largest, loop.astype(float))
        return Undirected(parts, hops, dense, clustering_by_lot(rows, loop, parts.largest))
    parts = components_of(graph)
    hops = known if known and parts.count == 1 else hops_between(graph, parts.largest)
    hops = hops.with_neighbours(_neighbours(rows)) if parts.count == 1 else hops
    second = second_of(graph, parts.largest) if parts.tokens > 1 else None
    clustered = clustering_of(graph, parts.largest)
    if clustered is None:
        clustered = clustering_by_lot(rows, loops_of(rows), graph.token[parts.largest])
    return Undirected(parts, hops, second, clustered)


def _neighbours(rows: Rows) -> float:
    """How many other tokens a token hears, on average."""
    return float(rows.count() - loops_of(rows).sum()) / rows.n


def _spread(rows: Rows) -> Spread:
    degrees = rows.degrees()
    return Spread(int(degrees.min()), float(degrees.mean()), int(degrees.max()))


def _one_way(rows: Rows) -> bool:
    """Whether no token hears a later one."""
    wide = rows.expand()
    return rows.n > 1 and not bool((wide.stop - 1 > owners(wide.ptr)).any())


def _reach(hops: Hops, n: int, apart: bool) -> tuple[tuple[float, ...], float]:
    """The share heard after each number of layers, and how many it takes to hear all; `apart`, some
    never hear some others."""
    total = np.cumsum(hops.level) / n
    whole = total[-1] > 1 - 0.1 / n**2  # one pair of all that is missing is more
    everything = not apart and (hops.cut or whole)
    return tuple(total.tolist()), float(hops.longest) if everything else math.inf


def _how(ahead: Hops, plain: Undirected, symmetric: bool, layers: float) -> dict[str, str]:
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
    out["second_eigenvalue"] = plain.second.how if plain.second else "exact: there are no edges"
    out["gap"] = out["second_eigenvalue"].replace("at least", "at most")
    out["mixing_time"] = f"estimate: log(n) / gap, gap {out['gap']}"
    return out


def _diameter(hops: Hops) -> str:
    """The farthest found, and twice the least eccentricity, enclose it."""
    if hops.complete or (hops.longest == 2 * hops.shortest and not hops.cut):
        return "exact"
    most = "" if hops.cut else f", at most {2 * hops.shortest:,}"
    return f"bound: at least, {hops.source}{most}"

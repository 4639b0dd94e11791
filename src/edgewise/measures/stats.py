"""The measures of a graph: first of the directed one, then of the symmetric one; as fields, as a
table and as JSON."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np

from edgewise.layouts import OR, Rows, combine, transposed
from edgewise.layouts.ragged import owners
from edgewise.measures.paths import (
    Components,
    Hops,
    components_by_rows,
    components_of,
    estimated_clustering,
    exact_clustering,
    hops_between,
    hops_by_matvec,
)
from edgewise.measures.quotient import QuotientGraph, fingerprint, merge_twins, self_loops
from edgewise.measures.spectrum import (
    SecondEigenvalue,
    second_eigenvalue,
    second_eigenvalue_by_matvec,
)


class DegreeRange(NamedTuple):
    """The smallest, mean and largest degree."""

    least: int
    mean: float
    most: int

    def __str__(self) -> str:
        same = self.least == self.most
        return (
            f"{self.least:,}" if same else f"{self.least:,} – {self.most:,}, mean {self.mean:.1f}"
        )


@dataclass(frozen=True, repr=False)
class Stats:
    """The measures of a graph of n tokens. `how` tells for every field whether it is exact, a bound
    or an estimate, and from what.

    Edges, degrees, `reach` and `layers` are of the directed graph with self-loops (the residual
    connection). The rest is of the symmetric graph (i and j are adjacent if either attends to the
    other), without self-loops, in its largest component: diameter, path, clustering, eigenvalue,
    gap, mixing. So a causal window has the gap of the window.
    """

    graph: str
    n: int
    edges: int
    density: float
    keys_per_query: DegreeRange
    queries_per_key: DegreeRange
    reach: tuple[float, ...]  # mean receptive field after 0, 1, 2, ... layers, a share of n
    layers: float  # to a full receptive field of every token; may be infinite
    components: int
    largest: int  # tokens in the largest component
    diameter: int
    average_path: float
    clustering: float
    second_eigenvalue: float  # of D^-½ A D^-½; for the complete graph -1/(n - 1)
    gap: float  # 1 - second_eigenvalue; for the complete graph n/(n - 1)
    mixing_time: float  # log(n) / gap
    flops: int  # of attention forward, all heads
    bytes: int  # least traffic of attention forward, all heads
    how: Mapping[str, str] = field(hash=False, default_factory=dict)

    @property
    def complete_gap(self) -> float:
        """The gap of the complete graph on n tokens."""
        return self.n / (self.n - 1) if self.n > 1 else math.nan

    @property
    def complete_flops(self) -> int:
        return self.flops * self.n * self.n // self.edges if self.edges else 0

    def __repr__(self) -> str:
        rows = [(name, value, self._note(key)) for name, value, key in self._rows()]
        first, second = (max(len(row[k]) for row in rows) for k in (0, 1))
        lines = [f"{name:<{first}}  {value:<{second}}  {note}" for name, value, note in rows]
        title = f"{shortened(self.graph)}, {self.n:,} tokens"
        return "\n".join([title, *(line.rstrip() for line in lines)])

    def json(self) -> dict[str, object]:
        """All fields as JSON; infinity and NaN are null."""
        return {key: _plain(value) for key, value in asdict(self).items()}

    def _note(self, key: str) -> str:
        return self.how.get(key, "")

    def _rows(self) -> list[tuple[str, str, str]]:
        complete = f"complete graph: {self.complete_gap:.4f}"
        return [
            ("edges", f"{self.edges:,} ({self.density:.2%} of all pairs)", "edges"),
            ("keys per query", str(self.keys_per_query), "keys_per_query"),
            ("queries per key", str(self.queries_per_key), "queries_per_key"),
            ("receptive field by layer", _shares(self.reach), "reach"),
            ("layers to full receptive field", self._layers(), "layers"),
            ("components", self._components(), "components"),
            ("diameter", f"{self.diameter:,}", "diameter"),
            ("average path", _number(self.average_path), "average_path"),
            ("clustering", _number(self.clustering), "clustering"),
            ("second eigenvalue", _number(self.second_eigenvalue), "second_eigenvalue"),
            ("spectral gap", f"{_number(self.gap)} ({complete})", "gap"),
            ("mixing time", f"{_number(self.mixing_time)} steps", "mixing_time"),
            ("flops", f"{_large(self.flops)} (full: {_large(self.complete_flops)})", "flops"),
            ("bytes", _large(self.bytes), "bytes"),
        ]

    def _layers(self) -> str:
        """Of a graph that never gets there, such as a causal one, where it ends."""
        if not math.isinf(self.layers):
            return _number(self.layers)
        return f"never: {self.reach[-1]:.2%} after {len(self.reach) - 1:,}"

    def _components(self) -> str:
        more = "" if self.components == 1 else f", the largest with {self.largest:,} tokens"
        return f"{self.components:,}{more}"


def shortened(code: str) -> str:
    """The code of a pattern, truncated to 120 characters."""
    return code if len(code) <= 120 else code[:118] + " …"


def _shares(reach: tuple[float, ...]) -> str:
    """The receptive field of the first layers and the last."""
    shown = [f"{layer}: {share:.2%}" for layer, share in enumerate(reach)][1:]
    return ", ".join(shown if len(shown) < 6 else [*shown[:4], f"… {shown[-1]}"])


def _number(value: float) -> str:
    if math.isnan(value):
        return "none"
    if math.isinf(value):
        return "never"
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.1f}" if value >= 100 else f"{value:.4g}"


def _large(value: int) -> str:
    for unit, power in (("T", 12), ("G", 9), ("M", 6), ("k", 3)):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {unit}"
    return str(value)


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, DegreeRange):
        return value._asdict()
    return list(value) if isinstance(value, tuple) else value


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

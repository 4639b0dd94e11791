"""The measures of a graph as fields, as a table and as JSON."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple


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
            ("layers to full receptive field", _number(self.layers), "layers"),
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

    def _components(self) -> str:
        more = "" if self.components == 1 else f", the largest with {self.largest:,} tokens"
        return f"{self.components:,}{more}"


def shortened(code: str, most: int = 120) -> str:
    """The code of a pattern, truncated to `most` characters."""
    return code if len(code) <= most else code[: most - 2] + " …"


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

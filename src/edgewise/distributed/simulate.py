"""What attention on many ranks would send, computed without them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgewise.distributed.needs import Needs, needs_of, rows_of_tokens
from edgewise.distributed.shards import Shards
from edgewise.distributed.token_sets import EMPTY, TokenSet, count_inside, coverage
from edgewise.distributed.traffic import (
    RowSizes,
    counts_of,
    gather_traffic,
    heads_traffic,
    worst,
)
from edgewise.distributed.ways import EXCHANGE, GATHER, Decision, SharedPart, decide
from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.graphs.errors import NotAPattern
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import symbolic_step
from edgewise.layouts.ragged import Ints, ranges


@dataclass(frozen=True, eq=False)
class Communication:
    """The plan of one attention on many ranks: bytes by kind, work and memory of every rank.

    >>> from edgewise.graphs import window
    >>> found = communication(window(256), tokens=1 << 20, ranks=512)
    >>> f"{found.share:.3%}"
    '0.049%'
    """

    graph: Pattern
    home: Shards
    sizes: RowSizes
    decision: Decision
    needs: dict[SharedPart, list[Needs]]

    @cached_property
    def received(self) -> dict[str, Ints]:
        """Bytes that each rank receives in a forward pass, by kind: keys that nearly all ranks
        fetch are those of a broadcast, the others of a halo."""
        found = dict(self.decision.received)
        if "keys" in found:
            every = np.zeros_like(found["keys"])
            for part in self.decision.way.parts:
                every += _broadcast(self.needs[part]) * self.sizes.key
            found = {"halo": found["keys"] - every, "broadcast": every, **found}
            del found["keys"]
        return {kind: count for kind, count in found.items() if count.any()}

    @property
    def worst(self) -> int:
        """Bytes that the rank receives that receives most."""
        return worst(self.decision.received)

    @property
    def gathered(self) -> int:
        """The same if all keys and values were gathered."""
        return worst(gather_traffic(self.home, self.sizes))

    @property
    def by_heads(self) -> int:
        """The same of Ulysses, if there are enough heads or not."""
        return worst(heads_traffic(self.home, self.sizes))

    @property
    def share(self) -> float:
        """`worst` as a share of gathering all keys."""
        return self.worst / self.gathered if self.gathered else 0.0

    @cached_property
    def pairs(self) -> Ints:
        """Pairs that each rank computes."""
        count = self.home.ranks
        if self.decision.way.kind not in (EXCHANGE, GATHER):
            total = self.graph.count(self.home.n)
            return np.diff([total * rank // count for rank in range(count + 1)])
        out = np.zeros(count, np.int64)
        for part in self.decision.way.parts:
            out += _pairs(part, self.needs[part])
        return out

    @property
    def imbalance(self) -> float:
        """Pairs of the rank with most, by those of the mean."""
        mean = self.pairs.mean()
        return float(self.pairs.max() / mean) if mean else 1.0

    @property
    def memory(self) -> int:
        """Bytes of queries, keys, values and outputs on the worst rank, with what it received."""
        mine = max(self.home.count(rank) for rank in range(self.home.ranks))
        each = self.sizes.query + self.sizes.key + self.sizes.out
        return mine * each + self.worst

    def seconds(self, *, bandwidth: float, latency: float = 0.0) -> float:
        """The time of what the worst rank receives, at so many bytes a second."""
        rounds = len(self.decision.received)
        return self.worst / bandwidth + rounds * latency

    def to_json(self) -> dict[str, object]:
        """Everything as numbers and strings."""
        return {
            "graph": repr(self.graph) if self.graph.total < 64 else type(self.graph).__name__,
            "tokens": self.home.n,
            "ranks": self.home.ranks,
            "way": describe(self.decision, self.home),
            "received": {kind: int(count.max()) for kind, count in self.received.items()},
            "worst": self.worst,
            "share": self.share,
            "all_gather": self.gathered,
            "heads": self.by_heads,
            "others": self.decision.others,
            "imbalance": self.imbalance,
            "memory": self.memory,
        }


def communication(
    graph: Pattern,
    *,
    tokens: int,
    ranks: int,
    sizes: RowSizes | None = None,
    shards: Shards | None = None,
) -> Communication:
    """The plan for self-attention of so many tokens on so many ranks; nothing is sent.

    `shards` say which tokens each rank has: contiguous ones unless given.
    """
    if not isinstance(graph, Pattern):
        raise NotAPattern(
            f"expected a pattern, got {type(graph).__name__}",
            caller(),
            "give one graph; heads and samples with graphs of their own are one plan each",
        )
    n, count = integer(tokens, "tokens"), integer(ranks, "ranks", 1)
    home = Shards(n, count) if shards is None else shards
    sizes = RowSizes() if sizes is None else sizes
    needs: dict[SharedPart, list[Needs]] = {}

    def counts(part: SharedPart) -> tuple[Ints, Ints]:
        if part not in needs:
            every = range(part.shards.ranks)
            needs[part] = [needs_of(part.graph, part.shards, rank) for rank in every]
        return counts_of(needs[part])

    return Communication(graph, home, sizes, decide(graph, home, sizes, counts), needs)


def best_shards(graph: Pattern, n: int, ranks: int) -> Shards:
    """The order of tokens that suits a graph, where data can be given to ranks in any: by residue
    for strided graphs, else contiguous.

    >>> from edgewise.graphs import causal, strided
    >>> best_shards(causal() & strided(64), 4096, 8)
    Shards(n=4096, ranks=8, step=64, paired=False)
    """
    step = symbolic_step(graph)
    return Shards(n, ranks, step=step) if 1 < step <= n else Shards(n, ranks)


def describe(decision: Decision, home: Shards) -> str:
    """The way in words."""
    if decision.way.kind != EXCHANGE:
        return decision.way.kind
    parts = [
        "as it is" if part.shards == home else f"in the order of i mod {part.shards.step}"
        for part in decision.way.parts
    ]
    return EXCHANGE if parts == ["as it is"] else f"{EXCHANGE}, {', then '.join(parts)}"


def _broadcast(needs: list[Needs]) -> Ints:
    """How many of the keys that each rank fetches all other ranks fetch as well."""
    ranks = len(needs)
    if ranks < 3:
        return np.zeros(ranks, np.int64)
    low, high, cover = coverage([one.keys for one in needs])
    every = TokenSet.of(low[cover >= ranks - 1], high[cover >= ranks - 1])
    return np.array([(one.keys & every).count for one in needs], np.int64)


def _pairs(part: SharedPart, needs: list[Needs]) -> Ints:
    shards, n = part.shards, part.shards.n
    split = EMPTY
    for one in needs:
        split = split | one.parts
    out = [
        rows_of_tokens(part.graph, n, shards.tokens(rank) - split).count()
        for rank in range(shards.ranks)
    ]
    if not split.count:
        return np.array(out, np.int64)
    wide = rows_of_tokens(part.graph, n, split).expand()
    start, stop = wide.start, wide.stop
    if (wide.step > 1).any():
        start = ranges(wide.start, wide.size, wide.step)
        stop = start + 1
    inside = [count_inside(start, stop, shards.tokens(rank)).sum() for rank in range(shards.ranks)]
    return np.array(out, np.int64) + np.array(inside, np.int64)

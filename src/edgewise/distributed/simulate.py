"""What attention on many ranks would send, computed without them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edgewise.distributed.errors import BadShards
from edgewise.distributed.local_graphs import count_pairs, on_keys, rows_of_tokens
from edgewise.distributed.needs import Needs
from edgewise.distributed.present import BANDWIDTHS, table
from edgewise.distributed.shards import Shards
from edgewise.distributed.token_sets import EMPTY, TokenSet, count_inside, coverage
from edgewise.distributed.traffic import (
    Counts,
    RowSizes,
    Traffic,
    added,
    block_back,
    counts_of,
    gather_back,
    gather_traffic,
    grouped_back,
    heads_traffic,
    moved_back,
    part_back,
    worst,
)
from edgewise.distributed.ways import (
    BLOCKS,
    GATHER,
    HEADS,
    Decision,
    SharedPart,
    decide,
    describe,
    part_needs,
    ways_of,
)
from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.graphs.errors import NotAPattern
from edgewise.graphs.pattern import Pattern
from edgewise.layouts.ragged import Ints, ranges


@dataclass(frozen=True, eq=False)
class Communication:
    """The plan of one attention on many ranks: bytes by kind, work and memory of every rank.

    >>> from edgewise.graphs import window
    >>> found = communication(window(256), tokens=1 << 20, ranks=512)
    >>> f"{found.share:.3%}"
    '0.049%'
    >>> found.worst < found.by_heads < found.gathered, found.memory < 10**8
    (True, True)
    >>> found.seconds(bandwidth=50e9) < 0.001, round(found.imbalance, 2)
    (True, 1.0)
    >>> found.to_json()["ranks"], found.worst_back == found.worst, "halo" in found.show()
    (512, True, True)
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
            for part in (part for part in self.decision.way.parts if part.shards == self.home):
                every += _broadcast(self.needs[part]) * self.sizes.key
            found = {"halo": found["keys"] - every, "broadcast": every, **found}
            del found["keys"]
        return {kind: count for kind, count in found.items() if count.any()}

    @cached_property
    def received_back(self) -> dict[str, Ints]:
        """The same in a backward pass: gradients of keys go back to their ranks."""
        home, sizes, way = self.home, self.sizes, self.decision.way
        if way.kind in (HEADS, BLOCKS):
            (part,) = way.parts
            needs = self.needs[part]
            counts, sent = counts_of(needs, home), _sent(needs, home)
            back = grouped_back if way.kind == HEADS else block_back
            return back(counts, sent, sizes, part.groups)
        if way.kind == GATHER:
            return gather_back(home, sizes)
        found: list[Traffic] = []
        for part in way.parts:
            needs = self.needs[part]
            counts, sent = counts_of(needs, home), _sent(needs, home)
            if part.shards == home:
                found.append({"keys back": sent * sizes.key})
                found.append(part_back(counts.parts, sizes))
            else:
                found.append(moved_back(counts, sent, sizes))
        return {kind: count for kind, count in added(found).items() if count.any()}

    @property
    def worst_back(self) -> int:
        """Bytes that the rank receives that receives most in a backward pass."""
        return worst(self.received_back)

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
        if self.decision.way.kind == HEADS:
            (part,) = self.decision.way.parts
            of_ranks = _pairs(SharedPart(part.graph, part.shards), [Needs(EMPTY)] * count)
            total = np.repeat(of_ranks.reshape(-1, part.groups).sum(1), part.groups)
            rest = np.arange(count) % part.groups  # of groups that have as many pairs
            return (total + rest) // part.groups
        if self.decision.way.kind == BLOCKS:
            (part,) = self.decision.way.parts
            total = np.repeat(_pairs_of_blocks(part, self.needs[part]), part.groups)
            return (total + np.arange(count) % part.groups) // part.groups
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
        """The time of what the worst rank receives, at this many bytes a second."""
        rounds = len(self.decision.received)
        return self.worst / bandwidth + rounds * latency

    def show(self, *bandwidths: float) -> str:
        """As text, with times at this many bytes a second, 50e9 unless given."""
        lines = table(self.to_json(), bandwidths or BANDWIDTHS)
        return "\n".join([*lines, "computed, not measured"])

    def __repr__(self) -> str:
        return self.show()

    def to_json(self) -> dict[str, Any]:
        """Everything as numbers and strings."""
        return {
            "graph": repr(self.graph) if self.graph.total < 64 else type(self.graph).__name__,
            "tokens": self.home.n,
            "ranks": self.home.ranks,
            "query_heads": self.sizes.heads,
            "key_heads": self.sizes.shared,
            "size": self.sizes.d,
            "way": describe(self.decision.way, self.home),
            "received": {kind: int(count.max()) for kind, count in self.received.items()},
            "worst": self.worst,
            "worst_back": self.worst_back,
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
    tokens: int | None = None,
    ranks: int | None = None,
    sizes: RowSizes | None = None,
    shards: Shards | None = None,
) -> Communication:
    """The plan for self-attention on a number of tokens and ranks; nothing is sent. Printed, it
    is a table of bytes by kind, beside all-gather and Ulysses.

    `shards` say which tokens each rank has, contiguous ones unless given, and then how many tokens
    and ranks there are.

    >>> from edgewise import distributed
    >>> from edgewise.graphs import causal, window
    >>> plan = distributed.communication(causal() & window(256), tokens=65536, ranks=8)
    >>> round(plan.share, 3), plan.worst < plan.gathered
    (0.004, True)
    """
    if not isinstance(graph, Pattern):
        raise NotAPattern(
            f"expected a pattern, got {type(graph).__name__}",
            caller(),
            "give one graph; heads and samples with graphs of their own are one plan each",
        )
    home = _home(tokens, ranks, shards)
    sizes = RowSizes() if sizes is None else sizes
    needs: dict[SharedPart, list[Needs]] = {}

    def counts(part: SharedPart) -> Counts:
        if part not in needs:
            first = range(0, home.ranks, part.groups)  # ranks of one group of heads read the same
            each = [part_needs(part, home, sizes, rank) for rank in first]
            needs[part] = [each[rank // part.groups] for rank in range(home.ranks)]
        return counts_of(needs[part], home)

    decision = decide(ways_of(graph, home, sizes), home, sizes, counts)
    return Communication(graph, home, sizes, decision, needs)


def _home(tokens: int | None, ranks: int | None, shards: Shards | None) -> Shards:
    if shards is None:
        return Shards(integer(tokens, "tokens"), integer(ranks, "ranks", 1))
    if tokens not in (None, shards.n) or ranks not in (None, shards.ranks):
        raise BadShards(
            f"the shards cover {shards.n} tokens on {shards.ranks} ranks, not {tokens} on {ranks}",
            caller(),
            "leave out `tokens=` and `ranks=`",
        )
    return shards


def _broadcast(needs: list[Needs]) -> Ints:
    """How many of the keys that each rank fetches all other ranks fetch as well."""
    ranks = len(needs)
    if ranks < 3:
        return np.zeros(ranks, np.int64)
    low, high, cover = coverage([one.keys for one in needs])
    every = TokenSet.of(low[cover >= ranks - 1], high[cover >= ranks - 1])
    return np.array([(one.keys & every).count for one in needs], np.int64)


def _sent(needs: list[Needs], home: Shards) -> Ints:
    """How many keys of each rank the others fetch, counted once for each."""
    low, high, cover = coverage([one.keys - home.tokens(r) for r, one in enumerate(needs)])
    owner, times = home.owner(ranges(low, high - low)), np.repeat(cover, high - low)
    return np.bincount(owner, times, minlength=home.ranks).astype(np.int64)


def _pairs_of_blocks(part: SharedPart, needs: list[Needs]) -> Ints:
    """Of every block, of all heads."""
    n = part.shards.n
    blocks = needs[:: part.groups]
    found = [on_keys(rows_of_tokens(part.graph, n, one.queries), one.keys) for one in blocks]
    return np.array([rows.count() for rows in found], np.int64)


def _pairs(part: SharedPart, needs: list[Needs]) -> Ints:
    shards, n = part.shards, part.shards.n
    split = EMPTY
    for one in needs:
        split = split | one.parts
    out = [count_pairs(part.graph, n, shards.tokens(rank) - split) for rank in range(shards.ranks)]
    if not split.count:
        return np.array(out, np.int64)
    wide = rows_of_tokens(part.graph, n, split).expand()
    start, stop = wide.start, wide.stop
    if (wide.step > 1).any():
        start = ranges(wide.start, wide.size, wide.step)
        stop = start + 1
    inside = [count_inside(start, stop, shards.tokens(rank)).sum() for rank in range(shards.ranks)]
    return np.array(out, np.int64) + np.array(inside, np.int64)

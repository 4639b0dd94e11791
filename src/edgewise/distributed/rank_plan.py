"""The plan of one rank: the ranks agree on a way, and tell each other what they need."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from weakref import WeakKeyDictionary

import numpy as np
import torch

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.head_graphs import HeadGraphs, HeadsAttention
from edgewise.distributed.local_attention import LocalAttention
from edgewise.distributed.local_graphs import (
    chosen_rows,
    local_rows,
    rows_with_keys,
    without_rows,
)
from edgewise.distributed.needs import Needs
from edgewise.distributed.rank_parts import ExchangePart, Fetch, RankPart
from edgewise.distributed.relayout import HeadGroups, MovedQueries, QueryKeyBlocks
from edgewise.distributed.shards import Shards
from edgewise.distributed.split_queries import SplitQueries
from edgewise.distributed.token_sets import TokenSet
from edgewise.distributed.traffic import (
    Counts,
    RowSizes,
    block_back,
    grouped_back,
    moved_back,
    part_back,
)
from edgewise.distributed.ways import (
    GATHER,
    Decision,
    SharedPart,
    Way,
    decide,
    part_needs,
    ways_of,
    ways_together,
)
from edgewise.graphs.families import per_head
from edgewise.graphs.pattern import Pattern
from edgewise.ground.masks.pattern import pattern_of_rows
from edgewise.layouts.ragged import Ints

PLANS = 256  # that one group holds: ranks make the same calls, so they drop the same ones


@dataclass(frozen=True, eq=False)
class RankPlan:
    """What this rank does, and the bytes that it will receive, by kind: forward and backward."""

    sizes: RowSizes
    decision: Decision
    parts: tuple[RankPart, ...]
    received: dict[str, int]
    received_back: dict[str, int]
    own: TokenSet


_PLANS: WeakKeyDictionary[object, OrderedDict[object, RankPlan]] = WeakKeyDictionary()


def plans_of(ranks: Ranks) -> OrderedDict[object, RankPlan]:
    """The plans of a group, the most recent last."""
    return _PLANS.setdefault(ranks.group, OrderedDict())


def remember(ranks: Ranks, key: object, plan: RankPlan) -> None:
    """Add a plan to those of a group; the least recent are dropped."""
    plans = plans_of(ranks)
    plans[key] = plan
    while len(plans) > PLANS:
        plans.popitem(last=False)


def build_plan(ranks: Ranks, graph: Pattern | per_head, home: Shards, sizes: RowSizes) -> RankPlan:
    """The plan that all ranks agree on; heads with graphs of their own are exchanged together."""
    heads = HeadGraphs.of(graph) if isinstance(graph, per_head) else None
    if heads is not None:
        ways = ways_together(heads.union, home, sizes)
    elif isinstance(graph, Pattern):
        ways = ways_of(graph, home, sizes)
    mine: dict[SharedPart, Needs] = {}
    counted: dict[SharedPart, Counts] = {}
    parts = {part: None for way in ways for part in way.parts}
    own, numbers = home.tokens(ranks.rank), []
    for part in parts:
        found = mine[part] = part_needs(part, home, sizes, ranks.rank)
        moved = found.queries - own
        returned = ranks.told(np.bincount(home.owner(moved.list()), minlength=ranks.count))
        numbers += [(found.keys - own).count, found.parts.count, moved.count, int(returned.sum())]
    every = ranks.gather(ranks.integers(numbers)).cpu().numpy()
    for at, part in enumerate(parts):
        counted[part] = Counts(*every[:, 4 * at : 4 * at + 4].T)
    decision = decide(ways, home, sizes, counted.__getitem__)
    way, rank = decision.way, ranks.rank
    received = {kind: int(count[rank]) for kind, count in decision.received.items()}
    builder = _PartBuilder(ranks, home, sizes, heads)
    built: list[RankPart] = []
    for part in way.parts:
        built += builder.part(part, mine[part], counted[part], way)
    back = {kind: size for kind, size in builder.back.items() if size}
    forward = {kind: size for kind, size in received.items() if size}
    return RankPlan(sizes, decision, tuple(built), forward, back, own)


class _PartBuilder:
    """Builds the parts of a way, and adds up what their backward passes receive."""

    def __init__(
        self, ranks: Ranks, home: Shards, sizes: RowSizes, heads: HeadGraphs | None
    ) -> None:
        self.ranks, self.home, self.sizes, self.heads = ranks, home, sizes, heads
        self.back: dict[str, int] = {}

    def _add(self, kind: str, size: int) -> None:
        self.back[kind] = self.back.get(kind, 0) + size

    def part(self, part: SharedPart, needs: Needs, counts: Counts, way: Way) -> list[RankPart]:
        """Of a way that exchanges keys."""
        if part.groups > 1 or part.columns > 1 or part.shards != self.home:
            return [self._moved(part, needs, counts)]
        if way.kind == GATHER:
            everything = TokenSet.of([0], [self.home.n])
            everywhere = Needs(everything - self.home.tokens(self.ranks.rank))
            return [self._exchange(part, everywhere, "gathered keys")]
        found: list[RankPart] = [self._exchange(part, needs, "keys")]
        if counts.parts.any():
            found.append(self._split(part, needs, counts.parts))
        return found

    def _attention(
        self, graph: Pattern, local: Callable[[Pattern], LocalAttention], groups: int = 1
    ) -> LocalAttention | HeadsAttention:
        """Of a graph, or of those of the heads in its place."""
        if self.heads is None:
            return local(graph)
        return self.heads.attention(local, self.sizes.batch, self.ranks.rank, groups)

    def _exchange(self, part: SharedPart, needs: Needs, kind: str) -> RankPart:
        own = part.shards.tokens(self.ranks.rank)
        split, tokens = TokenSet.of_tokens(own.place(needs.parts.list())), own.list()
        rows_of = cache(partial(local_rows, n=part.shards.n, queries=own))

        def near(graph: Pattern) -> LocalAttention:
            rows = without_rows(rows_of(graph)(own), split)
            return LocalAttention(pattern_of_rows(rows), tokens, tokens)

        local, fetch = self._attention(part.graph, near), self._fetch(needs.keys)
        self._add(f"{kind} back", sum(fetch.sent) * self.sizes.key)
        if not int(self.ranks.gather(self.ranks.integers([needs.keys.count])).sum()):
            return ExchangePart(local, fetch, None, None, kind)
        far_of = cache(lambda graph: without_rows(rows_of(graph)(needs.keys), split))
        some = rows_with_keys(far_of(part.graph))
        every = some.count == own.count

        def far(graph: Pattern) -> LocalAttention:
            rows = far_of(graph) if every else chosen_rows(far_of(graph), some)
            return LocalAttention(pattern_of_rows(rows), tokens[some.list()], needs.keys.list())

        at = None if every else torch.from_numpy(some.list()).to(self.ranks.device)
        return ExchangePart(local, fetch, self._attention(part.graph, far), at, kind)

    def _fetch(self, rows: TokenSet, groups: int = 1) -> Fetch:
        """Of rows, or of one group of heads of each."""
        ranks, tokens, own = self.ranks, rows.list(), self.home.tokens(self.ranks.rank)
        order, received, sent, wanted = ranks.request(tokens, self.home.owner(tokens))
        group = np.repeat(np.arange(ranks.count) % groups, sent)
        index = ranks.integers(own.place(wanted) * groups + group if len(wanted) else wanted)
        ascending = bool((order[1:] > order[:-1]).all())
        place = None if ascending else ranks.integers(np.argsort(order))
        return Fetch(received, place, sent, index)

    def _split(self, part: SharedPart, needs: Needs, split: Ints) -> RankPart:
        ranks, shards = self.ranks, part.shards
        own = shards.tokens(ranks.rank)
        every = np.concatenate(ranks.gather_lists(needs.parts.list()))
        order = np.argsort(every, kind="stable")
        ascending = TokenSet.of_tokens(every[order])
        rows = local_rows(part.graph, shards.n, ascending)(own)
        attention = LocalAttention(pattern_of_rows(rows), every[order], own.list())
        mine = torch.from_numpy(own.place(needs.parts.list())) if needs.parts.count else None
        mine = torch.zeros(0, dtype=torch.int64) if mine is None else mine
        for kind, size in part_back(split, self.sizes).items():
            self._add(kind, int(size[ranks.rank]))
        straight = bool((order[1:] > order[:-1]).all())
        place = None if straight else ranks.integers(order)
        return SplitQueries(attention, split, mine.to(ranks.device), place)

    def _moved(self, part: SharedPart, needs: Needs, counts: Counts) -> RankPart:
        n, groups, rank, sizes = self.home.n, part.groups, self.ranks.rank, self.sizes
        queries, keys = (self._fetch(rows, groups) for rows in (needs.queries, needs.keys))
        is_complete = needs.queries.count == needs.keys.count == n

        def there(graph: Pattern) -> LocalAttention:
            if not is_complete:
                graph = pattern_of_rows(local_rows(graph, n, needs.queries)(needs.keys))
            return LocalAttention(graph, needs.queries.list(), needs.keys.list())

        attention = self._attention(part.graph, there, groups)
        sent = np.zeros(self.ranks.count, np.int64)  # of other ranks it is not known
        sent[rank] = sum(keys.sent) - keys.sent[rank]
        if part.columns > 1:
            back = block_back(counts, sent, sizes, groups)
        elif groups > 1:
            back = grouped_back(counts, sent, sizes, groups)
        else:
            back = moved_back(counts, sent, sizes)
        for kind, size in back.items():
            self._add(kind, int(size[rank]))
        if part.columns > 1:
            return QueryKeyBlocks(queries, keys, attention, groups, sizes.batch)
        if groups > 1:
            return HeadGroups(queries, keys, attention, groups, sizes.batch)
        return MovedQueries(queries, keys, attention)

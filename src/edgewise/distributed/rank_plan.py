"""The plan of one rank: the ranks agree on a way, and tell each other what they need."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch

from edgewise.distributed.collectives import Ranks
from edgewise.distributed.local_attention import LocalAttention
from edgewise.distributed.local_graphs import on_keys, rows_with_keys, without_rows
from edgewise.distributed.needs import Needs, chosen_rows, needs_of, rows_of_tokens
from edgewise.distributed.rank_parts import ExchangePart, Fetch, RankPart
from edgewise.distributed.relayout import HeadsPart, Relayout
from edgewise.distributed.shards import Shards
from edgewise.distributed.split_queries import SplitQueries
from edgewise.distributed.token_sets import TokenSet
from edgewise.distributed.traffic import (
    RowSizes,
    Traffic,
    heads_back,
    part_back,
    relayout_back,
)
from edgewise.distributed.ways import GATHER, HEADS, Decision, SharedPart, Way, decide, ways_of
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


def build_plan(ranks: Ranks, graph: Pattern, home: Shards, sizes: RowSizes) -> RankPlan:
    """The plan that all ranks agree on."""
    mine: dict[SharedPart, Needs] = {}
    counted: dict[SharedPart, tuple[Ints, Ints]] = {}
    parts = {part: None for way in ways_of(graph, home, sizes) for part in way.parts}
    for part in parts:
        mine[part] = needs_of(part.graph, part.shards, ranks.rank, split=not sizes.at_home)
    numbers = [n for part in parts for n in (mine[part].keys.count, mine[part].parts.count)]
    every = ranks.gather(ranks.integers(numbers)).cpu().numpy()
    for at, part in enumerate(parts):
        counted[part] = every[:, 2 * at], every[:, 2 * at + 1]
    decision = decide(graph, home, sizes, counted.__getitem__)
    way, rank = decision.way, ranks.rank
    received = {kind: int(count[rank]) for kind, count in decision.received.items()}
    builder = _PartBuilder(ranks, home, sizes)
    if way.kind == HEADS:
        found: list[RankPart] = [builder.heads(graph)]
    else:
        found = []
        for part in way.parts:
            found += builder.part(part, mine[part], counted[part][1], way)
    back = {kind: size for kind, size in builder.back.items() if size}
    forward = {kind: size for kind, size in received.items() if size}
    return RankPlan(sizes, decision, tuple(found), forward, back, home.tokens(rank))


class _PartBuilder:
    """Builds the parts of a way, and adds up what their backward passes receive."""

    def __init__(self, ranks: Ranks, home: Shards, sizes: RowSizes) -> None:
        self.ranks, self.home, self.sizes = ranks, home, sizes
        self.back: dict[str, int] = {}

    def _add(self, traffic: Traffic) -> None:
        """What this rank receives of it."""
        for kind, size in traffic.items():
            self.back[kind] = self.back.get(kind, 0) + int(size[self.ranks.rank])

    def part(self, part: SharedPart, needs: Needs, split: Ints, way: Way) -> list[RankPart]:
        """Of a way that exchanges keys."""
        if way.kind == GATHER:
            everything = TokenSet.of([0], [part.shards.n])
            needs, split = Needs(everything - part.shards.tokens(self.ranks.rank)), split * 0
        kind = "gathered keys" if way.kind == GATHER else "keys"
        found: list[RankPart] = [self._exchange(part, needs, kind)]
        if split.any():
            found.append(self._split(part, needs, split))
        return found if part.shards == self.home else [self._reordered(part.shards, found)]

    def _exchange(self, part: SharedPart, needs: Needs, kind: str) -> RankPart:
        own = part.shards.tokens(self.ranks.rank)
        rows = rows_of_tokens(part.graph, part.shards.n, own)
        if needs.parts.count:
            rows = without_rows(rows, TokenSet.of_tokens(own.place(needs.parts.list())))
        tokens = own.list()
        local = LocalAttention(pattern_of_rows(on_keys(rows, own)), tokens, tokens)
        fetch = self._fetch(part.shards, own, needs.keys, kind)
        if not int(self.ranks.gather(self.ranks.integers([needs.keys.count])).sum()):
            return ExchangePart(local, fetch, None, None)
        far = on_keys(rows, needs.keys)
        some = rows_with_keys(far)
        at = None if some.count == rows.n else torch.from_numpy(some.list()).to(self.ranks.device)
        graph = pattern_of_rows(far if at is None else chosen_rows(far, some))
        remote = LocalAttention(graph, tokens[some.list()], needs.keys.list())
        return ExchangePart(local, fetch, remote, at)

    def _fetch(self, shards: Shards, own: TokenSet, keys: TokenSet, kind: str) -> Fetch:
        ranks, tokens = self.ranks, keys.list()
        order, received, sent, wanted = ranks.request(tokens, shards.owner(tokens))
        index = ranks.integers(own.place(wanted) if len(wanted) else wanted)
        ascending = bool((order[1:] > order[:-1]).all())
        place = None if ascending else ranks.integers(np.argsort(order))
        name = f"{kind} back"  # of the others no rank knows how much they send
        self.back[name] = self.back.get(name, 0) + sum(sent) * self.sizes.key
        return Fetch(received, place, sent, index, kind)

    def _split(self, part: SharedPart, needs: Needs, split: Ints) -> RankPart:
        ranks, shards = self.ranks, part.shards
        own = shards.tokens(ranks.rank)
        every = np.concatenate(ranks.gather_lists(needs.parts.list()))
        order = np.argsort(every, kind="stable")
        ascending = TokenSet.of_tokens(every[order])
        rows = on_keys(rows_of_tokens(part.graph, shards.n, ascending), own)
        attention = LocalAttention(pattern_of_rows(rows), every[order], own.list())
        mine = torch.from_numpy(own.place(needs.parts.list())) if needs.parts.count else None
        mine = torch.zeros(0, dtype=torch.int64) if mine is None else mine
        self._add(part_back(split, self.sizes))
        straight = bool((order[1:] > order[:-1]).all())
        place = None if straight else ranks.integers(order)
        return SplitQueries(attention, split, mine.to(ranks.device), place)

    def _reordered(self, other: Shards, parts: list[RankPart]) -> RankPart:
        ranks, home, rank = self.ranks, self.home, self.ranks.rank
        here, there = home.tokens(rank).list(), other.tokens(rank).list()
        goes, comes = other.owner(here), home.owner(there)
        index = np.argsort(goes, kind="stable")
        arrives = np.argsort(comes, kind="stable")  # by rank, then token
        sent = np.bincount(goes, minlength=ranks.count).tolist()
        received = np.bincount(comes, minlength=ranks.count).tolist()
        self._add(relayout_back(home, other, self.sizes))
        order = ranks.integers(np.argsort(arrives))
        return Relayout(sent, ranks.integers(index), received, order, tuple(parts))

    def heads(self, graph: Pattern) -> RankPart:
        home, ranks, sizes = self.home, self.ranks, self.sizes
        counts = [home.count(rank) for rank in range(ranks.count)]
        tokens = np.concatenate([home.tokens(rank).list() for rank in range(ranks.count)])
        place = None if home.is_contiguous else ranks.integers(np.argsort(tokens))
        everyone = np.arange(home.n)
        attention = LocalAttention(graph, everyone, everyone)
        self._add(heads_back(home, sizes))
        return HeadsPart(attention, counts, place, sizes.batch)

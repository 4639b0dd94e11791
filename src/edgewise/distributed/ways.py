"""The ways to share attention among ranks, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

import numpy as np

from edgewise.distributed.needs import Needs, block_needs, group_needs, moved_needs, needs_of
from edgewise.distributed.placement import by_residue, is_causal, with_uncut_documents
from edgewise.distributed.shards import Shards
from edgewise.distributed.traffic import (
    Counts,
    RowSizes,
    Traffic,
    added,
    block_traffic,
    exchange_traffic,
    gather_traffic,
    grouped_traffic,
    moved_traffic,
    worst,
)
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.documents import documents
from edgewise.graphs.residues import class_of, symbolic_step
from edgewise.kernels.attention.union import members
from edgewise.layouts.ragged import Ints

EXCHANGE, GATHER, HEADS, BLOCKS = "exchange", "all-gather", "heads", "blocks"
MOST = 4  # parts of a union


@dataclass(frozen=True)
class SharedPart:
    """A graph whose queries are computed on ranks as `shards` say, wherever they are; with `groups`
    of heads, as many ranks share their queries, and each computes a group; with `columns`, queries
    and keys are cut into blocks, as many of keys, and each rank computes one for its group."""

    graph: Pattern
    shards: Shards
    groups: int = 1
    columns: int = 1


@dataclass(frozen=True)
class Way:
    """How a call is shared: by exchange of keys for each of its disjoint parts, by gathering all
    keys, with some heads of all tokens on every rank, or with some heads of a block of queries and
    keys."""

    kind: str
    parts: tuple[SharedPart, ...]


@dataclass(frozen=True, eq=False)
class Decision:
    """The cheapest way, what it sends, and what each of the others would send to the worst rank."""

    way: Way
    received: dict[str, Ints]
    others: dict[str, int]


def ways_of(graph: Pattern, home: Shards, sizes: RowSizes) -> list[Way]:
    """Every way there is, simple ones first."""
    here = SharedPart(graph, home)
    found = [Way(EXCHANGE, (here,))]
    if home.ranks == 1:
        return found
    if not sizes.at_home:
        found += _in_other_orders(graph, home, sizes)
    found.append(Way(GATHER, (here,)))
    groups = gcd(sizes.shared, home.ranks) if sizes.by_heads else 1
    if groups < home.ranks and not home.is_contiguous:
        groups = 1  # tokens of several ranks are many runs
    if groups > 1:
        found.append(Way(HEADS, (SharedPart(graph, home, groups),)))
    columns = block_columns(home.ranks // groups, sizes)
    if columns > 1 and not sizes.at_home:
        found.append(Way(BLOCKS, (SharedPart(graph, home, groups, columns),)))
    return found


def ways_together(graph: Pattern, home: Shards, sizes: RowSizes) -> list[Way]:
    """Those that do not depend on which pairs of a graph a head has."""
    return [way for way in ways_of(graph, home, sizes) if way.kind != EXCHANGE]


def block_columns(ranks: int, sizes: RowSizes) -> int:
    """Into how many blocks keys are cut for this many ranks, so that each receives least: of c, a
    rank receives 1/c of the keys, c/ranks of the queries and, for its own, c partial results."""
    divisors = [c for c in range(1, ranks + 1) if ranks % c == 0]
    return min(divisors, key=lambda c: (sizes.query + sizes.part) * c / ranks + sizes.key / c)


def _in_other_orders(graph: Pattern, home: Shards, sizes: RowSizes) -> list[Way]:
    ways = [[SharedPart(graph, by_residue(graph, home))]]
    several = [SharedPart(one, by_residue(one, home)) for one in disjoint(graph)]
    ways += [several] if len(several) > 1 else []
    if home.is_contiguous:
        ways.append([SharedPart(graph, with_uncut_documents(graph, home, sizes))])
    different = [way for way in ways if any(part.shards != home for part in way)]
    found = [_here_and_there(way, home) for way in different]
    if is_causal(graph):
        found += [early for way in found if (early := _early_queries_at_their_keys(way, home))]
    return [Way(EXCHANGE, way) for way in found]


def _here_and_there(parts: list[SharedPart], home: Shards) -> tuple[SharedPart, ...]:
    """Pairs of tokens of one rank are computed there, whatever the order of the others."""
    if not home.is_contiguous:
        return tuple(parts)
    own = documents(np.diff(home.bounds))
    here = [part.graph for part in parts if part.shards == home]
    there = [part for part in parts if part.shards != home]
    if any(class_of(own, part.shards.step) is None for part in there):
        return tuple(parts)
    graph, *more = [*here, *(part.graph & own for part in there)]
    for one in more:
        graph = graph | one
    far = (SharedPart(part.graph - own, part.shards) for part in there)
    return (SharedPart(graph, home), *far)


def _early_queries_at_their_keys(
    parts: tuple[SharedPart, ...], home: Shards
) -> tuple[SharedPart, ...] | None:
    """Of a causal graph, the queries of the second rank read keys of the first alone, which has
    none that read others: it computes them, in the place of the ranks of their residue classes."""
    here, *there = parts
    if here.shards != home or not there or not all(part.shards.step > 1 for part in there):
        return None
    cuts = home.bounds[2:]
    both = documents(np.diff(cuts, prepend=0))
    if any(class_of(both, part.shards.step) is None for part in there):
        return None
    first = Shards(home.n, home.ranks, cuts=(int(cuts[0]), *cuts[:-1].tolist()))
    early = [SharedPart(part.graph & both, first) for part in there]
    late = [SharedPart(part.graph - both, part.shards) for part in there if home.ranks > 2]
    return (here, *early, *late)


def disjoint(graph: Pattern) -> tuple[Pattern, ...]:
    """Disjoint parts of a union, as it is written."""
    several = members(graph)
    if not 1 < len(several) <= MOST:
        return (graph,)
    first, *others = sorted(several, key=symbolic_step)
    out, before = [first], first
    for one in others:
        out.append(one - before)
        before = before | one
    return tuple(out)


def part_needs(part: SharedPart, home: Shards, sizes: RowSizes, rank: int) -> Needs:
    """What a rank needs for its share of a part."""
    if part.columns > 1:
        return block_needs(home, rank, part.groups, part.columns)
    if part.groups > 1:
        return group_needs(part.graph, home, rank, part.groups)
    if part.shards == home:
        return needs_of(part.graph, home, rank, split=not sizes.at_home)
    return moved_needs(part.graph, part.shards, rank)


def decide(
    ways: list[Way], home: Shards, sizes: RowSizes, counts: Callable[[SharedPart], Counts]
) -> Decision:
    """The way by which the worst rank receives least."""
    named: list[tuple[str, Way, Traffic]] = []
    for way in ways:
        named.append((describe(way, home), way, _received(way, home, sizes, counts)))
    best = min(named, key=lambda one: worst(one[2]))
    others = {name: worst(traffic) for name, way, traffic in named if way is not best[1]}
    return Decision(best[1], dict(best[2]), others)


def _received(
    way: Way, home: Shards, sizes: RowSizes, counts: Callable[[SharedPart], Counts]
) -> dict[str, Ints]:
    if way.kind == GATHER:
        return gather_traffic(home, sizes)
    if way.kind == HEADS:
        (part,) = way.parts
        return grouped_traffic(counts(part), sizes, part.groups)
    if way.kind == BLOCKS:
        (part,) = way.parts
        return block_traffic(counts(part), sizes, part.groups)
    found: list[Traffic] = []
    for part in way.parts:
        traffic = exchange_traffic if part.shards == home else moved_traffic
        found.append(traffic(counts(part), sizes))
    return added(found)


def describe(way: Way, home: Shards) -> str:
    """A way in words."""
    if way.kind == HEADS and way.parts[0].groups < home.ranks:
        return f"{HEADS}, in {way.parts[0].groups} groups"
    if way.kind == BLOCKS:
        (part,) = way.parts
        rows = home.ranks // part.groups // part.columns
        shown = f"{rows} × {part.columns} {BLOCKS} of queries and keys"
        return f"{shown}, heads in {part.groups} groups" if part.groups > 1 else shown
    if way.kind != EXCHANGE:
        return way.kind
    parts = [_order(part.shards, home) for part in way.parts]
    return EXCHANGE if parts == ["as it is"] else f"{EXCHANGE}, {', then '.join(parts)}"


def _order(shards: Shards, home: Shards) -> str:
    if shards == home:
        return "as it is"
    return f"in the order of i mod {shards.step}" if shards.step > 1 else "cut elsewhere"

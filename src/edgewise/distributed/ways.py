"""The ways to share attention among ranks, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewise.distributed.shards import Shards
from edgewise.distributed.traffic import (
    RowSizes,
    Traffic,
    added,
    exchange_traffic,
    gather_traffic,
    heads_traffic,
    relayout_traffic,
    worst,
)
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.residues import class_of, symbolic_step
from edgewise.kernels.attention.union import members
from edgewise.layouts.ragged import Ints

EXCHANGE, GATHER, HEADS = "exchange", "all-gather", "heads"
MOST = 4  # parts of a union


@dataclass(frozen=True)
class SharedPart:
    """A graph that is computed with tokens on ranks as `shards` say."""

    graph: Pattern
    shards: Shards


@dataclass(frozen=True)
class Way:
    """How a call is shared: by exchange of keys for each of its disjoint parts, by gathering all
    keys, or with some heads of all tokens on every rank."""

    kind: str
    parts: tuple[SharedPart, ...]


@dataclass(frozen=True, eq=False)
class Decision:
    """The cheapest way, what it sends, and what each of the others would send to the worst rank."""

    way: Way
    received: dict[str, Ints]
    others: dict[str, int]


Counts = Callable[[SharedPart], tuple[Ints, Ints]]


def ways_of(graph: Pattern, home: Shards, sizes: RowSizes) -> list[Way]:
    """Every way there is, simple ones first."""
    here = SharedPart(graph, home)
    found = [Way(EXCHANGE, (here,))]
    if home.ranks == 1:
        return found
    if not sizes.at_home:
        found += _in_other_orders(graph, home)
    found.append(Way(GATHER, (here,)))
    if sizes.by_heads and not (sizes.shared % home.ranks or sizes.heads % home.ranks):
        found.append(Way(HEADS, (here,)))
    return found


def _in_other_orders(graph: Pattern, home: Shards) -> list[Way]:
    found, order = [], _by_residue(graph, home)
    if order != home:
        found.append(Way(EXCHANGE, (SharedPart(graph, order),)))
    parts = tuple(SharedPart(one, _by_residue(one, home)) for one in disjoint(graph))
    if len(parts) > 1 and any(part.shards != home for part in parts):
        found.append(Way(EXCHANGE, parts))
    return found


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


def _by_residue(graph: Pattern, home: Shards) -> Shards:
    """The order of tokens by i mod s, if all pairs have i ≡ j (mod s)."""
    step = symbolic_step(graph)
    if step < 2 or step > home.n or class_of(graph, step) is None:
        return home
    return Shards(home.n, home.ranks, step=step)


def decide(graph: Pattern, home: Shards, sizes: RowSizes, counts: Counts) -> Decision:
    """The way by which the worst rank receives least; `counts` are keys and queries in parts."""
    named: list[tuple[str, Way, Traffic]] = []
    for way in ways_of(graph, home, sizes):
        named.append((_name(way, home), way, _received(way, home, sizes, counts)))
    best = min(named, key=lambda one: worst(one[2]))
    others = {name: worst(traffic) for name, way, traffic in named if way is not best[1]}
    return Decision(best[1], dict(best[2]), others)


def _received(way: Way, home: Shards, sizes: RowSizes, counts: Counts) -> dict[str, Ints]:
    if way.kind == GATHER:
        return gather_traffic(home, sizes)
    if way.kind == HEADS:
        return heads_traffic(home, sizes)
    found: list[Traffic] = []
    for part in way.parts:
        found.append(exchange_traffic(*counts(part), sizes))
        if part.shards != home:
            found.append(relayout_traffic(home, part.shards, sizes))
    return added(found)


def _name(way: Way, home: Shards) -> str:
    if way.kind != EXCHANGE:
        return way.kind
    if len(way.parts) > 1:
        return "exchange, part by part"
    return "exchange" if way.parts[0].shards == home else "exchange, in another order"

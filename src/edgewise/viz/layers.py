"""Layers of boxes by longest paths, and their order by barycentres."""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

SWEEPS = 12


@dataclass(frozen=True)
class Box:
    """Something with a size, `across` its layer and `along` the flow."""

    key: str
    across: float
    along: float


@dataclass(frozen=True)
class Link:
    """An edge; `leave` and `enter` are where it meets its boxes, from their middles, across.

    Links that leave one place in the same `lane` run together until they part.
    """

    source: str
    target: str
    leave: float = 0.0
    enter: float = 0.0
    lane: str = ""

    @property
    def reversed(self) -> "Link":
        return Link(self.target, self.source, self.enter, self.leave, f"{self.lane} back")


def cycle_links(
    keys: Iterable[str], links: Sequence[Link], first: Collection[str] = ()
) -> set[int]:
    """The links that close a cycle, by number: without them the graph has none.

    The search starts at `first`, then at boxes that nothing enters.

    >>> cycle_links("ab", [Link("a", "b"), Link("b", "a")])
    {1}
    """
    leaving: dict[str, list[int]] = defaultdict(list)
    entered = {link.target for link in links}
    for number, link in enumerate(links):
        leaving[link.source].append(number)
    found: set[int] = set()
    state: dict[str, int] = {}  # 1 on the path, 2 done
    for root in sorted(keys, key=lambda key: (key not in first, key in entered)):
        if root in state:
            continue
        work = [(root, iter(leaving[root]))]
        state[root] = 1
        while work:
            key, rest = work[-1]
            for number in rest:
                target = links[number].target
                if state.get(target) == 1:
                    found.add(number)
                elif target not in state:
                    state[target] = 1
                    work.append((target, iter(leaving[target])))
                    break
            else:
                state[key] = 2
                work.pop()
    return found


def assign_layers(
    keys: Sequence[str], links: Sequence[Link], first: Iterable[str], last: Iterable[str]
) -> dict[str, int]:
    """The layer of each box: the longest path to it; a source is just before its first reader.

    >>> assign_layers("abc", [Link("a", "b"), Link("b", "c"), Link("a", "c")], (), ())
    {'a': 0, 'b': 1, 'c': 2}
    """
    after: dict[str, list[str]] = defaultdict(list)
    waiting = dict.fromkeys(keys, 0)
    for link in links:
        after[link.source].append(link.target)
        waiting[link.target] += 1
    sources = [key for key in keys if not waiting[key]]
    depth = dict.fromkeys(keys, 0)
    ready = list(sources)
    for key in ready:
        for target in after[key]:
            depth[target] = max(depth[target], depth[key] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    pinned = set(first)
    for key in sources:
        if key not in pinned and after[key]:
            depth[key] = min(depth[target] for target in after[key]) - 1
    bottom = max(depth.values(), default=0)
    return depth | dict.fromkeys(last, bottom)


Neighbours = Mapping[str, Sequence[tuple[str, float]]]


def reduce_crossings(
    layers: list[list[str]], links: Sequence[Link], sizes: Mapping[str, float], improvement: float
) -> None:
    """Reorder each layer in place to reduce crossings of links between neighbouring layers.

    The original order stays unless another has less than `improvement` of its crossings.
    """
    above: dict[str, list[tuple[str, float]]] = defaultdict(list)
    below: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for link in links:
        above[link.target].append((link.source, link.leave / sizes[link.source]))
        below[link.source].append((link.target, link.enter / sizes[link.target]))
    best, fewest = [list(layer) for layer in layers], improvement * crossings(layers, links, sizes)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        turn = range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1)
        for depth in turn:
            other = layers[depth - 1] if downwards else layers[depth + 1]
            _sort(layers[depth], other, above if downwards else below)
        count = crossings(layers, links, sizes)
        if count < fewest:
            best, fewest = [list(layer) for layer in layers], count
    layers[:] = best


def _sort(layer: list[str], other: Sequence[str], neighbours: Neighbours) -> None:
    """By the mean place of the neighbours; a box without any keeps its place."""
    at = {key: place for place, key in enumerate(other)}
    scale = len(other) / max(len(layer), 1)
    middle = {
        key: fmean(at[k] + offset for k, offset in neighbours[key])
        if neighbours.get(key)
        else place * scale
        for place, key in enumerate(layer)
    }
    layer.sort(key=lambda key: middle[key])


def crossings(
    layers: Sequence[Sequence[str]], links: Sequence[Link], sizes: Mapping[str, float]
) -> int:
    """How often links between neighbouring layers cross.

    >>> links = [Link("a", "d"), Link("b", "c")]
    >>> crossings([["a", "b"], ["c", "d"]], links, dict.fromkeys("abcd", 1.0))
    1
    """
    depth = {key: d for d, layer in enumerate(layers) for key in layer}
    at = {key: float(place) for layer in layers for place, key in enumerate(layer)}
    between: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for link in links:
        start = at[link.source] + link.leave / sizes[link.source]
        end = at[link.target] + link.enter / sizes[link.target]
        between[depth[link.source]].append((start, end))
    count = 0
    for pairs in between.values():
        ends: list[float] = []
        for _, end in sorted(pairs):
            count += len(ends) - bisect_right(ends, end)
            insort(ends, end)
    return count

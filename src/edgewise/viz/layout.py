"""Layered graph drawing (Sugiyama et al. 1981): positions of boxes and paths of links."""

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from edgewise.viz.layers import Box, Link, assign_layers, cycle_links, reduce_crossings

Point = tuple[float, float]  # across, along
THREAD = 6.0  # the width reserved for a link that crosses a layer


@dataclass(frozen=True)
class Placement:
    """The middles of the boxes, the points of each link in order, and the total size.

    Successive points are joined by curves that leave and arrive along the flow.
    """

    middles: Mapping[str, Point]
    paths: tuple[tuple[Point, ...], ...]
    across: float
    along: float


def layered_layout(
    boxes: Sequence[Box],
    links: Sequence[Link],
    *,
    beside: float,
    between: float,
    improvement: float = 1.0,
    first: Collection[str] = (),
    last: Collection[str] = (),
) -> Placement:
    """A layered layout; boxes keep `beside` in a layer, layers `between`.

    `first` names boxes where the flow begins, `last` those of the last layer; the original order is
    replaced only by one with less than `improvement` of its crossings.

    >>> placed = layered_layout(
    ...     [Box("a", 10, 4), Box("b", 10, 4)], [Link("a", "b")], beside=5, between=6
    ... )
    >>> placed.middles, placed.along
    ({'a': (5.0, 2.0), 'b': (5.0, 12.0)}, 14.0)
    """
    if not boxes:
        return Placement({}, (), 0, 0)
    size = {box.key: box for box in boxes}
    back = cycle_links(size, links, first)
    forward = [_beside(link, size).reversed if n in back else link for n, link in enumerate(links)]
    depth = assign_layers(list(size), forward, first, last)
    layers = [[k for k in depth if depth[k] == d] for d in range(max(depth.values()) + 1)]
    chains = [_chain(link, depth, layers) for link in forward]
    short = list(dict.fromkeys(link for chain in chains for link in chain))
    widths = {key: size[key].across if key in size else THREAD for layer in layers for key in layer}
    reduce_crossings(layers, short, widths, improvement)
    across = assign_coordinates(layers, short, widths, beside)
    bands = _bands(layers, size, between)
    low = min(across[key] - widths[key] / 2 for key in across)
    across = {key: x - low for key, x in across.items()}
    middles = {key: (across[key], sum(bands[depth[key]]) / 2) for key in size}
    paths = [_path(chain, size, middles, across, bands, depth) for chain in chains]
    turned = tuple(tuple(p[::-1] if n in back else p) for n, p in enumerate(paths))
    width = max(across[key] + widths[key] / 2 for key in across)
    return Placement(middles, turned, width, bands[-1][1])


def _beside(link: Link, size: Mapping[str, Box]) -> Link:
    """A link against the flow leaves its box beside the one that comes in."""
    side = -1 if link.enter < 0 else 1
    return replace(link, leave=link.leave + side * size[link.source].across / 4)


def _chain(link: Link, depth: Mapping[str, int], layers: list[list[str]]) -> list[Link]:
    """The link cut at every layer it passes, with a thread in each."""
    threads = []
    for d in range(depth[link.source] + 1, depth[link.target]):
        thread = f"\0{link.source} {link.leave} {link.lane} {d}"
        threads.append(thread)
        if thread not in layers[d]:
            layers[d].append(thread)
    stops = [link.source, *threads, link.target]
    pairs = list(itertools.pairwise(stops))
    return [
        Link(a, b, link.leave if a == link.source else 0, link.enter if b == link.target else 0)
        for a, b in pairs
    ]


def _bands(
    layers: Sequence[Sequence[str]], size: Mapping[str, Box], between: float
) -> list[tuple[float, float]]:
    """Where each layer begins and ends, along the flow."""
    bands, at = [], 0.0
    for layer in layers:
        thick = max((size[key].along for key in layer if key in size), default=0.0)
        bands.append((at, at + thick))
        at += thick + between
    return bands


def _path(
    chain: Sequence[Link],
    size: Mapping[str, Box],
    middles: Mapping[str, Point],
    across: Mapping[str, float],
    bands: Sequence[tuple[float, float]],
    depth: Mapping[str, int],
) -> list[Point]:
    """Straight out of the box, curves between layers, straight past the boxes of a layer."""
    source, target = chain[0].source, chain[-1].target
    x, y = middles[source]
    x += chain[0].leave
    points = [(x, y + size[source].along / 2), (x, bands[depth[source]][1])]
    for d, link in enumerate(chain[1:], start=depth[source] + 1):
        points += [(across[link.source], edge) for edge in bands[d]]
    x, y = middles[target]
    x += chain[-1].enter
    points += [(x, bands[depth[target]][0]), (x, y - size[target].along / 2)]
    return list(dict.fromkeys(points))


SPREAD, TURNS = 8, 72  # turns that look one way, turns in all


def assign_coordinates(
    layers: Sequence[Sequence[str]],
    links: Sequence[Link],
    widths: Mapping[str, float],
    beside: float,
) -> dict[str, float]:
    """Positions in the layers, each as near to its neighbours as the order allows."""
    above: dict[str, list[tuple[str, float]]] = defaultdict(list)
    below: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for link in links:
        above[link.target].append((link.source, link.leave - link.enter))
        below[link.source].append((link.target, link.enter - link.leave))
    gaps = [_gaps(layer, widths, beside) for layer in layers]
    across: dict[str, float] = {}
    for layer, gap in zip(layers, gaps, strict=True):
        across |= {key: x - gap[-1] / 2 for key, x in zip(layer, gap, strict=True)}
    for turn in range(TURNS):
        order = range(len(layers)) if turn % 2 == 0 else range(len(layers) - 1, -1, -1)
        for d in order:
            if turn < SPREAD:
                near = [(above, below)[turn % 2][key] for key in layers[d]]
            else:
                near = [above[key] + below[key] for key in layers[d]]
            pulls = [_pull(key, near[n], across) for n, key in enumerate(layers[d])]
            spots = isotonic_positions(
                [at for at, _ in pulls], gaps[d], [force for _, force in pulls]
            )
            across |= dict(zip(layers[d], spots, strict=True))
    lanes = [link for link in links if link.target[0] == "\0" or link.source[0] == "\0"]
    _straighten(_runs(lanes), layers, gaps, across)
    for layer, gap in zip(layers, gaps, strict=True):
        _snap(layer, gap, above, below, across)
    return across


def _runs(lanes: Sequence[Link]) -> list[list[str]]:
    """The threads of each link, one after another."""
    after = {link.source: link.target for link in lanes if link.source[0] == "\0"}
    starts = [link.target for link in lanes if link.source[0] != "\0"]
    runs = []
    for start in starts:
        run = [start]
        while run[-1] in after and after[run[-1]][0] == "\0":
            run.append(after[run[-1]])
        runs.append(run)
    return runs


Slack = tuple[float, float]


def _slack(at: int, layer: Sequence[str], gap: Sequence[float], across: dict[str, float]) -> Slack:
    """How far a box can move while its neighbours in the layer stay."""
    low = across[layer[at - 1]] + gap[at] - gap[at - 1] if at else -math.inf
    high = across[layer[at + 1]] - gap[at + 1] + gap[at] if at + 1 < len(layer) else math.inf
    return min(low, across[layer[at]]), max(high, across[layer[at]])  # rounding moves nothing


def _straighten(
    runs: Sequence[Sequence[str]],
    layers: Sequence[Sequence[str]],
    gaps: Sequence[Sequence[float]],
    across: dict[str, float],
) -> None:
    """Every run of threads in as few straight segments as its neighbours allow."""
    spot = {key: (d, at) for d, layer in enumerate(layers) for at, key in enumerate(layer)}
    for run in runs:
        segment: list[str] = []
        low, high = -math.inf, math.inf
        for key in [*run, None]:
            if key is not None:
                d, at = spot[key]
                slack = _slack(at, layers[d], gaps[d], across)
                if max(low, slack[0]) <= min(high, slack[1]):
                    low, high = max(low, slack[0]), min(high, slack[1])
                    segment.append(key)
                    continue
            middle = sorted(across[k] for k in segment)[len(segment) // 2]
            across |= dict.fromkeys(segment, min(max(middle, low), high))
            if key is not None:
                segment, (low, high) = [key], slack


def _snap(
    layer: Sequence[str],
    gap: Sequence[float],
    above: Mapping[str, Sequence[tuple[str, float]]],
    below: Mapping[str, Sequence[tuple[str, float]]],
    across: dict[str, float],
) -> None:
    """Move each box to where one of its links is straight, if the total bend does not grow."""
    for at, key in enumerate(layer):
        spots = [across[k] + offset for k, offset in (*above.get(key, ()), *below.get(key, ()))]
        if key[0] == "\0" or not spots:
            continue
        low, high = _slack(at, layer, gap, across)

        def bend_cost(x: float, spots: Sequence[float] = spots) -> float:
            return sum(abs(x - spot) for spot in spots)

        free = [x for x in spots if low <= x <= high]
        best = min(free, key=bend_cost, default=across[key])
        if bend_cost(best) <= bend_cost(across[key]) + 0.5:
            across[key] = best


def _pull(
    key: str, near: Sequence[tuple[str, float]], across: Mapping[str, float]
) -> tuple[float, float]:
    """Where a box is drawn to, and how strongly.

    A near neighbour pulls harder than a far one, so that links have one bend rather than a
    small one at every layer; a passing link pulls harder than a box.
    """
    if not near:
        return across[key], 0.01
    here = across[key]
    spots = [across[k] + offset for k, offset in near]
    forces = [
        (4.0 if key[0] == k[0] == "\0" else 1.0) / (abs(at - here) + 1)
        for at, (k, _) in zip(spots, near, strict=True)
    ]
    total = sum(forces)
    return sum(at * f for at, f in zip(spots, forces, strict=True)) / total, total


def _gaps(layer: Sequence[str], widths: Mapping[str, float], beside: float) -> list[float]:
    """The least distance of each box's middle from the first one's."""
    at = [0.0] if layer else []
    for a, b in itertools.pairwise(layer):
        threads = (a[0] == "\0") + (b[0] == "\0")
        free = beside * (1, 0.75, 0.5)[threads]
        at.append(at[-1] + widths[a] / 2 + free + widths[b] / 2)
    return at


def isotonic_positions(
    wanted: Sequence[float], gaps: Sequence[float], weights: Sequence[float]
) -> list[float]:
    """The positions nearest to those wanted (least squares) that keep the order and the gaps.

    Isotonic regression by pooling adjacent violators.

    >>> isotonic_positions([0.0, 0.0], [0.0, 10.0], [1.0, 1.0])
    [-5.0, 5.0]
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, members
    for target, gap, weight in zip(wanted, gaps, weights, strict=True):
        mean, total, count = target - gap, weight, 1
        while blocks and blocks[-1][0] > mean:
            before, mass, members = blocks.pop()
            mean = (mean * total + before * mass) / (total + mass)
            total, count = total + mass, count + members
        blocks.append((mean, total, count))
    flat = [mean for mean, _, count in blocks for _ in range(count)]
    return [x + gap for x, gap in zip(flat, gaps, strict=True)]

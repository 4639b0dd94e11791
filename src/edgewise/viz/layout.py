"""Layered graph drawing (Sugiyama et al. 1981): positions of boxes and paths of links."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from edgewise.viz.coordinates import assign_coordinates
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

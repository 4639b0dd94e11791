"""Coordinates across the flow: boxes near their neighbours, links straight."""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from edgewise.viz.layers import Link

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

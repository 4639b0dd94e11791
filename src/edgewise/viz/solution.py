"""A solution as a picture: the network that a sample grounds to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewise.errors import caller
from edgewise.language import nodes
from edgewise.language.terms import order
from edgewise.reference.render import plain, short
from edgewise.reference.why import Grounding, Why, why
from edgewise.viz.layers import Box, Link
from edgewise.viz.layout import layered_layout
from edgewise.viz.svg import (
    Picture,
    PictureTooLarge,
    arrow,
    box,
    clipped,
    curve,
    document,
    tag,
    text,
    width,
)

if TYPE_CHECKING:
    from edgewise.reference.solution import Solution

MOST = 400  # nodes
MARGIN, NAME, VALUE, HEIGHT, DOT = 24.0, 11.5, 10.5, 22.0, 7.0
COLOURS = {"fact": ("#e7f1fb", "#3f7fbf"), "derived": ("#ffffff", "#57606a"),
           "requested": ("#e6f5ea", "#2e8b57")}  # fmt: skip
FOR, AGAINST, NONE = "#0969da", "#c62828", "#8c959f"


@dataclass(frozen=True)
class GroundBox:
    """A ground atom and its value, on one line."""

    name: str
    value: str
    kind: str
    width: float

    def draw(self, x: float, y: float) -> Iterator[str]:
        fill, border = COLOURS[self.kind]
        left = x - self.width / 2
        yield box(left, y - HEIGHT / 2, self.width, HEIGHT, fill=fill, stroke=border,
                  stroke_width=1.2, class_="atom")  # fmt: skip
        yield text(left + 8, y, self.name, NAME, anchor="start", font_weight="bold")
        right = left + self.width - 8
        yield text(right, y, self.value, VALUE, anchor="end", fill="#57606a")


@dataclass(frozen=True)
class Wire:
    """A link with the share of the grounding it belongs to."""

    link: Link
    share: float | None
    is_last: bool  # from the grounding to its head
    is_alone: bool = False  # the only grounding of its rule


def draw_solution(solution: Solution, atoms: Sequence[nodes.Atom] = ()) -> Picture:
    """The network of the requested atoms, or of all: boxes are atoms, dots groundings.

    The width of an edge is the share of its grounding; negative shares are red. An atom
    with variables stands for all that match. Facts used only as conditions are not drawn.

    >>> from edgewise import R, V, Program
    >>> solution = Program([R.h(V.X) <= R.a(V.X)[2.0]]).solve([R.a(1)[3.0]])
    >>> "h(1)" in draw_solution(solution, [R.h(1)]).svg
    True
    """
    requested = _requested(solution, atoms)
    found = _behind(solution, requested)
    if not atoms:
        used = {used for w in found.values() for g in _groundings(w) for used, _ in g.used}
        network = {a: w for a, w in found.items() if w.derivations or a in used}
        found = network or found
    return _drawn(found, set(requested) if atoms else set())


def _requested(solution: Solution, atoms: Sequence[nodes.Atom]) -> list[nodes.Atom]:
    if not atoms:
        return list(solution)
    requested: list[nodes.Atom] = []
    for atom in atoms:
        found: Any = solution[atom]
        if isinstance(found, dict):
            requested += found
        else:
            relation = solution.program.aliases.get(atom.relation, atom.relation)
            requested.append(nodes.Atom(relation, atom.terms))
    return list(dict.fromkeys(requested))


def _groundings(explained: Why) -> Iterator[Grounding]:
    for derivation in explained.derivations:
        yield from derivation.groundings


def _behind(solution: Solution, requested: Sequence[nodes.Atom]) -> dict[nodes.Atom, Why]:
    """Every atom that the requested ones depend on, explained."""
    found: dict[nodes.Atom, Why] = {}
    waiting = list(requested)
    count = 0
    for atom in waiting:
        if atom in found:
            continue
        found[atom] = why(solution, atom)
        used = list(_groundings(found[atom]))
        count += 1 + len(used)
        if count > MOST or len(requested) > MOST:
            raise PictureTooLarge(
                f"the network has more than {MOST} nodes",
                caller(),
                f"draw fewer atoms, such as `solution.draw({requested[-1]!r})`",
            )
        waiting += [a for g in used for a, _ in g.used if isinstance(a, nodes.Atom)]
    return found


def _drawn(found: Mapping[nodes.Atom, Why], requested: set[nodes.Atom]) -> Picture:
    boxes = _boxes(found, requested)
    wires = list(_wires(found))
    dots = list(dict.fromkeys(wire.link.source for wire in wires if wire.is_last))
    sizes = [Box(key, HEIGHT, item.width) for key, item in boxes.items()]
    sizes += [Box(dot, DOT, DOT) for dot in dots]
    facts = [_key(a) for a, w in found.items() if w.derivations and w.fact is not None]
    links = [wire.link for wire in wires]
    between = 46 + min(len(dots), 40)  # space for the curves of a dense network
    placed = layered_layout(sizes, links, beside=8, between=between, improvement=0.6, first=facts)

    def shifted(point: tuple[float, float]) -> tuple[float, float]:
        return point[1] + MARGIN, point[0] + MARGIN  # the flow runs to the right

    parts: list[str] = []
    for wire, path in sorted(zip(wires, placed.paths, strict=True), key=lambda p: _width(p[0])):
        parts += _wire(wire, [shifted(point) for point in path])
    for dot in dots:
        x, y = shifted(placed.middles[dot])
        parts.append(tag("circle", cx=x, cy=y, r=DOT / 2, fill="#24292f", class_="grounding"))
    for key, item in boxes.items():
        parts += item.draw(*shifted(placed.middles[key]))
    size = placed.along + 2 * MARGIN, placed.across + 2 * MARGIN
    return Picture(document(parts, *size, "the network of a sample"))


Drawable = nodes.Atom | nodes.SpecialAtom


def _boxes(found: Mapping[nodes.Atom, Why], requested: set[nodes.Atom]) -> dict[str, GroundBox]:
    """A box for each atom, relation by relation in key order, those of one relation as wide."""
    shown: dict[Drawable, tuple[str, str]] = {}
    for atom, explained in found.items():
        is_fact = not explained.derivations or explained.fact is not None
        kind = "requested" if atom in requested else "fact" if is_fact else "derived"
        shown[atom] = short(explained.value, most=2, digits=3), kind
    for explained in found.values():
        for grounding in _groundings(explained):
            for used, value in grounding.used:
                shown.setdefault(used, (short(value, most=2, digits=3), "fact"))
    relations: dict[str, list[Drawable]] = {}
    for item in shown:
        name = item.relation if isinstance(item, nodes.Atom) else f"@{item.name}"
        relations.setdefault(name, []).append(item)
    boxes: dict[str, GroundBox] = {}
    for items in relations.values():
        texts = {a: (clipped(plain(a), 40), clipped(shown[a][0], 24)) for a in items}
        size = max(width(n, NAME) + width(v, VALUE) for n, v in texts.values()) + 26
        for item in sorted(items, key=lambda a: order(a.terms)):  # type: ignore[arg-type]
            boxes[_key(item)] = GroundBox(*texts[item], shown[item][1], size)
    return boxes


def _wires(found: Mapping[nodes.Atom, Why]) -> Iterator[Wire]:
    keys = sorted(found, key=lambda a: order(a.terms))  # type: ignore[arg-type]
    for atom in keys:
        for number, derivation in enumerate(found[atom].derivations):
            alone = len(derivation.groundings) == 1
            for place_in_rule, grounding in enumerate(derivation.groundings):
                dot = f"dot {number} {place_in_rule} {_key(atom)}"
                share = grounding.share
                for used, _ in grounding.used:
                    yield Wire(Link(_key(used), dot), share, False, alone)
                yield Wire(Link(dot, _key(atom)), share, True, alone)


def _key(atom: Drawable) -> str:
    return f"{type(atom).__name__} {atom!r}"


def _width(wire: Wire) -> float:
    if wire.is_alone or wire.share is None:
        return 1.1
    size = min(max(0.9, 5 * abs(wire.share)), 5)
    return size if wire.is_last else min(size, 1.1)


def _wire(wire: Wire, points: list[tuple[float, float]]) -> Iterator[str]:
    weighed = wire.is_last and not wire.is_alone and wire.share
    colour = (AGAINST if (wire.share or 0) < 0 else FOR) if weighed else NONE
    faint = 0.9 if wire.is_last else 0.4 + 0.5 * min(abs(wire.share or 0), 1)
    size = _width(wire)
    yield tag("path", d=curve(points, upright=False), fill="none", stroke=colour,
              stroke_width=size, stroke_opacity=f"{faint:.2f}", class_="share")  # fmt: skip
    if wire.is_last:
        forward = 1 if points[-1][0] > points[0][0] else -1
        yield arrow(points[-1], (forward, 0), colour, size=5 + size)

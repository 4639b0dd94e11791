"""A program as a picture: data on top, rules as cards, results below; a stack once, with ×12."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgewise.language import nodes
from edgewise.viz.cards import Card, RelationBox, card
from edgewise.viz.frame import Frame
from edgewise.viz.layers import Box, Link
from edgewise.viz.layout import Placement, place
from edgewise.viz.picture import Picture
from edgewise.viz.relations import outside, relation_boxes
from edgewise.viz.svg import arrow, curve, document, tag

if TYPE_CHECKING:
    from edgewise.language.program import Program

MARGIN = 24
STYLES = {  # colour, dashes
    "value": ("#57606a", None),
    "hidden": ("#8c959f", "4 3"),
    "negated": ("#c62828", "4 3"),
}


def draw_program(program: Program) -> Picture:
    """The rules as a picture: relations joined by the rules that derive them.

    Solid edges carry values, dashed ones are conditions, red dashed ones negations; weights are
    tags with their shapes.

    >>> from edgewise import R, V, Program
    >>> "×" in draw_program(Program([R.h(V.X) <= R.a(V.X)[8, 4]])).svg
    True
    """
    drawn = figure(program.statements, program.aggregation)
    parts = drawn.draw(MARGIN, MARGIN)
    size = drawn.width + 2 * MARGIN, drawn.height + 2 * MARGIN
    return Picture(document(parts, *size, "the rules of a program"))


@dataclass(frozen=True)
class Exit:
    """Where an output leaves the block of a stack: a point."""

    width: float = 2.0
    height: float = 1.0

    def draw(self, left: float, top: float) -> Iterator[str]:
        return iter(())


Node = RelationBox | Card | Frame | Exit


@dataclass(frozen=True)
class Figure:
    """Nodes and links with their places."""

    nodes: Mapping[str, Node]
    links: tuple[tuple[Link, str], ...]
    placed: Placement

    @property
    def width(self) -> float:
        return self.placed.across

    @property
    def height(self) -> float:
        return self.placed.along

    def draw(self, left: float, top: float) -> Iterator[str]:
        for (link, style), path in zip(self.links, self.placed.paths, strict=True):
            points = [(left + x, top + y) for x, y in path]
            colour, dash = STYLES[style]
            yield tag("path", d=curve(points, upright=True), fill="none", stroke=colour,
                      stroke_width=1.4, stroke_dasharray=dash, class_=style)  # fmt: skip
            if isinstance(self.nodes[link.target], RelationBox | Card):
                down = 1 if points[-1][1] > points[0][1] else -1
                yield arrow(points[-1], (0, down), colour)
        for key, node in self.nodes.items():
            x, y = self.placed.middles[key]
            inside = node.draw(left + x - node.width / 2, top + y - node.height / 2)
            yield tag("g", "\n".join(inside))


def figure(
    statements: Sequence[nodes.Statement],
    aggregation: nodes.Function,
    stack: nodes.Stack | None = None,
) -> Figure:
    """The statements laid out; what a stack is given in the first layer, what it gives last."""
    frames = {
        f"stack {number}": Frame(s, figure(s.statements, aggregation, s))
        for number, s in enumerate(statements)
        if isinstance(s, nodes.Stack)
    }
    boxes = relation_boxes(statements, stack)
    items: dict[str, Node] = {f"relation {name}": box for name, box in boxes.items()}
    items |= frames
    links: list[tuple[Link, str]] = []

    def link(relation: str, target: str, enter: float, style: str) -> None:
        source, leave = _source(relation, boxes, frames)
        if source != target:
            links.append((Link(source, target, leave, enter, style), style))

    for number, statement in enumerate(statements):
        if isinstance(statement, nodes.Rule):
            key, drawn = f"rule {number}", card(statement, aggregation)
            items[key] = drawn
            for cell, offset in drawn.ports():
                if cell.relation is not None:
                    link(cell.relation, key, offset, cell.kind)
            links.append((Link(key, f"relation {statement.head.relation}"), "value"))
        elif isinstance(statement, nodes.Stack):
            for relation, offset, style in frames[f"stack {number}"].inputs():
                link(relation, f"stack {number}", offset, style)
    for output in stack.outputs if stack else ():
        items[f"exit {output}"] = Exit()
        link(output, f"exit {output}", 0.0, "value")
    return Figure(items, tuple(links), _placed(items, [link for link, _ in links], stack))


def _placed(
    items: Mapping[str, Node], links: Sequence[Link], stack: nodes.Stack | None
) -> Placement:
    entries = [] if stack is None else [*(f"^{p}" for p in stack.parameters), *outside(stack)]
    sizes = [Box(key, node.width, node.height) for key, node in items.items()]
    first = [f"relation {name}" for name in entries]
    last = [key for key, node in items.items() if isinstance(node, Exit)]
    return place(sizes, links, beside=26, between=30, first=first, last=last)


def _source(
    relation: str, boxes: Mapping[str, RelationBox], frames: Mapping[str, Frame]
) -> tuple[str, float]:
    """The node that a relation comes from, and where on it: its box, or the stack it is in."""
    if relation in boxes:
        return f"relation {relation}", 0.0
    key, frame = next(
        (key, frame) for key, frame in frames.items() if relation.startswith(f"{frame.stack.name}.")
    )
    return key, frame.leave(relation.removeprefix(f"{frame.stack.name}."))

"""A program as a picture: data on top, rules as cards, results below; a stack once, with ×12."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgewise.language import nodes
from edgewise.viz.layers import Box, Link
from edgewise.viz.layout import Placement, layered_layout
from edgewise.viz.program_boxes import (
    Card,
    RelationBox,
    card,
    is_condition,
    outside,
    relation_boxes,
)
from edgewise.viz.svg import Picture, arrow, box, clipped, curve, document, tag, text, width

if TYPE_CHECKING:
    from edgewise.language.program import Program

MARGIN = 24
STRIP, LANE = 24.0, 14.0
FRAME, INK = "#8250df", "#57606a"
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


class Frame:
    """The block of a stack, drawn once with its count: inputs on top, outputs below."""

    def __init__(self, stack: nodes.Stack, inside: ProgramFigure) -> None:
        self.stack = stack
        self.inside = inside
        self.name = clipped(stack.name, 24)
        self.times = f"×{stack.count}"
        self.left = max(width(self.name, 13), width(self.times, 24)) + 28
        self.right = 12 + LANE * (len(stack.parameters) + 1)
        self.width = self.left + inside.width + self.right
        self.height = inside.height + 2 * STRIP

    def inputs(self) -> Iterator[tuple[str, float, str]]:
        """The relations read, where they enter, from the middle of the frame, and how."""
        for parameter, relation in zip(self.stack.parameters, self.stack.inputs, strict=True):
            yield relation, self._middle(f"relation ^{parameter}"), "value"
        for relation in outside(self.stack):
            style = "hidden" if is_condition(relation, self.stack) else "value"
            yield relation, self._middle(f"relation {relation}"), style

    def leave(self, relation: str) -> float:
        """Where an output leaves; those of inner copies leave in the middle."""
        return self._middle(f"exit {relation}") if relation in self.stack.outputs else 0.0

    def _middle(self, key: str) -> float:
        return self.left + self.inside.placed.middles[key][0] - self.width / 2

    def draw(self, left: float, top: float) -> Iterator[str]:
        yield box(left, top, self.width, self.height, rx=14, fill="#fbf9ff", stroke=FRAME,
                  stroke_width=1.6, class_="stack")  # fmt: skip
        yield text(left + 14, top + 22, self.name, 13, anchor="start", fill=FRAME,
                   font_weight="bold")  # fmt: skip
        yield text(left + 14, top + 46, self.times, 24, anchor="start", fill=FRAME,
                   font_weight="bold")  # fmt: skip
        for number, _ in enumerate(self.stack.parameters):
            yield from self._again(number, left, top)
        yield from self._through(left, top)
        yield from self.inside.draw(left + self.left, top + STRIP)

    def _at(self, key: str, left: float, top: float) -> tuple[float, float]:
        """The middle of a box's upper edge."""
        x, y = self.inside.placed.middles[key]
        return left + self.left + x, top + STRIP + y - self.inside.nodes[key].height / 2

    def _through(self, left: float, top: float) -> Iterator[str]:
        """The ends of the links from and to the outside."""
        for name in [*(f"^{p}" for p in self.stack.parameters), *outside(self.stack)]:
            x, y = self._at(f"relation {name}", left, top)
            dash = "4 3" if is_condition(name, self.stack) else None
            yield tag("path", d=f"M{x:.1f},{top:.1f} V{y:.1f}", stroke=INK, stroke_width=1.4,
                      stroke_dasharray=dash)  # fmt: skip
            yield arrow((x, y), (0, 1), INK)
        for name in self.stack.outputs:
            x, y = self._at(f"exit {name}", left, top)
            yield tag("path", d=f"M{x:.1f},{y:.1f} V{top + self.height:.1f}", stroke=INK,
                      stroke_width=1.4)  # fmt: skip

    def _again(self, number: int, left: float, top: float) -> Iterator[str]:
        """Each copy reads the one before: from an output round to its parameter."""
        x, start = self._at(f"exit {self.stack.outputs[number]}", left, top)
        u, end = self._at(f"relation ^{self.stack.parameters[number]}", left, top)
        lane = left + self.width - self.right + LANE * (number + 1)
        low, high = top + self.height - STRIP / 2, top + STRIP / 2
        d = (f"M{x:.1f},{start:.1f} V{low - 8:.1f} q0,8 8,8 H{lane - 8:.1f} q8,0 8,-8 "
             f"V{high + 8:.1f} q0,-8 -8,-8 H{u + 8:.1f} q-8,0 -8,8 V{end:.1f}")  # fmt: skip
        yield tag("path", d=d, fill="none", stroke=FRAME, stroke_width=1.4,
                  stroke_dasharray="2 3", class_="again")  # fmt: skip


@dataclass(frozen=True)
class Exit:
    """Where an output leaves the block of a stack: a point."""

    width: float = 2.0
    height: float = 1.0

    def draw(self, left: float, top: float) -> Iterator[str]:
        return iter(())


Node = RelationBox | Card | Frame | Exit


@dataclass(frozen=True)
class ProgramFigure:
    """Nodes and links with their positions."""

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
) -> ProgramFigure:
    """The layout of the statements; inputs of a stack are in its first layer, outputs last."""
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
    return ProgramFigure(items, tuple(links), _placed(items, [link for link, _ in links], stack))


def _placed(
    items: Mapping[str, Node], links: Sequence[Link], stack: nodes.Stack | None
) -> Placement:
    entries = [] if stack is None else [*(f"^{p}" for p in stack.parameters), *outside(stack)]
    sizes = [Box(key, node.width, node.height) for key, node in items.items()]
    first = [f"relation {name}" for name in entries]
    last = [key for key, node in items.items() if isinstance(node, Exit)]
    return layered_layout(sizes, links, beside=26, between=30, first=first, last=last)


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

"""A stack in a picture: its block once, in a frame that says how often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgewise.language import nodes
from edgewise.viz.relations import is_condition, outside
from edgewise.viz.svg import arrow, box, clipped, tag, text, width

if TYPE_CHECKING:
    from edgewise.viz.program import Figure

STRIP, LANE = 24.0, 14.0
COLOUR, INK = "#8250df", "#57606a"


class Frame:
    """A block with the relations it is given on top and those it gives below."""

    def __init__(self, stack: nodes.Stack, inside: Figure) -> None:
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
        """Where an output leaves; what an inner copy gives leaves in the middle."""
        return self._middle(f"exit {relation}") if relation in self.stack.outputs else 0.0

    def _middle(self, key: str) -> float:
        return self.left + self.inside.placed.middles[key][0] - self.width / 2

    def draw(self, left: float, top: float) -> Iterator[str]:
        yield box(left, top, self.width, self.height, rx=14, fill="#fbf9ff", stroke=COLOUR,
                  stroke_width=1.6, class_="stack")  # fmt: skip
        yield text(left + 14, top + 22, self.name, 13, anchor="start", fill=COLOUR,
                   font_weight="bold")  # fmt: skip
        yield text(left + 14, top + 46, self.times, 24, anchor="start", fill=COLOUR,
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
        yield tag("path", d=d, fill="none", stroke=COLOUR, stroke_width=1.4,
                  stroke_dasharray="2 3", class_="again")  # fmt: skip

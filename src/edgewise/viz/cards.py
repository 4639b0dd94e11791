"""What stands in a picture of a program: relations, and rules as cards with a cell per atom."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any

from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.viz import labels
from edgewise.viz.svg import box, clipped, tag, text, width

GREY, RED, PURPLE, AMBER = "#57606a", "#c62828", "#6f42c1", "#8a5a00"
COLOURS = {  # fill, border
    "data": ("#e7f1fb", "#3f7fbf"),
    "derived": ("#ffffff", "#57606a"),
    "result": ("#e6f5ea", "#2e8b57"),
    "input": ("#ffffff", "#3f7fbf"),
}
NAME, NOTE, SMALL = 13.0, 10.5, 11.0  # sizes of text
LINE = 44  # characters


@dataclass(frozen=True)
class RelationBox:
    """A relation: its name and terms, and a note under them."""

    title: str
    note: str
    kind: str

    @property
    def width(self) -> float:
        return max(width(self.title, NAME), width(self.note, NOTE)) + 20

    @property
    def height(self) -> float:
        return 42 if self.note else 28

    def draw(self, left: float, top: float) -> Iterator[str]:
        fill, border = COLOURS[self.kind]
        dash = "5 3" if self.kind == "input" else None
        yield box(left, top, self.width, self.height, rx=9, fill=fill, stroke=border,
                  stroke_width=1.5, stroke_dasharray=dash, class_="relation")  # fmt: skip
        middle = left + self.width / 2
        yield text(middle, top + 14, self.title, NAME, font_weight="bold")
        if self.note:
            yield text(middle, top + 31, self.note, NOTE, fill=GREY)


@dataclass(frozen=True)
class Cell:
    """One atom of a body: the relation it reads, if any, and the weight on it."""

    words: str
    kind: str  # value, hidden, negated, computed
    relation: str | None = None
    weight: str = ""
    is_fixed: bool = False

    @property
    def width(self) -> float:
        return max(width(self.words, SMALL), width(self.weight, NOTE) + 10) + 12


@dataclass(frozen=True)
class Card:
    """A rule: a cell for each atom of its body, and below them how it computes."""

    cells: tuple[Cell, ...]
    lines: tuple[str, ...]  # how it computes
    head: Cell | None  # the weight of the head
    says: str

    @property
    def width(self) -> float:
        inner = sum(cell.width for cell in self.cells)
        head = self.head.width if self.head else 0
        label = max((width(line, SMALL) for line in self.lines), default=0)
        return max(inner, label + 16, head, 24) + 4

    @property
    def _first(self) -> float:
        return 36 if any(cell.weight for cell in self.cells) else 20 if self.cells else 4

    @property
    def height(self) -> float:
        label = 5 + 15 * len(self.lines) if self.lines else 0
        return self._first + label + (20 if self.head else 0)

    def ports(self) -> Iterator[tuple[Cell, float]]:
        """Each cell with its middle, from the middle of the card."""
        at = -sum(cell.width for cell in self.cells) / 2
        for cell in self.cells:
            yield cell, at + cell.width / 2
            at += cell.width

    def draw(self, left: float, top: float) -> Iterator[str]:
        middle = left + self.width / 2
        yield tag("title", escape(clipped(self.says, 2000)))
        yield box(left, top, self.width, self.height, fill="#f6f8fa", stroke="#afb8c1",
                  class_="rule")  # fmt: skip
        for cell, offset in self.ports():
            colour = {"negated": RED, "computed": PURPLE, "hidden": GREY}.get(cell.kind, "#24292f")
            if cell.words:
                yield text(middle + offset, top + 11, cell.words, SMALL, fill=colour)
            if cell.weight:
                yield from _chip(middle + offset, top + 27, cell)
        at = top + self._first
        if self.lines:
            yield tag("line", x1=left, x2=left + self.width, y1=at, y2=at, stroke="#d8dee4")
            for line in self.lines:
                yield text(middle, at + 10, line, SMALL, font_weight="bold", fill="#0550ae")
                at += 15
            at += 5
        if self.head:
            yield from _chip(middle, at + 10, self.head)


def _chip(middle: float, y: float, cell: Cell) -> Iterator[str]:
    fill, ink = ("#eaeef2", GREY) if cell.is_fixed else ("#fff1cf", AMBER)
    w = width(cell.weight, NOTE) + 8
    yield box(middle - w / 2, y - 7, w, 14, rx=4, fill=fill, class_="weight")
    yield text(middle, y, cell.weight, NOTE, fill=ink)


def card(rule: nodes.Rule, aggregation: nodes.Function) -> Card:
    """The card of a rule."""
    cells = tuple(cell for item in rule.body for cell in _cells(item))
    head = _weighted("", "value", None, rule.head.weight) if rule.head.weight is not None else None
    label = clipped(labels.computing(rule, aggregation), 3 * LINE)
    return Card(cells, tuple(wrap(label, LINE)), head, repr(rule))


def _cells(item: Any, in_formula: bool = False) -> Iterator[Cell]:
    """One cell for an atom; a formula has one for each atom and each weight in it."""
    match item:
        case nodes.Weight(name=None, is_fixed=True, value=float()) if in_formula:
            return  # the formula says the number
        case nodes.Weight():
            yield _weighted("", "computed", None, item)
        case nodes.Apply() if not labels.is_plain(item):
            for operand in item.operands:
                yield from _cells(operand, in_formula=True)
            if item.weight is not None:
                yield from _cells(item.weight)
        case _:
            atom = next(iter(atoms(item)))
            reads = atom.relation if isinstance(atom, nodes.Atom) else None
            kind = "computed" if reads is None else "value" if atom.carries_value else "hidden"
            kind = "negated" if atom.negated else kind
            words = clipped(labels.formula(atom if in_formula else item), 40)
            weight = atom.weight if item.weight is None else item.weight
            yield _weighted(words, kind, reads, weight)


def _weighted(words: str, kind: str, reads: str | None, weight: nodes.Weight | None) -> Cell:
    if weight is None:
        return Cell(words, kind, reads)
    return Cell(words, kind, reads, clipped(labels.weight(weight), 28), weight.is_fixed)

"""Boxes of a program picture: relations, and rules as cards with a cell per atom; their labels."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any

from edgewise.language import functions, nodes, printer
from edgewise.language.blocks import defined
from edgewise.language.statements import atoms
from edgewise.language.terms import variables
from edgewise.viz.svg import box, clipped, tag, text, width
from edgewise.weights import declared_shape

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
    code: str

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
        yield tag("title", escape(clipped(self.code, 2000)))
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
    label = clipped(computing(rule, aggregation), 3 * LINE)
    return Card(cells, tuple(wrap(label, LINE)), head, repr(rule))


def _cells(item: Any, in_formula: bool = False) -> Iterator[Cell]:
    """One cell for an atom; a formula has one for each atom and each weight in it."""
    match item:
        case nodes.Weight(name=None, is_fixed=True, value=float()) if in_formula:
            return  # it is in the formula
        case nodes.Weight():
            yield _weighted("", "computed", None, item)
        case nodes.Apply() if not is_plain(item):
            for operand in item.operands:
                yield from _cells(operand, in_formula=True)
            if item.weight is not None:
                yield from _cells(item.weight)
        case _:
            atom = next(iter(atoms(item)))
            reads = atom.relation if isinstance(atom, nodes.Atom) else None
            kind = "computed" if reads is None else "value" if atom.carries_value else "hidden"
            kind = "negated" if atom.negated else kind
            words = clipped(formula(atom if in_formula else item), 40)
            weight = atom.weight if item.weight is None else item.weight
            yield _weighted(words, kind, reads, weight)


def _weighted(words: str, kind: str, reads: str | None, weight: nodes.Weight | None) -> Cell:
    if weight is None:
        return Cell(words, kind, reads)
    return Cell(words, kind, reads, clipped(weight_label(weight), 28), weight.is_fixed)


def relation_boxes(
    statements: Sequence[nodes.Statement], stack: nodes.Stack | None
) -> dict[str, RelationBox]:
    """Relation → box, in order of first occurrence; outputs of a stack have no box of their own."""
    parameters, outputs = (stack.parameters, stack.outputs) if stack else ((), ())
    derived = {s.head.relation for s in statements if isinstance(s, nodes.Rule)}
    facts: dict[str, list[nodes.Atom]] = defaultdict(list)
    lines = {s.relation: s for s in statements if isinstance(s, nodes.Line)}
    for statement in statements:
        if isinstance(statement, nodes.Fact):
            facts[statement.atom.relation].append(statement.atom)
    stacks = [s.name for s in statements if isinstance(s, nodes.Stack)]
    seen: dict[str, str] = dict.fromkeys((f"^{p}" for p in parameters), "")
    for relation, terms in _occurrences(statements):
        if relation in derived or not any(relation.startswith(f"{name}.") for name in stacks):
            seen[relation] = seen.get(relation) or terms
    heads = [rule.head for rule in statements if isinstance(rule, nodes.Rule)]
    for head in sorted(heads, key=lambda atom: len({v.name for v in variables(atom.terms)})):
        seen[head.relation] = terms_label(head.terms)
    read = {relation for relation, _ in _read(statements)}
    here = defined(statements)
    found = {}
    for relation, terms in seen.items():
        kind = "derived" if relation in derived else "data"
        if relation in outputs or (kind == "derived" and stack is None and relation not in read):
            kind = "result"
        if stack is not None and relation not in here:
            kind = "input"
        title = clipped(relation_label(relation), 32) + clipped(terms, 32)
        found[relation] = RelationBox(
            title, _note(kind, facts[relation], lines.get(relation)), kind
        )
    return found


def _note(kind: str, facts: Sequence[nodes.Atom], line: nodes.Line | None) -> str:
    parts = []
    if len(facts) == 1:
        weight = facts[0].weight
        fixed = " fixed" if weight is not None and weight.is_fixed else ""
        parts.append(f"fact {'1' if weight is None else weight_label(weight)}{fixed}")
    elif facts:
        parts.append(f"{len(facts)} facts")
    elif kind == "data":
        parts.append("data")
    if line is not None and line.functions:
        combines = [f for f in line.functions if functions.kind(f) == functions.COMBINATION]
        others = [f for f in line.functions if f not in combines]
        parts.append(" → ".join(function_label(f) for f in (*combines, *others)))
    return clipped(", ".join(parts), 40)


def _read(statements: Sequence[nodes.Statement]) -> Iterator[tuple[str, str]]:
    for statement in statements:
        match statement:
            case nodes.Rule():
                for atom in atoms(statement.body):
                    if isinstance(atom, nodes.Atom):
                        yield atom.relation, terms_label(atom.terms)
            case nodes.Stack():
                inner = dict(reversed(list(_read(statement.statements))))
                for parameter, relation in zip(statement.parameters, statement.inputs, strict=True):
                    yield relation, inner.get(f"^{parameter}", "")
                for relation in outside(statement):
                    yield relation, inner[relation]


def _occurrences(statements: Sequence[nodes.Statement]) -> Iterator[tuple[str, str]]:
    for statement in statements:
        match statement:
            case nodes.Rule(head=head):
                yield from _read([statement])
                yield head.relation, terms_label(head.terms)
            case nodes.Fact(atom=atom):
                yield atom.relation, terms_label(atom.terms)
            case nodes.Line():
                yield statement.relation, ""
            case nodes.Stack():
                yield from _read([statement])


def is_condition(relation: str, stack: nodes.Stack) -> bool:
    """True if a stack reads a relation only as a condition."""
    found = [a for s in stack.statements if isinstance(s, nodes.Rule) for a in atoms(s.body)]
    uses = [a for a in found if isinstance(a, nodes.Atom) and a.relation == relation]
    return bool(uses) and not any(atom.carries_value for atom in uses)


def outside(stack: nodes.Stack) -> list[str]:
    """The relations that a stack reads beside its parameters."""
    here = defined(stack.statements)
    inner = [s.name for s in stack.statements if isinstance(s, nodes.Stack)]
    return [
        relation
        for relation in dict.fromkeys(relation for relation, _ in _read(stack.statements))
        if relation not in here
        and not relation.startswith("^")
        and not any(relation.startswith(f"{name}.") for name in inner)
    ]


INFIX = {"leq": "≤", "lt": "<", "geq": "≥", "gt": ">", "eq": "=", "neq": "≠"}
ARITHMETIC = {"add": "+", "sub": "−", "mul": "·", "div": "÷", "mod": "mod"}
OPERATORS = {**printer.INFIX, "product": (" · ", 2)}


def relation_label(relation: str) -> str:
    return relation.removeprefix("^")


def terms_label(items: Sequence[nodes.Term]) -> str:
    shown = (t.name if isinstance(t, nodes.Variable) else str(t) for t in items)
    return f"({', '.join(shown)})" if items else ""


def predicate_label(atom: nodes.SpecialAtom) -> str:
    """A predicate as mathematics writes it.

    >>> from edgewise.language import R, V
    >>> predicate_label(R.special.leq(V.J, V.I)), predicate_label(R.special.sub(V.I, V.J, V.D))
    ('J ≤ I', 'I − J = D')
    """
    t = [x.name if isinstance(x, nodes.Variable) else str(x) for x in atom.terms]
    if atom.formula is not None:
        shown = atom.formula.shown(t, "mod")
        for sign, symbol in (("<=", "≤"), (">=", "≥"), ("!=", "≠"), ("==", "="), (" - ", " − ")):
            shown = shown.replace(sign, symbol)
    elif atom.name in INFIX and len(t) == 2:
        shown = f"{t[0]} {INFIX[atom.name]} {t[1]}"
    elif atom.name in ARITHMETIC and len(t) == 3:
        shown = f"{t[0]} {ARITHMETIC[atom.name]} {t[1]} = {t[2]}"
    elif atom.name == "next" and len(t) == 2:
        shown = f"{t[0]} + 1 = {t[1]}"
    elif atom.name.removesuffix("_eval") in ARITHMETIC and len(t) == 2:
        shown = f"{t[0]} {ARITHMETIC[atom.name.removesuffix('_eval')]} {t[1]}"
    else:
        shown = f"{atom.name}{terms_label(atom.terms)}"
    return f"¬({shown})" if atom.negated else shown


def formula(item: Any, level: int = 0) -> str:
    """An expression without its weights.

    >>> from edgewise.language import R, V
    >>> formula(R.k(V.J).T @ R.q(V.I)), formula(-R.a * (R.b + R.c))
    ('k(J)ᵀ · q(I)', '(1 − a) * (b + c)')
    """
    match item:
        case nodes.Atom():
            name = relation_label(item.relation)
            return f"{'¬' if item.negated else ''}{name}{terms_label(item.terms)}"
        case nodes.SpecialAtom():
            return predicate_label(item)
        case nodes.PatternAtom():
            return f"{'¬' if item.negated else ''}{item.pattern!r}{terms_label(item.terms)}"
        case nodes.Weight():
            return weight_symbol(item)
        case nodes.Apply():
            return _apply(item, level)
    return repr(item)


def is_plain(item: Any) -> bool:
    """True if an item of a body is one atom, at most under unary functions."""
    if isinstance(item, nodes.Apply):
        return len(item.operands) == 1 and is_plain(item.operands[0])
    return not isinstance(item, nodes.Weight)


def _apply(item: nodes.Apply, level: int) -> str:
    called, operands = item.function.name, item.operands
    if called in OPERATORS and len(operands) > 1:
        symbol, strength = OPERATORS[called]
        shown = symbol.join(formula(operand, strength) for operand in operands)
        return f"({shown})" if level > strength else shown
    if called == "transp":
        return f"{formula(operands[0], 3)}ᵀ"
    if called == "reverse":
        return f"(1 − {formula(operands[0], 2)})"
    return f"{called}({', '.join(formula(o) for o in operands)})"


def weight_label(item: nodes.Weight) -> str:
    """The shape of a weight, or its number; a family with its keys.

    >>> from edgewise.language import R, V, W
    >>> [weight_label(w) for w in (R.a[64, 32].weight, R.a[2.0].weight, W.q(V.H)[16, 64])]
    ['64×32', '2', 'q(H) 16×64']
    """
    called = f"{item.name}{terms_label(item.keys)}" if item.name else ""
    if isinstance(item.value, float | int):
        shape = f"{item.value:.4g}"
    else:
        shape = "×".join(map(str, declared_shape(item))) or "scalar" if item.is_declared else ""
    return " ".join(part for part in (called, shape) if part)


def weight_symbol(item: nodes.Weight) -> str:
    """A weight inside a formula: its number, its name, or W."""
    if item.name:
        return f"{item.name}{terms_label(item.keys)}"
    return f"{item.value:.4g}" if isinstance(item.value, float | int) else "W"


def function_label(item: nodes.Function) -> str:
    """A function with its arguments: `softmax over J`, `leaky_relu(0.2)`."""
    over = dict(item.arguments).get("agg_terms")
    if over:
        return f"{functions.definition(item).word} over {', '.join(over)}"
    if item.name == "call":
        return type(item["module"].thing).__name__
    return printer.python(item).removeprefix("F.")


def computing(rule: nodes.Rule, aggregation: nodes.Function) -> str:
    """How a rule computes: its functions, and the defaults where they apply."""
    values = [item for item in rule.body if item.carries_value]
    kinds = {functions.kind(f): f for f in rule.functions}
    formulas = [formula(v) for v in values if isinstance(v, nodes.Apply) and not is_plain(v)]
    parts = [", ".join(formulas)] if formulas else []
    if functions.COMBINATION in kinds:
        parts.append(function_label(kinds[functions.COMBINATION]))
    elif len(values) > 1:
        parts.append("sum")
    parts += [
        function_label(f) for f in rule.functions if functions.kind(f) == functions.TRANSFORMATION
    ]
    inner = {v.name for item in values for a in atoms(item) for v in variables(a.terms)}
    if functions.AGGREGATION in kinds:
        parts.append(function_label(kinds[functions.AGGREGATION]))
    elif inner - {v.name for v in variables(rule.head.terms)}:
        parts.append(function_label(aggregation))
    return " → ".join(parts)

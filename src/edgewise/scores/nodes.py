"""The tree of a score: a function of the dot product, of positions and of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

INTEGER, REAL, BOOLEAN = "integer", "real", "boolean"
POSITIONS = ("i", "j", "h")  # of the query, of the key, of the head


class End:
    """A node with none below it."""

    depth: ClassVar[int] = 0
    size: ClassVar[int] = 1


class Made:
    """A node made of others; a part that occurs twice counts twice."""

    depth: int
    size: int

    def _measure(self, *below: Node) -> None:
        object.__setattr__(self, "depth", 1 + max([0, *[node.depth for node in below]]))
        object.__setattr__(self, "size", 1 + sum([node.size for node in below]))


@dataclass(frozen=True)
class Leaf(End):
    """`s`, the scaled dot product, or one of the positions `i`, `j` and `h`."""

    name: str


@dataclass(frozen=True)
class Number(End):
    value: float | int
    is_integer: bool = field(init=False, repr=False)  # 1 and 1.0 are equal, and not the same here

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_integer", isinstance(self.value, int))


@dataclass(frozen=True)
class PairValue(End):
    """A number that data gives each pair; `separate` takes them out of a tree for kernels."""

    number: int


@dataclass(frozen=True)
class Entry(Made):
    """The entry `index`, clamped to the table, of this head's row of table `table`."""

    table: int
    index: Node

    def __post_init__(self) -> None:
        self._measure(self.index)


@dataclass(frozen=True)
class Call(Made):
    """One of `PRIMITIVES`, applied."""

    function: str
    operands: tuple[Node, ...]

    def __post_init__(self) -> None:
        self._measure(*self.operands)


Node = Leaf | Number | PairValue | Entry | Call
S, I, J, H = (Leaf(name) for name in ("s", *POSITIONS))  # noqa: E741
ZERO, ONE = Number(0), Number(1)


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it; one that occurs twice is yielded twice."""
    yield node
    match node:
        case Call(operands=operands):
            for operand in operands:
                yield from walk(operand)
        case Entry(index=index):
            yield from walk(index)


def entries(node: Node) -> tuple[Entry, ...]:
    """The different entries of tables that a score reads as values, not as indices."""
    found: dict[Entry, None] = {}
    match node:
        case Entry():
            found[node] = None
        case Call(operands=operands):
            for operand in operands:
                found |= dict.fromkeys(entries(operand))
    return tuple(found)


def by_distance(node: Node) -> bool:
    """True if positions occur only as `i - j`.

    >>> by_distance(Call("mul", (S, Call("sub", (I, J))))), by_distance(Call("add", (S, I)))
    (True, False)
    """
    match node:
        case Leaf(name):
            return name not in ("i", "j")
        case Call("sub", (Leaf("i"), Leaf("j"))):
            return True
        case Call(operands=operands):
            return all(map(by_distance, operands))
        case Entry(index=index):
            return by_distance(index)
    return True


def moved(node: Node, by: int) -> Node:
    """With queries `by` positions later; `i - j` stays visible.

    >>> moved(I, 3)
    Call(function='add', operands=(Leaf(name='i'), Number(value=3)))
    """
    match node:
        case Leaf("i"):
            return Call("add", (node, Number(by)))
        case Call("sub", (Leaf("i"), Leaf("j"))):
            return Call("add", (node, Number(by)))
        case Call(function, operands):
            return Call(function, tuple(moved(x, by) for x in operands))
        case Entry(table, index):
            return Entry(table, moved(index, by))
    return node


def replaced(node: Node, leaves: dict[Leaf, Node], tables: dict[int, int] | None = None) -> Node:
    """With other nodes for some leaves, and other numbers for tables."""
    match node:
        case Leaf():
            return leaves.get(node, node)
        case Call(function, operands):
            return Call(function, tuple(replaced(x, leaves, tables) for x in operands))
        case Entry(table, index):
            return Entry((tables or {}).get(table, table), replaced(index, leaves, tables))
    return node


def separate(node: Node) -> tuple[Node, tuple[int, ...], int | None]:
    """A tree without values of pairs, the numbers of those that are added to it, and that of the
    one that S is multiplied with.

    >>> separate(Call("add", (Call("mul", (PairValue(1), S)), PairValue(0))))
    (Leaf(name='s'), (0,), 1)
    """
    added: list[int] = []
    while isinstance(node, Call) and node.function == "add":
        rest, last = node.operands
        if not isinstance(last, PairValue):
            break
        added.insert(0, last.number)
        node = rest
    if isinstance(node, PairValue):
        return ZERO, (node.number, *added), None
    factors = {x.number for x in walk(node) if isinstance(x, PairValue)}
    assert len(factors) <= 1, "one number of the pair scales all of S"
    return _unscaled(node), tuple(added), next(iter(factors), None)


def _unscaled(node: Node) -> Node:
    match node:
        case Call("mul", (PairValue(), Leaf("s") as s)):
            return s
        case Call(function, operands):
            return Call(function, tuple(map(_unscaled, operands)))
    return node


SIGNS = {  # sign and precedence, as in Python: `&` binds more tightly than `<`
    "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1), "eq": ("==", 1),
    "ne": ("!=", 1), "or": ("|", 2), "and": ("&", 3), "add": ("+", 4), "sub": ("-", 4),
    "mul": ("*", 5), "div": ("/", 5), "mod": ("%", 5),
}  # fmt: skip
NAMES = {"max": "maximum", "min": "minimum"}
SUM, PRODUCT, CALL = 4, 5, 7  # precedences
Text = tuple[str, int]


def show(node: Node, names: Callable[[Node], Text | None] = lambda node: None) -> str:
    """The score as code; `names` may give nodes a text of their own and its precedence.

    >>> from edgewise.scores.nodes import I, J, S
    >>> show(Call("mul", (Number(2.0), Call("sub", (I, J)))))
    '2.0 * (I - J)'
    """

    def shown(node: Node) -> Text:
        return names(node) or plain(node)

    def plain(node: Node) -> Text:
        match node:
            case Leaf(name):
                return name.upper(), CALL
            case Number(value):
                return repr(value), CALL if value >= 0 else SUM
            case PairValue(number):
                return f"value{number}", CALL
            case Entry(table, index):
                return f"table{table}[{shown(index)[0]}]", CALL
            case Call("neg", (x,)):
                return f"-{held(x, 6)}", 6
            case Call("not", (x,)):
                return f"~{held(x, 6)}", 6
            case Call(name, (a, b)) if name in SIGNS:
                sign, level = SIGNS[name]
                return f"{held(a, level)} {sign} {held(b, level + 1)}", level
            case Call(name, operands):
                return f"{NAMES.get(name, name)}({', '.join(shown(x)[0] for x in operands)})", CALL
        raise AssertionError(node)

    def held(node: Node, level: int) -> str:
        text, own = shown(node)
        return text if own >= level else f"({text})"

    return shown(node)[0]

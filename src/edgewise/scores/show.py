"""Scores as people write them."""

from collections.abc import Callable

from edgewise.scores.nodes import Call, Entry, Leaf, Node, Number, PairValue

SIGNS = {  # as tight as in Python, where `&` binds more than `<`
    "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1), "eq": ("==", 1),
    "ne": ("!=", 1), "or": ("|", 2), "and": ("&", 3), "add": ("+", 4), "sub": ("-", 4),
    "mul": ("*", 5), "div": ("/", 5), "mod": ("%", 5),
}  # fmt: skip
NAMES = {"max": "maximum", "min": "minimum"}
SUM, PRODUCT, CALL = 4, 5, 7  # how tight they bind
Text = tuple[str, int]


def show(node: Node, names: Callable[[Node], Text | None] = lambda node: None) -> str:
    """`names` may give some nodes a text of their own, and how tight it binds.

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

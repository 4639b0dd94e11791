"""Scores as people write them."""

from edgewise.scores.nodes import Call, Entry, Leaf, Node, Number

SIGNS = {  # as tight as in Python, where `&` binds more than `<`
    "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1), "eq": ("==", 1),
    "ne": ("!=", 1), "or": ("|", 2), "and": ("&", 3), "add": ("+", 4), "sub": ("-", 4),
    "mul": ("*", 5), "div": ("/", 5), "mod": ("%", 5),
}  # fmt: skip
NAMES = {"max": "maximum", "min": "minimum"}
CALL = 7


def show(node: Node) -> str:
    """
    >>> from edgewise.scores.nodes import I, J, S
    >>> show(Call("mul", (Number(2.0), Call("sub", (I, J)))))
    '2.0 * (I - J)'
    """
    return _shown(node)[0]


def _shown(node: Node) -> tuple[str, int]:
    match node:
        case Leaf(name):
            return name.upper(), CALL
        case Number(value):
            return repr(value), CALL if value >= 0 else 4
        case Entry(table, index):
            return f"table{table}[{show(index)}]", CALL
        case Call("neg", (x,)):
            return f"-{_held(x, 6)}", 6
        case Call("not", (x,)):
            return f"~{_held(x, 6)}", 6
        case Call(name, (a, b)) if name in SIGNS:
            sign, level = SIGNS[name]
            return f"{_held(a, level)} {sign} {_held(b, level + 1)}", level
        case Call(name, operands):
            return f"{NAMES.get(name, name)}({', '.join(map(show, operands))})", CALL
    raise AssertionError(node)


def _held(node: Node, level: int) -> str:
    text, own = _shown(node)
    return text if own >= level else f"({text})"

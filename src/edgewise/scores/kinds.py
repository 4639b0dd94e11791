"""Which parts of a score are whole numbers, real numbers and truths."""

from functools import lru_cache

from edgewise.scores.functions import FUNCTIONS
from edgewise.scores.nodes import REAL, TRUTH, WHOLE, Call, Entry, Leaf, Node, Number, PairValue


@lru_cache(maxsize=4096)
def kind(node: Node) -> str:
    """
    >>> from edgewise.scores.nodes import I, J, S
    >>> kind(Call("sub", (I, J))), kind(Call("mul", (S, I)))
    ('whole', 'real')
    """
    match node:
        case Leaf(name):
            return REAL if name == "s" else WHOLE
        case Number():
            return WHOLE if node.whole else REAL
        case Entry() | PairValue():
            return REAL
        case Call("where", (_, a, b)):
            return _joined(a, b)
        case Call(function, operands):
            return FUNCTIONS[function].kind or _joined(*operands)
    raise AssertionError(node)


def _joined(*operands: Node) -> str:
    kinds = {kind(x) for x in operands}
    return TRUTH if kinds == {TRUTH} else WHOLE if kinds == {WHOLE} else REAL


def wants(node: Call) -> list[str | None]:
    """The kind that each operand is turned into: None leaves it as it is."""
    kinds = {kind(x) for x in node.operands}
    match node.function:
        case "and" | "or" | "not":
            return [TRUTH] * len(node.operands)
        case "where":
            return [TRUTH, kind(node), kind(node)]
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            common = REAL if REAL in kinds else WHOLE
            return [common, common]
    return [kind(node)] * len(node.operands)

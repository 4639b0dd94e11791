"""The primitives of scores: each as torch, as Triton, with its derivative and kind of number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from edgewise.scores.nodes import (
    BOOLEAN,
    INTEGER,
    ONE,
    REAL,
    ZERO,
    Call,
    Entry,
    Leaf,
    Node,
    Number,
    PairValue,
)


def call(name: str, *operands: Node) -> Node:
    """A node, without what does nothing: x + 0, x · 1, x · 0.

    >>> call("mul", ONE, Number(3))
    Number(value=3)
    """
    match name, operands:
        case ("add", (x, Number(0))) | ("add", (Number(0), x)) | ("sub", (x, Number(0))):
            return x
        case ("mul", (x, Number(1))) | ("mul", (Number(1), x)) | ("div", (x, Number(1))):
            return x
        case ("mul", (_, Number(0))) | ("mul", (Number(0), _)) | ("div", (Number(0), _)):
            return ZERO
        case ("neg", (Number(0),)):
            return ZERO
        case ("where", (_, x, y)) if x == y:
            return x
    return Call(name, operands)


@dataclass(frozen=True)
class Primitive:
    """`triton` has a place for each operand. `slopes` are the derivatives by each operand, as
    functions of the operands; None where they are 0. `kind` is that of the result; "" is the
    operands' own."""

    torch: Callable[..., Tensor]
    triton: str
    slopes: Callable[..., tuple[Node, ...]] | None
    kind: str = REAL


def _compared(function: Any, sign: str) -> Primitive:
    return Primitive(function, f"({{0}} {sign} {{1}})", None, BOOLEAN)


def _larger(name: str) -> Callable[[Node, Node], tuple[Node, Node]]:
    """Of `max` and `min`: ties share the gradient equally."""

    def slopes(a: Node, b: Node) -> tuple[Node, Node]:
        half = Number(0.5)
        tie = Call("eq", (a, b))
        first = Call("where", (Call(name, (a, b)), ONE, ZERO))
        mine = Call("where", (tie, half, first))
        return mine, call("sub", ONE, mine)

    return slopes


def _sigmoid(x: Node) -> tuple[Node]:
    y = Call("sigmoid", (x,))
    return (call("mul", y, call("sub", ONE, y)),)


PRIMITIVES: dict[str, Primitive] = {
    "add": Primitive(torch.add, "({0} + {1})", lambda a, b: (ONE, ONE), ""),
    "sub": Primitive(torch.sub, "({0} - {1})", lambda a, b: (ONE, Number(-1)), ""),
    "mul": Primitive(torch.mul, "({0} * {1})", lambda a, b: (b, a), ""),
    "div": Primitive(
        torch.true_divide,
        "({0} / {1})",
        lambda a, b: (call("div", ONE, b), call("neg", call("div", a, call("mul", b, b)))),
    ),
    "neg": Primitive(torch.neg, "(-{0})", lambda x: (Number(-1),), ""),
    "abs": Primitive(torch.abs, "tl.abs({0})", lambda x: (Call("sign", (x,)),), ""),
    "sign": Primitive(torch.sign, "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))", None),
    "max": Primitive(torch.maximum, "tl.maximum({0}, {1})", _larger("gt"), ""),
    "min": Primitive(torch.minimum, "tl.minimum({0}, {1})", _larger("lt"), ""),
    "exp": Primitive(torch.exp, "tl.exp({0})", lambda x: (Call("exp", (x,)),)),
    "log": Primitive(torch.log, "tl.log({0})", lambda x: (call("div", ONE, x),)),
    "sqrt": Primitive(
        torch.sqrt, "tl.sqrt({0})", lambda x: (call("div", Number(0.5), Call("sqrt", (x,))),)
    ),
    "tanh": Primitive(
        torch.tanh,
        "tl.where(tl.abs({0}) < 0.1, {0} * (1.0 - {0} * {0} * (1 / 3 - {0} * {0} * (2 / 15))),"
        " 2.0 * tl.sigmoid(2.0 * {0}) - 1.0)",  # the difference is not exact near 0
        lambda x: (call("sub", ONE, call("mul", Call("tanh", (x,)), Call("tanh", (x,)))),),
    ),
    "sigmoid": Primitive(torch.sigmoid, "tl.sigmoid({0})", _sigmoid),
    "floor": Primitive(torch.floor, "tl.floor({0})", None),
    "mod": Primitive(torch.remainder, "((({0} % {1}) + {1}) % {1})", None, ""),
    "where": Primitive(torch.where, "tl.where({0}, {1}, {2})", None, ""),
    "lt": _compared(torch.lt, "<"),
    "le": _compared(torch.le, "<="),
    "gt": _compared(torch.gt, ">"),
    "ge": _compared(torch.ge, ">="),
    "eq": _compared(torch.eq, "=="),
    "ne": _compared(torch.ne, "!="),
    "and": Primitive(torch.logical_and, "({0} & {1})", None, BOOLEAN),
    "or": Primitive(torch.logical_or, "({0} | {1})", None, BOOLEAN),
    "not": Primitive(torch.logical_not, "(~{0})", None, BOOLEAN),
}


@lru_cache(maxsize=4096)
def kind(node: Node) -> str:
    """The kind of a node: integer, real or boolean.

    >>> from edgewise.scores.nodes import I, J, S
    >>> kind(Call("sub", (I, J))), kind(Call("mul", (S, I)))
    ('integer', 'real')
    """
    match node:
        case Leaf(name):
            return REAL if name == "s" else INTEGER
        case Number():
            return INTEGER if node.is_integer else REAL
        case Entry() | PairValue():
            return REAL
        case Call("where", (_, a, b)):
            return _joined(a, b)
        case Call(function, operands):
            return PRIMITIVES[function].kind or _joined(*operands)
    raise AssertionError(node)


def _joined(*operands: Node) -> str:
    kinds = {kind(x) for x in operands}
    return BOOLEAN if kinds == {BOOLEAN} else INTEGER if kinds == {INTEGER} else REAL


def operand_kinds(node: Call) -> list[str | None]:
    """The kind that each operand is cast to; None: as it is."""
    kinds = {kind(x) for x in node.operands}
    match node.function:
        case "and" | "or" | "not":
            return [BOOLEAN] * len(node.operands)
        case "where":
            return [BOOLEAN, kind(node), kind(node)]
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            common = REAL if REAL in kinds else INTEGER
            return [common, common]
    return [kind(node)] * len(node.operands)


@lru_cache(maxsize=1024)
def derivative(node: Node, by: Node) -> Node:
    """d node / d by, where `by` is the dot product or an entry of a table.

    Floors, remainders and comparisons are steps: their derivative is 0.

    >>> from edgewise.scores.nodes import S
    >>> derivative(Call("mul", (S, S)), S)
    Call(function='add', operands=(Leaf(name='s'), Leaf(name='s')))
    """
    if node == by:
        return ONE
    if not isinstance(node, Call):
        return ZERO
    if node.function == "where":  # not a product with 0: 0 · ∞ is not a number
        condition, *cases = node.operands
        return call("where", condition, *(derivative(x, by) for x in cases))
    slopes = PRIMITIVES[node.function].slopes
    if slopes is None:
        return ZERO
    total: Node = ZERO
    for operand, slope in zip(node.operands, slopes(*node.operands), strict=True):
        total = call("add", total, call("mul", slope, derivative(operand, by)))
    return total

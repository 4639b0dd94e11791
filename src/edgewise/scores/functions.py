"""What a score may be made of: each function as torch, as Triton, with its derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.scores.nodes import ONE, REAL, TRUTH, ZERO, Call, Node, Number


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
class Function:
    """`triton` has a place for each operand. `slopes` are the derivatives by each operand, as
    functions of the operands; None where they are 0. `kind` is that of the result; "" is the
    operands' own."""

    torch: Callable[..., Tensor]
    triton: str
    slopes: Callable[..., tuple[Node, ...]] | None
    kind: str = REAL


def _compared(function: Any, sign: str) -> Function:
    return Function(function, f"({{0}} {sign} {{1}})", None, TRUTH)


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


FUNCTIONS: dict[str, Function] = {
    "add": Function(torch.add, "({0} + {1})", lambda a, b: (ONE, ONE), ""),
    "sub": Function(torch.sub, "({0} - {1})", lambda a, b: (ONE, Number(-1)), ""),
    "mul": Function(torch.mul, "({0} * {1})", lambda a, b: (b, a), ""),
    "div": Function(
        torch.true_divide,
        "({0} / {1})",
        lambda a, b: (call("div", ONE, b), call("neg", call("div", a, call("mul", b, b)))),
    ),
    "neg": Function(torch.neg, "(-{0})", lambda x: (Number(-1),), ""),
    "abs": Function(torch.abs, "tl.abs({0})", lambda x: (Call("sign", (x,)),), ""),
    "sign": Function(torch.sign, "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))", None),
    "max": Function(torch.maximum, "tl.maximum({0}, {1})", _larger("gt"), ""),
    "min": Function(torch.minimum, "tl.minimum({0}, {1})", _larger("lt"), ""),
    "exp": Function(torch.exp, "tl.exp({0})", lambda x: (Call("exp", (x,)),)),
    "log": Function(torch.log, "tl.log({0})", lambda x: (call("div", ONE, x),)),
    "sqrt": Function(
        torch.sqrt, "tl.sqrt({0})", lambda x: (call("div", Number(0.5), Call("sqrt", (x,))),)
    ),
    "tanh": Function(
        torch.tanh,
        "tl.where(tl.abs({0}) < 0.1, {0} * (1.0 - {0} * {0} * (1 / 3 - {0} * {0} * (2 / 15))),"
        " 2.0 * tl.sigmoid(2.0 * {0}) - 1.0)",  # the difference is not exact near 0
        lambda x: (call("sub", ONE, call("mul", Call("tanh", (x,)), Call("tanh", (x,)))),),
    ),
    "sigmoid": Function(torch.sigmoid, "tl.sigmoid({0})", _sigmoid),
    "floor": Function(torch.floor, "tl.floor({0})", None),
    "mod": Function(torch.remainder, "((({0} % {1}) + {1}) % {1})", None, ""),
    "where": Function(torch.where, "tl.where({0}, {1}, {2})", None, ""),
    "lt": _compared(torch.lt, "<"),
    "le": _compared(torch.le, "<="),
    "gt": _compared(torch.gt, ">"),
    "ge": _compared(torch.ge, ">="),
    "eq": _compared(torch.eq, "=="),
    "ne": _compared(torch.ne, "!="),
    "and": Function(torch.logical_and, "({0} & {1})", None, TRUTH),
    "or": Function(torch.logical_or, "({0} | {1})", None, TRUTH),
    "not": Function(torch.logical_not, "(~{0})", None, TRUTH),
}

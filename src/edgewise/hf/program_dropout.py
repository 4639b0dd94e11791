"""A model's dropout of attention weights, written into the rules of a program."""

from __future__ import annotations

from typing import Any

from edgewise.errors import caller
from edgewise.hf.errors import UnsupportedArgument
from edgewise.language import F, nodes
from edgewise.language.program import Program
from edgewise.language.statements import applied_functions, mapped

WEIGHTS = ("softmax", "softmax_agg")


def with_dropout(program: Program, p: float) -> Program | None:
    """The program with dropout wherever a rule reads the result of a softmax.

    None if its rules have dropout of their own, which is then all there is.

    >>> from edgewise import F, R, V
    >>> weights = (R.w(V.I, V.J) <= R.s(V.I, V.J)) | [F.softmax_agg(agg_terms=[V.J])]
    >>> total = (R.out(V.I) <= (R.w(V.I, V.J), R.v(V.J))) | [F.product]
    >>> with_dropout(Program([weights, total]), 0.1).rules[1]
    (R.out(V.I) <= (F.dropout(0.1)(R.w(V.I, V.J)), R.v(V.J))) | [F.product]
    """
    used = [f for rule in program.rules for f in (*rule.functions, *applied_functions(rule.body))]
    if any(function.name == "dropout" for function in used):
        return None
    softmaxes = {
        rule.head.relation
        for rule in program.rules
        if any(function.name in WEIGHTS for function in rule.functions)
    }
    if not softmaxes:
        raise UnsupportedArgument(
            f"the model's attention has dropout {p}, but no rule of the program has a softmax",
            caller(),
            "write `F.dropout(p)` where it belongs, or set the model's attention dropout to 0",
        )
    drop = F.dropout(p)

    def change(node: Any) -> Any:
        if isinstance(node, nodes.Atom) and node.relation in softmaxes and node.carries_value:
            return drop(node)
        return mapped(node, change)

    rules = [
        nodes.Rule(one.head, change(one.body), one.functions, one.place)
        if isinstance(one, nodes.Rule)
        else one
        for one in program.flat
    ]
    return Program(
        rules,
        aggregation=program.aggregation,
        domains=dict(program.domains),
        rounds=program.rounds,
    )

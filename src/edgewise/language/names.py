"""Every weight has a name: its own, or one made of the relations it stands between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import weights


def name_weights(program: Program) -> tuple[nodes.Statement, ...]:
    """The program's statements, stacks written out, with a name on every weight.

    The weight of body atom `b` in a rule for `h` is `h.b`, that of the head `h.head`, of a fact
    `a(1)` is `a(1)`; a name that is taken gets `_2`, `_3`, ... Rules added for other relations
    change no name.

    >>> from edgewise.language import R, V, Program
    >>> name_weights(Program([R.h(V.X)[2.0] <= (R.a(V.X)[3.0], R.a(V.X)[4, 4])]))
    (R.h(V.X)["h.head": 2.0] <= (R.a(V.X)["h.a": 3.0], R.a(V.X)["h.a_2": 4, 4]),)
    """
    taken = {weight.name for statement in program.flat for weight in weights(statement)}

    def fresh(base: str) -> str:
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        return name

    return tuple(_statement(statement, fresh) for statement in program.flat)


def _statement(statement: nodes.Statement, fresh: Callable[[str], str]) -> nodes.Statement:
    match statement:
        case nodes.Rule(head=head):
            named = replace(head, weight=_weight(head.weight, f"{head.relation}.head", fresh))
            body = tuple(_item(item, head.relation, fresh) for item in statement.body)
            return replace(statement, head=named, body=body)
        case nodes.Fact(atom=atom):
            keys = ",".join(str(term) for term in atom.terms)
            base = f"{atom.relation}({keys})" if keys else atom.relation
            return nodes.Fact(replace(atom, weight=_weight(atom.weight, base, fresh)))
    return statement


def _item(item: Any, head: str, fresh: Callable[[str], str]) -> Any:
    match item:
        case nodes.Weight():
            return _weight(item, f"{head}.bias", fresh)
        case nodes.Apply(function=function):
            weight = _weight(item.weight, f"{head}.{function.name}", fresh)
            operands = tuple(_item(operand, head, fresh) for operand in item.operands)
            return replace(item, weight=weight, operands=operands)
        case nodes.Atom(relation=name) | nodes.SpecialAtom(name=name):
            return replace(item, weight=_weight(item.weight, f"{head}.{name}", fresh))
    return item


def _weight(
    weight: nodes.Weight | None, base: str, fresh: Callable[[str], str]
) -> nodes.Weight | None:
    if weight is None or weight.name is not None:
        return weight
    return replace(weight, name=fresh(base))

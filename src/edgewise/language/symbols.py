"""`R`, `V`, `C`, `F`, `W`: the symbols that rules are written with."""

from __future__ import annotations

from typing import Any

from edgewise.errors import caller, safe_repr
from edgewise.language import brackets, functions, nodes, operators
from edgewise.language.specials import SpecialNamespace, UnknownSpecial, is_protocol


class Namespace:
    """What `R`, `V`, `C`, `F` and `W` share: names are read, never set."""

    def __setattr__(self, name: str, value: object) -> None:
        raise operators.BadOperator(
            f"`{self!r}.{name}` cannot be assigned: it would change in every rule",
            caller(),
            "a rule is `head <= body`, a fact with a value `R.h(1)[0.5]`",
        )

    def __call__(self, name: object, *_: object) -> Any:
        raise UnknownSpecial(
            f"`{self!r}` is a namespace, not a function",
            caller(),
            f"write `{self!r}.name`, or `{self!r}[{safe_repr(name)}]`"
            if isinstance(name, str) and self not in (C, F)
            else f"write `{self!r}.name`",
        )


class HiddenNamespace:
    """`R.hidden.name`: a condition that carries no value."""

    def __call__(self, *terms: Any) -> nodes.Atom:
        raise UnknownSpecial(
            "`R.hidden` needs the name of a relation",
            caller(),
            'write `R.hidden.edge(...)`; a relation called hidden is `R["hidden"](...)`',
        )

    __le__ = __ge__ = __truediv__ = __call__

    def __getattr__(self, name: str) -> nodes.Atom:
        if is_protocol(name):
            raise AttributeError(name)
        return nodes.Atom(name.removeprefix("_"), hidden=True, place=caller())

    def __getitem__(self, name: str) -> nodes.Atom:
        return nodes.Atom(name, hidden=True, place=caller())


class RelationNamespace(Namespace):
    """`R.name`: an atom of relation `name`; `R["a.name"]` for a name with a scope.

    `R._name` and `R["_name"]` are hidden.

    >>> R.h(V.X) <= (R.x(V.Y)["w":4, 2], R._edge(V.X, V.Y), ~R.seen(V.Y))
    R.h(V.X) <= (R.x(V.Y)["w": 4, 2], R._edge(V.X, V.Y), ~R.seen(V.Y))
    """

    special = SpecialNamespace()
    hidden = HiddenNamespace()

    def __getattr__(self, name: str) -> nodes.Atom:
        if is_protocol(name) or name == "_":
            raise AttributeError(name)
        hidden = name.startswith("_")
        return nodes.Atom(name.lstrip("_"), hidden=hidden, place=caller())

    def __getitem__(self, name: str) -> nodes.Atom:
        if not isinstance(name, str) or not name:
            raise UnknownSpecial(
                f"`R[{safe_repr(name)}]`: a relation has a name",
                caller(),
                'write `R.h` or `R["h"]`; a weight comes after it: `R.h[64, 32]`',
            )
        hidden = name[:1] == "_" and name.strip("_") != ""
        hidden = hidden and not is_protocol(name)
        return nodes.Atom(name.lstrip("_") if hidden else name, hidden=hidden, place=caller())

    def __repr__(self) -> str:
        return "R"


class VariableNamespace(Namespace):
    """`V.X`: a variable. Variables are compared and computed with in a body.

    >>> R.h(V.I) <= (R.x(V.J), V.I - V.J <= 5, V.I != V.J)
    R.h(V.I) <= (R.x(V.J), V.I - V.J <= 5, R.special.neq(V.I, V.J))
    """

    def __getattr__(self, name: str) -> nodes.Variable:
        if is_protocol(name):
            raise AttributeError(name)
        return nodes.Variable(name, place=caller())

    def __getitem__(self, name: str) -> nodes.Variable:
        if not isinstance(name, str) or not name:
            raise UnknownSpecial(
                f"`V[{safe_repr(name)}]`: a variable has a name", caller(),
                'write `V.I` or `V["I"]`; a number is a term as it is: `R.h(1)`',
            )  # fmt: skip
        return nodes.Variable(name, place=caller())

    def __repr__(self) -> str:
        return "V"


class ConstantNamespace(Namespace):
    """`C.name`: the constant "name".

    >>> R.likes(C.ann, V.X)
    R.likes('ann', V.X)
    """

    def __getattr__(self, name: str) -> str:
        if is_protocol(name):
            raise AttributeError(name)
        return name

    def __repr__(self) -> str:
        return "C"


class FunctionNamespace(Namespace):
    """`F.name`: a function of values, applied in a body or listed after a rule.

    >>> (R.h(V.X) <= (F.relu(R.x(V.Y)), R._edge(V.X, V.Y))) | [F.tanh, F.max_agg]
    (R.h(V.X) <= (F.relu(R.x(V.Y)), R._edge(V.X, V.Y))) | [F.tanh, F.max_agg]
    """

    def __getattr__(self, name: str) -> Any:
        if is_protocol(name):
            raise AttributeError(name)
        return functions.named(name, caller())

    def __dir__(self) -> list[str]:
        return sorted(functions.DEFINITIONS)

    def __repr__(self) -> str:
        return "F"


class WeightNamespace(Namespace):
    """`W.name[64, 32]`: a named weight; `W.name(V.H)[64, 32]`: one for each H.

    `W["a.name"]` is a name with a scope, and `W[64, 32]` a weight without a name.

    >>> R.q(V.H, V.I) <= R.x(V.I)[W.query(V.H)[16, 64]]
    R.q(V.H, V.I) <= R.x(V.I)[W.query(V.H)[16, 64]]
    """

    def __getattr__(self, name: str) -> nodes.Weight:
        if is_protocol(name):
            raise AttributeError(name)
        return nodes.Weight(name=name, place=caller())

    def __getitem__(self, item: Any) -> nodes.Weight:
        """A name is a name; anything else is a weight without one, as in brackets."""
        return brackets.weight(item, caller())

    def __repr__(self) -> str:
        return "W"


R, V, C, F, W = (
    RelationNamespace(),
    VariableNamespace(),
    ConstantNamespace(),
    FunctionNamespace(),
    WeightNamespace(),
)

"""`R`, `V` and `C`: relations, variables and constants by attribute."""

from __future__ import annotations

from typing import Any

from edgewise.errors import caller
from edgewise.neuralogic.core.constructs.predicate import Predicate
from edgewise.neuralogic.core.constructs.relation import BaseRelation
from edgewise.neuralogic.core.constructs.term import NamedConstant, NamedVariable
from edgewise.neuralogic.errors import BadTemplate


class RelationFactory:
    """`R.name`, `R.hidden.name`, `R.special.name`, `R.get("name")`.

    >>> print(R.likes(V.X, C.mary), R.hidden.edge(V.X, V.Y), R.get("age")(1))
    likes(X, mary). *edge(X, Y). age(1).
    """

    def __init__(self, hidden: bool = False, special: bool = False) -> None:
        self._hidden = hidden
        self._special = special

    @property
    def hidden(self) -> RelationFactory:
        return RelationFactory(True, self._special)

    @property
    def special(self) -> RelationFactory:
        return RelationFactory(self._hidden, True)

    def get(self, name: str) -> BaseRelation:
        return BaseRelation(Predicate(name, 0, self._hidden, self._special))

    def __getattr__(self, name: str) -> BaseRelation:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self.get(name.removeprefix("_") if self._special and name == "_in" else name)

    def _refused(self, *_: Any) -> Any:
        raise BadTemplate(
            "`special` and `hidden` are not names of relations",
            caller(),
            'write `R.hidden.a(V.X)`, or `R.get("hidden")` for a relation of that name',
        )

    __call__ = __getitem__ = _refused


class VariableFactory:
    """`V.X`; names are capitalised: `V.abc` is `Abc`.

    >>> print(V.abc, R.x(V.I))
    Abc x(I).
    """

    def get(self, item: str, var_type: str | None = None) -> NamedVariable:
        return NamedVariable(item.capitalize(), var_type)

    def __getattr__(self, name: str) -> NamedVariable:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self.get(name)


class ConstantFactory:
    """`C.red`; names are in lower case.

    >>> print(R.colour(V.X, C.Red))
    colour(X, red).
    """

    def get(self, item: str, const_type: str | None = None) -> NamedConstant:
        return NamedConstant(item.lower(), const_type)

    def __getattr__(self, name: str) -> NamedConstant:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self.get(name)


R = Relation = RelationFactory()
V = Var = VariableFactory()
C = Const = ConstantFactory()

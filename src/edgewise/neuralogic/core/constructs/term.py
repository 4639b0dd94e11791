"""Variables and constants, with an optional type: `V.X`, `C.red`, `V.get("x", "woman")`."""

from __future__ import annotations

from typing import Any

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.errors import BadTemplate


class TypedName:
    """A name that is equal to its text: `V.X == "X"`."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, type: str | None = None) -> None:
        self.name = name
        self.type = type

    def __call__(self, item: str) -> TypedName:
        if not isinstance(item, str):
            raise BadTemplate(
                f"a type is a string, got {safe_repr(item)}", caller(), 'write `V.X("woman")`'
            )
        return type(self)(self.name, item)

    def __str__(self) -> str:
        return self.name if self.type is None else f"{self.type}:{self.name}"

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedName | str) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)


class NamedVariable(TypedName):
    """A variable; `V.X[1:4]` is the list X1, X2, X3."""

    __slots__ = ()

    def __getitem__(self, item: slice) -> list[NamedVariable]:
        if not (isinstance(item, slice) and isinstance(item.start, int | None.__class__)):
            raise BadTemplate(
                f"variables are numbered by a slice, got `[{safe_repr(item)}]`",
                caller(),
                "write `V.X[1:4]` for X1, X2, X3",
            )
        if not isinstance(item.stop, int) or not isinstance(item.step, int | None.__class__):
            raise BadTemplate("the slice has no end", caller(), "write `V.X[1:4]`")
        numbers = range(item.start or 0, item.stop, item.step or 1)
        return [NamedVariable(f"{self.name}{i}", self.type) for i in numbers]


class NamedConstant(TypedName):
    """A constant, in lower case."""

    __slots__ = ()


Variable = NamedVariable
Constant = NamedConstant

"""The smallest pieces: constants, variables, functions, and objects that the tree only holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgewise.errors import Place, caller
from edgewise.language import functions, operators, printer

Constant = int | str
Number = float | int
Literal = Number | tuple[Number, ...] | tuple[tuple[Number, ...], ...]


@dataclass(frozen=True)
class Variable:
    """A variable of a rule, such as `V.I`."""

    name: str
    place: Place | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"V.{self.name}"


Term = Variable | Constant


@dataclass(frozen=True, eq=False)
class Opaque:
    """An object that the tree refers to without looking inside: a tensor, a module, a function.

    It is equal to itself only.
    """

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __repr__(self) -> str:
        return repr(self.thing)


@dataclass(frozen=True)
class Function:
    """A named function of values: a transformation, a combination or an aggregation."""

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()
    place: Place | None = field(default=None, compare=False, repr=False)

    def __call__(self, *operands: Any, **arguments: Any) -> Any:
        return functions.call(self, operands, arguments)

    def __ror__(self, body: Any) -> Any:
        raise operators.MissingParentheses(
            f"`|` applies to a whole rule, here it applies to a {type(body).__name__}",
            caller(),
            "put the rule into parentheses: `(head <= (a, b)) | [...]`",
        )

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]

    def __repr__(self) -> str:
        return printer.python(self)

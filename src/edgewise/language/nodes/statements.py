"""What a program is a list of: rules, facts, lines and stacks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from edgewise.errors import Place
from edgewise.language import functions, operators, printer
from edgewise.language.nodes.expressions import Atom, Expression
from edgewise.language.nodes.words import Function


@dataclass(frozen=True)
class Rule:
    """`head <= body`, and how it computes."""

    head: Atom
    body: tuple[Expression, ...]
    functions: tuple[Function, ...] = ()
    place: Place | None = field(default=None, compare=False, repr=False)

    def __or__(self, items: Any) -> Rule:
        return replace(self, functions=self.functions + functions.listed(items))

    def __bool__(self) -> bool:
        raise operators.ChainedRule(
            "a rule has no truth value; two `<=` in one expression, or `and` between rules?",
            self.place,
            "write one `<=` per rule, and put the rules into a list",
        )

    def __repr__(self) -> str:
        return printer.python(self)


@dataclass(frozen=True)
class Fact:
    """An atom that holds; its weight is its value."""

    atom: Atom

    @property
    def place(self) -> Place | None:
        return self.atom.place

    def __repr__(self) -> str:
        return repr(self.atom)


@dataclass(frozen=True)
class Line:
    """`R.name/arity | [...]`: how the rules of one relation are combined and transformed."""

    relation: str
    arity: int
    functions: tuple[Function, ...] = ()
    place: Place | None = field(default=None, compare=False, repr=False)

    def __or__(self, items: Any) -> Line:
        return replace(self, functions=self.functions + functions.listed(items))

    def __repr__(self) -> str:
        return printer.python(self)


@dataclass(frozen=True)
class Stack:
    """A block of statements repeated `count` times, each copy reading the one before.

    Copy `i` lives in the scope `name.i`. In the block the relation `^p` stands for parameter `p`:
    the first copy reads `inputs`, each other one the `outputs` of the copy before it. Outside,
    `name.output` is the output of the last copy.
    """

    name: str
    count: int
    parameters: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    statements: tuple[Statement, ...]
    place: Place | None = field(default=None, compare=False, repr=False)

    @property
    def out(self) -> Atom:
        return Atom(f"{self.name}.{self.outputs[0]}", place=self.place)

    def __repr__(self) -> str:
        return printer.python(self)


Statement = Rule | Fact | Line | Stack

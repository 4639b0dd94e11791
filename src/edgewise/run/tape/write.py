"""Operations as the source of a Python function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import torch
from torch import Tensor

from edgewise.run.tape.record import VIEWS, Operation, Slot
from edgewise.run.tape.whole import PREPARE

FORMS = {*VIEWS, Tensor.__getitem__}  # the same numbers, laid out in another way


@dataclass(frozen=True, eq=False)
class Source:
    """A function of tensors `x0, x1, ...`: its body, and what the names in it stand for.

    Inputs that are `held` stay as they are from run to run: `early` is what is done with those
    alone, once.
    """

    inputs: int
    body: str
    names: dict[str, Any]  # functions, and constants that are no tensors
    constants: dict[str, Tensor]
    held: Collection[int] = ()
    early: str = ""

    def function(self, lifted: bool = False) -> Callable[..., Tensor]:
        """The function; if `lifted`, its constant tensors are arguments after the others."""
        assert not self.held
        arguments = [f"x{n}" for n in range(self.inputs)] + (list(self.constants) * lifted)
        scope = dict(self.names) if lifted else self.names | self.constants
        return _defined(f"def step({', '.join(arguments)}):\n{self.body}", scope, "step")

    def prepared(self) -> Callable[..., Callable[..., Tensor]]:
        """A function of the inputs that are held, which gives the function of all others."""
        rest = ", ".join(f"x{n}" for n in range(self.inputs) if n not in self.held)
        held = ", ".join(f"x{n}" for n in self.held)
        body = indent(self.body, "    ")
        text = f"def prepare({held}):\n{self.early}\n    def step({rest}):\n{body}\n    return step"
        return _defined(text, self.names | self.constants, "prepare")


def _defined(text: str, scope: dict[str, Any], name: str) -> Callable[..., Any]:
    # names of ours and whole numbers: nothing that a user wrote is evaluated
    exec(text, scope)
    found: Callable[..., Any] = scope[name]
    return found


def written(
    inputs: int, operations: Sequence[Operation], result: Slot, held: Collection[int] = ()
) -> Source:
    """The source of a function of that many tensors that does the operations in order."""
    names = _Names()
    operations = _used(operations, result)
    last = {slot: n for n, op in enumerate(operations) for slot in op.reads}
    kept = {Slot(f"x{n}") for n in held}
    lines, early = [], []
    for number, operation in enumerate(operations):
        reads = operation.reads
        if held and operation.function in FORMS and kept.issuperset(reads):
            early.append("    " + names.line(operation))
            kept.update(operation.results)
            continue
        if held and _can_be_prepared(operation, kept):
            before, line = names.prepared(operation)
            early.append("    " + before)
            lines.append("    " + line)
        else:
            lines.append("    " + names.line(operation))
        seen = dict.fromkeys((*reads, *operation.results))
        over = [s for s in seen if last.get(s, -1) <= number and s != result and s not in kept]
        if over:
            lines.append(f"    del {', '.join(s.name for s in over)}")
    lines.append(f"    return {result.name}")
    body = "\n".join(lines)
    return Source(inputs, body, names.names, names.constants, held, "\n".join(early))


def _can_be_prepared(operation: Operation, kept: set[Slot]) -> bool:
    first, *others = operation.arguments
    return (
        operation.function in PREPARE
        and not operation.options
        and first not in kept
        and all(other in kept for other in others)
    )


class _Names:
    """Names for functions and constants, the same for the same one."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.constants: dict[str, Tensor] = {}
        self.known: dict[Any, str] = {}

    def line(self, operation: Operation) -> str:
        arguments = [self.text(a) for a in operation.arguments]
        arguments += [f"{name}={self.text(a)}" for name, a in operation.options.items()]
        return f"{_results(operation)} = {self.name(operation.function)}({', '.join(arguments)})"

    def prepared(self, operation: Operation) -> tuple[str, str]:
        """What is done once with all arguments but the first, and what is done with that."""
        first, *others = map(self.text, operation.arguments)
        ready = f"p{operation.results[0].name}"
        prepare = self.name(PREPARE[operation.function])
        return (
            f"{ready} = {prepare}({', '.join(others)})",
            f"{_results(operation)} = {ready}({first})",
        )

    def text(self, item: Any) -> str:
        match item:
            case Slot():
                return item.name
            case None | bool() | int():
                return repr(item)
            case tuple():
                return f"({''.join(self.text(part) + ', ' for part in item)})"
            case list():
                return f"[{', '.join(map(self.text, item))}]"
            case dict():
                inside = (f"{self.name(key)}: {self.text(part)}" for key, part in item.items())
                return f"{{{', '.join(inside)}}}"
        return self.name(item)

    def name(self, thing: Any) -> str:
        plain = isinstance(thing, float | str | torch.dtype | torch.device)
        key = (type(thing), thing) if plain else id(thing)
        if key not in self.known:
            kind, table = ("k", self.constants) if isinstance(thing, Tensor) else ("c", self.names)
            self.known[key] = f"{kind}{len(table)}"
            table[self.known[key]] = thing
        return self.known[key]


def _results(operation: Operation) -> str:
    return ", ".join(slot.name for slot in operation.results) + "," * operation.many


def _used(operations: Sequence[Operation], result: Slot) -> list[Operation]:
    """Without values in other forms that nobody reads; others may draw random numbers."""
    wanted, found = {result}, []
    for operation in reversed(operations):
        if operation.function not in FORMS or wanted.intersection(operation.results):
            wanted.update(operation.reads)
            found.append(operation)
    return found[::-1]

"""Operations as the source of a Python function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.run.tape.record import Operation, Slot, leaves


@dataclass(frozen=True, eq=False)
class Source:
    """A function of tensors `x0, x1, ...`: its body, and what the names in it stand for."""

    inputs: int
    body: str
    names: dict[str, Any]  # functions, and constants that are no tensors
    constants: dict[str, Tensor]

    def function(self, lifted: bool = False) -> Callable[..., Tensor]:
        """The function; if `lifted`, its constant tensors are arguments after the others."""
        arguments = [f"x{n}" for n in range(self.inputs)] + (list(self.constants) * lifted)
        scope = dict(self.names) if lifted else self.names | self.constants
        # names of ours and whole numbers: nothing that a user wrote is evaluated
        exec(f"def step({', '.join(arguments)}):\n{self.body}", scope)
        found: Callable[..., Tensor] = scope["step"]
        return found


def written(inputs: int, operations: Sequence[Operation], result: Slot) -> Source:
    """The source of a function of that many tensors that does the operations in order."""
    names = _Names()
    operations = _used(operations, result)
    last = {slot: n for n, op in enumerate(operations) for slot in _reads(op)}
    lines = []
    for number, operation in enumerate(operations):
        lines.append("    " + names.line(operation))
        seen = dict.fromkeys((*_reads(operation), *operation.results))
        done = [s.name for s in seen if last.get(s, -1) <= number and s != result]
        if done:
            lines.append(f"    del {', '.join(done)}")
    lines.append(f"    return {result.name}")
    return Source(inputs, "\n".join(lines), names.names, names.constants)


class _Names:
    """Names for functions and constants, the same for the same one."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.constants: dict[str, Tensor] = {}
        self.known: dict[Any, str] = {}

    def line(self, operation: Operation) -> str:
        arguments = [self.text(a) for a in operation.arguments]
        arguments += [f"{name}={self.text(a)}" for name, a in operation.options.items()]
        results = ", ".join(slot.name for slot in operation.results)
        results += "," if operation.many else ""
        return f"{results} = {self.name(operation.function)}({', '.join(arguments)})"

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


def _reads(operation: Operation) -> list[Slot]:
    found = leaves((operation.arguments, operation.options))
    return [item for item in found if isinstance(item, Slot)]


def _used(operations: Sequence[Operation], result: Slot) -> list[Operation]:
    """Without reshaped values that nobody reads; others may draw random numbers."""
    wanted, found = {result}, []
    for operation in reversed(operations):
        if operation.function is not Tensor.reshape or wanted.intersection(operation.results):
            wanted.update(_reads(operation))
            found.append(operation)
    return found[::-1]

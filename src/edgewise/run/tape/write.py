"""Operations as the source of a Python function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from edgewise.run.tape.record import Operation, Slot, leaves


def written(inputs: int, operations: Sequence[Operation], result: Slot) -> Callable[..., Tensor]:
    """A function of that many tensors that does the operations in order."""
    source = _Source()
    operations = _used(operations, result)
    last = {slot: n for n, op in enumerate(operations) for slot in _reads(op)}
    lines = [f"def step({', '.join(f'x{n}' for n in range(inputs))}):"]
    for number, operation in enumerate(operations):
        lines.append("    " + source.line(operation))
        seen = dict.fromkeys((*_reads(operation), *operation.results))
        done = [s.name for s in seen if last.get(s, -1) <= number and s != result]
        if done:
            lines.append(f"    del {', '.join(done)}")
    lines.append(f"    return {result.name}")
    exec("\n".join(lines), source.names)  # names of ours and whole numbers, nothing of a user's
    found: Callable[..., Tensor] = source.names["step"]
    return found


class _Source:
    """Names for functions and constants."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.known: dict[int, str] = {}

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
        """A name for a function or a constant, the same for the same object."""
        if id(thing) not in self.known:
            self.known[id(thing)] = f"c{len(self.known)}"
            self.names[self.known[id(thing)]] = thing
        return self.known[id(thing)]


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

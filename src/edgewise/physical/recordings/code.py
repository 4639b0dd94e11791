"""A recording as a function of inputs: the same calls, and None where a check does not hold."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from edgewise.physical.recordings.notes import (
    Built,
    Held,
    ListOf,
    NotedCall,
    NotedDecision,
    Ref,
    axis_of,
    items,
    names_of,
    refs_of,
)
from edgewise.physical.recordings.recording import Recording

INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.truediv: "/",
}
INFIX |= {operator.mod: "%", operator.lshift: "<<", operator.rshift: ">>"}
INFIX |= {operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
INFIX |= {operator.eq: "==", operator.ne: "!="}
INLINE = (int, float, bool, type(None))


def rerun_of(recording: Recording, result: Any) -> Callable[..., Any]:
    """What is computed of other inputs as `result`, an encoded thing, was of those recorded."""
    return _RerunWriter(recording, result).function()


class _RerunWriter:
    def __init__(self, recording: Recording, result: Any) -> None:
        self.recording, self.result = recording, result
        self.scope: dict[str, Any] = {}
        self.things: dict[int, str] = {}
        self.lines: list[str] = []
        self.same: dict[int, int] = {}  # calls that give what another gives
        self.texts: dict[str, int] = {}
        self.refused: set[str] = set()

    def function(self) -> Callable[..., Any]:
        calls = self.recording.calls
        live = self._live()
        written = {memory for call in calls for memory in call.written}
        arguments = []
        for step in self.recording.steps:
            if isinstance(step, NotedDecision):
                text = f"{self.text(step.one)} {INFIX[step.function]} {self.text(step.other)}"
                self._refuse(f"not ({text})" if step.found else text)
            elif calls[step].function is None:
                arguments.append(f"c{step}")
            elif step in live:
                self._write(step, calls[step], written)
                self._checks(calls[step])
        self.lines.append(f"return {self.text(self.result)}")
        body = "\n    ".join(self.lines)
        text = f"def rerun({', '.join(arguments)}):\n    {body}"
        self.scope["__text__"] = text
        exec(compile(text, "<rerun>", "exec"), self.scope)
        found: Callable[..., Any] = self.scope["rerun"]
        return found

    def _live(self) -> set[int]:
        """The calls that something depends on: a check or the result."""
        calls = self.recording.calls
        live, memory = set[int](), set[int]()

        def need(item: Any) -> None:
            for ref in refs_of(item):
                if ref.call not in live:
                    live.add(ref.call)
                    memory.update(calls[ref.call].made)

        need(self.result)
        for step in self.recording.steps:
            if isinstance(step, NotedDecision):
                need((step.one, step.other))
        for number in range(len(calls) - 1, -1, -1):
            call = calls[number]
            if call.checks or call.written & memory:
                live.add(number)
                memory.update(call.made | call.written)
            if number in live:
                need((call.args, call.kwargs))
                memory.update(call.read)
        return live

    def _write(self, number: int, call: NotedCall, written: set[int]) -> None:
        parts = [self.text(part) for part in items(call.args)]
        if call.function is axis_of:
            text = f"{parts[0]}.shape[{parts[1]}]"
        elif call.function in INFIX and not call.made:
            text = f"{parts[0]} {INFIX[call.function]} {parts[1]}"
        else:
            named = zip(*names_of(call.kwargs), strict=True)
            parts += [f"{name}={self.text(part)}" for name, part in named]
            function = _detached(call.function) if call.detached else call.function
            text = f"{self.name(function)}({', '.join(parts)})"
        if not written & (call.made | call.read | call.written):
            if text in self.texts:
                self.same[number] = self.texts[text]
                return
            self.texts[text] = number
        self.lines.append(f"c{number} = {text}")

    def _checks(self, call: NotedCall) -> None:
        for ref, wanted in call.checks:
            text = self.text(ref)
            if isinstance(wanted, ListOf):
                self._refuse(f"len({text}) != {wanted.count}")
            elif isinstance(wanted, type):
                if not issubclass(wanted, tuple | list):
                    self._refuse(f"not isinstance({text}, {self.name(wanted)})")
            elif wanted is None or isinstance(wanted, bool):
                self._refuse(f"{text} is not {wanted}")
            else:
                self._refuse(f"{text} != {self.name(wanted)}")

    def _refuse(self, condition: str) -> None:
        line = f"if {condition}: return None"
        if line not in self.refused:
            self.refused.add(line)
            self.lines.append(line)

    def text(self, item: Any) -> str:
        match item:
            case Ref(call=call, path=path):
                text = f"c{self.same.get(call, call)}"
                for part in path:
                    text += f"[{part}]" if isinstance(part, int) else f".{part}"
                return text
            case Held():
                plain = type(item.thing) in INLINE
                return repr(item.thing) if plain else self.name(item.thing)
        assert isinstance(item, Built)
        parts = [self.text(part) for part in item.parts]
        if item.kind is tuple:
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if item.kind is list:
            return f"[{', '.join(parts)}]"
        if item.kind is dict:
            pairs = zip(item.names, parts, strict=True)
            return f"{{{', '.join(f'{self.name(name)}: {part}' for name, part in pairs)}}}"
        if item.kind is slice:
            return f"slice({', '.join(parts)})"
        pairs = zip(item.names, parts, strict=True)
        return f"{self.name(item.kind)}({', '.join(f'{name}={part}' for name, part in pairs)})"

    def name(self, thing: Any) -> str:
        if id(thing) not in self.things:
            name = f"_{len(self.things)}"
            self.things[id(thing)] = name
            self.scope[name] = thing
        return self.things[id(thing)]


@lru_cache(1 << 10)
def _detached(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function without gradients."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return function(*args, **kwargs)

    return called

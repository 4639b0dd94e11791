"""Recordings of one kind as a function of keys: what grounding and lowering computed, and nothing
of how it was decided. It gives None where a decision would be another one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from edgewise.physical.rebinding.lengths import formula, relations
from edgewise.physical.rebinding.recording import (
    Built,
    Held,
    Length,
    NumberAt,
    RecordedCall,
    Recording,
    Ref,
)


class NotGeneral(Exception):
    """Internal: a number does not follow from those that are read."""


def function_of_keys(
    recording: Recording, result: Any, lists: Sequence[Sequence[int]]
) -> Callable[..., Any]:
    """`result`, as `Recording.encoded` has it, for other keys; `lists` are the numbers of some
    recordings of this kind, its own first."""
    return _BindWriter(recording, result, lists).function()


class _BindWriter:
    def __init__(self, recording: Recording, result: Any, lists: Sequence[Sequence[int]]) -> None:
        self.recording, self.result, self.lists = recording, result, lists
        self.scope: dict[str, Any] = {}
        self.things: dict[int, str] = {}
        self.lines: list[str] = []
        self.refused: set[str] = set()
        self.known: dict[str, list[int]] = {}  # numbers that vary, by name
        self.names: dict[int, str] = {}  # of the numbers that are read
        self.sorted: list[tuple[int, str]] = [(0, "0"), (1, "1")]
        self.same: dict[int, int] = {}  # calls that give what another gives
        self.texts: dict[str, int] = {}
        self.read: dict[str, str] = {}

    def function(self) -> Callable[..., Any]:
        calls = self.recording.calls
        live = self._live()
        written = {memory for call in calls for memory in call.written}
        arguments = []
        for number, call in enumerate(calls):
            if call.function is None:
                arguments.append(f"c{number}")
            elif number in live:
                self._write(number, call, written)
            if call.function is None or number in live:
                self._checks(call)
                for at in call.sources:
                    self._source(at)
        every = list(dict.fromkeys(relations(self.known)))
        if every:
            self.lines.append(f"if not ({' and '.join(every)}): return None")
        self.lines.append(f"return {self.text(self.result)}")
        body = "\n    ".join(self.lines)
        text = f"def bind({', '.join(arguments)}):\n    {body}"
        exec(compile(text, "<bind>", "exec"), self.scope)
        found: Callable[..., Any] = self.scope["bind"]
        return found

    def _live(self) -> set[int]:
        """The calls that something depends on: a check, a number, or the result."""
        calls = self.recording.calls
        live, memory = set[int](), set[int]()

        def need(item: Any) -> None:
            for ref in _refs(item):
                if ref.call not in live:
                    live.add(ref.call)
                    memory.update(calls[ref.call].made)

        need(self.result)
        for number in range(len(calls) - 1, -1, -1):
            call = calls[number]
            if call.checks or call.sources or call.written & memory:
                live.add(number)
                memory.update(call.made | call.written)
            if number in live:
                need((call.args, call.kwargs))
                memory.update(call.read)
        return live

    def _write(self, number: int, call: RecordedCall, written: set[int]) -> None:
        function = self.name(call.function)
        parts = [self.text(part) for part in call.args.parts]
        parts += [
            f"{name}={self.text(part)}"
            for name, part in zip(call.kwargs.names, call.kwargs.parts, strict=True)
        ]
        text = f"{function}({', '.join(parts)})"
        stable = not written & (call.made | call.read | call.written)
        if stable and text in self.texts:
            self.same[number] = self.texts[text]
            return
        if stable:
            self.texts[text] = number
        self.lines.append(f"c{number} = {text}")

    def _checks(self, call: RecordedCall) -> None:
        for ref, wanted in call.checks:
            text = self.ref(ref)
            if isinstance(wanted, Length):
                self._refuse(f"len({text}) != {wanted.count}")
            elif isinstance(wanted, type):
                self._refuse(f"type({text}) is not {self.name(wanted)}")
            elif wanted is None or isinstance(wanted, bool):
                self._refuse(f"{text} is not {wanted}")
            else:
                self._refuse(f"{text} != {self.name(wanted)}")

    def _refuse(self, condition: str) -> None:
        line = f"if {condition}: return None"
        if line not in self.refused:
            self.refused.add(line)
            self.lines.append(line)

    def _source(self, at: int) -> None:
        """A number that is read: that of all recordings, or one that compares as theirs do."""
        source, column = self.recording.sources[at], [numbers[at] for numbers in self.lists]
        text = self.ref(source.ref)
        text += "" if source.axis is None else f".shape[{source.axis}]"
        if len(set(column)) == 1:
            self._refuse(f"{text} != {column[0]}")
            self.names[at] = str(column[0])
            place = bisect_left(self.sorted, column[0], key=lambda each: each[0])
            if place == len(self.sorted) or self.sorted[place][0] != column[0]:
                self.sorted.insert(place, (column[0], str(column[0])))
            return
        if text in self.read:
            self.names[at] = self.read[text]
            return
        name = self.names[at] = self.read[text] = f"n{at}"
        self.lines.append(f"{name} = {text}")
        place = bisect_left(self.sorted, column[0], key=lambda each: each[0])
        if place < len(self.sorted) and self.sorted[place][0] == column[0]:
            self._refuse(f"{name} != {self.sorted[place][1]}")
            self.names[at] = self.sorted[place][1]
            return
        if place:
            self._refuse(f"not {_apart(*self.sorted[place - 1], column[0], name)}")
        if place < len(self.sorted):
            self._refuse(f"not {_apart(column[0], name, *self.sorted[place])}")
        self.sorted.insert(place, (column[0], name))
        self.known[name] = column

    def ref(self, ref: Ref) -> str:
        text = f"c{self.same.get(ref.call, ref.call)}"
        for part in ref.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}"
        return text

    def text(self, item: Any) -> str:
        match item:
            case Ref():
                return self.ref(item)
            case Held():
                simple = item.thing is None or isinstance(item.thing, bool)
                return repr(item.thing) if simple else self.name(item.thing)
            case NumberAt():
                return self._number(item.at)
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

    def _number(self, at: int) -> str:
        column = [numbers[at] for numbers in self.lists]
        if len(set(column)) == 1:
            return str(column[0])
        found = formula(column, self.known)
        if found is None:
            raise NotGeneral(str(column))
        return found

    def name(self, thing: Any) -> str:
        if id(thing) not in self.things:
            name = f"_{len(self.things)}"
            self.things[id(thing)] = name
            self.scope[name] = thing
        return self.things[id(thing)]


def _apart(low: int, lower: str, high: int, higher: str) -> str:
    """That two numbers are as far apart as they were: 1, or more."""
    return f"{higher} == {lower} + 1" if high - low == 1 else f"{higher} > {lower} + 1"


def _refs(item: Any) -> list[Ref]:
    found: list[Ref] = []
    waiting = [item]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Ref):
            found.append(one)
        elif isinstance(one, Built):
            waiting += one.parts
        elif isinstance(one, tuple | list):
            waiting += one
    return found

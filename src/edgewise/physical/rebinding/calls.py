"""Calls with keys: recorded until several are of one kind, then run by what these share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError
from edgewise.physical.code import source_of
from edgewise.physical.output import Outputs, Returned
from edgewise.physical.plan import PhysicalPlan, Signature
from edgewise.physical.rebinding.code import NotGeneral, function_of_keys
from edgewise.physical.rebinding.recording import Built, Held, Recording, Unrecorded

ALIKE = 3  # recordings of one kind, from which on they tell how numbers follow from one another
UNUSED = 16  # recordings without a call that was run by them, after which no more are made
MOST = 16  # kinds of keys, and functions of each, that are held
TRIED = 4  # functions that are tried in one call


@dataclass(frozen=True, eq=False)
class Lowered:
    """What a recorded call came to: code, and its globals as they follow from keys."""

    code: CodeType
    scope: dict[str, Any]
    names: tuple[str, ...]  # of the globals that depend on keys
    result: Any
    inputs: tuple[str, ...]  # before the weights
    outputs: Outputs


@dataclass(frozen=True, eq=False)
class Rebound:
    """A plan for keys of one kind: `bind` gives the globals of its code, or None."""

    bind: Callable[..., Any]
    lowered: Lowered

    def call(
        self, keys: Sequence[Tensor], values: Mapping[str, Tensor], weights: Sequence[Tensor]
    ) -> Returned | None:
        try:
            with torch.no_grad():
                found = self.bind(*keys, *values.values())
        except (RuntimeError, IndexError, ValueError, TypeError):
            return None  # keys that grounding refuses, and says why
        if found is None:
            return None
        made, keyed = found
        scope = self.lowered.scope | dict(zip(self.lowered.names, made, strict=True))
        run = FunctionType(self.lowered.code, scope)
        try:
            data = run(*[values[name] for name in self.lowered.inputs], *weights)
        except EdgewiseError:
            return None  # which is raised again with the rule that it comes from
        outputs = self.lowered.outputs
        if any(part is not None for part in keyed):
            pairs = zip(outputs.parts, keyed, strict=True)
            parts = tuple([part if k is None else replace(part, keys=k) for part, k in pairs])
            outputs = Outputs(parts, outputs.names)
        return outputs.shown(data, False)


@dataclass(eq=False)
class _Group:
    """Recordings of one kind: the first, and the numbers of several."""

    recording: Recording
    lowered: Lowered
    lists: list[list[int]] = field(default_factory=list)
    rebound: Rebound | None = None


@dataclass(eq=False)
class _Kind:
    """Calls with inputs of the same names and precisions."""

    groups: dict[Any, _Group] = field(default_factory=dict)
    rebound: list[Rebound] = field(default_factory=list)  # the last that was used first
    seen: int = 0
    budget: int = UNUSED


class Rebindings:
    """What the calls of one model have in common."""

    def __init__(self) -> None:
        self.kinds: dict[Any, _Kind] = {}
        self.weights: Signature = []

    def __reduce__(self) -> tuple[type[Rebindings], tuple[()]]:
        return Rebindings, ()  # a copy records its own

    def call(
        self,
        key: Any,
        keys: Mapping[str, Tensor],
        values: Mapping[str, Tensor],
        weights: Sequence[Tensor],
    ) -> Returned | None:
        """The output for keys like earlier ones; None where there are none like these."""
        kind = self.kinds.get(key)
        if kind is None or not kind.rebound:
            return None
        if [(weight.shape, weight.dtype) for weight in weights] != self.weights:
            self.kinds.clear()
            return None
        listed = list(keys.values())
        for at, one in enumerate(kind.rebound[:TRIED]):
            found = one.call(listed, values, weights)
            if found is not None:
                kind.budget = min(kind.budget + 1, UNUSED * UNUSED)
                if at:
                    kind.rebound.insert(0, kind.rebound.pop(at))
                return found
        return None

    def recording(
        self,
        key: Any,
        keys: Mapping[str, Tensor],
        values: Mapping[str, Tensor],
        weights: Sequence[Tensor],
    ) -> Recording | None:
        """A recording of this call, if it may be of use."""
        signature = [(weight.shape, weight.dtype) for weight in weights]
        if signature != self.weights:
            self.kinds.clear()
            self.weights = signature
        kind = self.kinds.get(key)
        if kind is None:
            while len(self.kinds) >= MOST:
                del self.kinds[next(iter(self.kinds))]
            kind = self.kinds[key] = _Kind()
        kind.seen += 1
        if kind.seen == 1 or kind.budget <= 0:  # the first call finds out what later ones know
            return None
        kind.budget -= UNUSED // 4 if kind.budget > UNUSED else 1
        return Recording(keys, values)

    def learn(
        self,
        key: Any,
        recording: Recording,
        plan: PhysicalPlan,
        outputs: Outputs,
        inputs: tuple[str, ...],
    ) -> None:
        """Put a recording to those of its kind."""
        kind = self.kinds.get(key)
        if kind is None or recording.failed:
            return
        try:
            lowered = _lowered(recording, plan, outputs, inputs)
        except Unrecorded as error:
            recording.fail(str(error))
            return
        marks = recording.finish()
        group = kind.groups.get(marks)
        if group is None:
            while len(kind.groups) >= MOST:
                old = kind.groups.pop(next(iter(kind.groups)))
                kind.rebound = [one for one in kind.rebound if one is not old.rebound]
            group = kind.groups[marks] = _Group(recording, lowered)
        if len(group.lists) >= 2 * ALIKE:
            del group.lists[1]
        group.lists.append(recording.numbers)
        if len(group.lists) < ALIKE:
            return
        try:
            result = group.lowered.result
            bind = function_of_keys(group.recording, result, group.lists)
        except NotGeneral:
            return
        kind.rebound = [one for one in kind.rebound if one is not group.rebound]
        group.rebound = Rebound(bind, group.lowered)
        kind.rebound.insert(0, group.rebound)


def _lowered(
    recording: Recording, plan: PhysicalPlan, outputs: Outputs, inputs: tuple[str, ...]
) -> Lowered:
    text, scope = source_of(plan.graph, plan.constants)
    recording.marks += [text, inputs]
    names, parts, same = [], [], {}
    for name, thing in scope.items():
        found = recording.encoded(thing)
        if isinstance(found, Held):
            same[name] = thing
        else:
            names.append(name)
            parts.append(found)
    keyed: list[Any] = []
    for part in outputs.parts:
        if part.outside is not None or part.rows is not None or part.real is not None:
            raise Unrecorded("an output of some rows")
        dense = part.sizes is not None
        keyed.append(recording.encoded(None if dense else part.keys))
    result = Built(tuple, (Built(tuple, tuple(parts)), Built(tuple, tuple(keyed))))
    inner: dict[str, Any] = {}
    exec(compile(text, "<step>", "exec"), inner)  # as `function_of` does
    return Lowered(inner["step"].__code__, same, tuple(names), result, inputs, outputs)

"""Calls with keys: one of a kind is recorded, those like it run by what it was seen to compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from edgewise.physical.code import source_of
from edgewise.physical.output import Outputs, Returned
from edgewise.physical.plan import PhysicalPlan, Signature
from edgewise.physical.recordings.code import rerun_of
from edgewise.physical.recordings.notes import Built, Held, Unrecorded
from edgewise.physical.recordings.recording import Recording

TRIES = 8  # recordings without a call that was run by them, after which no more are made
MOST = 8  # kinds of calls, and recordings of each, that are held


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """A plan for inputs of one kind: `bind` gives the globals of its code, its arguments before
    the weights and the outputs, or None."""

    bind: Callable[..., Any]
    code: CodeType
    scope: dict[str, Any]
    names: tuple[str, ...]  # of the globals that depend on inputs
    as_rows: bool

    def call(self, inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> Returned | None:
        try:
            found = self.bind(*inputs)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return None  # inputs that grounding refuses, and says why
        if found is None:
            return None
        made, arguments, outputs = found
        run = FunctionType(self.code, self.scope | dict(zip(self.names, made, strict=True)))
        shown: Returned = outputs.shown(run(*arguments, *weights), self.as_rows)
        return shown


@dataclass(eq=False)
class _Kind:
    """Calls with inputs of the same names and precisions."""

    shapes: dict[str, torch.Size]  # of the last call
    reruns: list[RecordedCall] = field(default_factory=list)  # the last that was used first
    budget: int = TRIES


class RecordedCalls:
    """What is known of the calls of one model."""

    def __init__(self) -> None:
        self.kinds: dict[Any, _Kind] = {}
        self.weights: Signature = []
        self.failed = ""  # why the last recording was of no use

    def __deepcopy__(self, memo: Any) -> RecordedCalls:
        return RecordedCalls()

    def __reduce__(self) -> Any:
        return RecordedCalls, ()

    def call(
        self,
        key: Any,
        inputs: Mapping[str, Tensor],
        weights: Sequence[Tensor],
        new: bool = False,
    ) -> Returned | None:
        """The output for inputs like earlier ones; None where there are none like these. `new`
        where one was just recorded."""
        kind = self.kinds.get(key)
        if kind is None or not kind.reruns:
            return None
        if [(weight.shape, weight.dtype) for weight in weights] != self.weights:
            self.kinds.clear()
            return None
        listed = list(inputs.values())
        for at, one in enumerate(kind.reruns):
            found = one.call(listed, weights)
            if found is not None:
                kind.budget = kind.budget if new else min(kind.budget + 1, TRIES)
                if at:  # another thread may read the list
                    kind.reruns = [one, *(other for other in kind.reruns if other is not one)]
                return found
        return None

    def recording(
        self, key: Any, inputs: Mapping[str, Tensor], weights: Sequence[Tensor]
    ) -> Recording | None:
        """A recording of this call, if it may be of use: axes that are as they were in the call
        before are taken to stay."""
        signature = [(weight.shape, weight.dtype) for weight in weights]
        if signature != self.weights:
            self.kinds.clear()
            self.weights = signature
        shapes = {name: tensor.shape for name, tensor in inputs.items()}
        kind = self.kinds.get(key)
        if kind is None:
            while len(self.kinds) >= MOST:
                del self.kinds[next(iter(self.kinds))]
            self.kinds[key] = _Kind(shapes)
            return None
        before, kind.shapes = kind.shapes, shapes
        if kind.budget <= 0:
            return None
        kind.budget -= 1
        pairs = {n: zip(shape, before[n], strict=True) for n, shape in shapes.items()}
        return Recording(inputs, {n: [a == b for a, b in pair] for n, pair in pairs.items()})

    def learn(
        self,
        key: Any,
        recording: Recording,
        plan: PhysicalPlan,
        outputs: Outputs,
        values: Sequence[Tensor],
        as_rows: bool,
    ) -> None:
        """Hold a recording for later calls."""
        kind = self.kinds[key]
        rerun = _rerun_of_call(recording, plan, outputs, values, as_rows)
        kind.reruns = [rerun, *kind.reruns[: MOST - 1]]


def _rerun_of_call(
    recording: Recording,
    plan: PhysicalPlan,
    outputs: Outputs,
    values: Sequence[Tensor],
    as_rows: bool,
) -> RecordedCall:
    if recording.failed:
        raise Unrecorded(recording.failed)
    if any(part.outside is not None for part in outputs.parts):
        raise Unrecorded("an error about keys")
    text, scope = source_of(plan.graph, plan.constants)
    names, parts, same = [], [], {}
    for name, thing in scope.items():
        found = recording.encoded(thing)
        if isinstance(found, Held):
            same[name] = found.thing
        else:
            names.append(name)
            parts.append(found)
    arguments = tuple([recording.encoded(value) for value in values])
    every = Built(tuple, tuple(parts)), Built(tuple, arguments), recording.encoded(outputs)
    bind = rerun_of(recording, Built(tuple, every))
    inner: dict[str, Any] = {}
    exec(compile(text, "<step>", "exec"), inner)  # as `function_of` does
    recording.finish()
    return RecordedCall(bind, inner["step"].__code__, same, tuple(names), as_rows)

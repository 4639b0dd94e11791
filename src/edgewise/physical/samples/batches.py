"""Calls with some samples of grounded data: their plan is gathered, not joined and lowered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from torch import Tensor

from edgewise.errors import EdgewiseError
from edgewise.inputs.kinds import ragged
from edgewise.inputs.read import check_numbers
from edgewise.inputs.sources import ragged_live
from edgewise.layouts.ragged import Ints
from edgewise.physical.data import Data, ReadyCall
from edgewise.physical.demand.partial_grounding import ONE_AT_A_TIME
from edgewise.physical.plan import untraced
from edgewise.physical.prepare import Compiled, build_samples
from edgewise.physical.samples.batch_template import BatchTemplate, LoweredBatch, template

FIXED = "values of facts are trained or were written into"


class Trained(Compiled, Protocol):
    """A model, in training or not."""

    training: bool

    def _grounded(self, data: Data) -> dict[str, Tensor]: ...

    def _weights(self) -> dict[str, Tensor]: ...


def gathered_call(model: Trained, data: Data) -> ReadyCall | str:
    """How some samples of grounded data are computed; or why they have to be joined."""
    assert data.chosen is not None
    found = _template(model, data.chosen.origin, len(data.chosen.numbers))
    if isinstance(found, str):
        return found
    call = found.call(data.chosen.numbers)
    if call is None:
        return "a relation is empty in these samples"
    values = model._grounded(data)
    check_numbers({n: item for n, item in data.inputs.items() if not isinstance(item, ragged)})
    for name, item in data.inputs.items():
        live = None
        if isinstance(item, ragged):
            live = ragged_live(name, item, model._reader.arities[name])
        if live is not None:
            if live.trained:
                return f"`{name}` is trained"
            values[name] = live.column()
            if bool(values[name].isnan().any()):
                check_numbers({name: item})
            data.watch(name, live)
    if values.keys() != set(found.names):
        return "some samples have values, and others have none"
    first = [values[name] for name in found.names]
    return ReadyCall(call.run, first, found.weights, call.outputs)


def _template(model: Trained, origin: Data, usual: int) -> BatchTemplate | str:
    """The plan for batches of the samples of `origin`, made once for each mode; kernels are chosen
    for as many samples as the first batch has."""
    unit = model._one
    mode = (unit.dtype, str(unit.device))
    if not origin.facts_stand():
        return FIXED
    with ONE_AT_A_TIME:
        if (*mode, model.training) not in origin.templates:
            found = _compared(model, origin, usual)
            random = isinstance(found, BatchTemplate) and found.is_random
            for training in {model.training} if random else {True, False}:
                origin.templates[(*mode, training)] = found
        known: BatchTemplate | str = origin.templates[(*mode, model.training)]
    return known


def _compared(model: Trained, origin: Data, usual: int) -> BatchTemplate | str:
    try:
        with untraced():
            return template(len(origin), lambda numbers: _lowered(model, origin, numbers, usual))
    except EdgewiseError as error:  # all samples together may be too many, or lack values
        return f"all samples together are refused: {error.code}"


def _lowered(model: Trained, origin: Data, numbers: Ints, usual: int) -> LoweredBatch:
    """A batch of samples, joined and lowered, whose values are inputs."""
    data, unit = origin.of_samples(numbers), model._one
    data.volatile = frozenset(n for n, item in data.inputs.items() if isinstance(item, ragged))
    step = build_samples(model, data, unit.dtype, unit.device)
    step = replace(step, batches=len(numbers) / max(usual, 1))
    values = model._grounded(data) | data.live(step)
    weights = model._weights()
    every: list[Any] = [*values.values(), *weights.values()]
    plan = step.plan(tuple(values), every, tuple(weights), unit, model.training, False)
    return LoweredBatch(step, plan, tuple(values))

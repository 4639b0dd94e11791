"""What a model and data decide together, worked out once and outside of any trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.ground.embeddings import with_stacks
from edgewise.ground.grounder import Grounder
from edgewise.ground.joins.recorded import RecordedJoins
from edgewise.ground.source import has_negative_keys
from edgewise.inputs.kinds import dense
from edgewise.inputs.prepare import prepare
from edgewise.inputs.range_check import check_keys, without_keys_beyond
from edgewise.inputs.read import InputReader, check_device, check_dtype
from edgewise.kernels.attention.calls.trace_names import constant
from edgewise.layouts.recorded import recorder
from edgewise.passes import optimise
from edgewise.physical.build import values_of
from edgewise.physical.data import Data, ForeignData
from edgewise.physical.demand.partial_grounding import (
    ONE_AT_A_TIME,
    Parts,
    PlanGrounder,
    Without,
    ground_all,
)
from edgewise.physical.demand.wanted import BadWant
from edgewise.physical.lowering import to_device
from edgewise.physical.negated_keys import masked
from edgewise.physical.output import outputs_of
from edgewise.physical.plan import untraced
from edgewise.physical.step import Step
from edgewise.physical.tracing import held, own_errors
from edgewise.physical.weights import like
from edgewise.plan.nodes import Plan

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
PARTS = 4  # shapes for which data holds a plan to take parts of


class Compiled(Protocol):
    """What is needed of a model, which stands above."""

    plan: Plan
    stages: dict[str, Any]
    without: tuple[str, ...]
    limit: int
    fill: float | None
    _dense: bool | None
    _reader: InputReader
    _paths: dict[str, tuple[str, ...]]
    _cache: Data
    _shapes: dict[Any, Any]  # of the values of rules, as found so far

    @property
    def _one(self) -> Tensor: ...

    def weight(self, name: str) -> Tensor: ...

    def _refuse_missing(self, data: Data, names: Iterable[str]) -> None: ...


def fixed(tensor: Tensor) -> tuple[int, ...]:
    """The shape as plain integers: a trace with symbolic lengths is specialised to them."""
    return tuple(len(range(size)) for size in tensor.shape)


@constant
def check_names(of: str, using: str, names: tuple[str, ...]) -> bool:
    """Refuse a trace with inputs that are missing or not in the program."""
    model: Compiled = held(of)
    with own_errors():
        model._reader.refuse_unknown(names)
        model._refuse_missing(held(using), names)
    return True


@constant
def refuse_unnamed(of: str, kind: str) -> bool:
    """Refuse a trace with a thing of this kind in the place of grounded data."""
    model: Compiled = held(of)
    with own_errors():
        raise model._reader.unnamed(kind)


@constant
def refuse_want(of: str) -> bool:
    """Refuse a trace in which rows are chosen: which ones decides what is traced."""
    with own_errors():
        raise BadWant(
            "rows are chosen before a model is traced",
            caller(),
            "ground them: `data = model.ground(..., want=...)`, then `compiled(data, ...)`",
        )


@constant
def check_kinds(of: str, kinds: tuple[tuple[str, torch.dtype, str], ...], casts: bool) -> bool:
    """Refuse a trace with values of another precision, unless they are cast, or device."""
    model: Compiled = held(of)
    unit = model._one
    with own_errors():
        for name, dtype, device in kinds:
            check_device(name, torch.device(device), unit)
            if not casts:
                check_dtype(name, dtype, unit)
    return True


@constant
def ensure(
    of: str, using: str, shapes: Shapes, dtype: torch.dtype, device: str, tracing: bool
) -> bool:
    """Build what a model and data decide for shapes, once, and outside of any trace."""
    with own_errors() if tracing else nullcontext():
        _ensure(of, using, shapes, dtype, device)
    return True


def _ensure(of: str, using: str, shapes: Shapes, dtype: torch.dtype, device: str) -> None:
    model: Compiled = held(of)
    data: Data = held(using)
    key = (shapes, dtype, device)
    data.forget_changed()
    if key not in data.built:
        if data.padded:
            raise ForeignData(
                f"the sample was prepared for another precision, device or input than {dtype}, "
                f"{device}",
                caller(),
                "prepare the samples again: `model.samples(data)`",
            )
        with untraced():
            data.keep(key, build_step(model, data, shapes, dtype, torch.device(device)))


@constant
def ensure_plan(
    of: str,
    names: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    kinds: tuple[torch.dtype, ...],
    mode: tuple[bool, bool],
    lower: torch.dtype | None,
    using: str,
) -> bool:
    """Lower the step of a model, in training or not, as rows or not, once for each mode."""
    model: Compiled = held(of)
    step: Step = held(using)
    key = (names, kinds, mode, lower)
    if key not in step.modules:
        cast = nullcontext() if lower is None else torch.autocast(model._one.device.type, lower)
        with untraced(), own_errors():
            unit, weights = model._one, [model.weight(name) for name in model._paths]
            inputs = [
                torch.empty(shape, dtype=kind, device="meta")
                for shape, kind in zip(shapes, kinds, strict=True)
            ]
            plan = step.plan(names, [*inputs, *weights], tuple(model._paths), unit, *mode)
            with cast:
                step.modules[key] = plan.module()
    return True


def build_step(
    model: Compiled,
    data: Data,
    shapes: Shapes,
    dtype: torch.dtype,
    device: torch.device,
    apart: bool = False,
) -> Step:
    """`apart` for rows that are split by sample: classes and fused attention cross samples."""
    if data.demand is not None or not (apart or model.plan.has_all_rows):
        return to_device(_part(model, data, shapes, dtype, device), device)
    how = GroundingMode(lift=not apart and not data.hides, apart=apart)
    grounding = _grounding(model, data, shapes, dtype, device, how)
    return _all_rows(model, grounding, device, data.hides)


def joins_of(model: Compiled, data: Data) -> RecordedJoins:
    """The joins behind all that was built for data, joined again unless they are recorded."""
    again = copy(data)  # which has nothing built
    again.recorded = found = data.recorded or RecordedJoins()
    for shapes, dtype, device in data.built:
        with untraced():
            build_step(model, again, shapes, dtype, torch.device(device))
    return found


def build_samples(model: Compiled, data: Data, dtype: torch.dtype, device: torch.device) -> Step:
    """The step of which batches of samples are taken, each with the values that come with it."""
    how = GroundingMode(lift=False, bounded=False)
    return _all_rows(model, _grounding(model, data, (), dtype, device, how), device)


def _all_rows(
    model: Compiled,
    grounding: tuple[PlanGrounder, Without],
    device: torch.device,
    hides: frozenset[str] = frozenset(),
) -> Step:
    """`hides` are relations whose keys come with a step."""
    found = ground_all(*grounding)
    outputs = outputs_of(
        found.prepared, found.executable.relations, found.weights, model.fill, model._dense
    )
    made = Step(found.prepared, found.executable, outputs, without=model.without)
    if hides and found.prepared.samples is None:
        plan, constants = found.prepared.plan, found.prepared.constants
        grounder = Grounder(constants, dict(plan.domains), {}, model.limit)
        ruled = masked(found.executable, plan.rules, grounder, hides)
        if ruled is not None:
            made = replace(made, executable=ruled[0], masked=list(ruled[1]))
    return to_device(made, device)


@dataclass(frozen=True)
class GroundingMode:
    """How a plan is grounded: by classes of equal rows; `apart` for rows that are split by sample,
    `in_parts` if only parts are run; `bounded` by the memory for its values."""

    lift: bool = True
    apart: bool = False
    in_parts: bool = False
    bounded: bool = True


def _part(
    model: Compiled, data: Data, shapes: Shapes, dtype: torch.dtype, device: torch.device
) -> Step:
    """The step for some rows of the outputs: what they need of the plan for all rows."""
    origin = data if data.demand is None else data.demand.origin
    own = {n: tuple(t.shape) for n, t in dense(data.inputs).items() if n not in origin.inputs}
    every = tuple(sorted({**own, **dict(shapes)}.items()))
    key = (every, dtype, str(device))
    with ONE_AT_A_TIME:
        if key not in origin.parts:
            while len(origin.parts) >= PARTS:
                del origin.parts[next(iter(origin.parts))]
            how = GroundingMode(lift=False, in_parts=True)
            found = _grounding(model, origin, every, dtype, device, how)
            origin.parts[key] = Parts(*found, model.fill, model._dense, model.without)
    parts: Parts = origin.parts[key]
    if data.demand is None:
        return parts.step(None, None)
    return parts.step(data.demand.want, data.demand.choose)


def _grounding(
    model: Compiled,
    data: Data,
    shapes: Shapes,
    dtype: torch.dtype,
    device: torch.device,
    how: GroundingMode,
) -> tuple[PlanGrounder, Without]:
    """How a model is grounded on data, and how without some passes, if that differs."""
    inputs = data.inputs | {n: torch.empty(shape, device="meta") for n, shape in shapes}
    options = data, inputs, dtype, device, how

    def without(passes: tuple[str, ...]) -> PlanGrounder | None:
        every = (*model.without, *passes)
        plan, _ = optimise(model.stages["before passes"], without=every)
        return None if plan == model.plan else _bound(model, plan, every, *options)

    return _bound(model, model.plan, model.without, *options), without


def _bound(
    model: Compiled,
    plan: Plan,
    without: tuple[str, ...],
    data: Data,
    inputs: Mapping[str, Any],
    dtype: torch.dtype,
    device: torch.device,
    how: GroundingMode,
) -> PlanGrounder:
    """`without` are the passes that the plan has not gone through."""
    prepared = prepare(plan, model._reader.arities, inputs, data.facts, dtype, not how.apart)
    if has_negative_keys(prepared.sources):  # patterns count from 0, comparisons do not
        plan, _ = optimise(model.stages["before passes"], without=(*without, "find patterns"))
        prepared = prepare(plan, model._reader.arities, inputs, data.facts, dtype, not how.apart)
    if data.to_come:
        prepared = without_keys_beyond(prepared)
    else:
        check_keys(prepared)
    module: Any = model
    weights: Mapping[str, Tensor] = like(module, model._paths)
    if "stack embeddings" not in model.without:
        prepared = prepared.stacked(inputs, weights)
        weights = with_stacks(weights, prepared.stacks)
    values = values_of(prepared.plan, prepared.sources, dtype, device)
    options: dict[str, Any] = {
        "lift": how.lift and "lift equal rows" not in model.without,
        "in_parts": how.in_parts,
        "volatile": data.volatile,
        "memory": values if how.bounded else None,
        "found": model._shapes if recorder() is None else {},
        "recorded": data.recorded,
    }
    return PlanGrounder(prepared, weights, model.limit, options)

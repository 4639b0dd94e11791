"""One plan for all batches of grounded samples: lowered once, its constants gathered for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.joins.body import SAMPLES
from edgewise.kernels.edges import EdgeIndex, Grouping
from edgewise.layouts.ragged import Ints
from edgewise.physical.code import source_of
from edgewise.physical.lowering import to_device
from edgewise.physical.output import Output, Outputs
from edgewise.physical.plan import PhysicalPlan, Signature
from edgewise.physical.samples.axes import (
    SampleAxis,
    SomeSamples,
    axis_of,
    concatenated,
)
from edgewise.physical.samples.gathered_constants import Comparison, OfBatch, Same, Tuple, Unknown
from edgewise.physical.step import Executable, RelationStep, Step

ATTEMPTS = 3
LEAST = 8  # samples that are compared: with fewer, lengths of different things are equal


@dataclass(frozen=True, eq=False)
class LoweredBatch:
    """A batch that was joined and lowered: its step, its plan, and the names of its inputs."""

    step: Step
    plan: PhysicalPlan
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class GatheredCall:
    """A plan for one batch of samples."""

    run: Callable[..., Any]
    outputs: Outputs


@dataclass(frozen=True, eq=False)
class BatchTemplate:
    """A plan as code, and how each of its globals depends on the batch."""

    code: CodeType
    scope: Mapping[str, Any]
    varying: tuple[tuple[str, OfBatch], ...]
    axes: tuple[SampleAxis, ...]
    outputs: Outputs
    keys: tuple[tuple[OfBatch, OfBatch], ...]  # and dense axes, of each output
    names: tuple[str, ...]  # of inputs before the weights
    weights: Signature
    is_random: bool
    device: torch.device

    def call(self, numbers: Ints) -> GatheredCall | None:
        """The plan for these samples; None where one of its lists would be empty."""
        batch = SomeSamples(numbers)
        if not len(numbers) or not all(batch.total(axis) for axis in self.axes):
            return None
        scope = dict(self.scope)
        for name, part in self.varying:
            scope[name] = to_device(part.of(batch), self.device)
        parts = [
            replace(output, keys=keys.of(batch), sizes=sizes.of(batch), rows=None, places=None)
            for output, (keys, sizes) in zip(self.outputs.parts, self.keys, strict=True)
        ]
        outputs = Outputs(tuple(parts), self.outputs.names)
        return GatheredCall(FunctionType(self.code, scope), outputs)


def two_batches(samples: int, attempt: int) -> tuple[Ints, Ints]:
    """All samples, and all of them in another order, some several times."""
    first = np.arange(max(samples, min(LEAST, samples * LEAST))) % samples
    random = np.random.default_rng([samples, attempt])
    second = np.repeat(first, random.integers(1, 4, len(first)))
    return first, random.permutation(second)


def template(samples: int, lower: Callable[[Ints], LoweredBatch]) -> BatchTemplate | str:
    """What `lower` makes of batches of samples, for any of them; or why there is none."""
    reason, first = "there are no samples", None
    for attempt in range(ATTEMPTS if samples else 0):
        numbers, others = two_batches(samples, attempt)
        first = lower(numbers) if first is None else first
        try:
            return _compared(first, numbers, lower(others), others)
        except Unknown as found:
            reason = f"{found} depends on the batch in a way that is not known"
    return reason


def _compared(one: LoweredBatch, numbers: Ints, two: LoweredBatch, others: Ints) -> BatchTemplate:
    """The template of two batches; the second has samples of the first."""
    places = {int(sample): place for place, sample in reversed(list(enumerate(numbers)))}
    second = SomeSamples(np.array([places[int(sample)] for sample in others]))
    text, scope = source_of(one.plan.graph, one.plan.constants)
    other_text, other_scope = source_of(two.plan.graph, two.plan.constants)
    if text != other_text or one.names != two.names:
        raise Unknown("the order of operations")
    found = Comparison(_axes(one.step, len(numbers)), second)
    if any(axis.total == second.total(axis) for axis in found.axes.values()):
        raise Unknown("a length")
    lists = [list(_concatenated(each.plan)) for each in (one, two)]
    varying = _varying(found, scope, other_scope, list(zip(*lists, strict=True)))
    keys = tuple(
        _output(found, a, b)
        for a, b in zip(one.step.outputs.parts, two.step.outputs.parts, strict=True)
    )
    inner: dict[str, Any] = {}
    exec(compile(text, "<step>", "exec"), inner)  # as `function_of` does
    code: CodeType = inner["step"].__code__
    return BatchTemplate(
        code,
        {name: thing for name, thing in scope.items() if name not in dict(varying)},
        varying,
        tuple(found.axes.values()),
        one.step.outputs,
        keys,
        one.names,
        one.plan.signature[len(one.names) :],
        one.step.is_random,
        one.plan.device,
    )


def _varying(
    found: Comparison,
    one: Mapping[str, Any],
    two: Mapping[str, Any],
    lists: Sequence[tuple[list[int], list[int]]],
) -> tuple[tuple[str, OfBatch], ...]:
    """The globals that depend on the batch; lists first, which may have axes of their own."""
    sizes = [name for name, thing in one.items() if isinstance(thing, int | tuple | list)]
    things = [name for name in one if name not in sizes]
    made: dict[str, OfBatch] = {}
    waiting, before = things, len(things) + 1
    while waiting and len(waiting) < before:  # one may have the axis that another needs
        before, again = len(waiting), []
        _add_concatenations(found, lists)
        for name in waiting:
            try:
                a, b = (_on_cpu(each[name]) for each in (one, two))
                made[name] = _plain(a, b) or found.thing(a, b)
            except Unknown as unknown:
                again.append(name)
                last = unknown
        waiting = again
    if waiting:
        raise last
    made |= {name: found.size(one[name], two[name]) for name in sizes}
    return tuple((name, part) for name, part in made.items() if not _is_same(part))


def _on_cpu(thing: Any) -> Any:
    match thing:
        case Tensor():
            return thing.cpu()
        case EdgeIndex() | Grouping():
            return type(thing).of([tensor.cpu() for tensor in thing.tensors])
    return thing


def _plain(one: Any, two: Any) -> Same | None:
    """Functions, precisions and the like."""
    same = one is two or (
        isinstance(one, float | str | torch.dtype | torch.device) and repr(one) == repr(two)
    )
    return Same(one) if same else None


def _is_same(part: OfBatch) -> bool:
    return isinstance(part, Same) or (isinstance(part, Tuple) and all(map(_is_same, part.parts)))


def _output(found: Comparison, one: Output, two: Output) -> tuple[OfBatch, OfBatch]:
    """The keys of an output, and its dense axes."""
    plain = one.outside is None and two.outside is None and one.real is None
    ragged = one.sizes is not None and len(one.sizes) > 1
    if not plain or ragged or (one.sizes is None) != (two.sizes is None):
        raise Unknown("a dense output")
    keys = [found.tensor(a, b) for a, b in zip(one.keys, two.keys, strict=True)]
    sizes: OfBatch = Same(None) if one.sizes is None else found.size(one.sizes, two.sizes)
    return _Stacked(tuple(keys), one.keys), sizes


@dataclass(frozen=True, eq=False)
class _Stacked:
    """Keys, term by term."""

    columns: tuple[OfBatch, ...]
    like: Tensor

    def of(self, batch: SomeSamples) -> Tensor:
        if not self.columns:
            return self.like
        return torch.stack([column.of(batch) for column in self.columns])


def _add_concatenations(found: Comparison, lists: Sequence[tuple[list[int], list[int]]]) -> None:
    """Axes of lists that a plan concatenates, by their lengths in both batches."""
    for lengths, others in lists:
        pairs = zip(lengths, others, strict=True)
        parts = [next(found.sized(a, b), None) for a, b in pairs]
        if all(part is not None for part in parts):
            found.add(concatenated(part for part in parts if part is not None))


def _concatenated(plan: PhysicalPlan) -> Iterator[list[int]]:
    for node in plan.graph.nodes:
        if node.target is torch.cat and node.args[1:] == (1,):
            parts: Any = node.args[0]
            if all(isinstance(part, Node) for part in parts):
                yield [part.meta["like"].shape[1] for part in parts]


def _axes(step: Step, samples: int) -> list[SampleAxis]:
    """The rows of relations, the groundings and the heads of rules, by sample."""
    found = [SampleAxis(np.ones((1, samples), np.int64))]
    prepared, executable = step.prepared, step.executable

    def add(owners: Tensor) -> None:
        axis = axis_of(owners.cpu().numpy(), samples)
        if axis is not None and axis.total:
            found.append(axis)

    for name, index in executable.relations.items():
        if name in prepared.in_batch or name == SAMPLES:
            add(index.column(0))
    for ground in _grounds(executable):
        if ground.rule.head.relation in prepared.in_batch:
            owners = ground.heads.column(0)
            add(owners)
            add(owners[ground.segments.ids.cpu()])
            if ground.groups is not None:
                first = owners.new_zeros(ground.groups.count)
                add(first.index_copy_(0, ground.groups.ids.cpu(), owners))
    return found


def _grounds(executable: Executable) -> Iterator[GroundRule]:
    for part in executable.steps:
        if isinstance(part, RelationStep):
            yield from (step.ground for step in part.rules())

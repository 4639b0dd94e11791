"""A causal model whose rows come a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.grow.cache import Cache
from edgewise.grow.errors import BadAppend, Full
from edgewise.grow.plan import GrowingPlan, growing_plan
from edgewise.inputs.kinds import numbers
from edgewise.physical.column import Column
from edgewise.physical.executable import RelationStep
from edgewise.physical.output import Relation
from edgewise.physical.plan import PhysicalPlan, lowered, lowered_parts, untraced
from edgewise.physical.state import State
from edgewise.physical.step import Step
from edgewise.physical.symbols import Lowering
from edgewise.physical.weights import weights_changed

if TYPE_CHECKING:
    from edgewise.module import Model

FEW = 64  # rows: below, weights cost more than rows, and copying them side by side does not pay


class Growing:
    """Computes the rows that are appended, and caches what later rows attend to: a KV cache.

    Equal to computing all rows at once. `fixed` inputs are the same for every row, as the memory
    of a decoder is; everything that hangs on those alone is computed once.
    """

    def __init__(self, model: Model, capacity: int, fixed: Mapping[str, Any]) -> None:
        self.model = model
        self.cache = Cache(_whole(capacity, "capacity", 1))
        dense = {n: t for n, t in fixed.items() if _is_dense(t)}
        others = {n: t for n, t in fixed.items() if n not in dense}
        self._given: dict[str, Any] = dense
        self._data = model.ground(**others) if others else None
        self._batched: set[str] = set()
        self._names: tuple[str, ...] = ()
        self._batch: int | None = None
        self._constant: dict[str, Tensor] = {}
        self._mark = model._mark()
        self._weights = model._weights()
        self._ready: dict[PhysicalPlan, Callable[..., Tensor]] = {}

    @property
    def length(self) -> int:
        """The number of rows so far."""
        return self.cache.length

    @property
    def capacity(self) -> int:
        return self.cache.capacity

    def __call__(self, **inputs: Any) -> Tensor | Relation:
        """The output at the new rows: its growing axis is as long as theirs."""
        with torch.no_grad():
            return self._appended(inputs)

    def _appended(self, inputs: dict[str, Any]) -> Tensor | Relation:
        self._refuse_changed()
        step, values = self.model._resolved(self._data, self._given | inputs)
        rows = self._rows(step, inputs)
        self._batched = {n for n in self._given if step.executable.sources[n].batched}
        unit = self.model._one
        ready = growing_plan(step, inputs, self.capacity, self.model.limit, unit.device)
        self.cache.relations, self.cache.tables = ready.axes.kept, ready.tables
        self.cache.rows = rows
        found = self._computed(step, ready, values)
        self.cache.appended()
        return step.output.shown(found, False)

    def _refuse_changed(self) -> None:
        """What is kept holds for the weights it was computed with."""
        now = self.model._mark()
        if now == self._mark:
            return
        if self.length:
            raise weights_changed("model.growing(capacity)")
        self.cache.buffers.clear()
        self._constant.clear()
        self._ready.clear()
        self._mark, self._weights = now, self.model._weights()

    def _computed(self, step: Step, ready: GrowingPlan, values: dict[str, Tensor]) -> Tensor:
        """The output for the rows that are appended; what is the same for all, once."""
        unit, weights = self.model._one, self._weights
        if not ready.axes.fixed <= set(self._constant):
            given = [*values.values(), *weights.values()]
            if ready.fixed is None or not ready.fixed.fits(given):
                with untraced():
                    ready.fixed = self._fixed_plan(step, ready, values)
            self._constant.update(zip(ready.fixed_names(step), ready.fixed(*given), strict=True))
        places = torch.arange(self.length, self.length + self.cache.rows, device=unit.device)
        rest = [places, *self._constant.values()]
        given = [*values.values(), *weights.values(), *rest]
        if ready.plan is None or not ready.plan.fits(given):
            with untraced():
                ready.plan = self._plan(step, ready, values, rest)
        if ready.plan not in self._ready:
            held = dict(enumerate(weights.values(), len(values)))
            self._ready[ready.plan] = ready.plan.bound(held).function
        return self._ready[ready.plan](*values.values(), *rest, self.cache)

    def _fixed_plan(
        self, step: Step, ready: GrowingPlan, values: Mapping[str, Tensor]
    ) -> PhysicalPlan:
        names = ready.fixed_names(step)

        def run(lowering: Lowering, symbols: Sequence[Tensor]) -> dict[str, Tensor]:
            state = self._state(step, values, symbols, lowering)
            for part in step.executable.steps:
                assert isinstance(part, RelationStep)  # others cannot grow
                if part.relation in names:
                    state.relations.update(part(state))
            return {name: state.relations[name].data for name in names}

        given = {**values, **self._weights}
        return lowered_parts(run, list(given), list(given.values()), self.model._one.device)[0]

    def _plan(
        self, step: Step, ready: GrowingPlan, values: Mapping[str, Tensor], rest: Sequence[Tensor]
    ) -> PhysicalPlan:
        fixed = tuple(self._constant)

        def run(lowering: Lowering, symbols: Sequence[Tensor]) -> Tensor:
            lowering.argument("cache", self.cache)
            state = self._state(step, values, symbols, lowering)
            left = iter(symbols[len(values) + len(self._weights) :])
            state.cache, state.places = self.cache, next(left)
            state.relations.update((name, Column(next(left))) for name in fixed)
            for part in step.executable.steps:
                assert isinstance(part, RelationStep)
                if part.relation in ready.axes.place:
                    state.relations.update(part(state))
            return step.output.tensor(state.relations[step.output.relation], False)

        names = [*values, *self._weights, "places", *fixed]
        given = [*values.values(), *self._weights.values(), *rest]
        few, device = self.cache.rows < FEW, self.model._one.device
        return lowered(run, names, given, device, without=step.without, few_rows=few)

    def _state(
        self,
        step: Step,
        values: Mapping[str, Tensor],
        symbols: Sequence[Tensor],
        lowering: Lowering,
    ) -> State:
        left, unit = iter(symbols), self.model._one
        inputs, weights = ({n: next(left) for n in names} for names in (values, self._weights))
        return step.state(inputs, weights, unit.dtype, unit.device, self.model.training, lowering)

    def take(self, samples: Tensor) -> None:
        """Go on with these samples of the batch, in this order; one may come several times."""
        if self._batch is None:
            raise BadAppend("there is no batch yet", caller(), "append rows first")
        _refuse_samples(samples, self._batch)
        for name in self._batched:
            self._given[name] = _selected(self._given[name], samples)
        for name, kept in self._constant.items():
            if kept.shape[0] > 1:
                self._constant[name] = kept.index_select(0, samples)
        self.cache.take(samples, self._batch)
        self._batch = len(samples)

    def crop(self, length: int) -> None:
        """Forget the rows from `length` on."""
        if _whole(length, "length", 0) > self.length:
            raise BadAppend(
                f"there are {self.length} rows, not {length}", caller(), "crop to fewer rows"
            )
        self.cache.length = length

    def _rows(self, step: Step, inputs: Mapping[str, Any]) -> int:
        sources = step.executable.sources
        if not inputs or (self._names and set(inputs) != set(self._names)):
            wanted = " and ".join(f"`{n}`" for n in self._names or self.model.inputs)
            raise BadAppend("the inputs that grow change", caller(), f"give {wanted} at every call")
        lengths = {name: sources[name].index.length(0) for name in inputs}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise BadAppend(f"the new rows differ in number ({shown})", caller(), "give one number")
        rows = next(iter(lengths.values()))
        if not rows:
            raise BadAppend("there are no rows to append", caller(), "give at least one")
        batch = max(sources[name].batch for name in inputs)
        if self._batch not in (None, batch):
            raise BadAppend(
                f"the batch has {batch} samples and had {self._batch}",
                caller(),
                "go on with some of the samples by `growing.take(samples)`",
            )
        if self.length + rows > self.capacity:
            raise Full(
                f"{self.length} rows and {rows} more exceed the capacity of {self.capacity}",
                caller(),
                f"start with `model.growing({2 * (self.length + rows)})`",
            )
        self._names, self._batch = tuple(inputs), batch
        return rows


def _refuse_samples(samples: Any, batch: int) -> None:
    whole = isinstance(samples, Tensor) and samples.dtype in (torch.int64, torch.int32)
    if not whole or samples.ndim != 1 or not len(samples):
        raise BadAppend(
            "the samples to go on with are not a list of numbers",
            caller(),
            "give their numbers: `growing.take(torch.tensor([0, 0, 1]))`",
        )
    outside = samples[(samples < 0) | (samples >= batch)]
    if len(outside):
        raise BadAppend(
            f"there is no sample {int(outside[0])} among {batch}", caller(), "count from 0"
        )


def _is_dense(item: Any) -> bool:
    return isinstance(item, numbers) or (isinstance(item, Tensor) and item.is_floating_point())


def _selected(item: numbers | Tensor, samples: Tensor) -> numbers | Tensor:
    if isinstance(item, numbers):
        return numbers(item.values.index_select(0, samples))
    return item.index_select(0, samples)


def _whole(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadAppend(
            f"`{name}` is {value!r}", caller(), f"give a whole number of at least {least}"
        )
    return value

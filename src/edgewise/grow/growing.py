"""A causal model to which rows are appended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, counted, safe_repr
from edgewise.grow.axes import CAUSAL_EXAMPLE, CannotGrow
from edgewise.grow.cache import KeyValueCache
from edgewise.grow.history import InputHistory, furthest
from edgewise.grow.masks import DataMask, causal_mask, data_masks, lengthened
from edgewise.grow.plan import IncrementalPlan, incremental_plan
from edgewise.inputs.kinds import InputLike, numbers
from edgewise.notebook import bar
from edgewise.physical.plan import PhysicalPlan
from edgewise.physical.relation import Relation
from edgewise.physical.step import Step
from edgewise.physical.weights import weights_changed

if TYPE_CHECKING:
    from edgewise.module import Model


class Full(EdgewiseError):
    """Keys and values are cached in buffers that are allocated once, for `capacity` rows."""

    code = "cache-full"
    example = f"{CAUSAL_EXAMPLE}\nProgram(rules).compile(R.h).growing(2)(x=torch.ones(3, 4))"
    instead = f"{CAUSAL_EXAMPLE}\nProgram(rules).compile(R.h).growing(8)(x=torch.ones(3, 4))"


class BadAppend(EdgewiseError):
    """Appended rows continue those before: the same inputs, the same batch."""

    code = "bad-append"
    example = f"""\
{CAUSAL_EXAMPLE}
growing = Program(rules).compile(R.h).growing(8)
growing(x=torch.ones(2, 3, 4))
growing(x=torch.ones(1, 3, 4))"""
    instead = f"""\
{CAUSAL_EXAMPLE}
growing = Program(rules).compile(R.h).growing(8)
growing(x=torch.ones(2, 3, 4))
growing(x=torch.ones(2, 3, 4))"""


class Growing:
    """Computes the rows that are appended, and caches what later rows attend to: a KV cache.

    Equal to computing all rows at once. `fixed` inputs are the same for every row, as the memory
    of a decoder is; what depends on those alone is computed once.

    >>> import torch
    >>> from edgewise import F, Program, R, V
    >>> rules = [
    ...     (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), V.J <= V.I))
    ...     | [F.product, F.softmax_agg(agg_terms=[V.J])],
    ...     (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ... ]
    >>> growing = Program(rules).compile(R.h).growing(8)
    >>> growing(x=torch.ones(3, 4)).shape, growing(x=torch.ones(1, 4)).shape, growing
    (torch.Size([3, 4]), torch.Size([1, 4]), <growing: 4 of 8 rows>)
    >>> growing.edit(1, 2, x=torch.zeros(1, 4)).shape  # row 1, and what it changes
    torch.Size([3, 4])
    >>> growing.crop(1)
    >>> growing.length
    1

    Samples of a batch may be repeated, reordered or left out, as beam search does:

    >>> growing = Program(rules).compile(R.h).growing(8)
    >>> _ = growing(x=torch.randn(2, 3, 4))
    >>> growing.take([1, 1, 0])
    >>> growing(x=torch.randn(3, 1, 4)).shape
    torch.Size([3, 1, 4])
    """

    def __init__(self, model: Model, capacity: int, fixed: Mapping[str, Any]) -> None:
        self.model = model
        self.cache = KeyValueCache(_checked_integer(capacity, "capacity", 1))
        self._fixed: dict[str, Any] = {n: t for n, t in fixed.items() if _is_dense(t)}
        if not model.plan.is_one_relation:
            raise CannotGrow(
                "the model was compiled for several outputs, or some rows of one",
                caller(),
                f"compile it for one relation: `compile(R.{model.plan.outputs[0].relation})`",
            )
        others = {n: t for n, t in fixed.items() if n not in self._fixed}
        self._data = model.ground(**others) if others else None
        self._every = model.ground(**others) if others else None  # with keys of rows to come
        self._masks: dict[str, DataMask] | None = None
        if self._data is not None:
            self._data.to_come = True
        self._batched: set[str] = set()
        self._names: tuple[str, ...] = ()
        self._batch: int | None = None
        self._static: dict[str, Tensor] = {}
        self._mark = model._mark()
        self._weights = model._weights()
        self._functions: dict[PhysicalPlan, Callable[..., Tensor]] = {}
        self._history = InputHistory()
        self._axes: dict[str, int] = {}
        self._reach: float | None = None
        self.computed = 0  # rows of the last call

    @property
    def length(self) -> int:
        """The number of rows so far."""
        return self.cache.length

    @property
    def capacity(self) -> int:
        return self.cache.capacity

    def __repr__(self) -> str:
        return f"<growing: {self.cache.length:,} of {self.cache.capacity:,} rows>"

    def _repr_html_(self) -> str:
        output = self.model.plan.outputs[0].relation
        caption = f"{output} grows: {self.length:,} of {self.capacity:,} rows are cached"
        return bar(self.length / self.capacity, f"{caption}, {self.computed:,} by the last call")

    def __call__(self, *unnamed: Never, **inputs: Any) -> Tensor | Relation:
        """The output at the new rows: its growing axis is as long as theirs."""
        if unnamed:
            raise self.model._reader.unnamed(type(unnamed[0]).__name__, "growing")
        with torch.no_grad():
            return self._append(inputs)

    def _append(self, inputs: dict[str, Any]) -> Tensor | Relation:
        self._refuse_changed_weights()
        model, cache = self.model, self.cache
        step, values = self._resolved(inputs)
        cache.rows = self._checked_rows(step, inputs)
        self._batched = {n for n in self._fixed if step.executable.sources[n].batched}
        cache.masks = self._data_masks(step, inputs)
        plan = incremental_plan(
            step, inputs, self.capacity, model.limit, model._one, model.training, cache.masks
        )
        cache.relations, cache.tables = plan.axes.cached, plan.tables
        self._axes = plan.axes.axis
        found = self._computed(plan, values)
        cache.commit()
        sources = step.executable.sources
        self._history.append(inputs, {name: int(sources[name].batched) for name in inputs})
        self.computed = cache.rows
        return step.output.shown(found, False)

    def _resolved(self, inputs: dict[str, Any]) -> tuple[Step, dict[str, Tensor]]:
        return self.model._resolved(self._data, self._fixed | inputs)

    def _data_masks(self, step: Step, inputs: Mapping[str, Any]) -> dict[str, DataMask]:
        """The masks that data given from the start decides, for all rows that may come."""
        if self._masks is None:
            self._masks = {}
            if self._every is not None and self._every.samples is None:
                axes = {name: int(step.executable.sources[name].batched) for name in inputs}
                longer = lengthened(inputs, axes, self.capacity)
                every, _ = self.model._resolved(self._every, self._fixed | longer)
                masks = data_masks(every)
                self._masks = {n: causal_mask(one, self.capacity) for n, one in masks.items()}
        return self._masks

    def _refuse_changed_weights(self) -> None:
        """What is cached holds for the weights it was computed with."""
        now = self.model._mark()
        if now == self._mark:
            return
        if self.length:
            raise weights_changed("model.growing(capacity)")
        self.cache.buffers.clear()
        self._static.clear()
        self._functions.clear()
        self._mark, self._weights = now, self.model._weights()

    def _computed(self, plan: IncrementalPlan, values: dict[str, Tensor]) -> Tensor:
        """The output at the new rows."""
        weights, cache = self._weights, self.cache
        if not self._static.keys() >= set(plan.static):
            found = plan.static_plan(values, weights)(*values.values(), *weights.values())
            self._static.update(zip(plan.static, found, strict=True))
        unit, first, static = self.model._one, self.length, self._static
        positions = torch.arange(first, first + cache.rows, device=unit.device)
        appended = plan.appended_plan(values, weights, positions, static, cache)
        if appended not in self._functions:
            bound = dict(enumerate(weights.values(), len(values)))
            self._functions[appended] = appended.bound(bound)
        return self._functions[appended](*values.values(), positions, *static.values(), cache)

    def edit(
        self, start: int, stop: int | None = None, **inputs: InputLike
    ) -> Tensor | Relation | None:
        """Put other rows in the place of `start` to `stop`; the output at the rows from `start` on
        that are recomputed (`computed` says how many), None if there are none.

        As many rows as before change only those that they reach: in a model of windows, not all
        that follow. More or fewer move all that follow, which are then recomputed. Without
        `inputs`, rows are removed.
        """
        start = _checked_integer(start, "start", 0)
        history, length = self._history, self.length
        rows = self._edited_rows(inputs)
        stop = start + rows if stop is None else _checked_integer(stop, "stop", 0)
        if not start <= stop <= length:
            raise BadAppend(
                f"there are {length} rows, and no rows {start} to {stop} among them",
                caller(),
                "edit rows that were appended: `0 <= start <= stop <= growing.length`",
            )
        every = history.replaced(start, stop, inputs) if length else {}
        last = length - (stop - start) + rows
        end = last
        if rows == stop - start:
            end = int(min(last, start + rows + self._furthest()))
        if not rows and (stop == length or start == stop):
            self.crop(start if stop == length else length)
            self.computed = 0
            return None
        return self._again(every, start, end, last)

    def _edited_rows(self, inputs: Mapping[str, Any]) -> int:
        """How many rows an edit gives, if they are like those that were appended."""
        if not inputs:
            return 0
        names = self._history.parts
        if set(inputs) != set(names):
            wanted = " and ".join(f"`{n}`" for n in names)
            what = f"give {wanted}" if wanted else "append rows first"
            raise BadAppend("the inputs of an edit are not those that grow", caller(), what)
        history, counts = self._history, set()
        for name, every in history.all().items():
            item, axis = inputs[name], history.axes[name]
            values = item.values if isinstance(item, numbers) else item
            alike = isinstance(item, numbers) == (name in history.integers)
            if not alike or not isinstance(values, Tensor) or values.ndim != every.ndim:
                raise _unlike(name, values, every)
            shapes = [list(values.shape), list(every.shape)]
            counts.add(shapes[0].pop(axis))
            shapes[1].pop(axis)
            if shapes[0] != shapes[1] or values.dtype != every.dtype:
                raise _unlike(name, values, every)
        if len(counts) != 1:
            what = "the inputs have different numbers of new rows"
            raise BadAppend(what, caller(), "give as many of each")
        return int(counts.pop())

    def _again(
        self, every: Mapping[str, Tensor], start: int, end: int, last: int
    ) -> Tensor | Relation:
        """Compute the rows from `start` to `end` again; those behind, up to `last`, stay."""
        before = self.cache.length, self._history
        self.cache.length = start
        self._history = before[1].restarted(before[1].between(every, 0, start))
        try:
            with torch.no_grad():
                found = self._append(before[1].as_inputs(before[1].between(every, start, end)))
        except BaseException:
            self.cache.length, self._history = before
            raise
        self.cache.length = last
        self._history = before[1].restarted(every)
        return found

    def _furthest(self) -> float:
        if self._reach is None:
            self._reach = furthest(self.model.program, self._names, self._axes)
        return self._reach

    def take(self, samples: Tensor | Sequence[int]) -> None:
        """Continue with these samples of the batch, in this order; one may come several times."""
        if self._batch is None:
            raise BadAppend("there is no batch yet", caller(), "append rows first")
        samples = _checked_samples(samples, self._batch).to(self.model._one.device)
        for name in self._batched:
            self._fixed[name] = selected(self._fixed[name], samples)
        for name, value in self._static.items():
            if value.shape[0] > 1:
                self._static[name] = value.index_select(0, samples)
        self.cache.take(samples, self._batch)
        self._history = self._history.taken(samples)
        self._batch = len(samples)

    def crop(self, length: int) -> None:
        """Drop the rows from `length` on."""
        if _checked_integer(length, "length", 0) > self.length:
            raise BadAppend(
                f"there are {self.length} rows, not {length}", caller(), "crop to fewer rows"
            )
        self.cache.length = length
        if self._names:
            self._history = self._history.cropped(length)

    def _checked_rows(self, step: Step, inputs: Mapping[str, Any]) -> int:
        """The number of new rows, if they continue those before."""
        sources = step.executable.sources
        if not inputs or (self._names and set(inputs) != set(self._names)):
            wanted = " and ".join(f"`{n}`" for n in self._names or self.model.inputs)
            raise BadAppend(
                "earlier rows had other inputs", caller(), f"give {wanted} at every call"
            )
        lengths = {name: sources[name].index.length(0) for name in inputs}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            what = f"the inputs have different numbers of new rows ({shown})"
            raise BadAppend(what, caller(), "give as many of each")
        rows = next(iter(lengths.values()))
        if not rows:
            raise BadAppend("there are no rows to append", caller(), "give at least one")
        batch = max(sources[name].batch for name in inputs)
        if self._batch not in (None, batch):
            raise BadAppend(
                f"the batch has {counted(batch, 'sample')}, earlier rows had {self._batch}",
                caller(),
                "continue with some of the samples by `growing.take(samples)`",
            )
        if self.length and (other := self._history.unlike(inputs)) is not None:
            raise _unlike(*other)
        if self.length + rows > self.capacity:
            raise Full(
                f"{self.length} rows and {rows} more exceed the capacity of {self.capacity}",
                caller(),
                f"start with `model.growing({2 * (self.length + rows)})`",
            )
        self._names, self._batch = tuple(inputs), batch
        return rows


def _checked_samples(samples: Any, batch: int) -> Tensor:
    if isinstance(samples, list | tuple) and all(type(n) is int for n in samples):
        samples = torch.tensor(samples, dtype=torch.int64)
    integers = isinstance(samples, Tensor) and samples.dtype in (torch.int64, torch.int32)
    if not integers or samples.ndim != 1 or not len(samples):
        raise BadAppend(
            "`samples` is not a list of integers",
            caller(),
            "give their numbers: `growing.take([0, 0, 1])`",
        )
    outside = samples[(samples < 0) | (samples >= batch)]
    if len(outside):
        raise BadAppend(
            f"there is no sample {int(outside[0])} among {batch}", caller(), "count from 0"
        )
    return samples


def _unlike(name: str, values: Any, every: Tensor) -> BadAppend:
    def shown(item: Any) -> str:
        if not isinstance(item, Tensor):
            return type(item).__name__
        return f"{item.dtype} of shape {tuple(item.shape)}"

    return BadAppend(
        f"the new rows of `{name}` are {shown(values)}, those so far {shown(every)}",
        caller(),
        "give rows like those that were appended, for all samples of the batch",
    )


def _is_dense(item: Any) -> bool:
    return isinstance(item, numbers) or (isinstance(item, Tensor) and item.is_floating_point())


def selected(item: numbers | Tensor, samples: Tensor) -> numbers | Tensor:
    """Some samples of a batch."""
    if isinstance(item, numbers):
        return numbers(item.values.index_select(0, samples))
    return item.index_select(0, samples)


def _checked_integer(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadAppend(
            f"`{name}` is {safe_repr(value)}", caller(), f"give an integer of at least {least}"
        )
    return value

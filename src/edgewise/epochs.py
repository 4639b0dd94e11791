"""Many updates by one call: the samples of a training step, prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.inputs.errors import BadInput
from edgewise.physical.data import Data
from edgewise.physical.gradients import Gradients

if TYPE_CHECKING:
    from edgewise.descent import TrainingStep

Sample = tuple[Data | None, tuple[Any, ...], dict[str, Any]]


class Epoch:
    """`epoch()` is `step(data, *targets, **inputs)` for each sample in order; returns the losses.

    Once every sample is compiled and the optimiser is plain gradient descent, what a step checks
    for each sample is checked once for all.
    """

    def __init__(self, step: TrainingStep, samples: Iterable[Any]) -> None:
        self.step = step
        self.samples = [_read(sample) for sample in samples]
        self._ready: _Prepared | None = None

    def __call__(self) -> Tensor:
        losses: list[Tensor] = []
        if self._ready is not None:
            rate = self._ready.rate(self.step)
            if rate is not None:
                losses = self._ready.run(rate)
            if len(losses) < len(self.samples):
                self._ready = None
        compiled = self._ready is None
        for data, targets, inputs in self.samples[len(losses) :]:
            losses.append(self.step(data, *targets, **inputs))
            compiled = compiled and self.step.plain is None
        if compiled and self.samples:
            self._ready = _prepared(self.step, self.samples)
        return torch.stack(losses) if losses else torch.zeros(0)


def _read(sample: Any) -> Sample:
    """`(data, *targets)`, with a dictionary of inputs at the end where there are some."""
    parts = sample if isinstance(sample, tuple) else ()
    *targets, last = parts[1:] or (None,)
    inputs = last if isinstance(last, dict) else {}
    if not parts or not (parts[0] is None or isinstance(parts[0], Data)):
        raise BadInput(
            f"expected a sample as a tuple, got {type(sample).__name__}",
            caller(),
            "write `(data, target)`, or `(None, target, {'x': x})` with inputs",
        )
    return parts[0], tuple(targets) if isinstance(last, dict) else parts[1:], inputs


class _Prepared:
    """Calls with all their tensors, as long as weights and modes stay."""

    def __init__(
        self,
        weights: list[Tensor],
        calls: list[tuple[Callable[..., Any], list[Tensor]]],
        tensors: list[Tensor],
        last: Gradients,
        mark: tuple[Any, ...],
    ) -> None:
        self.weights, self.calls, self.tensors = weights, calls, tensors
        self.last, self.mark = last, mark

    def rate(self, step: TrainingStep) -> Tensor | None:
        """The learning rate, if all is as it was; None where samples have to be looked at again."""
        current, rate = step.model._slots.tensors(), step.rate()
        if rate is None or current is None or not all(map(is_, current, self.weights)):
            return None
        if _mark(step, self.weights) != self.mark:
            return None
        return None if step.refuses(self.tensors, self.weights, ()) else rate

    def run(self, rate: Tensor) -> list[Tensor]:
        """The losses of the samples, up to one that raises an error: a step shows which."""
        losses: list[Tensor] = []
        found: Sequence[Tensor] = ()
        with torch.no_grad():
            try:
                for compiled, tensors in self.calls:
                    value, *found = compiled(*tensors, rate)
                    losses.append(value)
            except Exception:
                return losses
            finally:
                if losses:
                    self.last.store(self.weights, found, updated=True)
        return losses


def _mark(step: TrainingStep, weights: Sequence[Tensor]) -> tuple[Any, ...]:
    """What compiled code depends on beside the samples."""
    model, unit = step.model, step.model._one
    kinds = [(w.shape, w.dtype, w.stride(), w.requires_grad) for w in weights]
    return (model.training, model.check, unit.dtype, unit.device, *kinds)


def _prepared(step: TrainingStep, samples: Sequence[Sample]) -> _Prepared | None:
    """The calls of samples; None where one of them is not compiled with its update."""
    calls: list[tuple[Callable[..., Any], list[Tensor]]] = []
    tensors: list[Tensor] = []
    for data, targets, inputs in samples:
        found = step.compiled(data, targets, inputs)
        if found is None or (data is not None and data._seen):
            return None
        gradients, values, weights, constants = found
        call = gradients.prepared(targets)
        if call is None:
            return None
        compiled, read = call
        calls.append((compiled, [*values, *weights, *constants, *read]))
        tensors += [*values, *targets]
    return _Prepared(weights, calls, tensors, gradients, _mark(step, weights))

"""Many updates by one call: the samples of a training step, prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.inputs.errors import BadInput
from edgewise.kernels.kernel_choices import no_numba
from edgewise.kernels.tape import NotRecordedError, TapeTraining, optimiser_options
from edgewise.kernels.tape.training import MOST_COMPUTED
from edgewise.physical.data import Data
from edgewise.physical.gradients import Gradients, is_pure_loss

if TYPE_CHECKING:
    from edgewise.descent import TrainingStep

PLAIN_CALLS = 1  # of samples, after which it is known how they are computed

Sample = tuple[Data | None, tuple[Any, ...], dict[str, Any]]


class Epoch:
    """`epoch()` is `step(data, *targets, **inputs)` for each sample in order; returns the losses.

    From the second call on, samples of small networks are on a tape, if the loss is a function of
    torch and the optimiser gradient descent, Adam or AdamW: all updates are one loop. Otherwise,
    once every sample is compiled and the optimiser is plain gradient descent, what a step checks
    for each sample is checked once for all.
    """

    def __init__(self, step: TrainingStep, samples: Iterable[Any]) -> None:
        self.step = step
        self.samples = [_read(sample) for sample in samples]
        self._ready: _Prepared | None = None
        self._tape: _Taped | None = None
        self._calls = 0

    def __call__(self) -> Tensor:
        self._calls += 1
        if self._calls == PLAIN_CALLS + 1 and self._ready is None:
            self._tape = _taped(self.step, self.samples)
        if self._tape is not None:
            found = self._tape.run()
            if found is not None:
                return found
            self._tape = None
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
        """The learning rate, if nothing has changed; None where samples must be checked again."""
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


class _Taped:
    """All samples on a tape, as long as they, weights and modes stay."""

    def __init__(
        self, step: TrainingStep, weights: list[Tensor], read: list[Tensor], training: TapeTraining
    ) -> None:
        self.step, self.weights, self.read, self.training = step, weights, read, training
        self.versions = [tensor._version for tensor in read]
        self.mark = _mark(step, weights)

    def run(self) -> Tensor | None:
        """The losses of an epoch; None where something has changed."""
        step, current = self.step, self.step.model._slots.tensors()
        if current is None or not all(map(is_, current, self.weights)):
            return None
        if [tensor._version for tensor in self.read] != self.versions:
            return None
        if not step.is_plain_update() or _mark(step, self.weights) != self.mark:
            return None
        if step.refuses(self.read, self.weights, ()) is not None:
            return None
        try:
            self.training.updates(step.optimiser)
        except NotRecordedError:  # by options of the optimiser, before anything was updated
            return None
        gradients = self.training.gradients(-1)
        for at, weight in enumerate(self.weights):
            weight.grad = gradients.get(at)
        return self.training.last_losses()


def _taped(step: TrainingStep, samples: Sequence[Sample]) -> _Taped | None:
    """Samples on a tape; None where they cannot be, or are not small: recording takes long."""
    if not samples or no_numba("cpu") or not is_pure_loss(step.loss) or not step.is_plain_update():
        return None
    calls: list[Callable[[], tuple[Tensor, list[Tensor]]]] = []
    read: list[Tensor] = []
    current: list[Tensor] = []
    for data, targets, inputs in samples:
        found = step.ready(data, targets, inputs)
        if found is None or (data is not None and data._seen):
            return None
        layout, values, current = found
        arguments = [*values, *current, *layout.tensors]

        def call(
            forward: Any = layout.function, arguments: Any = arguments, targets: Any = targets
        ) -> tuple[Tensor, list[Tensor]]:
            loss: Tensor = step.loss(forward(*arguments), *targets)
            return loss.reshape(()), []

        calls.append(call)
        read += [*values, *targets]
    try:
        optimiser_options(step.optimiser, current)
        if TapeTraining(current, calls[:1]).numbers * len(calls) > MOST_COMPUTED:
            return None
        return _Taped(step, current, read, TapeTraining(current, calls))
    except NotRecordedError:
        return None


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

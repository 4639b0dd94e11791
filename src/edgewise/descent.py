"""A step of training as one compiled function: forward, loss, gradients and descent."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from edgewise.errors import EdgewiseError, caller
from edgewise.inputs.kinds import BadInput
from edgewise.module import Data, Model
from edgewise.physical.plan import PhysicalPlan
from edgewise.physical.step import Step
from edgewise.physical.tracing import autocasts

Loss = Callable[..., Tensor]
Stepped = tuple[Tensor, list[Tensor]]  # the loss, and weights that are still to be written
# Whether what torch compiles may write weights: 2.11 writes some before other gradients read them.
WRITES = TorchVersion(torch.__version__) >= "2.13"
# what is compiled is the same for every call by `_Sample.alike`, so torch need not look again
UNGUARDED: dict[str, Any] = {
    "guard_filter_fn": lambda found: [False] * len(found),
    "cpp_wrapper": True,
}


class NotAlike(EdgewiseError):
    """A compiled step of training is one sequence of operations, the same for every sample."""

    code = "not-alike"
    example = """\
model = Program([(R.h <= R.a["w": 2, 1]) | [F.call(torch.nn.Tanh())]]).compile(R.h)
descend = compiled_descent(model, torch.nn.functional.mse_loss, lr=0.1)
descend(model.ground(facts=[R.a[1.0]]), torch.zeros(2))"""
    instead = """\
model = Program([(R.h <= R.a["w": 2, 1]) | [F.tanh]]).compile(R.h)
compiled_descent(model, torch.nn.functional.mse_loss, lr=0.1)"""


class BadTarget(EdgewiseError):
    """A loss compares an output with targets that fit it: none is repeated to fit."""

    code = "bad-target"
    example = """\
model = Program([R.h <= R.a["w": 2, 1]]).compile(R.h)
descend = compiled_descent(model, torch.nn.functional.mse_loss, lr=0.1)
descend(model.ground(facts=[R.a[1.0]]), torch.zeros(1))"""
    instead = """\
model = Program([R.h <= R.a["w": 2, 1]]).compile(R.h)
descend = compiled_descent(model, torch.nn.functional.mse_loss, lr=0.1)
descend(model.ground(facts=[R.a[1.0]]), torch.zeros(2))"""


def compiled_descent(model: Model, loss: Loss, *, lr: float) -> Descent:
    """`descend(sample, *targets)`: one step of gradient descent, compiled; gives the loss.

    It does what `loss(model(sample), *targets).backward()` and a step of `torch.optim.SGD` do, at
    a fraction of the cost where samples are small. Samples are laid out alike: `model.samples`.
    A model that is moved, or given other weights, needs a new one.
    """
    if not isinstance(model, Model):
        raise BadInput(
            f"a {type(model).__name__} is no compiled model",
            caller(),
            "write `compiled_descent(program.compile(R.h), loss, lr=0.1)`",
        )
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not math.isfinite(lr):
        raise BadInput(f"`lr` is {lr!r}", caller(), "give a number: `lr=0.1`")
    return Descent(model, loss, lr)


@dataclass(frozen=True, eq=False)
class _Sample:
    """A sample as its operations, its constants in two tensors: every argument of a call costs."""

    data: Data
    plan: PhysicalPlan
    numbers: Tensor
    keys: Tensor

    def alike(self, other: _Sample) -> bool:
        return self.plan.text == other.plan.text and self.shapes == other.shapes

    @property
    def shapes(self) -> list[tuple[torch.Size, torch.dtype]]:
        return [(c.shape, c.dtype) for c in self.plan.tensors]


class Descent:
    """A compiled step of training; `lr` may change between calls."""

    def __init__(self, model: Model, loss: Loss, lr: float) -> None:
        self.model = model
        self.loss = loss
        self.lr = lr
        self._rate = torch.tensor(lr, dtype=torch.float64)
        self._samples: dict[tuple[int, bool], _Sample] = {}
        self._made: dict[Any, tuple[_Sample, Callable[..., Stepped]]] = {}
        weights = [model.weight(name) for name in model._paths]
        self._learns = [w.requires_grad for w in weights]
        self._learnt = [w.detach() for w in weights if w.requires_grad]  # the same storage
        self._fixed = [w.detach() for w in weights if not w.requires_grad]

    def __call__(self, sample: Data, *targets: Tensor) -> Tensor:
        training = self.model.training
        for target in targets:
            if not isinstance(target, Tensor):
                raise BadTarget(
                    f"a {type(target).__name__} is no target",
                    caller(),
                    "give tensors: `descend(sample, torch.tensor([1.0]))`",
                )
        kinds = (training, *((t.shape, t.dtype, t.device) for t in targets))
        found = self._samples.get((id(sample), training))
        if found is None or kinds not in self._made:
            found = self._new(sample, targets, kinds)
        if self.lr != self._rate:
            self._rate = torch.tensor(self.lr, dtype=torch.float64)
        update = self._made[kinds][1]
        constants = (found.numbers, found.keys)
        value, after = update(self._learnt, self._fixed, *constants, self._rate, targets)
        if after:
            torch._foreach_copy_(self._learnt, after)
        return value

    def _new(self, data: Data, targets: tuple[Tensor, ...], kinds: tuple[Any, ...]) -> _Sample:
        """A sample that was not seen, or targets of another kind."""
        step, _ = self.model._resolved(data, {})
        sample = _packed(data, self._plan(step))
        if kinds not in self._made:
            self._check(data, targets)
            update = torch.compile(
                self._update(sample), fullgraph=True, dynamic=False, options=UNGUARDED
            )
            self._made[kinds] = (sample, update)
        if not sample.alike(self._made[kinds][0]):
            raise NotAlike(
                "the sample takes other operations, or sizes, than the first",
                caller(),
                "lay them out alike: `model.samples(model.ground(facts=ragged([...])))`",
            )
        self._samples[id(data), self.model.training] = sample
        return sample

    def _check(self, data: Data, targets: tuple[Tensor, ...]) -> None:
        """Ask for the loss once, as plain Python: there its complaints can still be read."""
        device = self.model._one.device
        with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            found = self.model(data)
            output = found if isinstance(found, Tensor) else found.data
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", UserWarning)
                    value = self.loss(output, *targets)
            except EdgewiseError:
                raise
            except Exception as problem:
                raise _unfit(output, targets, str(problem).partition("\n")[0]) from None
        if not isinstance(value, Tensor) or value.numel() != 1:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise _unfit(output, targets, f"it gives {shape} instead of one number")

    def _plan(self, step: Step) -> PhysicalPlan:
        model, names = self.model, tuple(self.model._paths)
        weights = [model.weight(name) for name in names]
        plan = step.plan((), weights, names, model._one, model.training, False)
        if plan.kernels or autocasts(model._one.device):
            why = "autocast is on" if not plan.kernels else f"it calls `{plan.kernels[0]}`"
            raise NotAlike(f"it cannot be compiled: {why}", caller(), "train step by step")
        return plan

    def _update(self, sample: _Sample) -> Callable[..., Stepped]:
        forward = sample.plan.lifted
        loss, learns, shapes = self.loss, self._learns, sample.shapes

        def update(
            learnt: list[Tensor],
            fixed: list[Tensor],
            numbers: Tensor,
            keys: Tensor,
            rate: Tensor,
            targets: tuple[Tensor, ...],
        ) -> Stepped:
            constants = _unpacked(shapes, numbers, keys)

            def objective(learnt: list[Tensor]) -> Tensor:
                mine, others = iter(learnt), iter(fixed)
                weights = [next(mine) if own else next(others) for own in learns]
                return loss(forward(*weights, *constants), *targets)

            gradients, value = torch.func.grad_and_value(objective)(learnt)
            if not WRITES:
                return value, [w - rate * g for w, g in zip(learnt, gradients, strict=True)]
            for weight, gradient in zip(learnt, gradients, strict=True):
                weight.sub_(rate * gradient)
            return value, []

        # torch keeps what it compiles with the code, and nothing guards which one is asked for
        update.__code__ = update.__code__.replace()
        return update


def _unfit(output: Any, targets: tuple[Tensor, ...], why: str) -> BadTarget:
    shapes = " and ".join(str(tuple(t.shape)) for t in targets) or "none"
    return BadTarget(
        f"the loss does not take the output {tuple(output.shape)} with the targets {shapes}: {why}",
        caller(),
        "give targets in the shape that the loss takes, here most often that of `model(sample)`",
    )


def _packed(data: Data, plan: PhysicalPlan) -> _Sample:
    held = plan.tensors
    floats = [c.flatten() for c in held if c.is_floating_point()]
    others = [c.flatten().long() for c in held if not c.is_floating_point()]
    numbers = torch.cat(floats) if floats else torch.zeros(0)
    keys = torch.cat(others) if others else torch.zeros(0, dtype=torch.int64)
    return _Sample(data, plan, numbers, keys)


def _unpacked(
    shapes: Sequence[tuple[torch.Size, torch.dtype]], numbers: Tensor, keys: Tensor
) -> list[Tensor]:
    found, ends = [], {True: 0, False: 0}
    for shape, dtype in shapes:
        real = dtype.is_floating_point
        start, ends[real] = ends[real], ends[real] + shape.numel()
        part = (numbers if real else keys)[start : ends[real]]
        found.append(part.reshape(shape).to(dtype))
    return found

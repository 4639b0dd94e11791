"""A step of training for small networks: forward, loss and gradients as one compiled function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.inputs.kinds import BadInput
from edgewise.module import Data, Model
from edgewise.physical.data import ReadyCall
from edgewise.physical.plan import PhysicalPlan
from edgewise.physical.tracing import autocasts

Loss = Callable[..., Tensor]
Ready = tuple[ReadyCall, list[Tensor], list[Tensor]]
COMPILED = 8  # layouts that one step compiles: each takes seconds
# Dynamo's own, its backends' included: the loss breaks the graph, changes too often, no compiler
NOT_COMPILED = (
    torch._dynamo.exc.TorchDynamoException,
    torch._dynamo.exc.FailOnRecompileLimitHit,
)


def training_step(model: Model, loss: Loss, optimiser: torch.optim.Optimizer) -> TrainingStep:
    """`step(data, *targets, **inputs)`: one update of the weights; returns the loss.

    It is the loop `optimiser.zero_grad(); value = loss(model(data, **inputs), *targets);
    value.backward(); optimiser.step()`, with less overhead for small samples: from the third call
    with a layout on, forward, loss and gradients are one function of `torch.compile`. A call that
    cannot be compiled is that plain loop, and `step.plain` says why: a loss that Dynamo cannot
    trace, or that reads numbers which change more often than `torch.compile` recompiles.
    """
    if not isinstance(model, Model):
        raise BadInput(
            f"expected a compiled model, got {type(model).__name__}",
            caller(),
            "write `training_step(program.compile(R.h), loss, optimiser)`",
        )
    if not callable(loss):
        raise BadInput(
            f"expected a loss function, got {type(loss).__name__}",
            caller(),
            "write `training_step(model, torch.nn.functional.mse_loss, optimiser)`",
        )
    if not isinstance(optimiser, torch.optim.Optimizer):
        raise BadInput(
            f"expected a torch optimiser, got {type(optimiser).__name__}",
            caller(),
            "write `training_step(model, loss, torch.optim.Adam(model.parameters()))`",
        )
    return TrainingStep(model, loss, optimiser)


class TrainingStep:
    """A callable that updates weights; `plain` is the reason why its last call was not compiled."""

    def __init__(self, model: Model, loss: Loss, optimiser: torch.optim.Optimizer) -> None:
        self.model = model
        self.loss = loss
        self.optimiser = optimiser
        self.plain: str | None = None
        closure = inspect.signature(type(optimiser).step).parameters.get("closure")
        self._needs_closure = closure is not None and closure.default is inspect.Parameter.empty
        self._layouts: WeakKeyDictionary[PhysicalPlan, _Layout] = WeakKeyDictionary()
        self._compiled: dict[Hashable, dict[Hashable, _Gradients]] = {}
        self._count = 0

    def __call__(self, data: Data | None, /, *targets: Any, **inputs: Any) -> Tensor:
        if not self._needs_closure:
            value = self._backward(data, targets, inputs)
            self.optimiser.step()
            return value
        values: list[Tensor] = []

        def closure() -> float:
            values.append(self._backward(data, targets, inputs))
            return values[-1].item()

        self.optimiser.step(closure)
        return values[0]

    def _backward(
        self, data: Data | None, targets: tuple[Any, ...], inputs: dict[str, Any]
    ) -> Tensor:
        """The loss; its gradients are in the weights."""
        found = self.model._ready(data, inputs)
        self.plain = self._refuses(found, targets)
        if found is None or self.plain is not None:
            return self._run_plain(data, targets, inputs)
        ready, values, weights = found
        layout = self._layout(ready)
        kind = (
            *((t.shape, t.dtype, t.device) for t in targets),
            *(w.requires_grad for w in weights),
        )
        gradients = layout.compiled.get(kind)
        if gradients is not None:
            if gradients.failed is None:
                try:
                    return gradients(weights, [*ready.first, *values], layout.tensors, targets)
                except NOT_COMPILED as error:
                    gradients.failed = _reason(error)
            self.plain = gradients.failed
            return self._run_plain(data, targets, inputs)
        if self._count >= COMPILED:
            self.plain = f"{COMPILED} layouts are compiled: pad samples with `model.samples`"
            return self._run_plain(data, targets, inputs)
        self.plain = "the first call with a layout is plain: its errors are those of PyTorch"
        value = self._run_plain(data, targets, inputs)
        reached = [at for at, weight in enumerate(weights) if weight.grad is not None]
        layout.compiled[kind] = _Gradients(layout.function, self.loss, reached)
        self._count += 1
        return value

    def _layout(self, ready: ReadyCall) -> _Layout:
        found = self._layouts.get(ready.plan)
        if found is None:
            found = self._layouts[ready.plan] = _Layout(ready)
            found.compiled = self._compiled.setdefault(found.key, found.compiled)
        return found

    def _run_plain(
        self, data: Data | None, targets: tuple[Any, ...], inputs: dict[str, Any]
    ) -> Tensor:
        self.optimiser.zero_grad()
        value = self.loss(self.model(data, **inputs), *targets)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            kind = f"a {type(value).__name__}"
            if isinstance(value, Tensor):
                kind = (
                    "without a gradient" if value.numel() == 1 else f"of shape {tuple(value.shape)}"
                )
            raise BadInput(
                f"the loss is {kind}, not one number with a gradient",
                caller(),
                "return such as `(output - target).square().mean()`",
            )
        value.backward()
        return value.detach().reshape(())

    def _refuses(self, found: Ready | None, targets: tuple[Any, ...]) -> str | None:
        """Why a call is not compiled: it must do all that the plain loop does, or not be."""
        model = self.model
        if found is None:
            return "no earlier call had inputs like these, or their values change"
        ready, values, weights = found
        if reason := self._layout(ready).refuses:
            return reason
        if autocasts(model._one.device):
            return "autocast is on"
        if not torch.is_grad_enabled():
            return "gradients are switched off"
        if not all(isinstance(target, Tensor) for target in targets):
            return "a target is not a tensor"
        if any(tensor.requires_grad for tensor in (*ready.first, *values, *targets)):
            return "an input or a target requires a gradient"
        trained = [weight for weight in weights if weight.requires_grad]
        groups = self.optimiser.param_groups
        if {id(p) for group in groups for p in group["params"]} != {id(w) for w in trained}:
            return "the optimiser's parameters are not the trained weights of the model"
        if len({weight.dtype for weight in trained}) != 1:
            return "the weights have several precisions"
        hooks = (model._forward_hooks, model._forward_pre_hooks, model._backward_hooks)
        tensor_hooks = ((w._backward_hooks, w._post_accumulate_grad_hooks) for w in trained)
        if any(hooks) or any(map(any, tensor_hooks)):
            return "hooks are registered"
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, torch._dynamo.exc.FailOnRecompileLimitHit):
        limit = torch._dynamo.config.recompile_limit
        return f"`torch.compile` compiled it {limit} times: what the loss reads keeps changing"
    return f"`torch.compile` cannot compile it: {str(error).strip().splitlines()[0]}"


class _Layout:
    """A plan with its constant tensors as arguments; plans with equal keys share one function."""

    def __init__(self, ready: ReadyCall) -> None:
        plan = ready.plan
        self.compiled: dict[Hashable, _Gradients] = {}
        self.refuses = None if ready.output.is_dense else "the output is a relation of rows"
        if kernels := plan.kernels:
            self.refuses = f"it calls `{kernels[0]}`, which is not a torch operation"
        self.tensors = plan.tensors
        self.function = plan.lifted
        scope = self.function.__globals__
        plain = (float, torch.dtype, torch.device)
        own = ("__builtins__", self.function.__name__)
        names = [n for n, x in scope.items() if n not in own and not isinstance(x, Tensor)]
        things = [scope[name] for name in names]
        marks = [repr(x) if isinstance(x, plain) else id(x) for x in things]
        kinds = [*plan.signature, *((t.shape, t.dtype) for t in self.tensors)]
        self.key = (plan.device, plan.text, *names, *marks, *kinds)


class _Gradients:
    """Forward, loss and gradients of some weights, compiled; Dynamo guards what the loss reads."""

    def __init__(self, forward: Callable[..., Tensor], loss: Loss, reached: list[int]) -> None:
        self.reached = reached
        self.failed: str | None = None  # why it is not compiled

        def gradients(
            weights: list[Tensor],
            values: list[Tensor],
            constants: list[Tensor],
            targets: tuple[Tensor, ...],
        ) -> tuple[Tensor, Tensor]:
            def value(trained: list[Tensor]) -> Tensor:
                used = list(weights)
                for at, weight in zip(reached, trained, strict=True):
                    used[at] = weight
                return loss(forward(*values, *used, *constants), *targets).reshape(())

            found, at = torch.func.grad_and_value(value)([weights[at] for at in reached])
            # one buffer: no gradient shares memory with another, or with an input
            return at, torch.cat([gradient.flatten() for gradient in found])

        # Dynamo limits how often one code is compiled; every layout has its own
        gradients.__code__ = gradients.__code__.replace()
        self.function = torch.compile(
            gradients, fullgraph=True, dynamic=False, options={"fallback_random": True}
        )

    def __call__(
        self,
        weights: list[Tensor],
        values: list[Tensor],
        constants: list[Tensor],
        targets: tuple[Tensor, ...],
    ) -> Tensor:
        with torch.no_grad():
            value, flat = self.function(weights, values, constants, targets)
            trained = [weights[at] for at in self.reached]
            parts = flat.split([weight.numel() for weight in trained])
            for weight in weights:
                weight.grad = None
            for weight, part in zip(trained, parts, strict=True):
                weight.grad = part.view(weight.shape)
        found: Tensor = value
        return found

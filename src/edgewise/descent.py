"""A step of training for small networks: forward, loss and gradients as one compiled function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim import SGD
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from edgewise.epochs import Epoch
from edgewise.errors import caller
from edgewise.inputs.errors import BadInput
from edgewise.kernels.scan import Scan
from edgewise.module import Data, Model
from edgewise.physical.gradients import Gradients, NotCompiledError
from edgewise.physical.output import Outputs
from edgewise.physical.plan import PhysicalPlan
from edgewise.physical.recursion.scan import scan_levels
from edgewise.physical.tracing import autocasts

Loss = Callable[..., Tensor]
UNROLLED = 200  # instructions of a recursion: compiling takes as long as there are
COMPILED = 8  # layouts that one step compiles: each takes seconds
OWN = {Tensor, torch.nn.Parameter}
MORE = ("momentum", "weight_decay", "nesterov", "maximize", "differentiable")  # of SGD


def training_step(model: Model, loss: Loss, optimiser: torch.optim.Optimizer) -> TrainingStep:
    """`step(data, *targets, **inputs)`: one update of the weights; returns the loss.

    It is the loop `optimiser.zero_grad(); value = loss(model(data, **inputs), *targets);
    value.backward(); optimiser.step()`, with less overhead for small samples: from the third call
    with a layout on, forward, loss and gradients are one compiled function. A call that cannot be
    compiled is that plain loop, and `step.plain` says why: a loss that Dynamo cannot trace, or that
    reads numbers which change more often than `torch.compile` recompiles.

    >>> from edgewise import Program, R, V
    >>> model = Program([R.h(V.I) <= R.x(V.I)["w":1, 2]]).compile(R.h, seed=0)
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> step = training_step(model, torch.nn.functional.mse_loss, optimiser)
    >>> first = step(model.ground(x=torch.ones(3, 2)), torch.zeros(3))
    >>> bool(step(model.ground(x=torch.ones(3, 2)), torch.zeros(3)) < first)
    True
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
        self._compiled: dict[Hashable, dict[Hashable, Gradients]] = {}
        self._count = 0
        self._updated = False  # whether the compiled function has updated the weights
        self._rates: dict[float, Tensor] = {}

    def __call__(self, data: Data | None, /, *targets: Any, **inputs: Any) -> Tensor:
        if not self._needs_closure:
            self._updated = False
            value = self._backward(data, targets, inputs)
            if not self._updated:
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
        if found is None:
            self.plain = "no earlier call had inputs like these, or their values change"
            return self._run_plain(data, targets, inputs)[1]
        ready, values, weights = found
        if not isinstance(ready.plan, PhysicalPlan):
            self.plain = "every batch of samples has other lengths: see `model.samples`"
            return self._run_plain(data, targets, inputs)[1]
        layout = self._layout(ready.plan, ready.outputs)
        values = [*ready.first, *values]
        self.plain = layout.refuses or self.refuses(values, weights, targets)
        if self.plain is not None:
            return self._run_plain(data, targets, inputs)[1]
        kind = _kind(targets, values, weights)
        gradients = layout.compiled.get(kind)
        if gradients is not None:
            rate = None if self._needs_closure else self.rate()
            try:
                value = gradients(weights, [*values, *weights, *layout.tensors], targets, rate)
                self._updated = rate is not None
                return value
            except NotCompiledError as error:
                self.plain = str(error)
            return self._run_plain(data, targets, inputs)[1]
        if self._count >= COMPILED:
            self.plain = f"{COMPILED} layouts are compiled: pad samples with `model.samples`"
            return self._run_plain(data, targets, inputs)[1]
        self.plain = "the first call with a layout is plain: its errors are those of PyTorch"
        output, value = self._run_plain(data, targets, inputs)
        layout.compiled[kind] = Gradients(layout.function, self.loss, output, len(values))
        self._count += 1
        return value

    def epoch(self, samples: Iterable[tuple[Any, ...]]) -> Epoch:
        """`epoch()` updates the weights for each sample in order, and returns all losses.

        A sample is `(data, *targets)`, with a dictionary of inputs at the end where there are some:
        `(None, target, {"x": x})`.
        """
        return Epoch(self, samples)

    def compiled(
        self, data: Data | None, targets: tuple[Any, ...], inputs: dict[str, Any]
    ) -> tuple[Gradients, list[Tensor], list[Tensor], list[Tensor]] | None:
        """The compiled function of a sample, and its values, weights and constants; None where
        there is none yet."""
        found = self.ready(data, targets, inputs)
        if found is None:
            return None
        layout, values, weights = found
        gradients = layout.compiled.get(_kind(targets, values, weights))
        return None if gradients is None else (gradients, values, weights, layout.tensors)

    def ready(
        self, data: Data | None, targets: tuple[Any, ...], inputs: dict[str, Any]
    ) -> tuple[_Layout, list[Tensor], list[Tensor]] | None:
        """The layout of a sample, its values and the weights; None where it is not to be
        compiled, or was not called yet."""
        found = self.model._ready(data, inputs)
        plan = None if found is None else found[0].plan
        if found is None or not isinstance(plan, PhysicalPlan):
            return None
        ready, values, weights = found
        layout, values = self._layout(plan, ready.outputs), [*ready.first, *values]
        if layout.refuses or self.refuses(values, weights, targets):
            return None
        return layout, values, weights

    def _layout(self, plan: PhysicalPlan, outputs: Outputs) -> _Layout:
        found = self._layouts.get(plan)
        if found is None:
            found = self._layouts[plan] = _Layout(plan, outputs)
            found.compiled = self._compiled.setdefault(found.key, found.compiled)
        return found

    def _run_plain(
        self, data: Data | None, targets: tuple[Any, ...], inputs: dict[str, Any]
    ) -> tuple[Any, Tensor]:
        """The output of the model, and the loss."""
        self.optimiser.zero_grad()
        output = self.model(data, **inputs)
        value = self.loss(output, *targets)
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
        return output, value.detach().reshape(())

    def rate(self) -> Tensor | None:
        """The learning rate, where the optimiser is gradient descent and nothing more: then the
        compiled function updates the weights."""
        optimiser = self.optimiser
        if type(optimiser) is not SGD or len(optimiser.param_groups) != 1:
            return None
        group = optimiser.param_groups[0]
        rate = group["lr"]
        plain = type(rate) is float and not any(map(group.__getitem__, MORE))
        if not plain or not self.is_plain_update():
            return None
        found = self._rates.get(rate)
        if found is None:
            self._rates.clear()
            found = self._rates[rate] = torch.tensor(rate, dtype=self.model._one.dtype)
        return found

    def is_plain_update(self) -> bool:
        """Whether an update on a CPU is the optimiser's own, which nothing watches."""
        optimiser = self.optimiser
        hooks = (
            optimiser._optimizer_step_pre_hooks
            or optimiser._optimizer_step_post_hooks
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
        )
        cpu = self.model._one.device.type == "cpu"
        return cpu and not hooks and "step" not in vars(optimiser)

    def refuses(
        self, values: list[Tensor], weights: list[Tensor], targets: tuple[Any, ...]
    ) -> str | None:
        """Why a call is not compiled: it must do all that the plain loop does, or not be."""
        model = self.model
        if autocasts(model._one.device):
            return "autocast is on"
        if not torch.is_grad_enabled():
            return "gradients are switched off"
        if torch.is_anomaly_enabled() or is_in_torch_dispatch_mode():
            return "anomaly detection or a dispatch mode is on, which see single operations"
        if not all(isinstance(target, Tensor) for target in targets):
            return "a target is not a tensor"
        if any(t.requires_grad for t in (*values, *targets)):
            return "an input or a target requires a gradient"
        if any(t.is_neg() for t in values) or not set(map(type, weights)) <= OWN:
            return "an input is a lazy negation, or a weight is a tensor of another class"
        trained = [weight for weight in weights if weight.requires_grad]
        owned = [p for group in self.optimiser.param_groups for p in group["params"]]
        same = len(trained) == len(owned) and (  # the same order is cheap to see
            all(map(is_, trained, owned)) or set(map(id, trained)) == set(map(id, owned))
        )
        if not same:
            return "the optimiser's parameters are not the trained weights of the model"
        hooks = (model._forward_hooks, model._forward_pre_hooks, model._backward_hooks)
        tensor_hooks = [w._backward_hooks or w._post_accumulate_grad_hooks for w in trained]
        if any(hooks) or any(tensor_hooks):
            return "hooks are registered"
        return None


def _kind(
    targets: tuple[Tensor, ...], values: list[Tensor], weights: list[Tensor]
) -> tuple[Hashable, ...]:
    """What compiled code depends on beside the layout."""
    return (
        *[(t.shape, t.dtype, t.device) for t in targets],
        *[t.stride() for t in values],
        *[w.stride() for w in weights],
        *[w.requires_grad for w in weights],
    )


class _Layout:
    """A plan with its constant tensors as arguments; plans with equal keys share one function."""

    def __init__(self, plan: PhysicalPlan, outputs: Outputs) -> None:
        self.compiled: dict[Hashable, Gradients] = {}
        self.refuses = None if outputs.is_dense else "an output is a relation of rows"
        scans = [thing for thing in plan.constants.values() if isinstance(thing, Scan)]
        long = [scan for scan in scans if len(scan.which) > UNROLLED]
        if long:
            self.refuses = f"a recursion of {long[0].levels:,} levels is a loop of its own"
        elif kernels := [name for name in plan.kernels if name != scan_levels.__name__]:
            self.refuses = f"it calls `{kernels[0]}`, which is not a torch operation"
        self.tensors = plan.tensors
        self.function = plan.lifted
        scope = self.function.__globals__
        plain = (float, torch.dtype, torch.device)
        own = ("__builtins__", self.function.__name__)
        names = [n for n, x in scope.items() if n not in own and not isinstance(x, Tensor)]
        things = [scope[name] for name in names]
        marks = [
            repr(x) if isinstance(x, plain) else x.key if isinstance(x, Scan) else id(x)
            for x in things
        ]
        kinds = [*plan.signature, *((t.shape, t.stride(), t.dtype) for t in self.tensors)]
        self.key = (plan.device, plan.text, *names, *marks, *kinds)

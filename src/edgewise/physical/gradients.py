"""Forward, loss and gradients of a plan as one compiled function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

SMALL = 1 << 14  # multiplications of a matrix product that loops compute in less time than a call


class NotCompiledError(Exception):
    """Why a call is the plain loop."""


class Gradients:
    """Forward, loss and gradients, compiled for one layout and one kind of targets.

    Dynamo sees only the loss, on a tensor like the output: it guards everything that the loss
    reads, and gives its graph. The rest depends on the layout and the kind alone, so that no guard
    looks at weights and constants.
    """

    def __init__(
        self,
        forward: Callable[..., Tensor],
        loss: Callable[..., Tensor],
        output: Tensor,
        values: int,
    ) -> None:
        self.forward = forward
        self.values = values
        self.failed: str | None = None
        self.pure = is_pure_loss(loss)
        self.graphs: dict[bool, LossGraph] = {}  # of a pure loss, without and with updates
        self.graph: LossGraph | None = None  # of the last call
        self.order: list[int] = []  # which target each thing is that a pure loss reads
        self.like = torch.zeros_like(output, requires_grad=True)

        def traced(output: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
            return loss(output.clone(), *targets)  # no leaf, as the output of a model

        # Dynamo limits how often one code is compiled; every layout has its own
        traced.__code__ = traced.__code__.replace()
        self.traced = torch.compile(traced, backend=LossGraph, fullgraph=True, dynamic=False)

    def __call__(
        self,
        weights: list[Tensor],
        inputs: list[Tensor],
        targets: tuple[Tensor, ...],
        rate: Tensor | None = None,
    ) -> Tensor:
        """The loss; its gradients are in the weights, which lose `rate` times them, if any."""
        if self.failed is not None:
            raise NotCompiledError(self.failed)
        graph = self.graphs.get(rate is not None)
        if graph is not None:
            read = self._read(targets)
        else:
            graph, read = self._compiled(weights, inputs, targets, rate)
        compiled = graph.compiled[rate is not None]
        try:
            with torch.no_grad():
                more = () if rate is None else (rate,)
                value, *found = compiled(*inputs, *read, *more)
        except Exception as error:  # such as a class that there is not: PyTorch says it better
            raise NotCompiledError(_reason(error)) from error
        self.graph = graph
        self.store(weights, found, rate is not None)
        result: Tensor = value
        return result

    def store(self, weights: list[Tensor], found: Sequence[Tensor], updated: bool) -> None:
        """Give weights the gradients of the last call, and note that they changed."""
        assert self.graph is not None
        for at in self.graph.unreached:
            weights[at].grad = None
        for at, gradient in zip(self.graph.reached, found, strict=True):
            weights[at].grad = gradient
        if updated:  # compiled code writes where autograd does not see it
            torch.autograd.graph.increment_version([weights[at] for at in self.graph.reached])

    def prepared(
        self, targets: tuple[Tensor, ...]
    ) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """The compiled function with updates, and what its loss reads; None where a loss may read
        more than its arguments, or there is none yet."""
        graph = self.graphs.get(True)
        if graph is None:
            return None
        self.graph = graph
        return graph.compiled[True], self._read(targets)

    def _read(self, targets: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple([self.like if at < 0 else targets[at] for at in self.order])

    def _compiled(
        self,
        weights: list[Tensor],
        inputs: list[Tensor],
        targets: tuple[Tensor, ...],
        rate: Tensor | None,
    ) -> tuple[LossGraph, tuple[Any, ...]]:
        """The graph of the loss that Dynamo chooses, compiled, and what it reads."""
        try:
            graph, read = _call_of(self.traced(self.like, targets))
            if (rate is not None) not in graph.compiled:
                of = slice(self.values, self.values + len(weights))
                graph.compile(self.forward, self.like, inputs, of, read, rate)
        except Exception as error:  # of Dynamo, the loss or a compiler: the plain loop shows which
            self.failed = _reason(error)
            raise NotCompiledError(self.failed) from error
        known = {id(thing): at for at, thing in enumerate((self.like, *targets), -1)}
        if self.pure and len(known) == len(targets) + 1 and all(id(t) in known for t in read):
            self.order = [known[id(thing)] for thing in read]
            self.graphs[rate is not None] = graph
        return graph, read


def is_pure_loss(loss: Callable[..., Tensor]) -> bool:
    """Whether a loss is a function of torch, which reads nothing but its arguments."""
    return getattr(torch.nn.functional, getattr(loss, "__name__", ""), None) is loss


class LossGraph:
    """What Dynamo traced of a loss: called where its guards hold, it says what the loss reads."""

    def __init__(self, graph: GraphModule, _: Sequence[Any]) -> None:
        outputs: Any = graph.graph.output_node().args[0]
        if len(outputs) != 1:
            raise NotCompiledError("the loss stores tensors")
        self.graph = graph
        self.compiled: dict[bool, Callable[..., Any]] = {}  # without and with updates
        self.reached: list[int] = []  # weights that have a gradient
        self.unreached: list[int] = []

    def __call__(self, *read: Any) -> tuple[Tensor]:
        value = torch.empty(())
        value.call = self, read  # type: ignore[attr-defined]
        return (value,)

    def compile(
        self,
        forward: Callable[..., Tensor],
        like: Tensor,
        inputs: list[Tensor],
        weights: slice,
        read: Sequence[Any],
        rate: Tensor | None,
    ) -> None:
        """Forward, loss and gradients as a function of `inputs`, then of what the loss reads, and
        of the rate of updates, if any."""
        places = [at for at, thing in enumerate(read) if thing is like]
        others = [thing for thing in read if thing is not like]
        if len(places) != 1:
            raise NotCompiledError("the loss does not read the output")
        if any(not isinstance(thing, Tensor) or thing.requires_grad for thing in others):
            raise NotCompiledError("the loss reads weights of its own, or numbers as inputs")
        tensors = [*inputs, *read, *(() if rate is None else (rate,))]
        cpu = inputs[weights.start].device.type == "cpu"
        with torch.no_grad():
            traced = make_fx(
                self._joint(forward, inputs, weights, places[0], rate is not None),
                decomposition_table=SMALL_PRODUCTS if cpu else {},
                tracing_mode="fake",
                _allow_non_fake_inputs=True,
            )(*tensors)
            # the caller has compared sizes
            options = {"fallback_random": True, "size_asserts": False}
            made = torch._inductor.compile(traced, tensors, options=options)
            self.compiled[rate is not None] = made

    def _joint(
        self,
        forward: Callable[..., Tensor],
        inputs: list[Tensor],
        weights: slice,
        place: int,
        updates: bool,
    ) -> Callable[..., list[Tensor]]:
        """The loss and the gradients that it has, to be traced; `place` is that of the output. The
        last tensor is the rate of updates, if there are any."""
        wanted = [at for at, weight in enumerate(inputs[weights]) if weight.requires_grad]

        def joint(*tensors: Tensor) -> list[Tensor]:
            end = len(tensors) - updates
            passed, read = list(tensors[: len(inputs)]), list(tensors[len(inputs) : end])
            used = list(passed[weights])
            for at in wanted:
                used[at] = used[at].detach().requires_grad_()
            passed[weights] = used
            with torch.enable_grad():
                read[place] = forward(*passed)
                (value,) = self.graph(*read)
                value = value.reshape(())
            if any(thing._version for at, thing in enumerate(read) if at != place):
                raise NotCompiledError("the loss writes into what it reads")
            found = torch.autograd.grad(value, [used[at] for at in wanted], allow_unused=True)
            gradients = {
                at: torch.empty_like(used[at]).copy_(gradient)  # memory of its own
                for at, gradient in zip(wanted, found, strict=True)
                if gradient is not None
            }
            self.reached = list(gradients)
            self.unreached = [at for at in range(len(used)) if at not in gradients]
            if updates:
                for at, gradient in gradients.items():
                    tensors[weights.start + at].sub_(tensors[-1] * gradient)
            return [value.detach(), *gradients.values()]

        return joint


def _call_of(value: Any) -> tuple[LossGraph, tuple[Any, ...]]:
    """The graph that Dynamo chose, and what it reads."""
    call = getattr(value, "call", None)
    if call is None:
        raise NotCompiledError("the loss is not a graph of torch operations")
    graph, read = call
    return graph, read


def _small_product(a: Tensor, b: Tensor) -> Any:
    """A product of small matrices as loops, which Inductor fuses with what is before and after."""
    if a.numel() * b.shape[-1] > SMALL or a.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    if b.ndim == 2 and b.stride(0) == 1:  # a buffer of its own, or each sum is across one vector
        b = b.clone(memory_format=torch.contiguous_format).as_strided(b.shape, (b.shape[1], 1))
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


SMALL_PRODUCTS = {
    torch.ops.aten.mm.default: _small_product,
    torch.ops.aten.bmm.default: _small_product,
}


def _reason(error: Exception) -> str:
    inner = getattr(error, "inner_exception", error)
    if isinstance(inner, NotCompiledError):
        return str(inner)
    if isinstance(error, torch._dynamo.exc.FailOnRecompileLimitHit):
        limit = torch._dynamo.config.recompile_limit
        return f"`torch.compile` compiled it {limit} times: what the loss reads keeps changing"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"`torch.compile` cannot compile it: {lines[0]}"

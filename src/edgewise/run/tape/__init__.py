"""A step as straight Python: its tensor operations one after another, nothing to look up.

One run is written down while it happens. Which operations it takes depends on keys, shapes and
precision, so every other run on tensors like these takes the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from edgewise.run.tape.record import Recorder, transformed
from edgewise.run.tape.write import Source, written

Run = Callable[[Sequence[Tensor]], Tensor]
Signature = list[tuple[torch.Size, torch.dtype]]


@dataclass(frozen=True, eq=False)
class Tape:
    """A run as a function of tensors by position; some may be held from run to run.

    None where the next run may differ: it reads numbers off tensors, writes into one, or calls
    what has a backward pass of its own and is not one operation to `torch.overrides`.
    """

    signature: Signature
    source: Source | None

    @cached_property
    def prepare(self) -> Callable[..., Callable[..., Tensor]] | None:
        """Takes the tensors that are held and gives the function of the others."""
        return None if self.source is None else self.source.prepared()

    @cached_property
    def function(self) -> Callable[..., Tensor] | None:
        return None if self.source is None else self.source.function()

    def fits(self, tensors: Sequence[Tensor]) -> bool:
        return _signature(tensors) == self.signature


def _signature(tensors: Sequence[Tensor]) -> Signature:
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def recorded(
    run: Run, tensors: Sequence[Tensor], held: Collection[int] = ()
) -> tuple[Tensor, Tape]:
    """The result of a run, and the run written down; tensors at `held` stay as they are."""
    if not torch.is_grad_enabled():
        tensors = [tensor.detach() for tensor in tensors]
    recorder = Recorder(tensors)
    with torch.enable_grad(), recorder:  # off means: inside of a backward pass of its own
        result = run(tensors)
    source = None
    if not recorder.refused and result in recorder.slots:
        source = written(len(tensors), recorder.operations, recorder.slots[result], held)
    others = [tensor for n, tensor in enumerate(tensors) if n not in held]
    return result, Tape(_signature(others), source)


def recordable() -> bool:
    """Whether a run can be written down here: not inside of a transformation or another trace."""
    return not transformed() and not torch._C._len_torch_dispatch_stack()

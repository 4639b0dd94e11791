"""One step of a grounded model: tensors and weights in, the output relation out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from edgewise.ground.stack import with_stacks
from edgewise.inputs.prepare import Prepared
from edgewise.run.autocast import lowered
from edgewise.run.column import Column
from edgewise.run.executable import Executable
from edgewise.run.output import Output
from edgewise.run.state import State
from edgewise.run.tape import Tape, recordable, recorded
from edgewise.run.tape.record import transformed

# in training or not, the kinds of inputs, and the precision of autocast
Mode = tuple[bool, tuple[torch.dtype, ...], torch.dtype | None]


@dataclass(frozen=True, eq=False)
class Step:
    """Everything that depends on keys and shapes, decided."""

    prepared: Prepared
    executable: Executable
    output: Output
    graphs: dict[Mode, torch.fx.GraphModule | None] = field(default_factory=dict)
    padded: bool = False  # one sample of a batch, filled up to the longest
    tapes: dict[Any, Tape | None] = field(default_factory=dict)  # None: run once
    handle: str = ""  # given when it is kept with data
    lends: dict[bool, bool] = field(default_factory=dict)  # whether outputs are facts or weights

    def __call__(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
        training: bool,
    ) -> Column:
        state = self.state(tensors, weights, dtype, device, training)
        value = self.executable.run(state).get(self.output.relation)
        if value is None or not value.rows:
            batch = max((source.batch for source in self.executable.sources.values()), default=1)
            empty = self.output.empty(batch, dtype, device)
            return _reached(empty, (*tensors.values(), *weights.values()))
        return value

    def state(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
        training: bool,
    ) -> State:
        """What is known before the first rule."""
        found = {
            name: Column(source.data(tensors.get(name), weights, dtype))
            for name, source in self.executable.sources.items()
        }
        whole = {name: c for name, c in found.items() if not c.data.is_floating_point()}
        columns = found | {name: Column(c.data.to(dtype)) for name, c in whole.items()}
        weights = with_stacks(weights, self.prepared.stacks)
        return State(columns, weights, training, dtype, device, numbers=whole)

    def owned(
        self,
        found: Tensor,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        as_rows: bool,
    ) -> Tensor:
        """The output for somebody who may write into it: no part of an input, fact or weight."""
        if torch.compiler.is_compiling():
            return found.clone()
        if transformed():
            return found
        if as_rows not in self.lends:
            stored = (source.stored for source in self.executable.sources.values())
            self.lends[as_rows] = _within(found, (*stored, *weights.values()))
        lent = self.lends[as_rows] or _within(found, tensors.values())
        return found.clone() if lent else found

    def tensor(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        unit: Tensor,
        training: bool,
        as_rows: bool,
    ) -> Tensor:
        """The output; from the second run on by a tape, where there can be one."""
        given = (*tensors.values(), *weights.values())
        names = tuple(tensors)

        def run(given: Sequence[Tensor]) -> Tensor:
            inputs = dict(zip(names, given, strict=False))
            held = dict(zip(weights, given[len(names) :], strict=True))
            value = self(inputs, held, unit.dtype, unit.device, training)
            return self.output.tensor(value, as_rows)

        key = (names, training, as_rows, torch.is_inference_mode_enabled(), lowered(unit.device))
        if key not in self.tapes:
            self.tapes[key] = None
            return run(given)
        tape = self.tapes[key]
        if tape is not None and tape.fits(given):
            return run(given) if tape.function is None else tape.function(*given)
        if not recordable():
            return run(given)
        result, self.tapes[key] = recorded(run, given)
        return result


def _reached(empty: Column, given: Iterable[Tensor]) -> Column:
    """The same values, none, with gradients to what is given: zeros."""
    data = empty.data
    for one in given:
        if one.is_floating_point():
            data = data + one.flatten()[:0].view(data.shape).to(data)
    return Column(data)


def _within(found: Tensor, others: Iterable[Tensor | None]) -> bool:
    alias = torch._C._is_alias_of  # type: ignore[attr-defined]
    return any(other is not None and alias(found, other) for other in others)

"""The state of a run: what a checkpoint holds, complete files whatever ranks share the weights.

Weights that are sharded are gathered one by one by all ranks, and the first of them writes. When a
run is resumed, it reads and sends every tensor, and each rank keeps its part: any number of ranks
can continue what others began.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.physical.weights import gathered, sharded_like
from edgewise.training.optimiser import WeightAverage, adam, scheduler
from edgewise.training.ranks.group import RankGroup
from edgewise.training.recipe import Training
from edgewise.training.runs import checkpoint
from edgewise.training.runs.checkpoint import TrainingState
from edgewise.training.runs.resuming import same_data

NOTHING = TrainingState(0, {}, {}, {})


class RunState:
    """Weights, optimiser, learning rate and losses of a run after `step` steps."""

    def __init__(
        self, model: nn.Module, how: Training, device: torch.device, ranks: RankGroup
    ) -> None:
        self.model, self.ranks, self.device = model, ranks, device
        self.weights = list(model.parameters())  # walking all modules takes long
        self.optimiser = adam(model, how)
        self.scheduler = scheduler(self.optimiser, how)
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=how.precision == "float16", init_scale=2.0**14
        )
        self.average = WeightAverage(model, how.ema) if how.ema else None
        self.best = math.inf
        self.worse = 0  # evaluations since the best
        self.step = 0
        self.losses: list[Tensor] = []  # of all ranks, since the last logged line

    def resume(self, root: Path, fingerprint: str) -> None:
        """Continue from the newest checkpoint, if there is one."""
        state = self.ranks.on_first(lambda: self._read(root, fingerprint)) or NOTHING
        read = [state.step, dict(state.numbers), bool(state.model)]
        step, numbers, found = self.ranks.of_first(read)
        if found:
            self._put(state)
            self.ranks.each(lambda: self._restore_numbers(numbers, checkpoint.folder(root, step)))
            self.step = step

    def _read(self, root: Path, fingerprint: str) -> TrainingState:
        checkpoint.clean(root)
        found = checkpoint.steps(root)
        if not found:
            return NOTHING
        path = checkpoint.folder(root, found[-1])
        state = checkpoint.read(root, found[-1])
        same_data(state.numbers, fingerprint, path)
        checkpoint.check_state(self.model, state, path)
        if self.average:
            checkpoint.compare(self.average.values, state.average, path, checkpoint.AVERAGE)
        return state

    @torch.no_grad()
    def _put(self, state: TrainingState) -> None:
        """Each tensor of the state of the first rank, or this rank's part of it."""
        load(self.model, state.model, self.ranks)
        named = dict(self.model.named_parameters())
        for full, value in self.ranks.tensors(state.optimiser):
            name, _, key = full.rpartition("/")
            checkpoint.place_optimiser_tensor(named[name], self.optimiser, key, value)
        values = self.average.values if self.average else {}
        for name, value in self.ranks.tensors(state.average if self.average else {}):
            values[name].copy_(sharded_like(values[name], value))

    def _restore_numbers(self, numbers: Any, path: Path) -> None:
        try:
            curves = {"lr_lambdas": [None] * len(self.optimiser.param_groups)}  # functions
            self.scheduler.load_state_dict(dict(numbers["scheduler"]) | curves)
            self.scaler.load_state_dict(dict(numbers["scaler"]))
            self.best = math.inf if numbers["best"] is None else float(numbers["best"])
            self.worse = int(numbers["worse"])
            losses = [float(loss) for loss in numbers["losses"]]
            rates = self.scheduler.get_last_lr()
            for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
                group["lr"] = rate
        except (KeyError, TypeError, ValueError, RuntimeError):
            what = "its scheduler, scaler or losses cannot be restored"
            raise checkpoint.broken(path, what) from None
        self.losses = [
            torch.tensor(loss, dtype=torch.float64, device=self.device) for loss in losses
        ]

    def save(self, root: Path, about: Mapping[str, Any], *, keep: int) -> Path:
        """Write a checkpoint, with `about` the recipe and the data."""
        scheduled = {k: v for k, v in self.scheduler.state_dict().items() if k != "lr_lambdas"}
        numbers = {
            **about,
            "scheduler": scheduled,
            "scaler": self.scaler.state_dict(),
            "losses": [loss.item() for loss in self.losses],
            "best": None if math.isinf(self.best) else self.best,
            "worse": self.worse,
        }
        model, optimiser, average = (
            complete(tensors, self.ranks)
            for tensors in (
                self.model.state_dict(),
                checkpoint.optimiser_tensors(self.model, self.optimiser),
                self.average.values if self.average else {},
            )
        )
        state = TrainingState(self.step, model, optimiser, numbers, average)
        self.ranks.on_first(lambda: checkpoint.write(root, state, keep=keep))
        return checkpoint.folder(root, self.step)

    def is_finite(self) -> bool:
        """Whether all weights are numbers, on all ranks."""
        mine = (getattr(p, "to_local", p.detach)() for p in self.model.parameters())
        return not self.ranks.any(not all(bool(weight.isfinite().all()) for weight in mine))


def complete(tensors: Mapping[str, Tensor], ranks: RankGroup) -> dict[str, Tensor]:
    """Tensors with the parts of all ranks, on the CPU of the first; the others keep none."""
    found = {}
    for name, tensor in tensors.items():
        joined = gathered(tensor.detach())
        if ranks.is_first:
            found[name] = joined.cpu()
    return found


@torch.no_grad()
def load(module: nn.Module, weights: Mapping[str, Tensor], ranks: RankGroup) -> None:
    """Give a module on all ranks the weights that the first of them has."""
    state = module.state_dict()
    for name, value in ranks.tensors(weights):
        state[name].copy_(sharded_like(state[name], value.to(state[name].device)))

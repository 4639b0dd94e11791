"""Epochs of updates by one call: the tapes of samples, and gradient descent or Adam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.tape.machine import ADAM, GRADIENT, NO_STEP, run, train
from edgewise.kernels.tape.recording import Recorder
from edgewise.kernels.tape.writer import NotRecordedError

Sample = Callable[[], tuple[Tensor, list[Tensor]]]  # the loss, and values that are shown
EPOCHS = 256  # by one call, which no signal interrupts
LARGEST_TAPE = 1 << 23  # numbers of all samples together
PLAIN_SGD = {"momentum": 0, "dampening": 0, "nesterov": False, "maximize": False}
PLAIN_ADAM = {"amsgrad": False, "maximize": False, "decoupled_weight_decay": False}


class TapeTraining:
    """`updates(optimiser, rates)` is one update for each sample in order, an epoch for each rate.

    A sample is called once while it is recorded, and once at other weights to compare: what depends
    on weights in a way that no operator of torch shows is refused, not computed wrongly.
    """

    def __init__(self, weights: Sequence[Tensor], samples: Sequence[Sample]) -> None:
        self.weights = list(weights)
        self.learned = [at for at, weight in enumerate(weights) if weight.requires_grad]
        if not self.learned or any(w.dtype != torch.float64 for w in weights):
            raise NotRecordedError("there are no weights of 64 bits to learn")
        recorder = Recorder(self.weights)
        tape = recorder.tape
        self.places = [recorder.addresses(w.detach()) for w in self.weights]
        self.shown: list[list[Tensor]] = []
        codes, parts, counts = [], [], [0]
        for sample in samples:
            first = len(tape.instructions)
            shown, gradients = self._recorded(recorder, sample)
            found = [(at, tape.elementwise("copy", [g])) for at, g in gradients.items()]
            codes.append(tape.code(first, [*shown, *(g for _, g in found)]))
            self.shown.append(shown)
            for at, gradient in found:
                flat = gradient.reshape(-1)
                start = int(self.places[at].reshape(-1)[0])
                parts.append((start, len(flat), int(flat[0]), at))
            counts.append(len(parts))
            if tape.size > LARGEST_TAPE:
                raise NotRecordedError("the samples need more numbers than a tape has")
        self.work, self.index = tape.array(), tape.index
        self.code = np.concatenate([np.zeros((0, 12), np.int64), *codes])
        self.bounds = np.cumsum([0, *map(len, codes)])
        self.parts, self.part_bounds = np.array(parts, np.int64).reshape(-1, 4), np.array(counts)
        self.moments = np.zeros((2, 1 + max(int(p.max()) for p in self.places if p.numel())))
        self.counts = np.zeros(len(self.weights), np.int64)
        self._compare(samples)

    def _recorded(
        self, recorder: Recorder, sample: Sample
    ) -> tuple[list[Tensor], dict[int, Tensor]]:
        """The addresses of what is shown, and of the gradients that there are."""
        with recorder:
            loss, shown = sample()
            gradients = self._gradients(loss)
        found = {at: recorder.addresses(g) for at, g in gradients.items() if g.numel()}
        return [recorder.addresses(t.detach()) for t in shown], found

    def _gradients(self, loss: Tensor) -> dict[int, Tensor]:
        if not loss.requires_grad:
            return {}
        learned = [self.weights[at] for at in self.learned]
        found = torch.autograd.grad(loss, learned, allow_unused=True)
        return {at: g for at, g in zip(self.learned, found, strict=True) if g is not None}

    def _compare(self, samples: Sequence[Sample]) -> None:
        """Refuse tapes that compute something else at other weights."""
        generator = torch.Generator().manual_seed(0)
        before = [weight.detach().clone() for weight in self.weights]
        try:
            with torch.no_grad():
                for weight in self.weights:
                    noise = torch.rand(weight.shape, generator=generator, dtype=weight.dtype)
                    weight.mul_(0.8 + 0.4 * noise)
            self._load()
            for at, sample in enumerate(samples):
                run(self.code, self.bounds[at], self.bounds[at + 1], self.index, self.work)
                loss, shown = sample()
                gradients = self._gradients(loss)
                parts = self.parts[self.part_bounds[at] : self.part_bounds[at + 1]]
                made = [self.work[places.numpy()] for places in self.shown[at]]
                made += [self.work[g : g + n] for _, n, g, _ in parts]
                wanted = [*shown, *(gradients[number] for *_, number in parts.tolist())]
                for mine, theirs in zip(made, wanted, strict=True):
                    values = theirs.detach().numpy().reshape(mine.shape)
                    if not np.allclose(mine, values, 1e-7, 1e-9, equal_nan=True):
                        raise NotRecordedError("a value changes in a way that torch does not show")
        finally:
            with torch.no_grad():
                for weight, value in zip(self.weights, before, strict=True):
                    weight.copy_(value)

    def _load(self) -> None:
        for weight, places in zip(self.weights, self.places, strict=True):
            if places.numel():
                start = int(places.reshape(-1)[0])
                flat = weight.detach().reshape(-1)
                self.work[start : start + len(flat)] = flat.numpy()

    def updates(
        self,
        optimiser: torch.optim.Optimizer | None,
        rates: Sequence[float],
        most: float | None = None,
        norm: float | None = None,
    ) -> None:
        """Update the weights; `most` and `norm` bound elements and norm of gradients."""
        kind, options = optimiser_options(optimiser)
        self._load()
        state = {} if optimiser is None else optimiser.state
        if kind == ADAM:
            self._read(state)
        bounds = [-1.0 if bound is None else float(bound) for bound in (most, norm)]
        tape = self.code, self.bounds, self.index, self.work, self.parts, self.part_bounds
        numbers, every = np.array([*options, *bounds]), np.array(rates, np.float64)
        try:
            for start in range(0, len(every), EPOCHS):
                some = every[start : start + EPOCHS]
                train(*tape, some, kind, numbers, self.moments, self.counts)
        finally:
            if kind != NO_STEP:
                self._store()
            if kind == ADAM:
                self._write(state)

    def _store(self) -> None:
        """Give weights what was learned; nobody else sees that they change."""
        changed = [self.weights[at] for at in self.learned]
        for at in self.learned:
            values = torch.tensor(self.work[self.places[at].numpy()])
            self.weights[at].data.copy_(values)
        torch.autograd.graph.increment_version(changed)

    def _read(self, state: Any) -> None:
        for at in self.learned:
            held, places = state.get(self.weights[at]), self.places[at].numpy()
            self.counts[at] = 0 if not held else int(held["step"])
            for row, name in enumerate(("exp_avg", "exp_avg_sq")):
                self.moments[row][places] = 0 if not held else held[name].numpy()

    def _write(self, state: Any) -> None:
        for at in self.learned:
            if self.counts[at]:
                places = self.places[at].numpy()
                names = zip(("exp_avg", "exp_avg_sq"), self.moments, strict=True)
                found: dict[str, Tensor] = {n: torch.tensor(m[places]) for n, m in names}
                state[self.weights[at]] = {"step": torch.tensor(float(self.counts[at])), **found}

    def values(self, sample: int) -> list[Tensor]:
        """What a sample showed when it was last computed."""
        return [torch.tensor(self.work[places.numpy()]) for places in self.shown[sample]]


def optimiser_options(optimiser: torch.optim.Optimizer | None) -> tuple[int, list[float]]:
    """The kind of an optimiser, its weight decay, betas and epsilon."""
    if optimiser is None:
        return NO_STEP, [0.0] * 4
    (group,) = optimiser.param_groups
    kinds: dict[type, tuple[int, dict[str, Any]]] = {
        torch.optim.SGD: (GRADIENT, PLAIN_SGD),
        torch.optim.Adam: (ADAM, PLAIN_ADAM),
    }
    kind, plain = kinds.get(type(optimiser), (NO_STEP, {}))
    if kind == NO_STEP or any(group.get(name, value) != value for name, value in plain.items()):
        raise NotRecordedError("a tape has plain gradient descent and Adam")
    betas = group.get("betas", (0.0, 0.0))
    return kind, [group["weight_decay"], *betas, group.get("eps", 0.0)]

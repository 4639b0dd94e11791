"""Epochs of updates by one call: the tapes of samples, and gradient descent or Adam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edgewise.kernels.tape.instructions import WIDTH, computed_numbers
from edgewise.kernels.tape.recording import Recorder
from edgewise.kernels.tape.writer import LARGEST, NotRecordedError

if TYPE_CHECKING:
    from edgewise.kernels.tape.machine_code import MachineCode

Sample = Callable[[], tuple[Tensor, list[Tensor]]]  # the loss, and values that are shown
EPOCHS = 256  # by one call, which no signal interrupts
READ = 20  # numbers that are computed while one instruction is read
WORTH = 40_000  # and while machine code of half a number is made
MOST_COMPUTED = 1 << 14  # numbers that have machine code: more take seconds to compile
NO_FUNCTIONS = np.zeros(0, np.int64)
NO_STEP, GRADIENT, ADAM = range(3)
KINDS = {torch.optim.SGD: GRADIENT, torch.optim.Adam: ADAM, torch.optim.AdamW: ADAM}
STATE = {NO_STEP: (), GRADIENT: ("momentum_buffer",), ADAM: ("exp_avg", "exp_avg_sq")}
TOLERANCE = {torch.float32: (1e-3, 1e-5), torch.float64: (1e-7, 1e-9)}


class TapeTraining:
    """`updates(optimiser, rates)` is one update for each sample in order, an epoch for each rate.

    A sample is called once while it is recorded, and once at other weights and inputs to compare:
    what depends on them in a way that no operator of torch shows is refused, not computed wrongly.
    Tensors of `inputs` are read again for every call; all others are constants.
    """

    def __init__(
        self, weights: Sequence[Tensor], samples: Sequence[Sample], inputs: Sequence[Tensor] = ()
    ) -> None:
        self.weights, self.inputs = list(weights), list(inputs)
        self.learned = [at for at, weight in enumerate(weights) if weight.requires_grad]
        kind = weights[0].dtype if weights else None
        if not self.learned or kind not in TOLERANCE or any(w.dtype != kind for w in weights):
            raise NotRecordedError("there are no weights of 32 or 64 bits to learn")
        if any(t.device.type != "cpu" for t in (*weights, *inputs)):
            raise NotRecordedError("a tape runs on a CPU")
        recorder = Recorder(self.weights, self.inputs)
        tape = recorder.tape
        self.places = [recorder.addresses(w.detach()) for w in self.weights]
        self.shown: list[list[Tensor]] = []
        self.losses: list[int] = []
        lines: list[list[int]] = []
        steps, parts, starts = [np.zeros((0, 3), np.int64)], [], [(0, 0)]
        for sample in samples:
            first = len(tape.instructions)
            loss, shown, gradients = self._recorded(recorder, sample)
            found = self._apart(recorder, first, gradients, [loss, *shown])
            own, schedule = tape.code(first, [loss, *shown, *(g for _, g in found)])
            steps.append(schedule + np.array([len(lines), 0, 0]))
            lines += own
            self.shown.append(shown)
            self.losses.append(int(loss))
            for at, gradient in found:
                flat = gradient.reshape(-1)
                start = int(self.places[at].reshape(-1)[0])
                parts.append((start, len(flat), int(flat[0]), at))
            starts.append((starts[-1][0] + len(schedule), len(parts)))
            if tape.size > LARGEST:
                raise NotRecordedError("the samples need more numbers than a tape has")
        self.work = tape.array(self.weights[0].detach().numpy().dtype)
        code = np.array(lines, np.int64).reshape(-1, WIDTH)
        self.tape = code, np.concatenate(steps), tape.index
        self.numbers = computed_numbers(code, self.tape[1])
        self._constants = tape.known_constants() if self.numbers <= MOST_COMPUTED else None
        self._machine: MachineCode | None = None
        self._epochs = 0
        self.parts = np.array(parts, np.int64).reshape(-1, 4)
        self.starts = np.array(starts, np.int64)
        size = 1 + max(int(p.max()) for p in self.places if p.numel())
        self.moments = np.zeros((2, size), self.work.dtype)
        self.counts = np.zeros(len(self.weights), np.int64)
        tensors = [*self.weights, *self.inputs]
        self._parts = [self._part(recorder, t, self.work) for t in tensors]
        self._written: dict[int, tuple[list[tuple[str, Tensor, int]], list[np.ndarray]]] = {}
        self._moments = [[self._part(recorder, w, m) for w in self.weights] for m in self.moments]
        self._shown = [[(t.reshape(-1).numpy(), t.shape) for t in listed] for listed in self.shown]
        self.give(self.weights, self.inputs)
        self._compare(samples)

    def _part(self, recorder: Recorder, tensor: Tensor, numbers: np.ndarray) -> np.ndarray:
        """The part of numbers by address that has the elements of a tensor, in its shape."""
        places = recorder.addresses(tensor.detach()).reshape(-1)
        start = int(places[0]) if len(places) else 0
        return numbers[start : start + len(places)].reshape(tensor.shape)

    def _recorded(
        self, recorder: Recorder, sample: Sample
    ) -> tuple[Tensor, list[Tensor], dict[int, Tensor]]:
        """The addresses of the loss, of what is shown, and of the gradients that there are."""
        with recorder:
            loss, shown = sample()
            gradients = self._gradients(loss)
        found = {at: recorder.addresses(g) for at, g in gradients.items() if g.numel()}
        first = recorder.addresses(loss.detach()).reshape(-1)[0]
        return first, [recorder.addresses(t.detach()) for t in shown], found

    def _apart(
        self, recorder: Recorder, first: int, gradients: dict[int, Tensor], others: list[Tensor]
    ) -> list[tuple[int, Tensor]]:
        """Gradients at addresses of their own, one after another: they may be clipped there."""
        tape, found = recorder.tape, []
        taken = {at for t in others for at in t.reshape(-1).tolist()}
        for number, gradient in gradients.items():
            places = gradient.reshape(-1).tolist()
            if not taken.isdisjoint(places) or not tape.is_own(gradient, first):
                gradient = tape.copy(gradient)
            taken.update(places)
            found.append((number, gradient))
        return found

    def _gradients(self, loss: Tensor) -> dict[int, Tensor]:
        if not loss.requires_grad:
            return {}
        learned = [self.weights[at] for at in self.learned]
        found = torch.autograd.grad(loss, learned, allow_unused=True)
        return {at: g for at, g in zip(self.learned, found, strict=True) if g is not None}

    def _compare(self, samples: Sequence[Sample]) -> None:
        """Refuse tapes that compute something else at other weights."""
        generator = torch.Generator().manual_seed(0)
        changed = [*self.weights]
        before = [weight.detach().clone() for weight in changed]
        relative, absolute = TOLERANCE[self.weights[0].dtype]
        try:
            for weight in changed:
                noise = torch.rand(weight.shape, generator=generator, dtype=weight.dtype)
                weight.data.mul_(0.8 + 0.4 * noise)
            self.load()
            for at, sample in enumerate(samples):
                self.run(at)
                loss, shown = sample()
                gradients = self._gradients(loss)
                parts = self.parts[self.starts[at, 1] : self.starts[at + 1, 1]]
                made = [self.work[places.numpy()] for places in self.shown[at]]
                made += [self.work[g : g + n] for _, n, g, _ in parts]
                wanted = [*shown, *(gradients[number] for *_, number in parts.tolist())]
                for mine, theirs in zip(made, wanted, strict=True):
                    values = theirs.detach().numpy().reshape(mine.shape)
                    if not np.allclose(mine, values, relative, absolute, equal_nan=True):
                        raise NotRecordedError("a value changes in a way that torch does not show")
        finally:
            for weight, value in zip(changed, before, strict=True):
                weight.data.copy_(value)

    def give(self, weights: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        """Read, and update, other tensors of the same shapes from now on."""
        self.targets = list(weights)
        self._sources = [t.detach().numpy() for t in (*weights, *inputs)]

    def load(self) -> None:
        """Read weights and inputs."""
        for part, source in zip(self._parts, self._sources, strict=True):
            part[...] = source

    def run(self, sample: int) -> None:
        """Loss, values and gradients of a sample."""
        from edgewise.kernels.tape.numba_loops import run

        first, last = int(self.starts[sample, 0]), int(self.starts[sample + 1, 0])
        code, steps, index = self.tape
        run(code, steps, first, last, index, self.work)

    def updates(
        self,
        optimiser: torch.optim.Optimizer | None,
        rates: Sequence[float] | None = None,
        most: float | None = None,
        norm: float | None = None,
    ) -> None:
        """Update the weights, by one epoch of the optimiser's rates, or by as many as there are
        `rates`; `most` and `norm` bound elements and norm of gradients."""
        from edgewise.kernels.tape.numba_training import train

        kind, own, options = optimiser_options(optimiser, self.targets)
        every = np.tile(own, (1, 1)) if rates is None else np.array(rates)[:, None] + 0 * own
        self.load()
        state = {} if optimiser is None else optimiser.state
        if kind == ADAM or options[:, 1].any():  # momentum
            self._read_state(kind, state)
        bounds = np.array([-1.0 if bound is None else float(bound) for bound in (most, norm)])
        samples = self.work, self.parts, self.starts, kind
        try:
            for start in range(0, len(every), EPOCHS):
                some = every[start : start + EPOCHS]
                functions = self._functions(len(some))
                rest = some, options, bounds, self.moments, self.counts
                train(self.tape, functions, *samples, *rest)
        finally:
            if kind != NO_STEP:
                self._store()
                self._write_state(kind, options, state)

    def _functions(self, epochs: int) -> np.ndarray:
        """Machine code of samples, once they ran for half as long as it takes to compile them."""
        self._epochs += epochs
        cost = self._epochs * (READ * len(self.tape[1]) + self.numbers)
        if self._machine is None and cost >= WORTH * self.numbers and self._constants is not None:
            self._machine = self._compiled(self._constants)
        return NO_FUNCTIONS if self._machine is None else self._machine.addresses

    def _compiled(self, constants: dict[int, float]) -> MachineCode:
        from edgewise.kernels.tape.machine_code import MachineCode

        outputs = []
        for at, listed in enumerate(self.shown):
            parts = self.parts[self.starts[at, 1] : self.starts[at + 1, 1]].tolist()
            read = {p for places in listed for p in places.reshape(-1).tolist()}
            read.update(p for _, n, g, _ in parts for p in range(g, g + n))
            outputs.append(read | {self.losses[at]})
        return MachineCode(self.tape, self.starts, constants, outputs, self.work.dtype)

    def _store(self) -> None:
        """Give weights what was learned, and note that they changed."""
        for at in self.learned:
            self._sources[at][...] = self._parts[at]
        torch.autograd.graph.increment_version([self.targets[at] for at in self.learned])

    def _read_state(self, kind: int, state: Any) -> None:
        for at in self.learned if STATE[kind] else ():
            held = state.get(self.targets[at]) or {}
            if self._is_written(at, held):  # by this kind: moments are those, steps may have passed
                self.counts[at] = int(self._written[at][1][-1]) if kind == ADAM else 1
                continue
            known = all(held.get(name) is not None for name in STATE[kind])
            self.counts[at] = int(held.get("step", 1)) if known else 0
            for row, name in enumerate(STATE[kind]):
                self._moments[row][at][...] = held[name].numpy() if known else 0

    def _write_state(self, kind: int, options: np.ndarray, state: Any) -> None:
        for at in self.learned:
            if not self.counts[at] or (kind == GRADIENT and not options[at, 1]):
                continue
            weight = self.targets[at]
            held = state[weight]
            names = [*STATE[kind], *(["step"] if kind == ADAM else [])]
            if not self._is_written(at, held):
                for name in names:
                    like = torch.tensor(0.0) if name == "step" else weight.detach()
                    if held.get(name) is None:
                        held[name] = torch.empty_like(like)
                found = [(name, held[name], held[name]._version) for name in names]
                self._written[at] = found, [tensor.numpy() for _, tensor, _ in found]
            for place, part in zip(self._written[at][1], self._moments_of(kind, at), strict=True):
                place[...] = part

    def _moments_of(self, kind: int, at: int) -> list[Any]:
        """The moments of a weight, and the number of its steps where the optimiser holds it."""
        found: list[Any] = [moments[at] for moments in self._moments[: len(STATE[kind])]]
        return [*found, self.counts[at]] if kind == ADAM else found

    def _is_written(self, at: int, held: Any) -> bool:
        """Whether an optimiser holds what was written last, and nobody has changed it."""
        known, _ = self._written.get(at, ((), ()))
        return bool(known) and all(
            held.get(name) is tensor and tensor._version == version
            for name, tensor, version in known
        )

    def gradients(self, sample: int) -> dict[int, Tensor]:
        """Those that a sample had when it was last computed, by the number of the weight."""
        sample %= len(self.shown)
        parts = self.parts[self.starts[sample, 1] : self.starts[sample + 1, 1]].tolist()
        return {
            at: torch.from_numpy(self.work[g : g + n].copy()).reshape(self.weights[at].shape)
            for _, n, g, at in parts
        }

    def last_losses(self) -> Tensor:
        """Those of all samples when they were last computed."""
        return torch.from_numpy(self.work[self.losses])

    def values(self, sample: int) -> list[Tensor]:
        """What a sample showed when it was last computed."""
        found = self._shown[sample]
        return [torch.from_numpy(self.work[flat]).view(shape) for flat, shape in found]


def optimiser_options(
    optimiser: torch.optim.Optimizer | None, weights: Sequence[Tensor]
) -> tuple[int, np.ndarray, np.ndarray]:
    """The kind of an optimiser, the rate of each weight, and the other options of each."""
    rates, options = np.zeros(len(weights)), np.zeros((len(weights), 6))
    if optimiser is None:
        return NO_STEP, rates, options
    kind = KINDS.get(type(optimiser))
    if kind is None:
        raise NotRecordedError("a tape has gradient descent, Adam and AdamW")
    numbers = {id(weight): at for at, weight in enumerate(weights)}
    for group in optimiser.param_groups:
        if any(group.get(name) for name in ("amsgrad", "capturable", "differentiable")):
            raise NotRecordedError("a tape has no `amsgrad`, `capturable` and `differentiable`")
        sign = -1.0 if group["maximize"] else 1.0
        if kind == GRADIENT:
            own = [group["momentum"], group["dampening"], group["nesterov"], sign, 0.0]
        else:
            own = [*group["betas"], group["eps"], sign, group.get("decoupled_weight_decay", False)]
        for weight in group["params"]:
            at = numbers.get(id(weight))
            if at is not None:
                rates[at], options[at] = (
                    float(group["lr"]),
                    [group["weight_decay"], *map(float, own)],
                )
    return kind, rates, options

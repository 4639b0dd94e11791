"""The training loop: forward, backward, step; evaluation, checkpoints and exact resumption."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import Span
from edgewise.save.archive import write
from edgewise.training.cost import COST, recorded
from edgewise.training.errors import Diverged, NotWritable
from edgewise.training.objectives.objective import Average
from edgewise.training.randomness import deterministic, seed_of
from edgewise.training.ranks.group import ALONE, RankGroup, joined
from edgewise.training.ranks.ways import Setup, way_of
from edgewise.training.recipe import Recipe, check_recipe
from edgewise.training.runs import checkpoint, folder, logs, model_files, run_state
from edgewise.training.runs.card import write_card
from edgewise.training.runs.logs import Logs
from edgewise.training.runs.resuming import same_recipe, same_run, shared_corpus
from edgewise.training.runs.run_state import RunState

BEST = "best.safetensors"
LOWER = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Event:
    """What happened: start, step, evaluate, checkpoint, and at last end or interrupted.

    >>> Event("step", 10, {"loss": 1.25}).values["loss"]
    1.25
    """

    kind: str
    step: int
    values: dict[str, Any]


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    data: str | Path | None = None,
    resume: bool = True,
    device: str | torch.device | None = None,
    tensorboard: bool = False,
    stop: threading.Event | None = None,
) -> Iterator[Event]:
    """Run a recipe in the folder `out` and yield events as they happen.

    `edgewise.training.runs.folder` says what the folder holds. Paths in the recipe are relative to
    `data`, by default to the folder of the recipe; for the recipe in the folder of a run, to where
    the data of that run was. A run that is there continues from its newest checkpoint, bit for bit
    as if it had not been interrupted; `resume=False` refuses it. When `stop` is set, the run saves
    a checkpoint after the step and ends.

    >>> from edgewise import training
    >>> recipe = training.load("recipe.toml")
    >>> [event.kind for event in training.train(recipe, "run")][-1]
    'end'
    """
    check_recipe(recipe)
    logs.require(tensorboard)
    with joined() as ranks, ExitStack() as held:
        out = Path(out)
        try:
            ranks.on_first(lambda: folder.check(out, resume))
            ranks.on_first(lambda: same_recipe(out, recipe))
            where = ranks.each(lambda: folder.data_folder(recipe.path, data))
            corpus = shared_corpus(ranks, recipe, where, out)
            run = _TrainingRun(recipe, corpus, _device(device, ranks), out, ranks)
            ranks.on_first(lambda: held.enter_context(_alone(out)))
            run.start()
            ranks.on_first(lambda: folder.write_data_folder(out, where))
            yield from run.events(tensorboard, stop or threading.Event())
        except OSError as problem:
            raise NotWritable(
                f"the run cannot be written: {problem.strerror or problem}",
                Span.of("<out>", out),
                "free disk space or choose another folder; the same command continues the run",
            ) from None


def _alone(out: Path) -> AbstractContextManager[None]:
    out.mkdir(parents=True, exist_ok=True)
    return folder.alone(out)


def _device(chosen: str | torch.device | None, ranks: RankGroup) -> torch.device:
    """The device of this rank: of a machine with several GPUs, its own."""
    device = torch.device(chosen or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and device.index is None and not ranks.is_alone:
        own = int(os.environ.get("LOCAL_RANK", ranks.rank)) % torch.cuda.device_count()
        device = torch.device("cuda", own)
        torch.cuda.set_device(device)
    return device


class _TrainingRun:
    state: RunState  # since `start`

    def __init__(
        self, recipe: Recipe, corpus: Any, device: torch.device, out: Path, ranks: RankGroup
    ) -> None:
        self.recipe, self.corpus, self.device, self.out = recipe, corpus, device, out
        self.how, self.objective, self.ranks = recipe.training, recipe.objective, ranks
        words = ranks.each(lambda: self.objective.words(corpus))
        seed = seed_of(self.how.seed, "weights")
        wide = torch.float64 if self.how.precision == "float64" else torch.float32
        build = recipe.model.build
        self.model: Any = ranks.each(lambda: build(words, corpus, seed).to(device, wide))
        same_run(ranks, recipe, corpus, self.model.program)

    @property
    def checkpoints(self) -> Path:
        return self.out / "checkpoints"

    def start(self) -> None:
        """Describe a run before its first step, then share it among ranks, and resume it."""
        self.ranks.on_first(self._describe)
        setup = Setup(self.recipe, self.corpus, self.model, self.ranks, self.device)
        self.way = self.ranks.each(lambda: way_of(setup))
        self.state = RunState(self.model, self.how, self.device, self.ranks)
        self.fast: Any = torch.compile(self.way.model) if self.how.compile else self.way.model
        self.state.resume(self.checkpoints, self.corpus.fingerprint)
        if self.step:
            self._write_current()  # a kill may have come after the checkpoint

    @property
    def step(self) -> int:
        return self.state.step

    def _describe(self) -> None:
        if max(checkpoint.steps(self.checkpoints), default=0) == 0:
            model_files.describe(self.out, self.recipe, self.corpus, self.model.program)
            cost = recorded(self.recipe, self.model, self.corpus, self.device)
            write(self.out / COST, (json.dumps(cost, indent=1) + "\n").encode())

    def events(self, tensorboard: bool, stop: threading.Event) -> Iterator[Event]:
        with ExitStack() as held:
            log = self.ranks.on_first(lambda: Logs(self.out, self.step, tensorboard=tensorboard))
            if log is not None:
                held.callback(log.close)
            size = sum(p.numel() for p in self.model.parameters())
            words = int(self.objective.words(self.corpus))
            yield Event("start", self.step, {"parameters": size, "words": words})
            if self.ranks.of_first(not checkpoint.steps(self.checkpoints)):
                yield self._saved(log)
            yield from self._steps(log, stop)
            if self._done():
                yield self._ended(log)
            else:
                self._logs(log, lambda own: own.tables(self.recipe.path.stem))
                yield Event("interrupted", self.step, {"steps": self.how.steps})

    def _logs(self, log: Logs | None, action: Callable[[Logs], None]) -> None:
        """Only the first rank writes; what goes wrong there ends all."""
        self.ranks.on_first(lambda: action(log) if log is not None else None)

    def _done(self) -> bool:
        """After the last step, or without improvement for too long."""
        return self.step >= self.how.steps or 0 < self.how.patience <= self.state.worse

    def _steps(self, log: Logs | None, stop: threading.Event) -> Iterator[Event]:
        how, before, since = self.how, time.perf_counter(), self.step
        self.fast.train()
        while not self._done():
            with deterministic(how.deterministic):
                self.state.losses.append(self._one())
            self.state.step += 1
            last = self.step == how.steps
            if self.step % how.log == 0 or last:
                now = time.perf_counter()
                values = self._logged((now - before) / (self.step - since))
                before, since = now, self.step
                yield self._event("step", values, log)
            if self.step % how.evaluate == 0 or last:
                yield self._event("evaluate", self._evaluated(), log)
                self.fast.train()
                before, since = time.perf_counter(), self.step
            stops = self.ranks.any(stop.is_set())
            if self.step % how.checkpoint == 0 or self._done() or stops:
                yield self._saved(log)
                before, since = time.perf_counter(), self.step
            if stops:
                return

    def _event(self, kind: str, values: dict[str, float], log: Logs | None) -> Event:
        self._logs(log, lambda own: own.add(self.step, values))
        return Event(kind, self.step, values)

    def _one(self) -> Tensor:
        """One step; its loss stays on the device."""
        how, state = self.how, self.state
        rank = () if self.ranks.is_first else ("rank", self.ranks.rank)  # each drops its own
        torch.manual_seed(seed_of(how.seed, "step", self.step, *rank))
        micro = range(self.step * how.accumulate, (self.step + 1) * how.accumulate)
        loss = self.way.reduced(torch.stack([self._backward(at) for at in micro]).mean())
        if how.clip:
            state.scaler.unscale_(state.optimiser)
            nn.utils.clip_grad_norm_(state.weights, how.clip)
        state.scaler.step(state.optimiser)
        state.scaler.update()
        state.optimiser.zero_grad(set_to_none=True)
        state.scheduler.step()
        if state.average:
            state.average.update(self.step)
        return loss

    def _backward(self, at: int) -> Tensor:
        """The gradient of one batch, of this rank's part; its share of the loss."""
        how, way = self.how, self.way
        batch = self.corpus.batch(how.batch, how.seed, at)
        batch = self.objective.drawn(batch, self.corpus, seed_of(how.seed, "loss", at))
        part, share = way.part(batch)
        if part is None:
            nothing = torch.zeros((), device=self.device)
            self.state.scaler.scale(nothing)  # its scale is made with the first loss
            return nothing
        with self._precision():
            loss: Tensor = self.objective.loss(self.fast, self._moved(part))
        self.state.scaler.scale(loss * (way.factor * share) / how.accumulate).backward()
        # the mean over nothing is not a number, and counts nothing
        return loss.detach() * share if share else torch.zeros_like(loss)

    def _precision(self) -> torch.autocast:
        lower = LOWER.get(self.how.precision)
        return torch.autocast(self.device.type, lower, enabled=lower is not None)

    def _moved(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.device.type == "cpu":
            return batch
        names = getattr(self.corpus, "moved", batch)
        moved = {n: batch[n].pin_memory() for n in names if n in batch}
        return batch | {n: t.to(self.device, non_blocking=True) for n, t in moved.items()}

    def _logged(self, seconds: float) -> dict[str, float]:
        loss = torch.stack([loss.double() for loss in self.state.losses]).mean().item()
        self._finite(loss)
        self.state.losses = []
        rate = float(self.state.scheduler.get_last_lr()[0])
        return {"loss": loss, "rate": rate, "seconds": seconds}

    def _finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise Diverged(
                f"the loss is {loss} at step {self.step}",
                Span.of("<recipe>", self.recipe.path),
                "lower `rate`, raise `warmup`, or set `clip`",
            )

    def _averaged(self) -> AbstractContextManager[None]:
        """The model has the weights to evaluate and to save inside."""
        average = self.state.average
        return average.applied(self.model) if average else nullcontext()

    def _measured(self, size: int, part: str) -> dict[str, float]:
        """What the objective measures on a part of the data, over all ranks."""
        found = Average()
        self.way.model.eval()
        read = (self.objective.drawn(b, self.corpus, 0) for b in self.corpus.validation(size, part))
        for batch, counts in self.way.measured(read):
            into = found if counts else Average()
            self.objective.measure(self.way.model, self._moved(batch), into)
        if self.ranks.is_alone:
            return found.means()
        together = Average()
        for packed in self.ranks.gather(found.packed()):
            together.unpack(packed)
        return together.means()

    @torch.no_grad()
    def _evaluated(self) -> dict[str, float]:
        state = self.state
        with self._averaged():
            with self._precision():
                means = self._measured(max(self.how.batch, 32), "validation")
            loss = means.get("loss", math.inf)
            if loss < state.best:
                self._write_weights(model_files.WEIGHTS if self._measures_best else BEST)
        self._finite(means.get("loss", 0.0))
        state.worse = 0 if loss < state.best else state.worse + 1
        state.best = min(state.best, loss)
        return {f"validation {name}": value for name, value in means.items()}

    @property
    def _measures_best(self) -> bool:
        return bool(self.how.measured == "best")

    def _write_weights(self, name: str) -> None:
        weights = model_files.weights_of(self.model.program, self.ranks.is_first)
        self.ranks.on_first(lambda: model_files.write_weights(self.out, weights, self.step, name))

    def _write_current(self) -> None:
        """Write the weights of this step as those to use, unless better ones are."""
        if not self._measures_best or math.isinf(self.state.best):
            with self._averaged():
                self._write_weights(model_files.WEIGHTS)

    def _saved(self, log: Logs | None) -> Event:
        self._finite(sum(loss.item() for loss in self.state.losses))
        if not self.state.is_finite():
            self._finite(math.nan)  # the loss of the next step
        self._logs(log, Logs.sync)
        about = {"recipe": self.recipe.json(), "data": self.corpus.fingerprint}
        path = self.state.save(self.checkpoints, about, keep=self.how.keep)
        self._write_current()
        return Event("checkpoint", self.step, {"path": str(path)})

    @torch.no_grad()
    def _ended(self, log: Logs | None) -> Event:
        """The test part over all ranks; the rest by the first alone, with all weights."""
        path, program = self.out / model_files.WEIGHTS, self.model.program
        weights = self.ranks.on_first(lambda: checkpoint.read_weights(path, program))
        run_state.load(program, weights or {}, self.ranks)
        tested = self.objective.tested and "test" in self.corpus.parts
        means = self._measured(64, "test") if tested else {}
        summary: dict[str, Any] = {f"test {name}": value for name, value in means.items()}
        if log is not None:
            summary = self._summary(log, summary | self._finished(weights or {}))
            write(self.out / "summary.json", (json.dumps(summary, indent=1) + "\n").encode())
            log.tables(self.recipe.path.stem)
            write_card(self.out)
        return Event("end", self.step, summary)

    def _finished(self, weights: dict[str, Tensor]) -> dict[str, Any]:
        """What the objective computes at the end; lists are files, a line for each example."""
        model = self.model
        if self.way.is_sharded:
            words = self.objective.words(self.corpus)
            model = self.recipe.model.build(words, self.corpus, 0).to(self.device)
            run_state.load(model.program, weights, ALONE)
        model.eval()
        final: dict[str, Any] = self.objective.finish(model, self.corpus, self.device)
        for name, value in final.items():
            if isinstance(value, list):
                lines = [" ".join(line.splitlines()) for line in value]  # one for each example
                write(self.out / f"{name}.txt", "".join(f"{line}\n" for line in lines).encode())
        model_files.choose(self.out, final)
        return {name: value for name, value in final.items() if not isinstance(value, list)}

    def _summary(self, log: Logs, final: dict[str, Any]) -> dict[str, Any]:
        measured = [row for row in log.rows() if "validation loss" in row]
        return {
            "recipe": self.recipe.json(),
            "steps": self.step,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            **{name: value for name, value in (measured[-1] if measured else {}).items()},
            "best validation loss": None if math.isinf(self.state.best) else self.state.best,
            **final,
        }

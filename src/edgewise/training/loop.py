"""The training loop: forward, backward, step; evaluation, checkpoints and exact resumption."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import Span
from edgewise.save.archive import write
from edgewise.training import checkpoint, folder, logs, model_files
from edgewise.training.average import WeightAverage
from edgewise.training.card import write_card
from edgewise.training.checkpoint import TrainingState
from edgewise.training.cost import COST, recorded
from edgewise.training.errors import Diverged, NotWritable
from edgewise.training.logs import Logs
from edgewise.training.objective import Average
from edgewise.training.optimiser import adam, scheduler
from edgewise.training.randomness import deterministic, seed_of
from edgewise.training.recipe import Recipe, check_recipe
from edgewise.training.same import same_data, same_recipe, tokenizer_of_run

BEST = "best.safetensors"
LOWER = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Event:
    """What happened: start, step, evaluate, checkpoint, and at last end or interrupted."""

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

    `edgewise.training.folder` says what the folder holds. Paths in the recipe are relative to
    `data`, by default to the folder of the recipe; for the recipe in the folder of a run, to where
    the data of that run was. A run that is there continues from its newest checkpoint, bit for bit
    as if it had not been interrupted; `resume=False` refuses it. When `stop` is set, the run saves
    a checkpoint after the step and ends.
    """
    check_recipe(recipe)
    out = Path(out)
    logs.require(tensorboard)
    folder.check(out, resume)
    same_recipe(out, recipe)
    where = folder.data_folder(recipe.path, data)
    corpus = recipe.data.read(where, tokenizer_of_run(out, recipe))
    run = _TrainingRun(recipe, corpus, torch.device(device or _device()), out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with folder.alone(out):
            run.resume()
            run.describe()
            folder.write_data_folder(out, where)
            yield from run.events(tensorboard, stop or threading.Event())
    except OSError as problem:
        raise NotWritable(
            f"the run cannot be written: {problem.strerror or problem}",
            Span.of("<out>", out),
            "free disk space or choose another folder; the same command continues the run",
        ) from None


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class _TrainingRun:
    def __init__(self, recipe: Recipe, corpus: Any, device: torch.device, out: Path) -> None:
        self.recipe, self.corpus, self.device, self.out = recipe, corpus, device, out
        self.how, self.objective = recipe.training, recipe.objective
        words = self.objective.words(corpus)
        seed = seed_of(self.how.seed, "weights")
        wide = torch.float64 if self.how.precision == "float64" else torch.float32
        self.model: Any = recipe.model.build(words, corpus, seed).to(device, wide)
        self.optimiser = adam(self.model, self.how, device)
        self.scheduler = scheduler(self.optimiser, self.how)
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=self.how.precision == "float16", init_scale=2.0**14
        )
        self.average = WeightAverage(self.model, self.how.ema) if self.how.ema else None
        self.best = math.inf
        self.worse = 0  # evaluations since the best
        self.step = 0
        self.losses: list[Tensor] = []  # since the last logged line
        self.fast: Any = torch.compile(self.model) if self.how.compile else self.model

    @property
    def checkpoints(self) -> Path:
        return self.out / "checkpoints"

    def resume(self) -> None:
        """Continue from the newest checkpoint, if there is one."""
        checkpoint.clean(self.checkpoints)
        found = checkpoint.steps(self.checkpoints)
        if not found:
            return
        path = checkpoint.folder(self.checkpoints, found[-1])
        state = checkpoint.read(self.checkpoints, found[-1])
        same_data(state.numbers, self.corpus.fingerprint, path)
        checkpoint.restore(self.model, self.optimiser, state, path)
        if self.average:
            checkpoint.compare(self.average.values, state.average, path, checkpoint.AVERAGE)
            names = self.average.values
            self.average.values = {n: state.average[n].to(self.device) for n in names}
        try:
            self._restore_numbers(state.numbers)
        except (KeyError, TypeError, ValueError, RuntimeError):
            what = "its scheduler, scaler or losses cannot be restored"
            raise checkpoint.broken(path, what) from None
        self.step = state.step

    def _restore_numbers(self, numbers: Any) -> None:
        curves = {"lr_lambdas": [None] * len(self.optimiser.param_groups)}  # functions
        self.scheduler.load_state_dict(dict(numbers["scheduler"]) | curves)
        self.scaler.load_state_dict(dict(numbers["scaler"]))
        self.best = math.inf if numbers["best"] is None else float(numbers["best"])
        self.worse = int(numbers["worse"])
        losses = [float(loss) for loss in numbers["losses"]]
        self.losses = [
            torch.tensor(loss, dtype=torch.float64, device=self.device) for loss in losses
        ]
        rates = self.scheduler.get_last_lr()
        for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
            group["lr"] = rate

    def describe(self) -> None:
        """Write what a run is, before its first step."""
        if self.step == 0:
            model_files.describe(self.out, self.recipe, self.corpus, self.model.program)
            cost = recorded(self.recipe, self.model, self.corpus, self.device)
            write(self.out / COST, (json.dumps(cost, indent=1) + "\n").encode())
        else:
            self._write_current()  # a kill may have come after the checkpoint

    def events(self, tensorboard: bool, stop: threading.Event) -> Iterator[Event]:
        log = Logs(self.out, self.step, tensorboard=tensorboard)
        try:
            size = sum(p.numel() for p in self.model.parameters())
            words = int(self.objective.words(self.corpus))
            yield Event("start", self.step, {"parameters": size, "words": words})
            if not checkpoint.steps(self.checkpoints):
                yield self._saved(log)
            yield from self._steps(log, stop)
            if self._done():
                yield self._ended(log)
            else:
                log.tables(self.recipe.path.stem)
                yield Event("interrupted", self.step, {"steps": self.how.steps})
        finally:
            log.close()

    def _done(self) -> bool:
        """After the last step, or without improvement for too long."""
        return self.step >= self.how.steps or 0 < self.how.patience <= self.worse

    def _steps(self, log: Logs, stop: threading.Event) -> Iterator[Event]:
        how, before, since = self.how, time.perf_counter(), self.step
        while not self._done():
            with deterministic(how.deterministic):
                self.losses.append(self._one())
            self.step += 1
            last = self.step == how.steps
            if self.step % how.log == 0 or last:
                now = time.perf_counter()
                values = self._logged((now - before) / (self.step - since))
                before, since = now, self.step
                log.add(self.step, values)
                yield Event("step", self.step, values)
            if self.step % how.evaluate == 0 or last:
                values = self._evaluated()
                log.add(self.step, values)
                yield Event("evaluate", self.step, values)
                before, since = time.perf_counter(), self.step
            if self.step % how.checkpoint == 0 or self._done() or stop.is_set():
                yield self._saved(log)
                before, since = time.perf_counter(), self.step
            if stop.is_set():
                return

    def _one(self) -> Tensor:
        """One step; its loss stays on the device."""
        how = self.how
        torch.manual_seed(seed_of(how.seed, "step", self.step))
        self.fast.train()
        losses = []
        for at in range(self.step * how.accumulate, (self.step + 1) * how.accumulate):
            batch = self._moved(self.corpus.batch(how.batch, how.seed, at))
            with self._precision():
                loss = self.objective.loss(self.fast, batch, seed_of(how.seed, "loss", at))
            self.scaler.scale(loss / how.accumulate).backward()
            losses.append(loss.detach())
        if how.clip:
            self.scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.model.parameters(), how.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        self.scheduler.step()
        if self.average:
            self.average.update(self.model, self.step)
        return torch.stack(losses).mean()

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
        loss = torch.stack([loss.double() for loss in self.losses]).mean().item()
        self._finite(loss)
        self.losses = []
        rate = float(self.scheduler.get_last_lr()[0])
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
        return self.average.applied(self.model) if self.average else nullcontext()

    @torch.no_grad()
    def _evaluated(self) -> dict[str, float]:
        self.model.eval()
        found = Average()
        with self._averaged():
            with self._precision():
                for batch in self.corpus.validation(max(self.how.batch, 32)):
                    self.objective.measure(self.model, self._moved(batch), found)
            means = found.means()
            loss = means.get("loss", math.inf)
            if loss < self.best:
                self._write_weights(model_files.WEIGHTS if self._measures_best else BEST)
        self._finite(means.get("loss", 0.0))
        self.worse = 0 if loss < self.best else self.worse + 1
        self.best = min(self.best, loss)
        return {f"validation {name}": value for name, value in means.items()}

    @property
    def _measures_best(self) -> bool:
        return bool(self.how.measured == "best")

    def _write_weights(self, name: str) -> None:
        model_files.write_weights(self.out, self.model.program, self.step, name)

    def _write_current(self) -> None:
        """Write the weights of this step as those to use, unless better ones are."""
        if not self._measures_best or math.isinf(self.best):
            with self._averaged():
                self._write_weights(model_files.WEIGHTS)

    def _saved(self, log: Logs) -> Event:
        losses = [loss.item() for loss in self.losses]
        self._finite(sum(losses))
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            self._finite(math.nan)  # the loss of the next step
        log.sync()
        scheduled = {k: v for k, v in self.scheduler.state_dict().items() if k != "lr_lambdas"}
        numbers = {
            "recipe": self.recipe.json(),
            "data": self.corpus.fingerprint,
            "scheduler": scheduled,
            "scaler": self.scaler.state_dict(),
            "losses": losses,
            "best": None if math.isinf(self.best) else self.best,
            "worse": self.worse,
        }
        optimiser = checkpoint.optimiser_tensors(self.model, self.optimiser)
        average = self.average.values if self.average else {}
        state = TrainingState(self.step, self.model.state_dict(), optimiser, numbers, average)
        path = checkpoint.write(self.checkpoints, state, keep=self.how.keep)
        self._write_current()
        return Event("checkpoint", self.step, {"path": str(path)})

    @torch.no_grad()
    def _ended(self, log: Logs) -> Event:
        checkpoint.read_weights(self.out / model_files.WEIGHTS, self.model.program)
        self.model.eval()
        final = self.objective.finish(self.model, self.corpus, self.device)
        measured = [row for row in log.rows() if "validation loss" in row]
        summary = {
            "recipe": self.recipe.json(),
            "steps": self.step,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            **{name: value for name, value in (measured[-1] if measured else {}).items()},
            "best validation loss": None if math.isinf(self.best) else self.best,
            **{name: value for name, value in final.items() if not isinstance(value, list)},
        }
        for name, value in final.items():
            if isinstance(value, list):
                lines = [" ".join(line.splitlines()) for line in value]  # one for each example
                write(self.out / f"{name}.txt", "".join(f"{line}\n" for line in lines).encode())
        write(self.out / "summary.json", (json.dumps(summary, indent=1) + "\n").encode())
        log.tables(self.recipe.path.stem)
        write_card(self.out)
        return Event("end", self.step, summary)

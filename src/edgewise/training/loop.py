"""The training loop: forward, backward, step; evaluation, checkpoints and exact resumption."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import Span
from edgewise.graphs.drawing import require_package
from edgewise.save.archive import write
from edgewise.training import checkpoint, folder, model_files
from edgewise.training.checkpoint import TrainingState
from edgewise.training.errors import BadCheckpoint, Diverged, NotWritable
from edgewise.training.folder import Metrics, plot, rows
from edgewise.training.objectives import Average
from edgewise.training.optimiser import adamw, scheduler
from edgewise.training.randomness import deterministic, seed_of
from edgewise.training.recipe import Recipe

LOWER = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Event:
    """Something that happened: `kind` is "start", "step", "evaluate", "checkpoint" or "end"."""

    kind: str
    step: int
    values: dict[str, Any]


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    data: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device | None = None,
) -> Iterator[Event]:
    """Run a recipe in the folder `out` and yield events as they happen.

    The folder gets `metrics.jsonl`, `checkpoints/`, `loss.png` and `summary.json`. Paths in
    the recipe are relative to `data`, by default to the folder of the recipe. With `resume` the run
    continues from the newest checkpoint in `out`, bit for bit as if it had not been interrupted.
    """
    out = Path(out)
    require_package("matplotlib")  # for the loss curve
    found = checkpoint.steps(out / "checkpoints")
    folder.check(out, resume)
    corpus = recipe.data.read(Path(data) if data is not None else recipe.path.parent)
    run = _TrainingRun(recipe, corpus, torch.device(device or _device()), out)
    if found:
        run.resume(found[-1])
    return run.events()


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
        self.optimiser = adamw(self.model, self.how, device)
        self.scheduler = scheduler(self.optimiser, self.how)
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=self.how.precision == "float16", init_scale=2.0**14
        )
        self.best = math.inf
        self.step = 0
        self.losses: list[Tensor] = []  # since the last logged line
        self.fast: Any = torch.compile(self.model) if self.how.compile else self.model

    @property
    def checkpoints(self) -> Path:
        return self.out / "checkpoints"

    def resume(self, step: int) -> None:
        path = checkpoint.folder(self.checkpoints, step)
        state = checkpoint.read(self.checkpoints, step)
        _same_run(state.numbers, self._identity(), path)
        checkpoint.restore(self.model, self.optimiser, state, path)
        try:
            curves = {
                "lr_lambdas": [None] * len(self.optimiser.param_groups)
            }  # functions are not saved
            self.scheduler.load_state_dict(dict(state.numbers["scheduler"]) | curves)
            self.scaler.load_state_dict(dict(state.numbers["scaler"]))
            best = state.numbers["best"]
            self.best = math.inf if best is None else float(best)
            losses = [float(loss) for loss in state.numbers.get("losses", ())]
            self.losses = [torch.tensor(loss, device=self.device) for loss in losses]
        except (KeyError, TypeError, ValueError, RuntimeError):
            raise checkpoint.broken(
                path, "its scheduler, scaler or losses cannot be restored"
            ) from None
        for group, rate in zip(
            self.optimiser.param_groups, self.scheduler.get_last_lr(), strict=True
        ):
            group["lr"] = rate
        self.step = state.step

    def events(self) -> Iterator[Event]:
        try:
            yield from self._events()
        except OSError as problem:
            raise NotWritable(
                f"the run cannot be written: {problem.strerror or problem}",
                Span.of("<out>", self.out),
                "free disk space or choose another folder; `--resume` continues the run",
            ) from None

    def _events(self) -> Iterator[Event]:
        self.out.mkdir(parents=True, exist_ok=True)
        with folder.alone(self.out):
            yield from self._locked()

    def _locked(self) -> Iterator[Event]:
        checkpoint.clean(self.checkpoints)
        if self.step == 0:
            model_files.describe(self.out, self.recipe, self.corpus, self.model.program)
        metrics = Metrics(self.out / "metrics.jsonl", self.step)
        size = sum(p.numel() for p in self.model.parameters())
        yield Event("start", self.step, {"parameters": size, "words": self._words()})
        if not checkpoint.steps(self.checkpoints):
            yield self._saved(metrics)
        try:
            yield from self._steps(metrics)
            yield self._ended(metrics)
        finally:
            metrics.close()

    def _words(self) -> int:
        return int(self.objective.words(self.corpus))

    def _steps(self, metrics: Metrics) -> Iterator[Event]:
        how, before, since = self.how, time.perf_counter(), self.step
        while self.step < how.steps:
            with deterministic(how.deterministic):
                self.losses.append(self._one())
            self.step += 1
            last = self.step == how.steps
            if self.step % how.log == 0 or last:
                now = time.perf_counter()
                values = self._logged((now - before) / (self.step - since))
                before, since = now, self.step
                metrics.add(step=self.step, **values)
                yield Event("step", self.step, values)
            if self.step % how.evaluate == 0 or last:
                values = self._evaluated()
                metrics.add(step=self.step, **values)
                yield Event("evaluate", self.step, values)
                before, since = time.perf_counter(), self.step
            if self.step % how.checkpoint == 0 or last:
                yield self._saved(metrics)
                before, since = time.perf_counter(), self.step

    def _one(self) -> Tensor:
        """One step; its loss stays on the device."""
        how = self.how
        torch.manual_seed(seed_of(how.seed, "step", self.step))
        batch = self._moved(self.corpus.batch(how.batch, how.seed, self.step))
        self.fast.train()
        with self._precision():
            loss = self.objective.loss(self.fast, batch, seed_of(how.seed, "loss", self.step))
        self.scaler.scale(loss).backward()
        if how.clip:
            self.scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.model.parameters(), how.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        self.scheduler.step()
        return loss.detach()

    def _precision(self) -> torch.autocast:
        lower = LOWER.get(self.how.precision)
        return torch.autocast(self.device.type, lower, enabled=lower is not None)

    def _moved(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.device.type == "cuda":
            return {n: t.pin_memory().to(self.device, non_blocking=True) for n, t in batch.items()}
        return batch

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

    @torch.no_grad()
    def _evaluated(self) -> dict[str, float]:
        self.model.eval()
        found = Average()
        with self._precision():
            for batch in self.corpus.validation(max(self.how.batch, 32)):
                self.objective.measure(self.model, self._moved(batch), found)
        means = found.means()
        self._finite(means.get("loss", 0.0))
        loss = means.get("loss", math.inf)
        if loss < self.best and self.how.measured == "best":
            model_files.write_weights(self.out, self.model.program, self.step)
        self.best = min(self.best, loss)
        return {f"validation {name}": value for name, value in means.items()}

    def _saved(self, metrics: Metrics) -> Event:
        losses = [loss.item() for loss in self.losses]
        self._finite(sum(losses))
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            self._finite(math.nan)  # the loss of the next step
        metrics.sync()
        numbers = {
            **self._identity(),
            "scheduler": {
                k: v for k, v in self.scheduler.state_dict().items() if k != "lr_lambdas"
            },
            "scaler": self.scaler.state_dict(),
            "losses": losses,
            "best": None if math.isinf(self.best) else self.best,
        }
        optimiser = checkpoint.optimiser_tensors(self.model, self.optimiser)
        state = TrainingState(self.step, self.model.state_dict(), optimiser, numbers)
        path = checkpoint.write(self.checkpoints, state, keep=self.how.keep)
        if self.how.measured == "last" or math.isinf(self.best):
            model_files.write_weights(self.out, self.model.program, self.step)
        return Event("checkpoint", self.step, {"path": str(path)})

    def _identity(self) -> dict[str, Any]:
        return {"recipe": self.recipe.json(), "data": self.corpus.fingerprint}

    @torch.no_grad()
    def _ended(self, metrics: Metrics) -> Event:
        if self.how.measured == "best" and math.isfinite(self.best):
            checkpoint.read_weights(self.out / model_files.WEIGHTS, self.model.program)
        self.model.eval()
        final = self.objective.finish(self.model, self.corpus, self.device)
        known = rows(metrics.path)
        measured = [row for row in known if "validation loss" in row]
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
                write(self.out / f"{name}.txt", "".join(f"{line}\n" for line in value).encode())
        write(self.out / "summary.json", (json.dumps(summary, indent=1) + "\n").encode())
        write(self.out / "loss.png", plot(known, self.recipe.path.stem))
        return Event("end", self.step, summary)


def _same_run(found: Any, wanted: dict[str, Any], path: Path) -> None:
    """Refuse to resume with another recipe or other data."""
    place = Span.of("<checkpoint>", path)
    if found.get("data") != wanted["data"]:
        raise BadCheckpoint("the checkpoint was trained on other data", place, "give the same data")
    before, now = found.get("recipe"), wanted["recipe"]
    if before == now:
        return
    for section, values in now.items():
        for key, value in values.items():
            old = (before or {}).get(section, {}).get(key)
            if old != value:
                raise BadCheckpoint(
                    f"the recipe of the run has `{key} = {old!r}` in `[{section}]`, not {value!r}",
                    place,
                    "resume with the same recipe, or start a new run in another folder",
                )
    raise BadCheckpoint("the checkpoint's recipe differs", place, "start a new run")

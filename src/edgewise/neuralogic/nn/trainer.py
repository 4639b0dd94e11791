"""`Trainer`: epochs with validation, metrics, early stopping and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from edgewise.errors import caller, suggest
from edgewise.neuralogic.errors import BadSetting, BadTemplate

if TYPE_CHECKING:
    from edgewise.neuralogic.core.model import TemplateModel


class Metric(StrEnum):
    """What `compute_metrics` computes of targets and outputs.

    >>> Metric("rmse")
    <Metric.RMSE: 'rmse'>
    """

    MAE = "mae"
    MSE = "mse"
    RMSE = "rmse"
    R2 = "r2"
    ACCURACY = "accuracy"
    PRECISION_MACRO = "precision_macro"
    RECALL_MACRO = "recall_macro"
    F1_MACRO = "f1_macro"


def _pairs(targets: Sequence[Any], outputs: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    both = [torch.tensor(list(items), dtype=torch.float64) for items in (targets, outputs)]
    return both[0], both[1]


def _classes(items: torch.Tensor) -> torch.Tensor:
    """The largest element of a vector; a number is of class 1 from one half on."""
    return items.argmax(-1) if items.dim() > 1 else (items >= 0.5).long()


def _macro(targets: torch.Tensor, outputs: torch.Tensor, kind: str) -> float:
    found = []
    for one in torch.cat([targets, outputs]).unique():
        hit = ((targets == one) & (outputs == one)).sum().item()
        precision = hit / max(int((outputs == one).sum()), 1)
        recall = hit / max(int((targets == one).sum()), 1)
        both = precision + recall
        f1 = 2 * precision * recall / both if both else 0.0
        found.append({"precision": precision, "recall": recall, "f1": f1}[kind])
    return sum(found) / len(found) if found else 0.0


def compute_metrics(
    targets: Sequence[Any], outputs: Sequence[Any], names: Iterable[str | Metric]
) -> dict[str, float]:
    """Metrics by name.

    >>> compute_metrics([0.0, 1.0], [0.0, 0.5], ["mae", Metric.ACCURACY])
    {'mae': 0.25, 'accuracy': 1.0}
    """
    t, o = _pairs(targets, outputs)
    spread = (t - t.mean()).square().sum().item()
    squares = (t - o).square().sum().item()
    known: dict[str, Callable[[], float]] = {
        "mae": lambda: (t - o).abs().mean().item(),
        "mse": lambda: (t - o).square().mean().item(),
        "rmse": lambda: math.sqrt((t - o).square().mean().item()),
        "r2": lambda: 1 - squares / spread if spread else float(squares == 0),
        "accuracy": lambda: (_classes(t) == _classes(o)).double().mean().item(),
        "precision_macro": lambda: _macro(_classes(t), _classes(o), "precision"),
        "recall_macro": lambda: _macro(_classes(t), _classes(o), "recall"),
        "f1_macro": lambda: _macro(_classes(t), _classes(o), "f1"),
    }
    chosen = [str(name) for name in names]
    for name in chosen:
        if name not in known:
            raise BadSetting(f"there is no metric `{name}`", caller(), suggest(name, list(known)))
    return {name: known[name]() for name in chosen}


@dataclass
class TrainerHistory:
    """Losses, metrics and learning rates, epoch by epoch.

    >>> TrainerHistory().best_epoch
    0
    """

    train_losses: list[float] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)
    train_metrics: dict[str, list[float]] = field(default_factory=dict)
    val_metrics: dict[str, list[float]] = field(default_factory=dict)
    learning_rates: list[float] = field(default_factory=list)
    best_epoch: int = 0
    best_val_loss: float = float("inf")
    stopped_early: bool = False


class TrainerCallback:
    """Called at the start, after every epoch and at the end.

    >>> class Printing(TrainerCallback):
    ...     def on_epoch_end(self, trainer, epoch, logs):
    ...         print(epoch, sorted(logs))
    >>> Printing().on_epoch_end(None, 0, {"lr": 0.1})
    0 ['lr']
    """

    def on_train_begin(self, trainer: Trainer) -> None:
        """Before the first epoch."""

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, Any]) -> None:
        """After an epoch, with what is known of it."""

    def on_train_end(self, trainer: Trainer) -> None:
        """After the last epoch."""


class EarlyStoppingCallback(TrainerCallback):
    """Stops after `patience` epochs without a smaller validation loss.

    >>> EarlyStoppingCallback(patience=3).patience
    3
    """

    def __init__(self, patience: int, min_delta: float = 0.0) -> None:
        self.patience, self.min_delta = patience, min_delta
        self._count, self._best = 0, math.inf

    def on_train_begin(self, trainer: Trainer) -> None:
        self._count, self._best = 0, math.inf

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, Any]) -> None:
        if "val_loss" not in logs:
            return
        is_better = logs["val_loss"] < self._best - self.min_delta
        self._best = logs["val_loss"] if is_better else self._best
        self._count = 0 if is_better else self._count + 1
        trainer.stop_training = trainer.stop_training or self._count >= self.patience


class CheckpointCallback(TrainerCallback):
    """Writes the weights with the smallest validation loss.

    >>> CheckpointCallback("runs", "best.safetensors").path.name
    'best.safetensors'
    """

    def __init__(self, directory: str | Path, filename: str = "best.pkl") -> None:
        self.path = Path(directory) / filename
        self._best = math.inf

    def on_train_begin(self, trainer: Trainer) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._best = math.inf

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, Any]) -> None:
        if logs.get("val_loss", math.inf) < self._best:
            self._best = logs["val_loss"]
            trainer.model.save(self.path)


class Trainer:
    """Trains a built model.

    >>> from edgewise.neuralogic import Dataset, Model, R, Sample, Settings, V, manual_seed
    >>> manual_seed(0)
    >>> model = Model()
    >>> model += R.h(V.X)[1, 1] <= R.x(V.X)
    >>> data = Dataset([Sample(R.h(1)[1.0], [R.x(1)[0.5]])])
    >>> history = Trainer(model.build(Settings())).fit(data, epochs=3)
    >>> len(history.train_losses), history.train_losses[2] < history.train_losses[0]
    (3, True)
    """

    def __init__(self, module: TemplateModel) -> None:
        if module._programs is None:
            raise BadTemplate("the model is not built", caller(), "call `model.build(settings)`")
        self.model = module
        self.stop_training = False

    def fit(
        self,
        train_dataset: Any,
        val_dataset: Any = None,
        *,
        epochs: int = 1,
        batch_size: int = 1,
        metrics: Sequence[str | Metric] | None = None,
        early_stopping_patience: int | None = None,
        min_delta: float = 0.0,
        checkpoint_dir: str | Path | None = None,
        callbacks: Sequence[TrainerCallback] | None = None,
        silent: bool = True,
    ) -> TrainerHistory:
        """Train for a number of epochs, or until a callback stops it."""
        if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 0:
            raise BadSetting(f"epochs is {epochs!r}", caller(), "write an integer")
        train = self.model.build_dataset(train_dataset, batch_size=batch_size)
        validated = None
        if val_dataset is not None:
            validated = self.model.build_dataset(val_dataset, batch_size=batch_size)
        listed = list(callbacks or ())
        if early_stopping_patience is not None:
            listed.insert(0, EarlyStoppingCallback(early_stopping_patience, min_delta))
        if checkpoint_dir is not None:
            listed.insert(0, CheckpointCallback(checkpoint_dir))
        history, self.stop_training = TrainerHistory(), False
        for callback in listed:
            callback.on_train_begin(self)
        for epoch in range(epochs):
            if self.stop_training:
                history.stopped_early = True
                break
            logs = self._epoch(history, epoch, train, validated, list(metrics or ()))
            for callback in listed:
                callback.on_epoch_end(self, epoch, logs)
        for callback in listed:
            callback.on_train_end(self)
        return history

    def _epoch(
        self, history: TrainerHistory, epoch: int, train: Any, validated: Any, metrics: list[Any]
    ) -> dict[str, Any]:
        rate = self.model._settings.optimizer.lr
        parts = {"train": self.model.train(train)}
        parts |= {} if validated is None else {"val": self.model.validate(validated)}
        history.learning_rates.append(rate)
        logs: dict[str, Any] = {"lr": rate}
        for part, results in parts.items():
            value = sum(error for _, _, error in results) / max(len(results), 1)
            logs[f"{part}_loss"] = value
            (history.train_losses if part == "train" else history.val_losses).append(value)
            targets, outputs = [r[0] for r in results], [r[1] for r in results]
            found = compute_metrics(targets, outputs, metrics) if metrics else {}
            known = history.train_metrics if part == "train" else history.val_metrics
            for name, number in found.items():
                known.setdefault(name, []).append(number)
                logs[f"{part}_{name}"] = number
        if "val" in parts and logs["val_loss"] < history.best_val_loss:
            history.best_val_loss, history.best_epoch = logs["val_loss"], epoch
        return logs

    def test(self, dataset: Any, *, batch_size: int = 1) -> list[Any]:
        """The outputs of all queries."""
        return list(self.model.test(self.model.build_dataset(dataset, batch_size=batch_size)))

"""Objectives on graphs: classes, values or several labels of nodes, pairs or graphs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
)

from edgewise.training.data import GRAPH_DATA
from edgewise.training.models.graph import GraphNetwork
from edgewise.training.objective import Average, Objective
from edgewise.training.schema import number, one_of

if TYPE_CHECKING:
    from edgewise.training.data.batches import Batch


@dataclass(frozen=True)
class GraphObjective(Objective):
    """The model gives a row of logits for each example of a batch."""

    task: ClassVar = "predict"
    data: ClassVar = GRAPH_DATA
    model: ClassVar = (GraphNetwork,)

    def words(self, corpus: Any) -> int:
        return 0


@dataclass(frozen=True)
class GraphClasses(GraphObjective):
    """-log p(class), the mean over examples; measured by accuracy and, of two, ROC-AUC."""

    smoothing: float = number(0.0, least=0.0, below=1.0)

    def loss(self, model: nn.Module, batch: "Batch", seed: int) -> Tensor:
        return cross_entropy(model(batch), batch["label"], label_smoothing=self.smoothing)

    def measure(self, model: nn.Module, batch: "Batch", found: Average) -> None:
        logits, label = model(batch).float(), batch["label"]
        found.add("loss", cross_entropy(logits, label), len(label))
        found.add("accuracy", (logits.argmax(1) == label).float().mean(), len(label))
        if logits.shape[1] == 2:
            found.add_scores("roc-auc", logits[:, 1] - logits[:, 0], label)


@dataclass(frozen=True)
class GraphValues(GraphObjective):
    """The mean of |y − ŷ|, or of its square; measured by MAE."""

    error: str = one_of("absolute", "absolute", "squared")

    def loss(self, model: nn.Module, batch: "Batch", seed: int) -> Tensor:
        wanted = batch["label"]
        out = model(batch).reshape(wanted.shape)
        return (l1_loss if self.error == "absolute" else mse_loss)(out, wanted.to(out.dtype))

    def measure(self, model: nn.Module, batch: "Batch", found: Average) -> None:
        wanted = batch["label"].float()
        out, count = model(batch).float().reshape(wanted.shape), len(wanted)
        found.add("loss", (l1_loss if self.error == "absolute" else mse_loss)(out, wanted), count)
        found.add("mae", l1_loss(out, wanted), count)


@dataclass(frozen=True)
class GraphLabels(GraphObjective):
    """-log p of labels that are each 0 or 1; measured by exact match (all right) and ROC-AUC."""

    def loss(self, model: nn.Module, batch: "Batch", seed: int) -> Tensor:
        logits = model(batch)
        return binary_cross_entropy_with_logits(logits, batch["label"].to(logits.dtype))

    def measure(self, model: nn.Module, batch: "Batch", found: Average) -> None:
        logits, label = model(batch).float(), batch["label"].float()
        found.add("loss", binary_cross_entropy_with_logits(logits, label), len(label))
        right = (logits > 0) == label.bool()
        found.add("accuracy", right.float().mean(), len(label))
        found.add("exact match", right.all(1).float().mean(), len(label))
        for at in range(label.shape[1]):
            found.add_scores(f"roc-auc/{at}", logits[:, at], label[:, at])

"""Objectives on graphs: classes, values or several labels of nodes, pairs or graphs; links."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
)

from edgewise.training.data import GRAPH_DATA
from edgewise.training.data.files import bad
from edgewise.training.data.links import LinkCorpus
from edgewise.training.models.graph import GraphNetwork
from edgewise.training.objectives.objective import Average, Objective, widened
from edgewise.training.schema import number, one_of

if TYPE_CHECKING:
    from edgewise.training.data.batches import Batch

HITS = (1, 3, 10)


@dataclass(frozen=True)
class GraphObjective(Objective):
    """The model gives a row of logits for each example of a batch."""

    task: ClassVar = "predict"
    kind: ClassVar[str]
    data: ClassVar = GRAPH_DATA
    model: ClassVar = (GraphNetwork,)

    def words(self, corpus: Any) -> int:
        problem = self.problem(corpus)
        if problem is not None:
            what, help = problem
            raise bad(f"the objective `{self.kind}` needs {what}", Path("[objective]"), help)
        return 0

    def problem(self, corpus: Any) -> tuple[str, str] | None:
        """What the objective needs that the data does not have, and what to write."""
        return None


@dataclass(frozen=True)
class GraphClasses(GraphObjective):
    """-log p(class), the mean over examples; measured by accuracy and, of two, ROC-AUC."""

    kind: ClassVar = "classes"
    smoothing: float = number(0.0, least=0.0, below=1.0)

    def problem(self, corpus: Any) -> tuple[str, str] | None:
        if corpus.labels and corpus.target.ndim == 1:
            return None
        return "classes as labels", f"write `kind = {_fits(corpus)!r}`"

    def loss(self, model: nn.Module, batch: "Batch") -> Tensor:
        return cross_entropy(model(batch), batch["label"], label_smoothing=self.smoothing)

    def measure(self, model: nn.Module, batch: "Batch", found: Average) -> None:
        logits, label = widened(model(batch)), batch["label"]
        found.add("loss", cross_entropy(logits, label), len(label))
        found.add("accuracy", (logits.argmax(1) == label).double().mean(), len(label))
        if logits.shape[1] == 2:
            found.add_scores("roc-auc", logits[:, 1] - logits[:, 0], label)


@dataclass(frozen=True)
class GraphValues(GraphObjective):
    """The mean of |y − ŷ|, or of its square; measured by MAE."""

    kind: ClassVar = "values"
    error: str = one_of("absolute", "absolute", "squared")

    def problem(self, corpus: Any) -> tuple[str, str] | None:
        if not corpus.labels and not isinstance(corpus, LinkCorpus):
            return None
        help = f"write `kind = {_fits(corpus)!r}`"
        if _fits(corpus) == "classes":
            help += ", or store them as floating point numbers: integers and names are classes"
        return "numbers as labels", help

    def loss(self, model: nn.Module, batch: "Batch") -> Tensor:
        wanted = batch["label"]
        out = model(batch).reshape(wanted.shape)
        return (l1_loss if self.error == "absolute" else mse_loss)(out, wanted.to(out.dtype))

    def measure(self, model: nn.Module, batch: "Batch", found: Average) -> None:
        out = widened(model(batch))
        wanted, count = batch["label"].to(out.dtype), len(batch["label"])
        out = out.reshape(wanted.shape)
        found.add("loss", (l1_loss if self.error == "absolute" else mse_loss)(out, wanted), count)
        found.add("mae", l1_loss(out, wanted), count)


@dataclass(frozen=True)
class GraphLabels(GraphObjective):
    """-log p of labels that are each 0 or 1; measured by exact match (all right) and ROC-AUC."""

    kind: ClassVar = "labels"

    def problem(self, corpus: Any) -> tuple[str, str] | None:
        if corpus.labels and corpus.target.ndim == 2:
            return None
        return "a matrix of labels", f"write `kind = {_fits(corpus)!r}`"

    def loss(self, model: nn.Module, batch: "Batch") -> Tensor:
        logits = model(batch)
        return binary_cross_entropy_with_logits(logits, batch["label"].to(logits.dtype))

    def measure(self, model: nn.Module, batch: "Batch", found: Average) -> None:
        logits = widened(model(batch))
        label = batch["label"].to(logits.dtype)
        found.add("loss", binary_cross_entropy_with_logits(logits, label), len(label))
        right = (logits > 0) == label.bool()
        found.add("accuracy", right.double().mean(), len(label))
        found.add("exact match", right.all(1).double().mean(), len(label))
        for at in range(label.shape[1]):
            found.add_scores(f"roc-auc/{at}", logits[:, at], label[:, at])


@dataclass(frozen=True)
class GraphLinks(GraphObjective):
    """-log p of edges and of pairs without one; measured by ROC-AUC, and by the rank of an edge.

    Its rank is among candidates with the same source; of equal scores, the mean of the ranks.
    """

    kind: ClassVar = "links"

    def problem(self, corpus: Any) -> tuple[str, str] | None:
        if isinstance(corpus, LinkCorpus):
            return None
        return "edges that are held out", f'write `of = "links"`, or `kind = {_fits(corpus)!r}`'

    def loss(self, model: nn.Module, batch: "Batch") -> Tensor:
        logits = model(batch)[:, 0]
        return binary_cross_entropy_with_logits(logits, batch["label"].to(logits.dtype))

    def measure(self, model: nn.Module, batch: "Batch", found: Average) -> None:
        logits = widened(model(batch)[:, 0])
        label = batch["label"].to(logits.dtype)
        edges = int(label.sum())
        found.add("loss", binary_cross_entropy_with_logits(logits, label), len(label))
        found.add_scores("roc-auc", logits, label)
        edge, others = logits[:edges, None], logits[edges:].reshape(edges, -1)
        rank = 1 + (others > edge).sum(1) + 0.5 * (others == edge).sum(1)
        found.add("mrr", (1 / rank).mean(), edges)
        for most in HITS:
            found.add(f"hits@{most}", (rank <= most).double().mean(), edges)


def _fits(corpus: Any) -> str:
    """The objective that the labels of a corpus are for."""
    if isinstance(corpus, LinkCorpus):
        return "links"
    if not corpus.labels:
        return "values"
    return "classes" if corpus.target.ndim == 1 else "labels"

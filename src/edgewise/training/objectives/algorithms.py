"""The objective on runs of algorithms: the hints after a step, from those before it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from edgewise.training.data.algorithms import AlgorithmData
from edgewise.training.models.algorithms import AlgorithmStep
from edgewise.training.objectives.objective import Average, Objective
from edgewise.training.schema import number

if TYPE_CHECKING:
    from edgewise.training.data.batches import Batch

LEAST = 1e-9  # of a share, before its logarithm


@dataclass(frozen=True)
class NextHints(Objective):
    """-log p of masks, pointers and the chosen node, and `numbers` times squared errors of numbers.

    Measured are runs of all steps on their own hints: by accuracy, the share of right pointers
    (the score of CLRS), and by exact match, of all pointers of a graph.
    """

    numbers: float = number(4.0, least=0.0)
    task: ClassVar = "predict"
    data: ClassVar = (AlgorithmData,)
    model: ClassVar = (AlgorithmStep,)

    @property
    def passes_once(self) -> bool:
        return False  # a run has as many steps as its algorithm

    def words(self, corpus: Any) -> int:
        return 0

    def terms(self, batch: "Batch") -> int:
        return len(batch["example"])

    def loss(self, model: nn.Module, batch: "Batch") -> Tensor:
        found, target = model(batch), batch["target"]
        total = -found["share"][batch["row"]].clamp(min=LEAST).log().mean()
        for at in range(target.shape[1]):
            mine = found["out"][:, at]
            wanted = target[:, at].to(mine.dtype)
            if batch["is_mask"][at]:
                total = total + binary_cross_entropy_with_logits(mine, wanted)
            else:
                total = total + self.numbers * mse_loss(mine, wanted)
        if "choose" in found:
            total = total + cross_entropy(found["choose"], batch["chosen"])
        return total

    def measure(self, model: Any, batch: "Batch", found: Average) -> None:
        count = len(batch["lengths"])
        found.add("loss", self.loss(model, batch), count)
        right = model.pointers(batch) == batch["answer"]
        found.add("accuracy", right.double().mean(), count)
        found.add("exact match", right.all(1).double().mean(), count)

"""Objectives on knowledge graphs: the answer of a query is ranked above the other entities."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid

from edgewise.language import Program
from edgewise.language.nodes import Rule
from edgewise.training.data.triples import TripleData
from edgewise.training.models.paths import BellmanFord, RuleModel, SoftRules
from edgewise.training.models.triples import TripleEmbeddings
from edgewise.training.objectives.objective import Average, Objective, widened
from edgewise.training.randomness import generator
from edgewise.training.schema import number, one_of

if TYPE_CHECKING:
    from edgewise.training.data.batches import Batch

HITS = (1, 3, 10)


@dataclass(frozen=True)
class Ranking(Objective):
    """-log p(answer | query) over all entities, or over `negatives` entities drawn at random.

    Other answers of the query that are known are left out of the sum, in training those of the
    training part. Of samples, each has the weight of its own probability with `temperature`
    (self-adversarial: https://arxiv.org/abs/1902.10197). Measured by filtered ranks: other
    answers that are known, in any part, do not count; equal scores share the mean of their ranks.
    """

    loss_over: str = one_of("all", "all", "samples")
    negatives: int = number(64, least=1)
    temperature: float = number(1.0, least=0.0)
    task: ClassVar = "predict"
    data: ClassVar = (TripleData,)
    model: ClassVar = (TripleEmbeddings, BellmanFord, SoftRules)

    @property
    def passes_once(self) -> bool:
        return self.loss_over == "all"  # samples are scored by rules of their own

    def words(self, corpus: Any) -> int:
        return 0

    def drawn(self, batch: "Batch", corpus: Any, seed: int) -> "Batch":
        if self.loss_over != "samples":
            return batch
        shape = (len(batch["tail"]), self.negatives)
        draws = generator(seed, "negatives")
        return batch | {"negatives": torch.randint(corpus.entities, shape, generator=draws)}

    def terms(self, batch: "Batch") -> int:
        return len(batch["tail"])

    def loss(self, model: nn.Module, batch: "Batch") -> Tensor:
        if self.loss_over == "samples":
            return self._sampled(model, batch)
        scores = without_others(model(batch), batch["tail"], batch["known"])
        return cross_entropy(scores, batch["tail"])

    def _sampled(self, model: Any, batch: "Batch") -> Tensor:
        """-log σ(score of the answer) − Σ_k p_k log σ(−score of sample k)."""
        candidates = torch.cat([batch["tail"][:, None], batch["negatives"]], 1)
        scores = model.of_candidates(batch, candidates)
        weight = (self.temperature * scores[:, 1:].detach()).softmax(1)
        false = (weight * logsigmoid(-scores[:, 1:])).sum(1)
        return -(logsigmoid(scores[:, 0]) + false).mean() / 2

    def measure(self, model: nn.Module, batch: "Batch", found: Average) -> None:
        tail, known = batch["tail"], batch["known"]
        scores = without_others(widened(model(batch)), tail, known)
        found.add("loss", cross_entropy(scores, tail), len(tail))
        rank = ranks(scores, tail)
        found.add("mrr", rank.reciprocal().mean(), len(tail))
        for most in HITS:
            found.add(f"hits@{most}", (rank <= most).double().mean(), len(tail))

    def finish(self, model: nn.Module, corpus: Any, device: torch.device) -> dict[str, Any]:
        """The rules that were learned, if the model has some."""
        if not isinstance(model, RuleModel):
            return {}
        return {
            "learned rules": [
                f"{rule_text(rule)}  # weight {weight:.3f}, confidence {sure:.3f}"
                for rule, weight, sure in model.rules(corpus)
            ]
        }


def rule_text(rule: Rule) -> str:
    """A rule in the text form, on one line."""
    return Program([rule]).text().strip()


def without_others(scores: Tensor, answer: Tensor, known: Tensor) -> Tensor:
    """Scores with −∞ for the answers `known` (q, t) of a query other than its own."""
    row, other = known[:, known[1] != answer[known[0]]]
    return scores.index_put((row, other), scores.new_tensor(-torch.inf))


def ranks(scores: Tensor, answer: Tensor) -> Tensor:
    """The rank of each answer from 1; −∞ does not count.

    Equal scores share the mean of their ranks; a score that is not a number has the last rank.

    >>> scores = torch.tensor([[3.0, 2.0, 2.0, 1.0]])
    >>> answer, known = torch.tensor([2]), torch.tensor([[0, 0], [0, 2]])
    >>> (
    ...     ranks(scores, answer).tolist(),
    ...     ranks(without_others(scores, answer, known), answer).tolist(),
    ... )
    ([2.5], [1.5])
    """
    own = scores.gather(1, answer[:, None])
    better = (scores > own) | scores.isnan() | (own.isnan() & (scores > -torch.inf))
    equal = scores == own
    return (1 + better.sum(1) + (equal.sum(1) - 1).clamp(min=0) / 2).clamp(max=scores.shape[1])

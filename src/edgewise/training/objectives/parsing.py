"""The objective of parsing: the head of every word, and the relation to it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from edgewise.decode import spanning_tree
from edgewise.training.data.batches import IGNORED, Batch
from edgewise.training.data.treebank import NONE, TreebankData
from edgewise.training.models.parser import Parser
from edgewise.training.objectives.objective import Average, Objective, widened
from edgewise.training.schema import number


@dataclass(frozen=True)
class Dependencies(Objective):
    """-log p(head) - log p(relation | head), the means over words.

    Measured on the maximum spanning tree, over all words, as the scorer of Universal Dependencies
    does: `uas` is the share of right heads, `las` of right heads with the right relation, without
    subtypes; `las with subtypes` compares those too.
    """

    smoothing: float = number(0.0, least=0.0, below=1.0)
    task: ClassVar = "parse"
    data: ClassVar = (TreebankData,)
    model: ClassVar = (Parser,)

    def terms(self, batch: Batch) -> int:
        return int((batch["head"] != IGNORED).sum())

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self._loss(*_scores(model, batch), batch, self.smoothing)

    def _loss(self, arc: Tensor, relation: Tensor, batch: Batch, smoothing: float) -> Tensor:
        head, wanted = batch["head"], batch["relation"].flatten()
        of_heads = at_heads(relation, head.clamp_min(0)).flatten(0, 1)
        arcs = cross_entropy(arc.flatten(0, 1), head.flatten(), ignore_index=IGNORED)
        if bool((wanted != IGNORED).any()):
            how: Any = {"ignore_index": IGNORED, "label_smoothing": smoothing}
            return arcs + cross_entropy(of_heads, wanted, **how)
        return arcs

    def measure(self, model: nn.Module, batch: Batch, found: Average) -> None:
        arc, relation = (widened(scores) for scores in _scores(model, batch))
        real = batch["head"] != IGNORED
        root = int(batch["root"][0])
        heads, labels = decoded(arc, relation, real.sum(1), None if root == NONE else root)
        right = (heads == batch["head"])[real]
        kinds = batch["kinds"][0][labels]
        count = int(real.sum())
        found.add("loss", self._loss(arc, relation, batch, 0.0), count)
        found.add("uas", right.double().mean(), count)
        found.add("las", (right & (kinds == batch["kind"])[real]).double().mean(), count)
        exact = right & (labels == batch["relation"])[real]
        found.add("las with subtypes", exact.double().mean(), count)


def _scores(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    found = model(batch["token"], batch["lengths"], batch["word"])
    return found["arc"], found["relation"]


def at_heads(relation: Tensor, head: Tensor) -> Tensor:
    """The scores (batch, n, relations) of the relations of every word to its head."""
    index = head[:, None, :, None].expand(-1, relation.shape[1], -1, 1)
    return relation.gather(3, index)[..., 0].transpose(1, 2)


def decoded(
    arc: Tensor, relation: Tensor, words: Tensor, root: int | None = None
) -> tuple[Tensor, Tensor]:
    """Heads and relations in the places of the words, from 1: spanning trees of a batch.

    `root` is the relation of the word below the root, and of no other.
    """
    heads = torch.zeros(arc.shape[:2], dtype=torch.int64)
    each = arc.detach().double().cpu().numpy()
    for k, n in enumerate(words.tolist()):
        tree = spanning_tree(each[k, 1 : n + 1, : n + 1])
        heads[k, 1 : n + 1] = torch.tensor(tree, dtype=torch.int64)
    heads = heads.to(arc.device)
    scores = at_heads(relation, heads)
    if root is None:
        return heads, scores.argmax(-1)
    scores[..., root] = -torch.inf
    return heads, torch.where(heads == 0, root, scores.argmax(-1))

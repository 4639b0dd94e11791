"""The translation of a sentence, piece by piece."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from edgewise.graphs.drawing import require_package
from edgewise.training.data.pairs import END, PAD, START, Pairs
from edgewise.training.models.recurrent import Recurrent
from edgewise.training.models.translator import Translator
from edgewise.training.objectives.average import Average
from edgewise.training.schema import number


@dataclass(frozen=True)
class Translation:
    """-log p(yₜ | y before t, x), the mean over pieces that are not padding.

    At the end the test part is translated by beam search with a length penalty `alpha`, and
    measured by sacrebleu, lower-cased.
    """

    smoothing: float = number(0.1, least=0.0, below=1.0)
    beams: int = number(5, least=1)
    alpha: float = number(1.0, least=0.0)
    data: ClassVar = (Pairs,)
    model: ClassVar = (Translator, Recurrent)

    def words(self, corpus: Any) -> int:
        require_package("sacrebleu")  # a run that cannot be measured does not start
        return int(corpus.words)

    def loss(self, model: nn.Module, batch: dict[str, Tensor], seed: int) -> Tensor:
        return _entropy(_logits(model, batch), batch, self.smoothing)

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        count = int((batch["next"] != PAD).sum())
        found.add("loss", _entropy(_logits(model, batch).float(), batch, 0.0), count)

    def finish(self, model: Any, corpus: Any, device: torch.device) -> dict[str, Any]:
        """The translations of the test part, and their BLEU where sacrebleu is installed."""
        written: list[str] = []
        how = {"start": START, "stop": END, "beams": self.beams, "alpha": self.alpha}
        for batch in corpus.validation(256, "test"):
            source, lengths = batch["source"].to(device), batch["lengths"].to(device)
            rows = model.translate(source, lengths, **how)
            written += [corpus.text(row) for row in rows.tolist()]
        wanted = [target for _, target in corpus.texts["test"]]
        return {"translations": written, "test bleu": bleu(written, wanted)}


def bleu(written: list[str], wanted: list[str]) -> float:
    import sacrebleu

    return float(sacrebleu.corpus_bleu(written, [wanted], lowercase=True).score)


def _logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    out: Tensor = model(batch["source"], batch["lengths"], batch["token"])
    return out


def _entropy(logits: Tensor, batch: dict[str, Tensor], smoothing: float) -> Tensor:
    wanted = batch["next"].flatten()
    return cross_entropy(logits.flatten(0, 1), wanted, ignore_index=PAD, label_smoothing=smoothing)

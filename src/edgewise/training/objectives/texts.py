"""Objectives on texts: the next token, masked tokens, classes, translations."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from edgewise.graphs.drawing import require_package
from edgewise.training.data.batches import IGNORED
from edgewise.training.data.labelled import LabelledData
from edgewise.training.data.pairs import PairData
from edgewise.training.data.text import TextData
from edgewise.training.models.classifier import Classifier
from edgewise.training.models.language import Encoder, Gpt
from edgewise.training.models.pretrained import FineTuned
from edgewise.training.models.translation import Recurrent, Translator
from edgewise.training.objectives.objective import Average, Objective, widened
from edgewise.training.randomness import generator
from edgewise.training.schema import Mistakes, number
from edgewise.training.tokenizers import MASK, masked


@dataclass(frozen=True)
class Causal(Objective):
    """-log p(xₜ₊₁ | x₁ … xₜ), the mean over all tokens."""

    smoothing: float = number(0.0, least=0.0, below=1.0)
    task: ClassVar = "generate"
    data: ClassVar = (TextData,)
    model: ClassVar = (Gpt,)

    def terms(self, batch: dict[str, Tensor]) -> int:
        return batch["next"].numel()

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["token"]).flatten(0, 1)
        return cross_entropy(logits, batch["next"].flatten(), label_smoothing=self.smoothing)

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        logits = widened(model(batch["token"]).flatten(0, 1))
        found.add("loss", cross_entropy(logits, batch["next"].flatten()), batch["next"].numel())


@dataclass(frozen=True)
class Masked(Objective):
    """-log p(xₜ | the rest) at a `share` of the positions: https://arxiv.org/abs/1810.04805.

    Of those, 80 % are replaced by the mask token, 10 % by a random token, 10 % are unchanged.
    """

    share: float = number(0.15, least=0.0, below=1.0)
    task: ClassVar = "embed"
    data: ClassVar = (TextData,)
    model: ClassVar = (Encoder,)

    def check(self) -> Mistakes:
        if not self.share:
            yield "share", "no position is masked, so nothing is learned", "give 0.15"

    def words(self, corpus: Any) -> int:
        return int(corpus.words) + (not _has_mask(corpus))  # the last one is the mask token

    def tokenizer(self, corpus: Any) -> Any:
        return corpus.tokenizer if _has_mask(corpus) else masked(corpus.tokenizer)

    def drawn(self, batch: dict[str, Tensor], corpus: Any, seed: int) -> dict[str, Tensor]:
        """Corrupted tokens, and as `next` the target."""
        shown, target = self.corrupted(batch["token"], self.words(corpus) - 1, seed)
        return {"token": shown, "next": target}

    def terms(self, batch: dict[str, Tensor]) -> int:
        return int((batch["next"] != IGNORED).sum())

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        logits, target = model(batch["token"]).flatten(0, 1), batch["next"].flatten()
        return cross_entropy(logits, target, ignore_index=IGNORED)

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        logits, target = widened(model(batch["token"]).flatten(0, 1)), batch["next"].flatten()
        count = int((target != IGNORED).sum())
        if count:
            found.add("loss", cross_entropy(logits, target, ignore_index=IGNORED), count)
            right = (logits.argmax(1) == target).sum().double() / count
            found.add("accuracy", right, count)

    def corrupted(self, token: Tensor, mask: int, seed: int) -> tuple[Tensor, Tensor]:
        """The corrupted tokens, and the target: the token itself, or `IGNORED`."""
        draws = generator(seed, "mask")
        chance, kind = torch.rand((2, *token.shape), generator=draws).to(token.device)
        other = torch.randint(max(mask, 1), token.shape, generator=draws).to(token.device)
        chosen = chance < self.share
        shown = torch.where(chosen & (kind < 0.8), mask, token)
        shown = torch.where(chosen & (kind >= 0.9), other, shown)
        return shown, torch.where(chosen, token, IGNORED)


def _has_mask(corpus: Any) -> bool:
    """Whether the tokenizer is that of a run of this objective."""
    return corpus.tokenizer.token_to_id(MASK) == int(corpus.words) - 1


@dataclass(frozen=True)
class Classification(Objective):
    """-log p(class | words), the mean over sentences; measured by accuracy."""

    smoothing: float = number(0.0, least=0.0, below=1.0)
    task: ClassVar = "classify"
    data: ClassVar = (LabelledData,)
    model: ClassVar = (Classifier, FineTuned)

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["token"], batch["lengths"])
        return cross_entropy(logits, batch["label"], label_smoothing=self.smoothing)

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        logits, label = widened(model(batch["token"], batch["lengths"])), batch["label"]
        found.add("loss", cross_entropy(logits, label), len(label))
        found.add("accuracy", (logits.argmax(1) == label).double().mean(), len(label))


@dataclass(frozen=True)
class Translation(Objective):
    """-log p(yₜ | y before t, x), the mean over tokens that are not padding.

    At the end the test part is translated by beam search with a length penalty `alpha`, and
    measured by sacrebleu, lower-cased. Of several penalties the one with the best BLEU on the
    validation part is used.
    """

    smoothing: float = number(0.1, least=0.0, below=1.0)
    beams: int = number(5, least=1)
    alpha: float | list = 1.0
    task: ClassVar = "translate"
    tested: ClassVar = False
    data: ClassVar = (PairData,)
    model: ClassVar = (Translator, Recurrent)

    def words(self, corpus: Any) -> int:
        require_package("sacrebleu")  # fail before training, not after
        return int(corpus.words)

    def terms(self, batch: dict[str, Tensor]) -> int:
        return int((batch["next"] != IGNORED).sum())

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return _entropy(_logits(model, batch), batch, self.smoothing)

    def check(self) -> Mistakes:
        for alpha in _listed(self.alpha):
            if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not alpha >= 0:
                yield "alpha", f"the length penalty {alpha!r} is not a number ≥ 0", "give 1.0"
        if self.alpha == []:
            yield "alpha", "the list of length penalties is empty", "give 1.0"

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        entropy = _entropy(widened(_logits(model, batch)), batch, 0.0)
        found.add("loss", entropy, self.terms(batch))

    def finish(self, model: Any, corpus: Any, device: torch.device) -> dict[str, Any]:
        """The translations of the test part and their BLEU."""
        alphas = _listed(self.alpha)
        part = "test" if "test" in corpus.parts else "validation"
        written: dict[float, list[str]] = {}
        scores: dict[float, float] = {}
        if len(alphas) > 1 or part == "validation":
            for alpha in alphas:
                written[alpha] = self._translated(model, corpus, device, "validation", alpha)
                scores[alpha] = bleu(written[alpha], _targets(corpus, "validation"))
        best = max(alphas, key=lambda alpha: scores.get(alpha, 0.0))
        found: dict[str, Any] = {"alpha": best}
        if scores:
            found["validation bleu"] = scores[best]
        if part == "validation":
            return found | {"translations": written[best]}
        translations = self._translated(model, corpus, device, part, best)
        score = bleu(translations, _targets(corpus, part))
        return found | {"translations": translations, "test bleu": score}

    def score(
        self, model: Any, corpus: Any, device: torch.device, part: str, alpha: float
    ) -> float:
        """The BLEU of a part with one length penalty."""
        return bleu(self._translated(model, corpus, device, part, alpha), _targets(corpus, part))

    def _translated(
        self, model: Any, corpus: Any, device: torch.device, part: str, alpha: float
    ) -> list[str]:
        tokens = {"start": corpus.tokens["start"], "stop": corpus.tokens["end"]}
        written: list[str] = []
        for batch in corpus.validation(256, part):
            source, lengths = batch["source"].to(device), batch["lengths"].to(device)
            rows = model.translate(source, lengths, beams=self.beams, alpha=alpha, **tokens)
            written += [corpus.text(row) for row in rows.tolist()]
        return written


def _listed(alpha: Any) -> list[Any]:
    return alpha if isinstance(alpha, list) else [alpha]


def _targets(corpus: Any, part: str) -> list[str]:
    return [target for _, target in corpus.texts[part]]


def bleu(written: list[str], wanted: list[str]) -> float:
    import sacrebleu

    return float(sacrebleu.corpus_bleu(written, [wanted], lowercase=True).score)


def _logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    out: Tensor = model(batch["source"], batch["lengths"], batch["token"])
    return out


def _entropy(logits: Tensor, batch: dict[str, Tensor], smoothing: float) -> Tensor:
    wanted = batch["next"].flatten()
    return cross_entropy(
        logits.flatten(0, 1), wanted, ignore_index=IGNORED, label_smoothing=smoothing
    )

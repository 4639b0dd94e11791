"""Models that start from a checkpoint; one of them is its encoder and a new classifier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgewise.errors import Span
from edgewise.inputs.kinds import numbers
from edgewise.language import F, Program, R, V
from edgewise.language.nodes import Expression
from edgewise.module import Model
from edgewise.training.errors import BadData
from edgewise.training.models.classifier import mask_of
from edgewise.training.models.language import STD
from edgewise.training.models.transformer import NAMES, check_config
from edgewise.training.schema import Mistakes, number, one_of
from edgewise.zoo.block import AGGREGATIONS, NORMS, POSITIONS, Block
from edgewise.zoo.parts import affine, dropped
from edgewise.zoo.pretrained import Pretrained, from_pretrained
from edgewise.zoo.pretrained.fetch import checkpoint_of
from edgewise.zoo.pretrained.model import UNLIMITED, learnable

READS = ("token", "mask", "segment", "share")


@dataclass(frozen=True, kw_only=True)
class FromCheckpoint:
    """What every model that starts from a checkpoint has.

    `path` is a run, a folder of Hugging Face, or a name that `edgewise models` lists. Data needs
    the tokenizer of the checkpoint: `tokenizer` in `[data]` is the same path. An option takes the
    place of the checkpoint's own; weights that the checkpoint does not have begin at random.
    """

    path: str
    dropout: float = number(0.1, least=0.0, below=1.0)
    graph: str = ""
    norm: str = one_of("", "", *NORMS)
    scale: str | int | float = ""
    feed_forward: str | int = ""
    aggregation: str = one_of("", "", *AGGREGATIONS)
    positions: str = one_of("", "", *POSITIONS)

    states: ClassVar = "out"  # what `embed` takes the mean of
    size: ClassVar = 0

    def check(self) -> Mistakes:
        yield from check_config(lambda: Block(**self.layer_options()))

    def layer_options(self) -> dict[str, Any]:
        """Those that are set."""
        return {name: value for name in NAMES if (value := getattr(self, name)) != ""}

    def opened(self, words: int, corpus: Any) -> Pretrained:
        """The checkpoint, which fits the data."""
        found = from_pretrained(checkpoint_of(self.path))
        self._check_data(found, words, corpus)
        return found

    def encoder(self, found: Pretrained) -> tuple[Program, str, int]:
        """The rules of the checkpoint, the relation of its last rows, and their size."""
        config, program, states = found.config, found.program, self.states
        section = getattr(config, "model", None)  # of a run
        if section is None:
            config = replace(config, dropout=self.dropout, **self.layer_options())
            program = found.spec.MODEL.program(config)
        elif self.layer_options():
            raise BadData(
                f"`{next(iter(self.layer_options()))}` cannot be changed: the checkpoint is a run",
                Span.of("<model>", self.path),
                "set it in the recipe of that run, or start from a Hugging Face folder",
            )
        else:
            states = getattr(section, "states", states)
        return program, states, config.size

    def _check_data(self, found: Pretrained, words: int, corpus: Any) -> None:
        known = found.config.vocabulary
        longest = found.config.length - getattr(found.config, "first", 0)
        place = Span.of("<model>", self.path)
        if words > known:
            raise BadData(
                f"the tokenizer of the data has {words:,} tokens, the checkpoint {known:,}",
                place,
                f"write `tokenizer = {self.path!r}` in `[data]`",
            )
        if corpus.longest > longest and longest < UNLIMITED:
            raise BadData(
                f"texts have up to {corpus.longest} tokens, the checkpoint {longest} positions",
                place,
                f"write `longest = {longest}` in `[data]`",
            )


@torch.no_grad()
def copy_weights(compiled: Model, found: Pretrained) -> list[str]:
    """Give a model the weights of a checkpoint; the names of those that it does not have."""
    fresh = []
    for name in learnable(compiled):
        if name in found.weights:
            compiled.weight(name).copy_(found.weights[name])
        else:
            fresh.append(name)
    return fresh


@dataclass(frozen=True, kw_only=True)
class FineTuned(FromCheckpoint):
    """A classifier: its head reads the mean row of a text, or its first."""

    pooling: str = one_of("mean", "mean", "first")

    def build(self, words: int, corpus: Any, seed: int) -> FineTunedModel:
        found = self.opened(words, corpus)
        compiled = self.program(found, corpus.classes).compile(R.label, seed=seed)
        fresh = copy_weights(compiled, found)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            if "label.weight" in fresh:
                weight = compiled.weight("label.weight")
                weight.copy_(torch.randn(weight.shape, generator=generator) * STD)
            compiled.weight("label.bias").zero_()
        return self.module(compiled, words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> FineTunedModel:
        """The module around a compiled program."""
        return FineTunedModel(program, words)

    def program(self, found: Pretrained, classes: int) -> Program:
        """The rules of the checkpoint, and `label`, a score for each class."""
        program, states, size = self.encoder(found)
        rows: Expression = R[states](0)
        made: list[Any] = []
        if self.pooling == "mean":
            made = [(R.mean_row <= (R.share(V.I), R[states](V.I))) | [F.product]]
            rows = R.mean_row
        label = R.label <= affine(dropped(rows, self.dropout), "label", size, classes)
        return Program([*program.statements, *made, label], domains=dict(program.domains))


class FineTunedModel(nn.Module):
    """The compiled program: token ids and lengths → a score for each class."""

    def __init__(self, program: Model, words: int) -> None:
        super().__init__()
        self.words, self.program = words, program

    def forward(self, token: Tensor, lengths: Tensor) -> Tensor:
        mask = mask_of(token, lengths, self.program.weight("word").dtype)
        share = mask / mask.sum(1, keepdim=True).clamp_min(1)
        zeros = numbers(torch.zeros_like(token))
        known = dict(zip(READS, (numbers(token), mask, zeros, share), strict=True))
        out: Tensor = self.program(**{name: known[name] for name in self.program.inputs})
        return out

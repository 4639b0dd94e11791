"""A dependency parser: the encoder of a checkpoint, and a biaffine head over its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.inputs.kinds import numbers
from edgewise.language import Program, R
from edgewise.module import Model
from edgewise.training.models.classifier import mask_of
from edgewise.training.models.pretrained import FromCheckpoint, copy_weights
from edgewise.training.schema import number
from edgewise.zoo import biaffine
from edgewise.zoo.parts import present
from edgewise.zoo.pretrained import Pretrained


@dataclass(frozen=True, kw_only=True)
class Parser(FromCheckpoint):
    """`arcs` and `labels` are the sizes of what arcs and their relations are scored by.

    `word_dropout` applies to the words that both read: the means of their pieces.
    """

    arcs: int = number(256, least=1)
    labels: int = number(96, least=1)
    word_dropout: float = number(0.3, least=0.0, below=1.0)

    def build(self, words: int, corpus: Any, seed: int) -> ParserModel:
        found = self.opened(words, corpus)
        compiled = self.program(found, corpus.classes).compile([R.arc, R.relation], seed=seed)
        fresh = copy_weights(compiled, found)
        return ParserModel(compiled, words, [compiled.weight(name) for name in fresh])

    def module(self, program: Model, words: int, corpus: Any) -> ParserModel:
        """The module around a compiled program."""
        return ParserModel(program, words)

    def program(self, found: Pretrained, relations: int) -> Program:
        """The rules of the checkpoint, then those of the parser over words."""
        program, states, size = self.encoder(found)
        config = biaffine.Config(size, relations, self.arcs, self.labels, self.word_dropout)
        rules = [
            *biaffine.words(R[states], R.part, R.word_row),
            *present(R.word_mask, R.word_present),
            *biaffine.scores(R.word_row, config),
        ]
        domains: dict[Any, Any] = dict(program.domains) | biaffine.domains(config)
        return Program([*program.statements, *rules], domains=domains)


class ParserModel(nn.Module):
    """The compiled program: pieces and the word of each → `arc` and `relation` scores."""

    def __init__(self, program: Model, words: int, fresh: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.words, self.program = words, program
        own = {id(weight) for weight in fresh}
        # by name: FSDP2 replaces parameters
        self.fresh = {name for name, p in self.named_parameters() if id(p) in own}

    def forward(self, token: Tensor, lengths: Tensor, word: Tensor) -> dict[str, Tensor]:
        dtype = self.program.weight("word").dtype
        slots = torch.arange(token.shape[1], device=token.device)
        part = (word[:, None] == slots[:, None]).to(dtype)  # of slot k and piece i
        pieces = part.sum(-1, keepdim=True)
        read: dict[str, Any] = {
            "token": numbers(token),
            "mask": mask_of(token, lengths, dtype),
            "segment": numbers(torch.zeros_like(token)),
            "part": (part / pieces.clamp_min(1))[..., None],
            "word_mask": (pieces > 0).to(dtype),
        }
        found: Any = self.program(**{name: read[name] for name in self.program.inputs})
        return dict(found)

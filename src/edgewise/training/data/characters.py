"""One text, character by character: windows of it, and the character after each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.drawing import require_package
from edgewise.training.data.files import bad, digest, text_of
from edgewise.training.randomness import generator
from edgewise.training.schema import number
from edgewise.training.tokenizers import characters, letters

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class CharacterData:
    """`context` is the length of a window; the last `held_out` of the text is for validation."""

    path: str
    context: int = number(least=1)
    held_out: float = number(0.1, least=0.0, below=1.0)

    def read(self, folder: Path, tokenizer: Any = None) -> CharacterCorpus:
        """The corpus; with a `tokenizer` of a run, in its token ids."""
        require_package("tokenizers")
        path = folder / self.path
        text = text_of(path)
        cut = len(text) - int(len(text) * self.held_out)
        if min(cut, len(text) - cut) <= self.context:
            raise bad(
                f"{len(text):,} characters are too few for windows of {self.context}",
                path,
                "give more text or a shorter `context`",
            )
        if len(set(text)) == 1:
            raise bad(
                f"all characters are {text[0]!r}: the text needs at least two", path, "give a text"
            )
        if tokenizer is None:
            tokenizer = characters("".join(sorted(set(text))))
        return CharacterCorpus(text, tokenizer, cut, self.context)


class CharacterCorpus:
    def __init__(self, text: str, tokenizer: Any, cut: int, context: int) -> None:
        self.tokenizer = tokenizer
        tokens = torch.tensor(letters(tokenizer, text))
        self.parts = tokens[:cut], tokens[cut:]
        self.context = context
        self.fingerprint = digest(text, str(cut), str(context))

    @property
    def words(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    @property
    def sizes(self) -> dict[str, int]:
        """What models read of a corpus, for `config.json`."""
        return {"words": self.words, "context": self.context}

    def batch(self, size: int, seed: int, step: int) -> Batch:
        tokens = self.parts[0]
        last = len(tokens) - self.context
        first = torch.randint(last, (size,), generator=generator(seed, "batch", step))
        return self._windows(tokens, first)

    def validation(self, size: int) -> Iterator[Batch]:
        """Consecutive windows; a shorter rest at the end is dropped."""
        tokens = self.parts[1]
        for first in torch.arange(0, len(tokens) - self.context, self.context).split(size):
            yield self._windows(tokens, first)

    def _windows(self, tokens: Tensor, first: Tensor) -> Batch:
        index = first[:, None] + torch.arange(self.context + 1)
        found = tokens[index]
        return {"token": found[:, :-1], "next": found[:, 1:]}

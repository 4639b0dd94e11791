"""Text for language models: windows of tokens, and the token after each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.training.data.batches import Batch, RowBatches
from edgewise.training.data.files import LINES, Columns, bad
from edgewise.training.data.splits import Splits
from edgewise.training.data.tokens import (
    LEARNED,
    fingerprint,
    size_of,
    special_token,
    tokenizer_of,
)
from edgewise.training.randomness import generator
from edgewise.training.schema import number
from edgewise.training.tokenizers import encoded, letters


@dataclass(frozen=True, kw_only=True)
class TextData(Splits):
    """Text files, or the column `text` of others; `context` is the length of a window.

    A text file is one document; documents end with a token of their own. Of one text file the last
    `held_out` is for validation.
    """

    context: int = number(least=1)
    text: str = "text"
    tokenizer: str = "byte_bpe"
    pieces: int = number(8000, least=300)

    def read(self, folder: Path, tokenizer: Any = None) -> TextCorpus:
        """The corpus; with a `tokenizer` of a run, in its token ids."""
        texts = self._texts(folder)
        if self.tokenizer == "characters":
            texts = {part: ["\n".join(documents)] for part, documents in texts.items()}
            learn = [text for documents in texts.values() for text in documents]
        else:
            learn = texts["train"]
        names: dict[str, str] = {}
        if tokenizer is None or self.tokenizer not in LEARNED:
            tokenizer, names = tokenizer_of(self.tokenizer, folder, learn, pieces=self.pieces)
        end = None if self.tokenizer == "characters" else special_token(tokenizer, "end", names)
        corpus = TextCorpus(texts, tokenizer, self.context, end)
        corpus.fingerprint = fingerprint(self.tokenizer, tokenizer, repr(texts))
        self._check(corpus, folder / self.path)
        return corpus

    def _texts(self, folder: Path) -> dict[str, list[str]]:
        tables = self.tables(folder)
        if "validation" not in tables and LINES in tables["train"].values:
            (text,) = self._documents(tables["train"])
            cut = len(text) - int(len(text) * self.held_out)
            found = {part: self._documents(table) for part, table in tables.items()}
            return found | {"train": [text[:cut]], "validation": [text[cut:]]}
        return {part: self._documents(table) for part, table in self.parts(folder).items()}

    def _documents(self, table: Columns) -> list[str]:
        if LINES in table.values:
            return ["\n".join(table.texts(LINES))]
        return table.texts(self.text)

    def _check(self, corpus: TextCorpus, path: Path) -> None:
        for part, tokens in corpus.parts.items():
            if len(tokens) <= self.context:
                what = f"the {part} part has {len(tokens):,} tokens, too few for windows of"
                help = "give more text or a shorter `context`"
                raise bad(f"{what} {self.context}", path, help)
        if corpus.words < 2:
            raise bad("all characters are equal: the text needs at least two", path, "give a text")


class TextCorpus(RowBatches):
    """`end` is the token after each document; without one, tokens are characters."""

    fingerprint: str

    def __init__(
        self, texts: dict[str, list[str]], tokenizer: Any, context: int, end: int | None
    ) -> None:
        self.tokenizer, self.context = tokenizer, context
        self.tokens = {} if end is None else {"end": end}
        self.parts = {part: self._tokens(found) for part, found in texts.items()}

    @property
    def words(self) -> int:
        return size_of(self.tokenizer)

    @property
    def sizes(self) -> dict[str, int]:
        """What models read of a corpus, for `config.json`."""
        return {"words": self.words, "context": self.context}

    def _tokens(self, documents: list[str]) -> Tensor:
        if not self.tokens:
            return torch.tensor([t for text in documents for t in letters(self.tokenizer, text)])
        rows, end = encoded(self.tokenizer, documents), self.tokens["end"]
        return torch.tensor([token for row in rows for token in (*row, end)])

    def batch(self, size: int, seed: int, step: int) -> Batch:
        tokens = self.parts["train"]
        last = len(tokens) - self.context
        first = torch.randint(last, (size,), generator=generator(seed, "batch", step))
        return self._windows(tokens, first)

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        """Consecutive windows; a shorter rest at the end is dropped."""
        tokens = self.parts[part]
        for first in torch.arange(0, len(tokens) - self.context, self.context).split(size):
            yield self._windows(tokens, first)

    def _windows(self, tokens: Tensor, first: Tensor) -> Batch:
        index = first[:, None] + torch.arange(self.context + 1)
        found = tokens[index]
        return {"token": found[:, :-1], "next": found[:, 1:]}

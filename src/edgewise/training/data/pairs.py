"""Sentences and their translations, line by line in two files, as subword tokens.

The byte-pair encoding is learned from the training part, one for both languages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from edgewise.graphs.drawing import require_package
from edgewise.training.data.files import bad, digest, examples, lines_of, padded
from edgewise.training.schema import number
from edgewise.training.tokenizers import END, PAD, START, pieces

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class PairData:
    """Files `train.en` and `train.de` of lines that belong together, and so on for each part.

    `pieces` is the size of the vocabulary, `longest` the most pieces of a training
    sentence.
    """

    source: str
    target: str
    train: str = "train"
    validation: str = "val"
    test: str = "test"
    pieces: int = number(8000, least=300)
    lower: bool = True
    longest: int = number(48, least=2)
    path: str = "."

    def read(self, folder: Path, tokenizer: Any = None) -> PairCorpus:
        """The corpus; with a `tokenizer` of a run, in its token ids."""
        require_package("tokenizers")
        parts = {}
        for part in ("train", "validation", "test"):
            base = folder / self.path / getattr(self, part)
            files = [base.with_name(f"{base.name}.{end}") for end in (self.source, self.target)]
            sides = [[self._line(line) for line in lines_of(file)] for file in files]
            for file, lines in zip(files, sides, strict=True):
                if not any(lines):
                    raise bad("the file has no sentences", file, "give one on each line")
            if len(sides[0]) != len(sides[1]):
                raise bad(
                    f"it has {len(sides[1]):,} lines, `{files[0].name}` has {len(sides[0]):,}",
                    files[1],
                    "line i of one is the translation of line i of the other",
                )
            parts[part] = list(zip(*sides, strict=True))
        if tokenizer is None:
            lines = [line for pair in parts["train"] for line in pair]
            tokenizer = pieces(lines, self.pieces, lower=self.lower)
        corpus = PairCorpus(parts, tokenizer, self.longest)
        if not corpus.train:
            raise bad(
                f"no pair of sentences has fewer than {self.longest} pieces",
                folder / self.path / self.train,
                "raise `longest`",
            )
        return corpus

    def _line(self, line: str) -> str:
        return " ".join((line.lower() if self.lower else line).split())


class PairCorpus:
    def __init__(
        self, parts: dict[str, list[tuple[str, str]]], tokenizer: Any, longest: int
    ) -> None:
        self.texts, self.tokenizer, self.longest = parts, tokenizer, longest
        self.parts = {name: self._pieces(pairs) for name, pairs in parts.items()}
        self.train = [p for p in self.parts["train"] if max(map(len, p)) < longest]
        self.fingerprint = digest(repr(parts), tokenizer.to_str(), str(longest))

    @property
    def words(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    @property
    def sizes(self) -> dict[str, int]:
        """What models read of a corpus, for `config.json`."""
        return {"words": self.words, "longest": self.longest}

    def _pieces(self, pairs: list[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        sides = [self.tokenizer.encode_batch([p[side] for p in pairs]) for side in (0, 1)]
        return [(a.ids, b.ids) for a, b in zip(*sides, strict=True)]

    def batch(self, size: int, seed: int, step: int) -> Batch:
        chosen = examples(len(self.train), size, seed, step)
        return {name: rows[chosen] for name, rows in self._all.items()}

    @cached_property
    def _all(self) -> Batch:
        """The training part as one batch."""
        return _batch(self.train, self.longest)

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        rows = self.parts[part]
        longest = max((len(side) for pair in rows for side in pair), default=0)
        for first in range(0, len(rows), size):
            yield _batch(rows[first : first + size], longest + 1)

    def text(self, pieces: Sequence[int]) -> str:
        """Pieces up to the end as text."""
        ids = list(pieces)
        ids = ids[: ids.index(END)] if END in ids else ids
        return str(self.tokenizer.decode(ids))


def _batch(rows: list[tuple[list[int], list[int]]], width: int) -> Batch:
    """Padded to `width`, so that the model is grounded for one shape."""
    source, lengths = padded([[*a, END] for a, _ in rows], PAD)
    target, _ = padded([[START, *b, END] for _, b in rows], PAD)
    source, target = _wide(source, width), _wide(target, width + 1)
    return {"source": source, "lengths": lengths, "token": target[:, :-1], "next": target[:, 1:]}


def _wide(rows: Tensor, width: int) -> Tensor:
    out = rows.new_full((len(rows), width), PAD)
    out[:, : rows.shape[1]] = rows
    return out

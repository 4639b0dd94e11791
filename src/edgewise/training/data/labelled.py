"""Sentences with a class each: a line is the number of the class, a space and the words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.drawing import require_package
from edgewise.training.data.files import bad, digest, examples, lines_of, padded
from edgewise.training.schema import number
from edgewise.training.tokenizers import PAD, UNKNOWN, words

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class LabelledData:
    """Three files of lines; words seen less than `seen` times in training are one unknown word."""

    train: str
    validation: str
    test: str
    seen: int = number(1, least=1)
    longest: int = number(64, least=1)
    path: str = "."

    def read(self, folder: Path, tokenizer: Any = None) -> LabelledCorpus:
        """The corpus; with a `tokenizer` of a run, in its token ids."""
        require_package("tokenizers")
        names = {"train": self.train, "validation": self.validation, "test": self.test}
        parts = {part: _read(folder / self.path / name) for part, name in names.items()}
        classes = 1 + max(label for label, _ in parts["train"])
        if classes == 1:
            raise bad(
                "all lines have class 0",
                folder / self.path / self.train,
                "give lines of at least two classes",
            )
        for part, rows in parts.items():
            for at, (label, _) in enumerate(rows, start=1):
                if label >= classes:
                    raise bad(
                        f"line {at} has class {label}, the training part has {classes} classes",
                        folder / self.path / names[part],
                        "number the classes from 0, and train on all of them",
                    )
        return LabelledCorpus(parts, tokenizer or self._learned(parts["train"]), self.longest)

    def _learned(self, rows: list[tuple[int, list[str]]]) -> Any:
        counts = Counter(word for _, words in rows for word in words)
        return words(sorted(word for word, count in counts.items() if count >= self.seen))


def _read(path: Path) -> list[tuple[int, list[str]]]:
    found = []
    for at, line in enumerate(lines_of(path), start=1):
        label, _, words = line.strip().partition(" ")
        if not (label.isascii() and label.isdigit()):
            raise bad(
                f"line {at} does not begin with the number of a class: {line[:40]!r}",
                path,
                "write, for example, `1 a fine film`",
            )
        found.append((int(label), words.split()))
    return found


class LabelledCorpus:
    def __init__(
        self, parts: dict[str, list[tuple[int, list[str]]]], tokenizer: Any, longest: int
    ) -> None:
        self.tokenizer, self.longest = tokenizer, longest
        self.parts = {part: self._tokens(rows) for part, rows in parts.items()}
        self.classes = 1 + max(label for label, _ in self.parts["train"])
        self.fingerprint = digest(repr(parts), tokenizer.to_str(), str(longest))

    def _tokens(self, rows: list[tuple[int, list[str]]]) -> list[tuple[int, list[int]]]:
        found = self.tokenizer.encode_batch([" ".join(words) for _, words in rows])
        return [
            (label, one.ids[: self.longest] or [UNKNOWN])
            for (label, _), one in zip(rows, found, strict=True)
        ]

    @property
    def words(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    @property
    def sizes(self) -> dict[str, int]:
        """What models read of a corpus, for `config.json`."""
        return {"words": self.words, "longest": self.longest, "classes": self.classes}

    @property
    def labels(self) -> list[str]:
        return [str(label) for label in range(self.classes)]

    def batch(self, size: int, seed: int, step: int) -> Batch:
        rows = self.parts["train"]
        return _batch([rows[i] for i in examples(len(rows), size, seed, step).tolist()])

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        rows = self.parts[part]
        for first in range(0, len(rows), size):
            yield _batch(rows[first : first + size])


def _batch(rows: list[tuple[int, list[int]]]) -> Batch:
    token, lengths = padded([words for _, words in rows], PAD)
    return {"token": token, "lengths": lengths, "label": torch.tensor([label for label, _ in rows])}

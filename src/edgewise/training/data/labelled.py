"""Sentences with a class each: a line is the number of the class, a space and the words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.training.data.files import bad, digest, examples, lines_of, padded
from edgewise.training.schema import number

Batch = dict[str, Tensor]
PAD, UNKNOWN = 0, 1


@dataclass(frozen=True)
class LabelledData:
    """Three files of lines; words seen less than `seen` times in training are one unknown word."""

    train: str
    validation: str
    test: str
    seen: int = number(1, least=1)
    longest: int = number(64, least=1)
    path: str = "."

    def read(self, folder: Path) -> LabelledCorpus:
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
        return LabelledCorpus(parts, self.seen, self.longest)


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
        self, parts: dict[str, list[tuple[int, list[str]]]], seen: int, longest: int
    ) -> None:
        counts = Counter(word for _, words in parts["train"] for word in words)
        self.known = ["<pad>", "<unknown>", *sorted(w for w, c in counts.items() if c >= seen)]
        self.longest = longest
        places = {word: i for i, word in enumerate(self.known)}
        self.parts = {
            part: [
                (label, [places.get(word, UNKNOWN) for word in words[:longest]] or [UNKNOWN])
                for label, words in rows
            ]
            for part, rows in parts.items()
        }
        self.classes = 1 + max(label for label, _ in self.parts["train"])
        self.fingerprint = digest(repr(parts), str((seen, longest)))

    @property
    def words(self) -> int:
        return len(self.known)

    @property
    def vocabulary(self) -> dict[str, Any]:
        return {"words": self.known, "classes": self.classes}

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

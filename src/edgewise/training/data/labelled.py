"""Sentences, or pairs of them, with a class each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from edgewise.training.data.batches import Batch, SentenceCorpus, padded
from edgewise.training.data.files import LINES, Columns, bad, shown
from edgewise.training.data.splits import Splits
from edgewise.training.data.tokens import (
    LEARNED,
    fingerprint,
    separated,
    special_token,
    tokenizer_of,
)
from edgewise.training.schema import number
from edgewise.training.tokenizers import encoded

INTEGER = re.compile("0|-?[1-9][0-9]{0,17}")  # as it is printed: 01 is another class than 1


@dataclass(frozen=True, kw_only=True)
class LabelledData(Splits):
    """The columns `text`, `label` and, for pairs of sentences, `second`.

    A line of a text file is the number of a class, a space and the text. Texts are truncated to
    `longest` tokens; words seen less than `seen` times are unknown. Labels are integers or strings.
    `batch_tokens` makes batches of similar length with at most this many tokens, padding included.
    """

    text: str = "text"
    second: str = ""
    label: str = "label"
    tokenizer: str = "words"
    pieces: int = number(8000, least=300)
    seen: int = number(1, least=1)
    longest: int = number(64, least=1)
    batch_tokens: int = number(0, least=0)

    def read(self, folder: Path, tokenizer: Any = None) -> LabelledCorpus:
        """The corpus; with a `tokenizer` of a run, in its token ids."""
        tables = {part: _of_lines(table) for part, table in self.parts(folder).items()}
        texts = {part: self._sentences(table) for part, table in tables.items()}
        names: dict[str, str] = {}
        if tokenizer is None or self.tokenizer not in LEARNED:
            learn = [side for sides in texts["train"] for side in sides]
            how: Any = {"pieces": self.pieces, "seen": self.seen}
            tokenizer, names = tokenizer_of(self.tokenizer, folder, learn, **how)
        tokens = {role: special_token(tokenizer, role, names) for role in ("pad", "unknown")}
        if self.second:
            separated(tokenizer, names)
        tokenizer.enable_truncation(self.longest)
        labels = _classes(tables["train"], self.label)
        numbered = {part: _numbers(table, self.label, labels) for part, table in tables.items()}
        corpus = LabelledCorpus(self, texts, numbered, labels, (tokenizer, tokens))
        corpus.fingerprint = fingerprint(self.tokenizer, tokenizer, repr(texts), repr(numbered))
        return corpus

    def _sentences(self, table: Columns) -> list[tuple[str, ...]]:
        names = (self.text, self.second) if self.second else (self.text,)
        return list(zip(*(table.texts(name) for name in names), strict=True))


def _of_lines(table: Columns) -> Columns:
    """The class and the text of each line of a text file."""
    if LINES not in table.values:
        return table
    labels, texts = [], []
    lines = table.values[LINES]
    for at, line in enumerate(lines[:-1] if not lines[-1] else lines, start=1):
        label, _, words = line.strip().partition(" ")
        if not INTEGER.fullmatch(label):
            what = f"line {at} does not begin with the number of a class: {line[:40]!r}"
            raise bad(what, table.path, "write, for example, `1 a fine film`")
        labels.append(int(label))
        texts.append(words)
    return Columns(table.path, {"label": labels, "text": texts})


def _labels(table: Columns, name: str) -> list[Any]:
    """Integers or strings; integers of a CSV file are strings there, true and false are 1 and 0."""
    found = table.column(name)
    for at, label in enumerate(found, start=1):
        if not isinstance(label, int | str) or label == "":
            what = f"`{name}` in row {at:,} is {shown(label)}, not an integer or a string"
            raise bad(what, table.path, "a class is an integer or a string")
    if all(isinstance(x, int) or INTEGER.fullmatch(x) for x in found):
        return [int(label) for label in found]
    return [str(label) for label in found]


def _classes(table: Columns, name: str) -> list[str]:
    """The names of the classes: those of the file, or the labels of the training part, sorted."""
    found = sorted(set(_labels(table, name)))
    if len(found) < 2:
        what = f"all rows have class {found[0]}"
        raise bad(what, table.path, "give rows of at least two classes")
    if name in table.classes and all(isinstance(label, int) for label in found):
        return table.classes[name]
    return [str(label) for label in found]


def _numbers(table: Columns, name: str, classes: list[str]) -> list[int]:
    known = {label: number for number, label in enumerate(classes)}
    labels = label_names(table, name)
    for at, label in enumerate(labels, start=1):
        if label not in known:
            what = f"row {at:,} has class {label}, which no row of the training part has"
            help = f"the classes are {', '.join(classes[:8])}"
            raise bad(what, table.path, help)
    return [known[label] for label in labels]


def label_names(table: Columns, name: str) -> list[str]:
    """The class of each row; a number is one of the names that its file has for classes."""
    labels, names = _labels(table, name), table.classes.get(name, [])
    numbered = all(isinstance(label, int) for label in labels)
    return [names[x] if numbered and 0 <= x < len(names) else str(x) for x in labels]


class LabelledCorpus(SentenceCorpus):
    fingerprint: str

    def __init__(
        self,
        how: LabelledData,
        texts: dict[str, list[tuple[str, ...]]],
        numbers: dict[str, list[int]],
        labels: list[str],
        tokenizer: tuple[Any, dict[str, int]],
    ) -> None:
        self.tokenizer, self.tokens = tokenizer
        self.labels, self.longest = labels, how.longest
        self.parts = {
            part: [
                (label, row or [self.tokens["unknown"]])
                for label, row in zip(numbers[part], self._encoded(rows), strict=True)
            ]
            for part, rows in texts.items()
        }
        self.batch_tokens = how.batch_tokens

    def _encoded(self, rows: list[tuple[str, ...]]) -> list[list[int]]:
        pairs = [row if len(row) == 2 else row[0] for row in rows]
        return encoded(self.tokenizer, pairs, special=True)

    def _length(self, row: tuple[int, list[int]]) -> int:
        return len(row[1])

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        rows = self.parts[part]
        for first in range(0, len(rows), size):
            yield self._batch(rows[first : first + size])

    def _batch(self, rows: list[tuple[int, list[int]]], width: int = 0) -> Batch:
        token, lengths = padded(
            [row for _, row in rows], self.tokens["pad"], min(width, self.longest)
        )
        label = torch.tensor([label for label, _ in rows])
        return {"token": token, "lengths": lengths, "label": label}

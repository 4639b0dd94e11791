"""Sentences and their translations as tokens of one vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edgewise.training.data.batches import IGNORED, Batch, Buckets, RowBatches, examples, padded
from edgewise.training.data.files import LINES, Columns, bad, lines_of
from edgewise.training.data.splits import NAMES, Splits
from edgewise.training.data.tokens import (
    LEARNED,
    fingerprint,
    size_of,
    special_token,
    tokenizer_of,
)
from edgewise.training.models.translation import LENGTH_FACTOR
from edgewise.training.schema import number
from edgewise.training.tokenizers import encoded, lines, read_as_lines

Sentences = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class PairData(Splits):
    """The columns `source` and `target`, or files `train.en` and `train.de` of lines.

    Columns are also found in objects of a column `translation`. The tokenizer is learned from the
    training part, one for both languages. Training sentences have fewer than `longest` tokens,
    others are truncated at twice that. `batch_tokens` makes batches of similar length with at most
    this many tokens on each side, padding included.
    """

    source: str
    target: str
    tokenizer: str = "bpe"
    pieces: int = number(8000, least=300)
    lower: bool = True
    longest: int = number(48, least=2)
    batch_tokens: int = number(0, least=0)

    def read(self, folder: Path, tokenizer: Any = None) -> PairCorpus:
        """The corpus; with a `tokenizer` of a run, in its token ids."""
        texts = {part: self.sentences(table) for part, table in self.parts(folder).items()}
        names: dict[str, str] = {}
        if tokenizer is None or self.tokenizer not in LEARNED:
            learn = [side for pair in texts["train"] for side in pair]
            how: Any = {"pieces": self.pieces, "lower": self.lower}
            tokenizer, names = tokenizer_of(self.tokenizer, folder, learn, **how)
            read_as_lines(tokenizer, lower=self.lower)
        tokens = {role: special_token(tokenizer, role, names) for role in ("pad", "start", "end")}
        corpus = PairCorpus(texts, tokenizer, tokens, self.longest, self.batch_tokens)
        corpus.fingerprint = fingerprint(self.tokenizer, tokenizer, repr(texts))
        if not corpus.train:
            what = f"no pair of sentences has fewer than {self.longest} tokens"
            raise bad(what, folder / self.path, "raise `longest`")
        return corpus

    def tables(self, folder: Path) -> dict[str, Columns]:
        """Two files of lines for each part, if there are, or columns."""
        found = {}
        for part, usual in NAMES.items():
            named = getattr(self, part)
            for name in (named,) if named else usual:
                if _there(file := self._file(folder, name, self.source)):
                    found[part] = self._lines(file, self._file(folder, name, self.target))
                    break
        return found if "train" in found else super().tables(folder)

    def _file(self, folder: Path, name: str, language: str) -> Path:
        return folder / self.path / f"{name}.{language}"

    def _lines(self, *files: Path) -> Columns:
        sides = [lines_of(file) for file in files]
        for file, side in zip(files, sides, strict=True):
            if not any(map(str.strip, side)):
                raise bad("the file has no sentences", file, "give one on each line")
        if len(sides[0]) != len(sides[1]):
            what = f"it has {len(sides[1]):,} lines, `{files[0].name}` has {len(sides[0]):,}"
            help = "line i of one is the translation of line i of the other"
            raise bad(what, files[1], help)
        return Columns(files[0], dict(zip((self.source, self.target), sides, strict=True)))

    def sentences(self, table: Columns) -> Sentences:
        """The pairs of a table, as the tokenizer of the run reads them."""
        if LINES in table.values:
            what = f"a text file has no columns `{self.source}` and `{self.target}`"
            help = f"give `train.{self.source}` and `train.{self.target}`, or a file with columns"
            raise bad(what, table.path, help)
        inside = f"translation.{self.source}" in table and self.source not in table
        names = [f"translation.{n}" if inside else n for n in (self.source, self.target)]
        read = lines(lower=self.lower).normalize_str
        sides = [[read(line) for line in table.texts(name)] for name in names]
        return list(zip(*sides, strict=True))


def _there(file: Path) -> bool:
    return file.is_file() or file.with_name(f"{file.name}.gz").is_file()


class PairCorpus(RowBatches):
    fingerprint: str

    def __init__(
        self,
        texts: dict[str, Sentences],
        tokenizer: Any,
        tokens: dict[str, int],
        longest: int,
        batch_tokens: int,
    ) -> None:
        self.texts, self.tokenizer, self.tokens, self.longest = texts, tokenizer, tokens, longest
        self.parts = {part: self._encoded(pairs) for part, pairs in texts.items()}
        self.train = [p for p in self.parts["train"] if max(map(len, p)) < longest]
        self._batch_tokens = batch_tokens
        self._buckets: Buckets | None = None

    @property
    def words(self) -> int:
        return size_of(self.tokenizer)

    @property
    def sizes(self) -> dict[str, int]:
        """What models read of a corpus, for `config.json`."""
        return {"words": self.words, "longest": self.longest}

    def _encoded(self, pairs: Sentences) -> list[tuple[list[int], list[int]]]:
        most = LENGTH_FACTOR * self.longest - 1
        sides = [encoded(self.tokenizer, [pair[side] for pair in pairs]) for side in (0, 1)]
        return [(a[:most], b[:most]) for a, b in zip(*sides, strict=True)]

    def batch(self, size: int, seed: int, step: int) -> Batch:
        if not self._batch_tokens:
            chosen = examples(len(self.train), size, seed, step)
            return {name: rows[chosen] for name, rows in self._all.items()}
        if self._buckets is None or self._buckets.size != size:
            lengths = [max(map(len, pair)) + 1 for pair in self.train]
            self._buckets = Buckets(lengths, size, self._batch_tokens)
        width, chosen = self._buckets.batch(seed, step)
        found = {name: rows[chosen] for name, rows in self._all.items()}
        return {n: rows[:, :width] if rows.ndim == 2 else rows for n, rows in found.items()}

    @cached_property
    def _all(self) -> Batch:
        """The training part as one batch."""
        return self._batch(self.train, self.longest)

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        rows = self.parts[part]
        longest = max((len(side) for pair in rows for side in pair), default=0)
        for first in range(0, len(rows), size):
            yield self._batch(rows[first : first + size], longest + 1)

    def _batch(self, rows: list[tuple[list[int], list[int]]], width: int) -> Batch:
        """Padded to `width`, so that the model is grounded for one shape."""
        pad, start, end = (self.tokens[role] for role in ("pad", "start", "end"))
        source, lengths = padded([[*a, end] for a, _ in rows], pad, width)
        token, _ = padded([[start, *b] for _, b in rows], pad, width)
        following, _ = padded([[*b, end] for _, b in rows], IGNORED, width)
        return {"source": source, "lengths": lengths, "token": token, "next": following}

    def text(self, tokens: Sequence[int]) -> str:
        """Tokens up to the end as text."""
        ids, end = list(tokens), self.tokens["end"]
        return str(self.tokenizer.decode(ids[: ids.index(end)] if end in ids else ids))

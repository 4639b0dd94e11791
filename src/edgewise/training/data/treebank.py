"""Sentences with dependency trees: their word pieces, and the head and relation of every word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from edgewise.data.trees import DependencyTree, sentences
from edgewise.training.data.batches import IGNORED, Batch, SentenceCorpus, padded
from edgewise.training.data.files import bad
from edgewise.training.data.tokens import (
    LEARNED,
    fingerprint,
    special_token,
    tokenizer_of,
)
from edgewise.training.schema import number

NONE = -1  # the word of a piece of none
ROOT = "root"  # the relation of the word below the root, in Universal Dependencies
ROLES = ("pad", "unknown", "start", "end")


@dataclass(frozen=True, kw_only=True)
class TreebankData:
    """CoNLL-U files, also compressed: `train`, `validation` and, if there is one, `test`.

    `longest` is the most pieces of a sentence, with one before it, which stands for the root, and
    one after it; a longer one is an error. `batch_tokens` makes batches of similar length with at
    most this many tokens, padding included.
    """

    path: str = "."
    train: str = "train.conllu"
    validation: str = "dev.conllu"
    test: str = ""
    tokenizer: str = "wordpiece"
    pieces: int = number(8000, least=300)
    longest: int = number(256, least=3)
    batch_tokens: int = number(0, least=0)

    def read(self, folder: Path, tokenizer: Any = None) -> TreebankCorpus:
        """The corpus; with a `tokenizer` of a run, in its token ids."""
        names = {part: getattr(self, part) for part in ("train", "validation", "test")}
        files = {part: folder / self.path / name for part, name in names.items() if name}
        trees = {part: _trees(file) for part, file in files.items()}
        special: dict[str, str] = {}
        if tokenizer is None or self.tokenizer not in LEARNED:
            learn = [" ".join(tree.words) for tree in trees["train"]]
            tokenizer, special = tokenizer_of(self.tokenizer, folder, learn, pieces=self.pieces)
        tokens = {role: special_token(tokenizer, role, special) for role in ROLES}
        corpus = TreebankCorpus(self, trees, tokenizer, tokens)
        read = [[(t.words, t.heads, t.relations) for t in found] for found in trees.values()]
        corpus.fingerprint = fingerprint(self.tokenizer, tokenizer, repr(read))
        for part, rows in corpus.parts.items():
            self._check(rows, trees[part], files[part])
        return corpus

    def _check(self, rows: list[Row], trees: list[DependencyTree], path: Path) -> None:
        for row, tree in zip(rows, trees, strict=True):
            if len(row.pieces) > self.longest:
                text = " ".join(tree.words)[:60]
                what = f"a sentence has {len(row.pieces)} pieces, `longest` is {self.longest}"
                raise bad(f"{what}: {text!r}", path, f"write `longest = {len(row.pieces)}`")


def _trees(path: Path) -> list[DependencyTree]:
    packed = path.with_name(f"{path.name}.gz")
    found = path if path.exists() or not packed.exists() else packed
    if not found.is_file():
        raise bad("there is no such file", path, "name the files in `[data]`, or give `--data`")
    trees = sentences(found)
    if not trees:
        raise bad("the file has no sentences", found, "give a file in CoNLL-U")
    return trees


@dataclass(frozen=True)
class Row:
    """The pieces of a sentence and the word of each; heads and relations of its words, from 1."""

    pieces: list[int]
    words: list[int]
    heads: list[int]
    relations: list[int]
    coarse: list[int]


class TreebankCorpus(SentenceCorpus):
    fingerprint: str

    def __init__(
        self,
        how: TreebankData,
        trees: dict[str, list[DependencyTree]],
        tokenizer: Any,
        tokens: dict[str, int],
    ) -> None:
        self.tokenizer, self.tokens, self.longest = tokenizer, tokens, how.longest
        self.labels = sorted({name for tree in trees["train"] for name in tree.relations})
        every = {name for part in trees.values() for tree in part for name in tree.relations}
        self._known = {name: at for at, name in enumerate(self.labels)}
        kinds = sorted({universal(name) for name in every})
        self._kinds = {name: kinds.index(universal(name)) for name in every}
        self.parts = {part: self._rows(found) for part, found in trees.items()}
        self.batch_tokens = how.batch_tokens

    def _rows(self, trees: list[DependencyTree]) -> list[Row]:
        found = in_pieces([tree.words for tree in trees], self.tokenizer, self.tokens)
        return [
            Row(
                *both,
                tree.heads,
                [self._known.get(name, IGNORED) for name in tree.relations],
                [self._kinds[name] for name in tree.relations],
            )
            for both, tree in zip(found, trees, strict=True)
        ]

    def _length(self, row: Row) -> int:
        return len(row.pieces)

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        """Sentences of similar length together."""
        rows = sorted(self.parts[part], key=self._length)
        for first in range(0, len(rows), size):
            yield self._batch(rows[first : first + size])

    def _batch(self, rows: list[Row], width: int = 0) -> Batch:
        found = piece_batch([(row.pieces, row.words) for row in rows], self.tokens["pad"], width)
        width = found["token"].shape[1]
        kinds = torch.tensor([self._kinds[name] for name in self.labels])
        for name, column in (("head", "heads"), ("relation", "relations"), ("kind", "coarse")):
            # in the place of word k; the root has none
            values = [[IGNORED, *getattr(row, column)] for row in rows]
            found[name] = padded(values, IGNORED, width)[0]
        root = torch.tensor(self._known.get(ROOT, NONE))
        return found | {"kinds": kinds.expand(len(rows), -1), "root": root.expand(len(rows))}


def universal(relation: str) -> str:
    """A relation without its subtype.

    >>> universal("nsubj:pass")
    'nsubj'
    """
    return relation.partition(":")[0]


Pieces = tuple[list[int], list[int]]


def in_pieces(
    texts: Sequence[Sequence[str]], tokenizer: Any, tokens: dict[str, int]
) -> list[Pieces]:
    """The pieces of sentences and the word of each: the first stands for the root, word 0.

    A word without pieces, such as a lone control character, is unknown.
    """
    found = []
    encoded = tokenizer.encode_batch(
        [list(words) for words in texts], is_pretokenized=True, add_special_tokens=False
    )
    for words, row in zip(texts, encoded, strict=True):
        own: list[list[int]] = [[] for _ in words]
        for piece, word in zip(row.ids, row.word_ids, strict=True):
            own[word].append(piece)
        own = [pieces or [tokens["unknown"]] for pieces in own]
        ids = [tokens["start"], *(piece for pieces in own for piece in pieces), tokens["end"]]
        at = [0, *(k for k, pieces in enumerate(own, start=1) for _ in pieces), NONE]
        found.append((ids, at))
    return found


def piece_batch(rows: Sequence[Pieces], pad: int, width: int = 0) -> Batch:
    """Padded pieces, their words, and the number of pieces of each sentence."""
    token, lengths = padded([pieces for pieces, _ in rows], pad, width)
    word, _ = padded([words for _, words in rows], NONE, width)
    return {"token": token, "lengths": lengths, "word": word}

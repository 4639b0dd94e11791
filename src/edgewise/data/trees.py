"""Sentences with dependency trees, in CoNLL-U: each a sample.

    word(I, W)      word I of the sentence is W, a number of `names["word"]`; so upos(I, P)
    arc(I, J)       word I depends on word J; the root depends on none
    relation(I, T)  by which relation, a number of `names["relation"]`

Ranges of words (`1-2`) and empty nodes (`1.1`) are left out, as parsers do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from edgewise.data.dataset import Dataset, as_numbers
from edgewise.data.lines import bad_line, lines_of
from edgewise.inputs.kinds import ragged, rows

FIELDS = 10


@dataclass(frozen=True)
class DependencyTree:
    """Words, their parts of speech, heads (0 is the root, else the place from 1), and relations."""

    words: list[str] = field(default_factory=list)
    upos: list[str] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)


def sentences(path: str | Path) -> list[DependencyTree]:
    """The sentences of a file, checked: places count from 1, heads are words, there is one root."""
    found, current, first = [], DependencyTree(), 0
    for number, line in [*lines_of(path), (0, "")]:
        if line.startswith("#"):
            continue
        if line.strip():
            first = first or number
            _add(current, path, number, line)
        elif current.words:
            _check(current, path, first)
            found.append(current)
            current, first = DependencyTree(), 0
    return found


def _add(sentence: DependencyTree, path: str | Path, number: int, line: str) -> None:
    fields = line.split("\t")
    if len(fields) != FIELDS:
        what = f"{len(fields)} fields, not {FIELDS}"
        raise bad_line(path, number, line, what, "fields are separated by tabs")
    if "-" in fields[0] or "." in fields[0]:
        return
    if fields[0] != str(len(sentence.words) + 1):
        what = f"word `{fields[0]}` where {len(sentence.words) + 1} comes next"
        raise bad_line(path, number, line, what, "number the words of a sentence from 1")
    if not fields[6].isascii() or not fields[6].isdigit():
        what = f"the head `{fields[6]}` is not a number"
        raise bad_line(path, number, line, what, "give the place of a word, or 0 for the root")
    sentence.words.append(fields[1])
    sentence.upos.append(fields[3])
    sentence.heads.append(int(fields[6]))
    sentence.relations.append(fields[7])


def _check(sentence: DependencyTree, path: str | Path, line: int) -> None:
    heads, count = sentence.heads, len(sentence.words)
    far = [head for head in heads if head > count]
    if far or heads.count(0) != 1:
        what = (
            f"a head is {far[0]}, of {count} words"
            if far
            else f"{heads.count(0)} words have no head"
        )
        text = " ".join(sentence.words)
        raise bad_line(path, line, text, what, "every word but the root has a head in its sentence")


def conllu(path: str | Path) -> Dataset:
    """All sentences of a file as a batch."""
    found = sentences(path)
    columns = {
        "word": [sentence.words for sentence in found],
        "upos": [sentence.upos for sentence in found],
        "relation": [sentence.relations for sentence in found],
    }
    inputs = {"arc": ragged([rows(_arcs(sentence.heads)) for sentence in found])}
    names = {}
    for name, column in columns.items():
        numbers = as_numbers([value for values in column for value in values])
        names[name] = tuple(numbers)
        inputs[name] = ragged([rows(_numbered(values, numbers)) for values in column])
    return Dataset(inputs, names)


def _arcs(heads: Sequence[int]) -> torch.Tensor:
    pairs = [(at, head - 1) for at, head in enumerate(heads) if head]
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def _numbered(values: Sequence[str], numbers: dict[str, int]) -> torch.Tensor:
    return torch.tensor([[*range(len(values))], [numbers[value] for value in values]])


def to_conllu(found: Sequence[DependencyTree]) -> str:
    """Sentences as text; fields that are not known are `_`."""

    def lines() -> Iterator[str]:
        for one in found:
            for at, word in enumerate(one.words):
                head, relation = str(one.heads[at]), one.relations[at]
                yield "\t".join(
                    [str(at + 1), word, "_", one.upos[at], "_", "_", head, relation, "_", "_"]
                )
            yield ""

    return "\n".join(lines()) + ("\n" if found else "")

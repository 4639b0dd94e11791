"""Sentences → dependency trees, by a trained parser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from edgewise.data.trees import DependencyTree
from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.training.data.treebank import ROOT, in_pieces, piece_batch
from edgewise.training.objectives.parsing import decoded
from edgewise.zoo.pretrained.texts import BadText, TextTooLong, listed

if TYPE_CHECKING:
    from edgewise.training.runs.run import Run

Sentence = str | Sequence[str] | DependencyTree
GIVE = 'give texts, lists of words, or trees: `parse(["a text"])`'
# English words as Universal Dependencies divides a text: `do n't`, `it 's`, `well - known`
CLITIC = r"['’](?:s|re|ve|ll|d|m)\b"
WORD = re.compile(
    rf"""
    (?:https?://|www\.)\S*[\w/]         # an address
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
    | (?:[A-Za-z]\.){{2,}}              # U.S., a.m.
    | \b(?:Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|vs|etc|Inc|Ltd|Corp|Co|Gen|Sen|Gov)\.
    | \d+(?:[.,:/]\d+)*(?:th|st|nd|rd|s)?\b
    | \bcan(?=not\b)                    # can not
    | \w+?(?=n['’]t\b) | n['’]t\b       # do n't
    | {CLITIC}
    | \w+(?:['’](?!(?:s|re|ve|ll|d|m)\b)\w+)*  # o'clock
    | ([^\w\s])\1*                      # the same sign again: ...
    """,
    re.IGNORECASE | re.VERBOSE,
)


def parse(run: Run, sentences: Sequence[Sentence], *, batch: int = 32) -> list[DependencyTree]:
    """The tree of each sentence; see `Run.parse`."""
    size = integer(batch, "batch", 1)
    trees = list(_trees(sentences))
    tokens = run.table["tokens"]
    rows = in_pieces([tree.words for tree in trees], run.tokenizer, tokens)
    for k, (pieces, _) in enumerate(rows):
        if len(pieces) > run.config.length:
            what = f"sentence {k} has {len(pieces)} pieces, the model reads {run.config.length}"
            raise TextTooLong(what, caller(), "split it into sentences")
    root = run.labels.index(ROOT) if ROOT in run.labels else None
    order = sorted(range(len(rows)), key=lambda k: len(rows[k][0]))
    for first in range(0, len(order), size):
        some = order[first : first + size]
        words = torch.tensor([len(trees[k].words) for k in some])
        read = piece_batch([rows[k] for k in some], tokens["pad"])
        with torch.inference_mode():
            found = run.module(**{name: tensor.to(run.device) for name, tensor in read.items()})
            heads, labels = decoded(found["arc"], found["relation"], words, root)
        for k, own, names in zip(some, heads.tolist(), labels.tolist(), strict=True):
            n = len(trees[k].words)
            relations = [run.labels[name] for name in names[1 : n + 1]]
            trees[k] = trees[k].parsed(own[1 : n + 1], relations)
    return trees


def _trees(sentences: Sequence[Sentence]) -> Iterator[DependencyTree]:
    """The words of each sentence, checked, with no tree yet."""
    if isinstance(sentences, str | DependencyTree) or not isinstance(sentences, Sequence):
        raise BadText(f"expected a list of sentences, got {sentences!r:.60}", caller(), GIVE)
    for k, sentence in enumerate(sentences):
        if isinstance(sentence, DependencyTree):
            found = sentence
        elif isinstance(sentence, str | Sequence):
            words = words_of(sentence) if isinstance(sentence, str) else list(sentence)
            found = DependencyTree(words, ["_"] * len(words))
        else:
            raise BadText(f"sentence {k} is {sentence!r:.60}", caller(), GIVE)
        if not found.words:
            raise BadText(f"sentence {k} has no words", caller(), "leave it out")
        for word in listed(found.words):
            if not word.strip() or any(mark in word for mark in "\t\n\r"):
                what = f"sentence {k} has the word {word!r:.40}"
                raise BadText(what, caller(), "a word has a sign, and no tabs or line breaks")
        yield found


def words_of(text: str) -> list[str]:
    """The words and signs of an English sentence.

    >>> print(*words_of("Don't stop: it's 3.5 km to Mr. Li's well-known café..."))
    Do n't stop : it 's 3.5 km to Mr. Li 's well - known café ...
    """
    return [found[0] for found in WORD.finditer(text)]

"""How a run starts on many ranks: one tokenizer, and the same recipe, data and rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from edgewise.save.archive import digest
from edgewise.training.ranks.group import RankGroup
from edgewise.training.recipe import Recipe
from edgewise.training.resuming import tokenizer_of_run


def shared_corpus(ranks: RankGroup, recipe: Recipe, where: Path, out: Path) -> Any:
    """The data of a run; the first rank learns its tokenizer, or has that of a resumed run."""

    def first() -> Any:
        return recipe.data.read(where, tokenizer_of_run(out, recipe))

    corpus = ranks.on_first(first)
    learned = getattr(corpus, "tokenizer", None)
    text = ranks.of_first(None if learned is None else learned.to_str())

    def other() -> Any:
        return recipe.data.read(where, None if text is None else _read(text))

    return ranks.each(lambda: corpus if ranks.is_first else other())


def _read(text: str) -> Any:
    from tokenizers import Tokenizer

    found = Tokenizer.from_str(text)
    found.no_padding()
    found.no_truncation()
    return found


def same_run(ranks: RankGroup, recipe: Recipe, corpus: Any, program: Any) -> None:
    """Refuse ranks that would train another run than the first."""
    if ranks.is_alone:
        return
    tokenizer = getattr(corpus, "tokenizer", None)
    rules = ranks.each(lambda: program.program.text())
    about = {
        "data": corpus.fingerprint,
        "tokenizer": "" if tokenizer is None else digest(tokenizer.to_str().encode()),
        "rules": digest(rules.encode()),
        "torch": torch.__version__,
        "edgewise": sys.modules["edgewise"].__version__,
    }
    ranks.agree(recipe.json() | {"rank": about})

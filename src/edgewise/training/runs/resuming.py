"""What a run starts with: one recipe, data and tokenizer, on all ranks and when resumed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from edgewise.errors import Span
from edgewise.graphs.drawing import require_package
from edgewise.save.archive import digest
from edgewise.training.data.tokens import opened
from edgewise.training.errors import OtherRecipe
from edgewise.training.recipe import Recipe, load
from edgewise.training.runs import model_files
from edgewise.training.runs.folder import RECIPE
from edgewise.training.tokenizers import UnknownCharacter

if TYPE_CHECKING:
    from edgewise.training.ranks.group import RankGroup

SHOWN = 6  # differences that an error lists


def same_recipe(out: Path, recipe: Recipe) -> None:
    """Refuse a folder with a run of another recipe, and say how they differ."""
    if not (out / RECIPE).is_file():
        return
    tables = [one.json() | {"distributed": {}} for one in (load(out / RECIPE), recipe)]
    found = list(differences(*tables))  # any ranks may continue a run
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise OtherRecipe(
            f"the folder has a run of another recipe: {'; '.join(found[:SHOWN])}{more}",
            Span.of("<out>", out),
            f"choose another folder, or continue that run: "
            f"`edgewise train {out / RECIPE} --out {out} --data FOLDER`",
        )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """`section.key` and both values, where two recipes differ.

    >>> list(differences({"training": {"rate": 0.1}}, {"training": {"rate": 0.2}}))
    ['`training.rate` is 0.1 there, 0.2 here']
    """
    for section in dict.fromkeys((*before, *now)):
        old, new = before.get(section, {}), now.get(section, {})
        for key in dict.fromkeys((*old, *new)):
            if old.get(key) != new.get(key):
                yield f"`{section}.{key}` is {old.get(key)!r} there, {new.get(key)!r} here"


def same_data(numbers: Mapping[str, Any], fingerprint: str, path: Path) -> None:
    """Refuse to resume with other data."""
    if numbers.get("data") != fingerprint:
        raise _other_data(path)


def _other_data(path: Path) -> OtherRecipe:
    place = Span.of("<checkpoint>", path)
    return OtherRecipe("the run was trained on other data", place, "give the same data")


def tokenizer_of_run(out: Path) -> Any:
    """The tokenizer that a run learned; others would give the tokens other ids."""
    if not any((out / "checkpoints").glob("step-*")):
        return None
    if model_files.TOKENIZER not in model_files.check(out)["files"]:
        return None
    require_package("tokenizers")
    return opened(out / model_files.TOKENIZER)[0]


def shared_corpus(ranks: RankGroup, recipe: Recipe, where: Path, out: Path) -> Any:
    """The data of a run; the first rank learns its tokenizer, or has that of a resumed run."""

    def first() -> Any:
        try:
            return recipe.data.read(where, own := tokenizer_of_run(out))
        except UnknownCharacter:  # of a run that has learned its characters
            if own is None:
                raise
            raise _other_data(out) from None

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

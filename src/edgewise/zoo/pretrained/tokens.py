"""Texts as padded batches of token ids, by the tokenizer of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs.drawing import MissingPackage
from edgewise.zoo.pretrained.entries import BadPretrained


class TextTooLong(EdgewiseError):
    """A model has a fixed number of positions; a longer text is truncated only on request."""

    code = "text-too-long"
    example = """\
from edgewise.zoo.pretrained.tokens import padded
padded([[5, 6, 7, 8]], longest=3)"""
    instead = """\
from edgewise.zoo.pretrained.tokens import padded
padded([[5, 6, 7, 8]], longest=3, truncate=True)"""


class BadText(EdgewiseError):
    """Texts are a list of strings that can be encoded as UTF-8."""

    code = "bad-text"
    example = """\
from edgewise.zoo.pretrained.tokens import listed
listed("a text")"""
    instead = """\
from edgewise.zoo.pretrained.tokens import listed
listed(["a text"])"""


def listed(texts: Iterable[str]) -> list[str]:
    """A checked list of texts."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise BadText(
            f"expected a list of texts, got {texts!r:.60}",
            caller(),
            "write `[text]`, also for a single text",
        )
    found = list(texts)
    for k, text in enumerate(found):
        if not isinstance(text, str):
            raise BadText(f"text {k} is {text!r:.60}", caller(), "give strings")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise BadText(
                f"text {k} has a lone surrogate: {text!r:.60}", caller(), "decode it as UTF-8"
            ) from None
    return found


def needed(package: str, extra: str) -> None:
    """Raise MissingPackage, with the extra to install, unless a package is there."""
    if find_spec(package) is None:
        raise MissingPackage(
            f"this needs `{package}`", caller(), f"pip install 'edgewise[{extra}]'"
        )


@dataclass(frozen=True, eq=False)
class Tokens:
    """A padded batch: token ids and a mask that is 0 at padding, both (texts, n)."""

    numbers: Tensor
    mask: Tensor


def padded(
    rows: Sequence[Sequence[int]],
    *,
    longest: int,
    pad: int = 0,
    truncate: bool = False,
    multiple: int = 1,
    which: Sequence[int] | None = None,
) -> Tokens:
    """Rows of different lengths as one batch, as wide as a `multiple` that holds them.

    `which` are the numbers of the texts, where they are some of many.

    >>> padded([[5, 6], [7]], longest=8).mask.tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    over = next((k for k, row in enumerate(rows) if len(row) > longest), None)
    if over is not None and not truncate:
        text = over if which is None else which[over]
        raise TextTooLong(
            f"text {text} has {len(rows[over])} tokens, the model has {longest} positions",
            caller(),
            "split it, or pass `truncate=True`",
        )
    width = min(-(-max([1, *map(len, rows)]) // multiple) * multiple, longest)
    numbers = torch.full((len(rows), width), pad)
    mask = torch.zeros(len(rows), width)
    for k, row in enumerate(rows):
        ids = torch.tensor(list(row[:longest]), dtype=torch.int64)
        numbers[k, : len(ids)] = ids
        mask[k, : len(ids)] = 1
    return Tokens(numbers, mask)


def read_tokenizer(path: Path, vocabulary: int) -> Any:
    """A `tokenizer.json`, if it belongs to a model with this vocabulary."""
    needed("tokenizers", "models")
    from tokenizers import Tokenizer

    try:
        found = Tokenizer.from_file(str(path))
    except Exception as problem:  # the package raises plain Exception
        raise BadPretrained(
            f"`{path.name}` is not a tokenizer file: {str(problem)[:120]}", help="fetch it again"
        ) from None
    return checked(found, vocabulary)


def checked(tokenizer: Any, vocabulary: int) -> Any:
    """The tokenizer with its own padding and truncation switched off."""
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= vocabulary:
        raise BadPretrained(
            f"the tokenizer has the token id {largest}, the model a vocabulary of {vocabulary:,}",
            help="give the tokenizer that the model was trained with",
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer

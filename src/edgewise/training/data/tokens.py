"""The tokenizer of a corpus: learned from its training part, or read from a file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgewise.graphs.drawing import require_package
from edgewise.training import tokenizers
from edgewise.training.data.files import bad, text_of
from edgewise.training.tokenizers import encoded
from edgewise.zoo.pretrained.fetch import SOURCES, checkpoint_of

LEARNED = ("characters", "words", "bpe", "byte_bpe", "wordpiece", "unigram")
SEPARATOR = "<separator>"
ROLES = {  # special tokens of published tokenizers, and their names in `tokenizer_config.json`
    "pad": ("pad_token", "<pad>", "[PAD]", "<|pad|>"),
    "unknown": ("unk_token", "<unknown>", "<unk>", "[UNK]"),
    "start": ("bos_token", "<start>", "<s>", "[CLS]", "<bos>", "<|begin_of_text|>"),
    "end": ("eos_token", "<end>", "</s>", "[SEP]", "<eos>", "<|endoftext|>", "<|end_of_text|>"),
    "separator": ("sep_token", SEPARATOR, "</s>", "[SEP]"),
}


def tokenizer_of(
    name: str,
    folder: Path,
    texts: Sequence[str],
    *,
    pieces: int,
    seen: int = 1,
    lower: bool = False,
) -> tuple[Any, dict[str, str]]:
    """A tokenizer learned from texts if `name` is one of `LEARNED`, otherwise that file or folder.

    With the names of special tokens that a folder has.
    """
    require_package("tokenizers")
    match name:
        case "characters":
            return tokenizers.characters("".join(sorted(set().union(*texts)))), {}
        case "words":
            counts = Counter(word for text in texts for word in text.split())
            return tokenizers.words(sorted(w for w, c in counts.items() if c >= seen)), {}
        case "bpe":
            return tokenizers.pieces(texts, pieces, lower=lower), {}
        case _ if name in LEARNED:
            return tokenizers.subwords(name, texts, pieces, lower=lower), {}
    if name in SOURCES and not (folder / name).exists():
        return opened(checkpoint_of(name))
    if not (folder / name).exists():
        what = f"there is no tokenizer `{name}`"
        raise bad(what, folder / name, f"give a file, or one of {', '.join(LEARNED)}")
    return opened(folder / name)


def opened(path: Path) -> tuple[Any, dict[str, str]]:
    """A `tokenizer.json`, or a folder that has one; its own padding and truncation are off."""
    from tokenizers import Tokenizer

    file = path / "tokenizer.json" if path.is_dir() else path
    text = text_of(file)
    try:
        found = Tokenizer.from_str(text)
    except Exception as problem:  # the package raises plain Exception
        what = f"not a tokenizer file: {str(problem)[:120]}"
        raise bad(what, file, "give a `tokenizer.json` of the package `tokenizers`") from None
    found.no_padding()
    found.no_truncation()
    return found, _special_names(file.with_name("tokenizer_config.json"))


def _special_names(path: Path) -> dict[str, str]:
    """`pad_token` and so on of a `tokenizer_config.json`, if there is one."""
    if not path.is_file():
        return {}
    try:
        table = dict(json.loads(text_of(path)))
    except (ValueError, TypeError):
        raise bad("not a JSON object", path, "download the file again") from None
    values = {key: v.get("content") if isinstance(v, dict) else v for key, v in table.items()}
    return {key: value for key, value in values.items() if isinstance(value, str)}


def special_token(tokenizer: Any, role: str, names: dict[str, str]) -> int:
    """The id of a token with a role, such as "end"; it is added if the tokenizer has none."""
    for name in ROLES[role]:
        found = tokenizer.token_to_id(names.get(name, name))
        if found is not None:
            return int(found)
    tokenizer.add_special_tokens([f"<{role}>"])
    return int(tokenizer.token_to_id(f"<{role}>"))


def fingerprint(name: str, tokenizer: Any, *texts: str) -> str:
    """Equal if the texts are, and the tokenizer if it was not learned from them."""
    found = hashlib.sha256()
    for text in (*texts, "" if name in LEARNED else tokenizer.to_str()):
        found.update(text.encode() + b"\0")
    return found.hexdigest()


def separated(tokenizer: Any, names: dict[str, str]) -> None:
    """Put a separator between two sentences, unless the tokenizer does."""
    (single,), (both,) = encoded(tokenizer, ["a"]), encoded(tokenizer, [("a", "a")], special=True)
    if len(both) > 2 * len(single):
        return
    from tokenizers.processors import TemplateProcessing

    token = special_token(tokenizer, "separator", names)
    name = tokenizer.id_to_token(token)
    tokenizer.post_processor = TemplateProcessing(
        single="$A", pair=f"$A {name} $B", special_tokens=[(name, token)]
    )


def size_of(tokenizer: Any) -> int:
    """The size of a vocabulary, with ids that no token has."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

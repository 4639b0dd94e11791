"""Tokenizers that a run makes from its data: characters, words, or learned subwords.

Each is a tokenizer of the package `tokenizers`, complete: it takes text as a user types it.
"""

from collections.abc import Iterable
from typing import Any

from edgewise.errors import EdgewiseError, caller

SPECIAL = ("<pad>", "<unknown>", "<start>", "<end>")
PAD, UNKNOWN, START, END = range(4)
MASK = "<mask>"


class UnknownCharacter(EdgewiseError):
    """A model of characters has one token for each character of its training text, and no other."""

    code = "unknown-character"
    example = """\
from edgewise.training.tokenizers import characters, encoded
encoded(characters("abc"), ["a cab"])"""
    instead = """\
from edgewise.training.tokenizers import characters, encoded
encoded(characters(" abc"), ["a cab"])"""


def characters(alphabet: str) -> Any:
    """A token for each character, in the order of `alphabet`.

    >>> characters("abc").encode("cab").ids
    [2, 0, 1]
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(alphabet)}))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    return made


def words(known: Iterable[str]) -> Any:
    """A token for each word between spaces; others are one unknown word.

    Texts are lower-cased if no known word has a capital letter.

    >>> words(["a", "film", "fine"]).encode("A fine film indeed").ids
    [2, 4, 3, 1]
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    every = [*SPECIAL[: UNKNOWN + 1], *known]
    vocabulary = {word: i for i, word in enumerate(every)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[UNKNOWN]))
    if all(word == word.lower() for word in every):
        made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def pieces(lines: Iterable[str], size: int, *, lower: bool) -> Any:
    """A byte-pair encoding of `size` tokens, learned from lines."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN]))
    spaces = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    case = [normalizers.Lowercase()] if lower else []
    made.normalizer = normalizers.Sequence([*case, *spaces])
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    made.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), show_progress=False, min_frequency=2
    )
    made.train_from_iterator(lines, trainer)
    return made


def subwords(kind: str, texts: Iterable[str], size: int, *, lower: bool) -> Any:
    """Tokens of bytes ("byte_bpe", as GPT-2), "wordpiece" (as BERT) or "unigram" (SentencePiece).

    Bytes represent every text exactly; the others know the characters of the texts.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    how: Any = {"vocab_size": size, "special_tokens": list(SPECIAL), "show_progress": False}
    match kind:
        case "byte_bpe":
            made = Tokenizer(models.BPE())
            made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            made.decoder = decoders.ByteLevel()
            every = sorted(pre_tokenizers.ByteLevel.alphabet())
            trainer: Any = trainers.BpeTrainer(**how, initial_alphabet=every)
        case "wordpiece":
            made = Tokenizer(models.WordPiece(unk_token=SPECIAL[UNKNOWN]))
            made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            made.decoder = decoders.WordPiece()
            trainer = trainers.WordPieceTrainer(**how)
        case _:
            made = Tokenizer(models.Unigram())
            made.pre_tokenizer = pre_tokenizers.Metaspace()
            made.decoder = decoders.Metaspace()
            trainer = trainers.UnigramTrainer(**how, unk_token=SPECIAL[UNKNOWN])
    if lower:
        made.normalizer = normalizers.Lowercase()
    made.train_from_iterator(texts, trainer)
    return made


def masked(tokenizer: Any) -> Any:
    """A copy with a mask token as the last one."""
    from tokenizers import Tokenizer

    made = Tokenizer.from_str(tokenizer.to_str())
    made.add_special_tokens([MASK])
    return made


def encoded(tokenizer: Any, texts: list[Any], *, special: bool = False) -> list[list[int]]:
    """The token ids of texts, or of pairs; a character without a token is an error.

    >>> encoded(characters("abc"), ["abba", "cab"])
    [[0, 1, 1, 0], [2, 0, 1]]
    """
    try:
        found = tokenizer.encode_batch(texts, add_special_tokens=special)
    except Exception:  # the package raises plain Exception where there is no unknown token
        for text in texts:
            for side in (text,) if isinstance(text, str) else text:
                letters(tokenizer, side)
        raise
    return [list(one.ids) for one in found]


def letters(tokenizer: Any, text: str) -> list[int]:
    """The token ids of a text by a tokenizer of characters: as `encoded`, 30 times as fast."""
    known = tokenizer.get_vocab()
    try:
        return [known[letter] for letter in text]
    except KeyError as problem:
        odd = "".join(dict.fromkeys(letter for letter in text if letter not in known))
        raise UnknownCharacter(
            f"the model has no token for {problem.args[0]!r}",
            caller(),
            f"leave out {odd[:20]!r}; it knows {_alphabet(known)!r}",
        ) from None


def _alphabet(known: Iterable[str]) -> str:
    return "".join(sorted(name for name in known if len(name) == 1))[:120]

"""Tokenizers that a run makes from its data: characters, words, or learned subwords.

Each is a tokenizer of the package `tokenizers`, complete: it takes text as a user types it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from edgewise.errors import EdgewiseError, caller

SPECIAL = ("<pad>", "<unknown>", "<start>", "<end>")
PAD, UNKNOWN, START, END = range(4)
MASK = "<mask>"
ADDED = 1e-4  # between the scores of characters that the trainer of unigrams adds


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


def lines(*, lower: bool) -> Any:
    """What a text is before it is read as a line: one space between words, lower-cased if so said.

    >>> lines(lower=True).normalize_str(" A\tfine  film ")
    'a fine film'
    """
    from tokenizers import Regex, normalizers

    case = [normalizers.Lowercase()] if lower else []
    spaces = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence([*case, *spaces])


def read_as_lines(tokenizer: Any, *, lower: bool) -> None:
    """Make a tokenizer read texts as `lines` does, before its own normalizer."""
    from tokenizers import normalizers

    first, own = lines(lower=lower), tokenizer.normalizer
    if own is None or repr(own) == repr(first):
        tokenizer.normalizer = first
    else:
        tokenizer.normalizer = normalizers.Sequence([first, own])


def pieces(texts: Iterable[str], size: int, *, lower: bool) -> Any:
    """A byte-pair encoding of `size` tokens, learned from texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN]))
    made.normalizer = lines(lower=lower)
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    made.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), show_progress=False, min_frequency=2
    )
    made.train_from_iterator(texts, trainer)
    return made


def subwords(kind: str, texts: Sequence[str], size: int, *, lower: bool) -> Any:
    """Tokens of bytes ("byte_bpe", as GPT-2), "wordpiece" (as BERT) or "unigram" (SentencePiece).

    Bytes represent every text exactly; the others know the characters of the texts. The same texts
    give the same tokenizer.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    how: Any = {"vocab_size": size, "special_tokens": list(SPECIAL), "show_progress": False}
    small = [normalizers.Lowercase()] if lower else []
    if kind == "wordpiece":
        return _wordpieces(texts, size, small)
    made = Tokenizer(models.BPE() if kind == "byte_bpe" else models.Unigram())
    made.normalizer = normalizers.Sequence(small)
    if kind == "byte_bpe":
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        every = sorted(pre_tokenizers.ByteLevel.alphabet())
        made.train_from_iterator(texts, trainers.BpeTrainer(**how, initial_alphabet=every))
        return made
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(texts, trainers.UnigramTrainer(**how, unk_token=SPECIAL[UNKNOWN]))
    return _ordered(made)


def _ordered(unigram: Any) -> Any:
    """A unigram tokenizer that does not depend on the order of a hash table of its trainer.

    Sums of scores are rounded, and characters that were added last, each with a slightly higher
    score than the one before, have the same.
    """
    from tokenizers import Tokenizer

    table = json.loads(unigram.to_str())
    special: list[tuple[str, float]] = []
    rest: list[tuple[str, float]] = []
    for piece, score in table["model"]["vocab"]:
        (special if piece in SPECIAL else rest).append((piece, score))
    least = min((score for _, score in rest), default=0.0)
    most = least + ADDED * (1 + sum(len(piece) == 1 for piece, _ in rest))
    rest = [(p, round(least if len(p) == 1 and s <= most else s, 4)) for p, s in rest]
    rest.sort(key=lambda one: (-one[1], one[0]))
    table["model"]["vocab"] = [*special, *rest]
    return Tokenizer.from_str(json.dumps(table))


def _wordpieces(texts: Sequence[str], size: int, normal: list[Any]) -> Any:
    """Subwords of a byte-pair encoding, marked by ## inside a word, the most frequent ones.

    The trainer of the package breaks ties by the order of a hash table; this one does not.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    pairs = Tokenizer(models.BPE())
    pairs.normalizer = normalizers.Sequence(normal)
    pairs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pairs.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    counts: Counter[str] = Counter()
    for row in pairs.encode_batch(list(texts)):
        before = [None, *row.word_ids]
        for token, word, last in zip(row.tokens, row.word_ids, before, strict=False):
            counts[token if word != last else f"##{token}"] += 1
    letters = sorted(token for token in pairs.get_vocab() if len(token) == 1)
    known = dict.fromkeys([*SPECIAL, *letters, *(f"##{letter}" for letter in letters)])
    for token, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        if len(known) < size:
            known[token] = None
    vocabulary = {token: i for i, token in enumerate(known)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token=SPECIAL[UNKNOWN]))
    made.normalizer, made.pre_tokenizer = pairs.normalizer, pairs.pre_tokenizer
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(list(SPECIAL))
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

"""Texts in and out of a checkpoint: tokens, padded batches, generation and translation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from edgewise.decode import CachedDecoder, RecomputingDecoder, beam, greedy, sample
from edgewise.decode.decoder import BadDecoding, Decoder, checked_integer
from edgewise.errors import EdgewiseError, caller
from edgewise.graphs.drawing import require_package
from edgewise.inputs.kinds import numbers
from edgewise.zoo.pretrained.constraints import (
    ConstrainedDecoder,
    Constraints,
    read_constraints,
)
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.rope_decoding import LengthDecoder
from edgewise.zoo.rope_scaling import Dynamic, LongRope

if TYPE_CHECKING:
    from edgewise.zoo.pretrained.model import Pretrained

Text = str | tuple[str, str]
STEPS = 256  # capacities are multiples of this, so that texts share what is prepared for one
ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "</s>",
    "<eos>",
)  # tried where the configuration names no end token


class TextTooLong(EdgewiseError):
    """A model has a fixed number of positions; a longer text is truncated only on request."""

    code = "text-too-long"
    example = """\
from edgewise.zoo.pretrained.texts import padded
padded([[5, 6, 7, 8]], longest=3)"""
    instead = """\
from edgewise.zoo.pretrained.texts import padded
padded([[5, 6, 7, 8]], longest=3, truncate=True)"""


class BadText(EdgewiseError):
    """Texts are a list of strings that can be encoded as UTF-8."""

    code = "bad-text"
    example = """\
from edgewise.zoo.pretrained.texts import listed
listed("a text")"""
    instead = """\
from edgewise.zoo.pretrained.texts import listed
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


def listed_pairs(texts: Iterable[Text]) -> list[Text]:
    """A checked list of texts, or of pairs of texts."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        return [*listed(texts)]
    found = list(texts)
    pairs = [isinstance(text, tuple) and len(text) == 2 for text in found]
    listed(
        cast("list[str]", ["" if pair else text for text, pair in zip(found, pairs, strict=True)])
    )
    for text, pair in zip(found, pairs, strict=True):
        if pair:
            listed(text)
    return found


@dataclass(frozen=True, eq=False)
class Tokens:
    """A padded batch: token ids and a mask that is 0 at padding, both (texts, n).

    `segments` say which text of a pair a token is of; without them, all are of the first.
    """

    numbers: Tensor
    mask: Tensor
    segments: Tensor | None = None

    def to(self, device: torch.device) -> Tokens:
        segments = None if self.segments is None else self.segments.to(device)
        return Tokens(self.numbers.to(device), self.mask.to(device), segments)


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
    require_package("tokenizers")
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


def generate(
    pretrained: Pretrained,
    prompt: str,
    most: int,
    seed: int | None,
    each: Callable[[str], None] | None,
    **sampling: Any,
) -> str:
    """The continuation of a prompt; see `Pretrained.generate`."""
    if "token" not in pretrained.model.inputs or pretrained.output != "logits":
        raise BadPretrained(
            f"`{pretrained.architecture}` is not a language model",
            caller(),
            "use a decoder such as Llama or GPT-2; an encoder gives vectors: `embed`",
        )
    checked_integer(most, "most", 1)
    temperature, names = sampling["temperature"], ("top_k", "top_p")
    is_greedy = temperature is None or temperature == 0
    name = next((n for n in names if sampling[n] is not None), None)
    if is_greedy and name is not None:
        raise BadDecoding(
            f"`{name}` applies to sampling, and decoding is greedy without a temperature above 0",
            caller(),
            "give a temperature too, such as 1.0",
        )
    if seed is not None and checked_integer(seed, "seed", 0) >= 1 << 63:
        raise BadDecoding(f"`seed` is {seed}", caller(), "give a number below 2^63")
    read = pretrained.tokens([prompt])
    tokens = read.numbers
    if not bool(read.mask.any()):
        raise BadDecoding(
            "the prompt has no tokens", caller(), "begin with a word or a start token"
        )
    decoder, most = pretrained.decoder(tokens.shape[1], most)
    stop = ends_of_text(pretrained)
    decoder = constrained(pretrained, decoder, stop, most)
    stream = _Stream(_Continuation(pretrained.tokenizer, tokens[0].tolist()), each, stop)
    if is_greedy:
        found = greedy(decoder, tokens, most=most, stop=stop, each=stream)
    else:
        draws = torch.Generator(pretrained.device)
        generator = draws.manual_seed(seed) if seed is not None else None
        how: Any = {"most": most, "stop": stop, "generator": generator, "each": stream}
        found = sample(decoder, tokens, **how, **sampling)
    return stream.text_of(_until(found[0].tolist(), stop))


def cached_decoder(pretrained: Pretrained, read: int, most: int) -> tuple[Decoder, int]:
    """A decoder for `read` tokens and as many of `most` more as there are positions for."""
    length = pretrained.config.length
    if read >= length:
        raise TextTooLong(
            f"the prompt has {read} tokens, no position is left",
            caller(),
            f"the model has {length} positions: shorten it",
        )
    most = min(most, length - read)
    capacity = min(-(-(read + most) // STEPS) * STEPS, length)
    scaling = getattr(pretrained.config, "scaling", None)
    if isinstance(scaling, Dynamic | LongRope):
        return LengthDecoder(pretrained, scaling, capacity), most
    return CachedDecoder(pretrained.model.growing(capacity), "token"), most


def translate(
    pretrained: Pretrained, texts: Sequence[str], most: int, beams: int, truncate: bool
) -> list[str]:
    """The output of an encoder–decoder for each text; see `Pretrained.translate`."""
    model = pretrained.model
    if not {"source", "target"} <= set(model.inputs):
        raise BadPretrained(
            f"`{pretrained.architecture}` is not an encoder–decoder",
            caller(),
            "use an encoder–decoder such as T5",
        )
    if getattr(pretrained.config, "source_vocabulary", None) is not None:
        raise BadPretrained(
            f"`{pretrained.architecture}` has two vocabularies, and `tokenizer.json` is of one",
            caller(),
            "give token ids to `respond(source=..., mask=...)`, and decode what it returns",
        )
    read = pretrained.tokens(texts, truncate=truncate)
    mask = read.mask.to(pretrained.dtype).unsqueeze(-1)
    rows = respond(pretrained, None, most, beams, {"source": numbers(read.numbers), "mask": mask})
    return [str(pretrained.tokenizer.decode(row)) for row in rows]


def respond(
    pretrained: Pretrained,
    prompt: Sequence[int] | None,
    most: int,
    beams: int,
    inputs: Mapping[str, Any],
) -> list[list[int]]:
    """The tokens of an encoder–decoder after a prompt; see `Pretrained.respond`."""
    model = pretrained.model
    if "target" not in model.inputs or set(model.inputs) != {"target", *inputs}:
        others = ", ".join(f"`{name}`" for name in model.inputs if name != "target")
        raise BadPretrained(
            f"`{pretrained.architecture}` reads {', '.join(model.inputs)}, not {', '.join(inputs)}",
            caller(),
            f"give {others}" if "target" in model.inputs else "use an encoder–decoder such as T5",
        )
    checked_integer(most, "most", 1)
    begun = list(prompt or (*named_tokens(pretrained, "decoder_start_token_id"), 0)[:1])
    ends = ends_of_text(pretrained)
    if not ends:
        raise BadPretrained(
            "the checkpoint names no end token", caller(), "add `eos_token_id` to its `config.json`"
        )
    most = min(most, getattr(pretrained.config, "length", len(begun) + most) - len(begun) + 1)
    decoder: Decoder
    if getattr(pretrained.config, "buckets", 0):  # biases of pairs of positions are not cached
        decoder = RecomputingDecoder(model, "target", len(begun) + most, **inputs)
    else:
        decoder = CachedDecoder(model.growing(len(begun) + most, **inputs), "target")
    decoder = constrained(pretrained, decoder, ends, most)
    rows = max(len(item.values if isinstance(item, numbers) else item) for item in inputs.values())
    tokens = torch.tensor(begun, device=pretrained.device).expand(rows, -1)
    if checked_integer(beams, "beams", 1) == 1:
        found = greedy(decoder, tokens, most=most, stop=ends)
    else:
        found, _ = beam(decoder, tokens, beams=beams, most=most, stop=ends)
    return [_until(row.tolist(), ends) for row in found]


def constrained(
    pretrained: Pretrained, decoder: Decoder, ends: tuple[int, ...], most: int
) -> Decoder:
    """A decoder under the checkpoint's constraints on the next token."""
    found = read_constraints(pretrained.table, ends, pretrained.config.vocabulary)
    plain = found == Constraints(ends=ends)
    return decoder if plain else ConstrainedDecoder(decoder, found, most)


def ends_of_text(pretrained: Pretrained) -> tuple[int, ...]:
    """The end tokens of the configuration, or else a well-known one of the tokenizer."""
    named = named_tokens(pretrained, "eos_token_id")
    if named:
        return tuple(token for token in named if token < pretrained.config.vocabulary)
    known = (pretrained.tokenizer.token_to_id(name) for name in ENDS)
    return tuple(token for token in known if token is not None)[:1]


def named_tokens(pretrained: Pretrained, name: str) -> tuple[int, ...]:
    """The token ids under a name of the configuration: none, one or a list."""
    value = pretrained.table.get(name)
    found = value if isinstance(value, list) else [] if value is None else [value]
    for token in found:
        if isinstance(token, bool) or not isinstance(token, int) or token < 0:
            raise BadPretrained(
                f"the configuration has `{name}` = {value!r:.60}", caller(), "it is a token id"
            )
    return tuple(found)


class _Continuation:
    """Decodes tokens after a prompt, with the space between words that the prompt implies."""

    def __init__(self, tokenizer: Any, before: list[int]) -> None:
        self.tokenizer, self.before = tokenizer, before
        self.known = str(tokenizer.decode(before))

    def __call__(self, tokens: list[int]) -> str:
        text = str(self.tokenizer.decode([*self.before, *tokens]))
        if text.startswith(self.known):
            return text[len(self.known) :]
        return str(self.tokenizer.decode(tokens))


class _Stream:
    """Passes on new text as tokens arrive, complete characters only, until an end token."""

    def __init__(
        self, text_of: _Continuation, each: Callable[[str], None] | None, stop: tuple[int, ...]
    ) -> None:
        self.text_of, self.each, self.stop = text_of, each, stop
        self.tokens: list[int] = []
        self.sent = 0

    def __call__(self, tokens: Tensor) -> None:
        token = int(tokens[0])
        if self.each is None or token in self.stop:
            return
        self.tokens.append(token)
        text = self.text_of(self.tokens)
        if not text.endswith("\ufffd"):  # a character whose bytes are not all there
            self.each(text[self.sent :])
            self.sent = len(text)


def _until(row: list[int], stop: tuple[int, ...]) -> list[int]:
    """The tokens before the first that ends a text."""
    last = next((k for k, token in enumerate(row) if token in stop), len(row))
    return row[:last]

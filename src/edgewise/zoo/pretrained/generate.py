"""Text generation: the continuation of a prompt, and the output of an encoder–decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.decode import CachedDecoder, RecomputingDecoder, beam, greedy, sample
from edgewise.decode.decoder import BadDecoding, checked_integer
from edgewise.errors import caller
from edgewise.inputs.kinds import numbers
from edgewise.zoo.pretrained.entries import BadPretrained
from edgewise.zoo.pretrained.tokens import TextTooLong

if TYPE_CHECKING:
    from edgewise.zoo.pretrained.model import Pretrained

STEPS = 256  # capacities are multiples of this, so that texts share what is prepared for one
ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "</s>",
    "<eos>",
)  # tried where the configuration names no end token


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
    name = next((n for n in names if sampling[n] is not None), None)
    if temperature is None and name is not None:
        raise BadDecoding(
            f"`{name}` applies to sampling, and decoding is greedy without a temperature",
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
    left = pretrained.config.positions - tokens.shape[1]
    if left < 1:
        raise TextTooLong(
            f"the prompt has {tokens.shape[1]} tokens, no position is left",
            caller(),
            f"the model has {pretrained.config.positions} positions: shorten it",
        )
    most = min(most, left)
    capacity = -(-(tokens.shape[1] + most) // STEPS) * STEPS
    growing = pretrained.model.growing(min(capacity, pretrained.config.positions))
    decoder = CachedDecoder(growing, "token")
    stop = ends_of_text(pretrained)
    stream = _Stream(_Continuation(pretrained.tokenizer, tokens[0].tolist()), each, stop)
    if temperature is None:
        found = greedy(decoder, tokens, most=most, stop=stop, each=stream)
    else:
        generator = torch.Generator().manual_seed(seed) if seed is not None else None
        how: Any = {"most": most, "stop": stop, "generator": generator, "each": stream}
        found = sample(decoder, tokens, **how, **sampling)
    return stream.text_of(_until(found[0].tolist(), stop))


def translate(pretrained: Pretrained, texts: Sequence[str], most: int, beams: int) -> list[str]:
    """The output of an encoder–decoder for each text; see `Pretrained.translate`."""
    model = pretrained.model
    if not {"source", "target"} <= set(model.inputs):
        raise BadPretrained(
            f"`{pretrained.architecture}` is not an encoder–decoder",
            caller(),
            "use an encoder–decoder such as T5",
        )
    checked_integer(most, "most", 1)
    read = pretrained.tokens(texts)
    start = (*named_tokens(pretrained, "decoder_start_token_id"), 0)[0]
    ends = ends_of_text(pretrained)
    if not ends:
        raise BadPretrained(
            "the checkpoint names no end token", caller(), "add `eos_token_id` to its `config.json`"
        )
    mask = read.mask.to(pretrained.dtype).unsqueeze(-1)
    decoder = RecomputingDecoder(model, "target", most + 1, source=numbers(read.numbers), mask=mask)
    begun = torch.full((len(read.numbers), 1), start)
    rows, _ = beam(decoder, begun, beams=beams, most=most, stop=ends[0])
    return [str(pretrained.tokenizer.decode(_until(row.tolist(), ends))) for row in rows]


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

"""Texts that go on: the tokens after a prompt, and the sentence that another one becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.decode import Again, Following, beam, greedy, sample
from edgewise.decode.following import BadDecoding
from edgewise.errors import caller
from edgewise.ground.inputs import numbers
from edgewise.zoo.pretrained.entries import BadPretrained
from edgewise.zoo.pretrained.tokens import TextTooLong

if TYPE_CHECKING:
    from edgewise.zoo.pretrained.pretrained import Pretrained

STEPS = 256  # capacities in few sizes: what is laid out for one is there for the next text
ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "</s>",
    "<eos>",
)  # where nothing says which token ends a text


def generate(
    pretrained: Pretrained,
    prompt: str,
    *,
    most: int = 100,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    each: Callable[[str], None] | None = None,
) -> str:
    """The text that follows a prompt; `each` is told every new piece of it.

    The likeliest token each time, or one that is drawn if a temperature is given.
    """
    if "token" not in pretrained.model.inputs or pretrained.output != "logits":
        raise BadPretrained(
            f"`{pretrained.architecture}` does not say how a text goes on",
            caller(),
            "use a decoder such as Llama or GPT-2; an encoder gives vectors: `embed`",
        )
    read = pretrained.tokens([prompt])
    tokens = read.numbers
    if not bool(read.mask.any()):
        raise BadDecoding(
            "the prompt has no tokens", caller(), "begin with a word, or with the token of a start"
        )
    room = pretrained.config.positions - tokens.shape[1]
    if room < 1:
        raise TextTooLong(
            f"the prompt has {tokens.shape[1]} tokens and leaves no place for more",
            caller(),
            f"the model has {pretrained.config.positions} positions: shorten it",
        )
    most = min(most, room)
    capacity = -(-(tokens.shape[1] + most) // STEPS) * STEPS
    growing = pretrained.model.growing(min(capacity, pretrained.config.positions))
    following = Following(growing, "token")
    told = _Told(pretrained.tokenizer, each)
    stop = end_of_text(pretrained)
    if temperature is None:
        found = greedy(following, tokens, most=most, stop=stop, each=told)
    else:
        generator = torch.Generator().manual_seed(seed) if seed is not None else None
        found = sample(
            following,
            tokens,
            most=most,
            stop=stop,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            generator=generator,
            each=told,
        )
    return _text(pretrained.tokenizer, found[0].tolist(), stop)


def translate(
    pretrained: Pretrained, texts: Sequence[str], *, most: int = 128, beams: int = 4
) -> list[str]:
    """What an encoder–decoder makes of texts, by beam search."""
    model = pretrained.model
    if not {"source", "target"} <= set(model.inputs):
        raise BadPretrained(
            f"`{pretrained.architecture}` does not read one text and write another",
            caller(),
            "use an encoder–decoder such as T5",
        )
    read = pretrained.tokens(texts)
    start = int(pretrained.table.get("decoder_start_token_id") or 0)
    stop = end_of_text(pretrained)
    if stop is None:
        raise BadPretrained(
            "the checkpoint does not say which token ends a text",
            caller(),
            "its `config.json` names it: `eos_token_id`",
        )
    mask = read.mask.to(pretrained.dtype).unsqueeze(-1)
    following = Again(model, "target", most + 1, source=numbers(read.numbers), mask=mask)
    begun = torch.full((len(texts), 1), start)
    rows, _ = beam(following, begun, beams=beams, most=most, stop=stop)
    return [_text(pretrained.tokenizer, row.tolist(), stop) for row in rows]


def end_of_text(pretrained: Pretrained) -> int | None:
    """The token that ends a text: what the configuration says, or one that is known for it."""
    named = pretrained.table.get("eos_token_id")
    if isinstance(named, list) and named:
        named = named[0]
    if isinstance(named, int):
        return named
    known = (pretrained.tokenizer.token_to_id(name) for name in ENDS)
    return next((token for token in known if token is not None), None)


class _Told:
    """Says new pieces of a text as tokens come, whole characters only."""

    def __init__(self, tokenizer: Any, each: Callable[[str], None] | None) -> None:
        self.tokenizer = tokenizer
        self.each = each
        self.tokens: list[int] = []
        self.said = 0

    def __call__(self, tokens: Tensor) -> None:
        if self.each is None:
            return
        self.tokens.append(int(tokens[0]))
        text = self.tokenizer.decode(self.tokens)
        if not text.endswith("\ufffd"):  # a character whose bytes are not all there
            self.each(text[self.said :])
            self.said = len(text)


def _text(tokenizer: Any, row: list[int], stop: int | None) -> str:
    kept = row[: row.index(stop)] if stop in row else row
    return str(tokenizer.decode(kept))

"""Texts that go on: the tokens after a prompt, and the sentence that another one becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.decode import Again, Following, beam, greedy, sample
from edgewise.decode.following import BadDecoding, whole
from edgewise.errors import caller
from edgewise.inputs.kinds import numbers
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
    whole(most, "most", 1)
    if temperature is None and (top_k is not None or top_p is not None):
        name = "top_k" if top_k is not None else "top_p"
        raise BadDecoding(
            f"`{name}` is for tokens that are drawn, and the likeliest are asked for",
            caller(),
            "give a temperature too, such as 1.0",
        )
    if seed is not None and whole(seed, "seed", 0) >= 1 << 63:
        raise BadDecoding(f"`seed` is {seed}", caller(), "give a number below 2^63")
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
    stop = ends_of_text(pretrained)
    told = _Told(_Continued(pretrained.tokenizer, tokens[0].tolist()), each, stop)
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
    return told.text_of(_until(found[0].tolist(), stop))


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
    whole(most, "most", 1)
    read = pretrained.tokens(texts)
    start = (*named_tokens(pretrained, "decoder_start_token_id"), 0)[0]
    ends = ends_of_text(pretrained)
    if not ends:
        raise BadPretrained(
            "the checkpoint does not say which token ends a text",
            caller(),
            "its `config.json` names it: `eos_token_id`",
        )
    mask = read.mask.to(pretrained.dtype).unsqueeze(-1)
    following = Again(model, "target", most + 1, source=numbers(read.numbers), mask=mask)
    begun = torch.full((len(read.numbers), 1), start)
    rows, _ = beam(following, begun, beams=beams, most=most, stop=ends[0])
    return [str(pretrained.tokenizer.decode(_until(row.tolist(), ends))) for row in rows]


def ends_of_text(pretrained: Pretrained) -> tuple[int, ...]:
    """The tokens that end a text: what the configuration says, or one that is known for it."""
    named = named_tokens(pretrained, "eos_token_id")
    if named:
        return tuple(token for token in named if token < pretrained.config.vocabulary)
    known = (pretrained.tokenizer.token_to_id(name) for name in ENDS)
    return tuple(token for token in known if token is not None)[:1]


def named_tokens(pretrained: Pretrained, name: str) -> tuple[int, ...]:
    """The tokens that a configuration gives under a name: none, one or a list."""
    given = pretrained.table.get(name)
    found = given if isinstance(given, list) else [] if given is None else [given]
    for token in found:
        if isinstance(token, bool) or not isinstance(token, int) or token < 0:
            raise BadPretrained(
                f"the configuration has `{name}` = {given!r:.60}",
                caller(),
                "it is the number of a token",
            )
    return tuple(found)


class _Continued:
    """Tokens as the text after another one: where words are apart, it begins with a space."""

    def __init__(self, tokenizer: Any, before: list[int]) -> None:
        self.tokenizer, self.before = tokenizer, before
        self.known = str(tokenizer.decode(before))

    def __call__(self, tokens: list[int]) -> str:
        whole_text = str(self.tokenizer.decode([*self.before, *tokens]))
        if whole_text.startswith(self.known):
            return whole_text[len(self.known) :]
        return str(self.tokenizer.decode(tokens))


class _Told:
    """Says new pieces of a text as tokens come, whole characters only, until one ends it."""

    def __init__(
        self, text_of: _Continued, each: Callable[[str], None] | None, stop: tuple[int, ...]
    ) -> None:
        self.text_of, self.each, self.stop = text_of, each, stop
        self.tokens: list[int] = []
        self.said = 0

    def __call__(self, tokens: Tensor) -> None:
        token = int(tokens[0])
        if self.each is None or token in self.stop:
            return
        self.tokens.append(token)
        text = self.text_of(self.tokens)
        if not text.endswith("\ufffd"):  # a character whose bytes are not all there
            self.each(text[self.said :])
            self.said = len(text)


def _until(row: list[int], stop: tuple[int, ...]) -> list[int]:
    """The tokens before the first that ends a text."""
    last = next((k for k, token in enumerate(row) if token in stop), len(row))
    return row[:last]

"""What may follow the tokens so far: a model that grows, seen as scores of the next token."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.grow import Growing
from edgewise.inputs.kinds import numbers


class BadDecoding(EdgewiseError):
    """Decoding goes on from a batch of token rows of one length, by numbers that make sense."""

    code = "bad-decoding"
    example = """\
from edgewise import decode
model = Program([R.p(V.I) <= F.lookup(W.table[9, 9], R.token(V.I))]).compile(R.p)
decode.greedy(decode.Following(model.growing(8), "token"), torch.zeros(1, 0), most=4)"""
    instead = """\
from edgewise import decode
model = Program([R.p(V.I) <= F.lookup(W.table[9, 9], R.token(V.I))]).compile(R.p)
decode.greedy(decode.Following(model.growing(8), "token"), torch.tensor([[1]]), most=4)"""


class Follows(Protocol):
    """Whatever scores the next token: with a cache, or all over again."""

    def __call__(self, tokens: Tensor, /) -> Tensor: ...

    def take(self, samples: Tensor) -> None: ...

    @property
    def room(self) -> int: ...


class Following:
    """Scores (batch, vocabulary) of the token that follows; `token` is the input it is read by."""

    def __init__(self, growing: Growing, token: str) -> None:
        if not isinstance(growing, Growing):
            raise BadDecoding(
                f"a {type(growing).__name__} does not grow",
                caller(),
                "write `Following(model.growing(capacity), token)`",
            )
        self.growing = growing
        self.token = token

    def __call__(self, tokens: Tensor) -> Tensor:
        """Append tokens (batch, n) and score what follows the last of them."""
        given: dict[str, Any] = {self.token: numbers(tokens)}
        scores = self.growing(**given)
        if not isinstance(scores, Tensor) or scores.ndim != 3:
            raise BadDecoding(
                "the model does not give a vector of scores for each token",
                caller(),
                "compile the relation that holds one: `compile(R.logits)`",
            )
        return scores[:, -1]

    def take(self, samples: Tensor) -> None:
        """Go on with these rows of the batch."""
        self.growing.take(samples)

    @property
    def room(self) -> int:
        """How many tokens more there is room for."""
        return self.growing.capacity - self.growing.length


Stop = int | Collection[int] | None  # the token that ends a row, or several


def begun(following: Follows, prompt: Any, most: int, stop: Stop) -> Tensor:
    """The prompt, checked: integers (batch, n) with n ≥ 1, and room for what comes."""
    if not isinstance(prompt, Tensor) or prompt.is_floating_point() or prompt.ndim != 2:
        kind = f"{prompt.dtype} {tuple(prompt.shape)}" if isinstance(prompt, Tensor) else prompt
        raise BadDecoding(
            f"a prompt is an integer tensor (batch, tokens), not {kind!r}",
            caller(),
            "give rows of one length: `torch.tensor([[start]])`",
        )
    if not prompt.numel():
        raise BadDecoding(
            f"there is nothing to go on from in {tuple(prompt.shape)}",
            caller(),
            "begin each row with a token, such as the one that marks a start",
        )
    whole(most, "most", 1)
    for token in stops(stop):
        whole(token, "stop", 0)
    if prompt.shape[1] + most - 1 > following.room:
        raise BadDecoding(
            f"{prompt.shape[1]} tokens and {most} more do not fit: there is room for "
            f"{following.room}",
            caller(),
            "grow a model of more capacity: `model.growing(capacity)`",
        )
    return prompt.long()


def whole(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadDecoding(
            f"`{name}` is {value!r}", caller(), f"give a whole number of at least {least}"
        )
    return value


def least(value: Any, name: str, lowest: float) -> float:
    """A finite number from `lowest` on."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not lowest <= value < float("inf")
    ):
        raise BadDecoding(f"`{name}` is {value!r}", caller(), f"give a number from {lowest} on")
    return float(value)


def stops(stop: Stop) -> tuple[Any, ...]:
    return () if stop is None else tuple(stop) if isinstance(stop, Collection) else (stop,)


def ends(tokens: Tensor, stop: Stop) -> Tensor:
    """Which tokens end a row."""
    first, *others = stops(stop)
    found = tokens == first
    for other in others:
        found |= tokens == other
    return found


def ended(rows: list[Tensor], stop: Stop) -> Tensor:
    """Columns of tokens as (batch, n); what follows a stop is the stop, the first of them."""
    found = torch.stack(rows, 1)
    if not stops(stop):
        return found
    over = ends(found, stop).cumsum(1)
    after = over - ends(found, stop).long() > 0
    return torch.where(after, stops(stop)[0], found)

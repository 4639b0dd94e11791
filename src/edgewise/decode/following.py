"""What may follow the tokens so far: a model that grows, seen as scores of the next token."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.ground.inputs import numbers
from edgewise.grow import Growing


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


def begun(following: Follows, prompt: Any, most: int, stop: int | None) -> Tensor:
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
    if stop is not None:
        whole(stop, "stop", 0)
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


def ended(rows: list[Tensor], stop: int | None) -> Tensor:
    """Columns of tokens as (batch, n); what follows a stop is the stop."""
    found = torch.stack(rows, 1)
    if stop is None:
        return found
    over = (found == stop).cumsum(1) > 0
    return torch.where(over, stop, found)

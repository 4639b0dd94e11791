"""Greedy decoding and sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.decode.decoder import (
    BadDecoding,
    Decoder,
    Stop,
    checked_integer,
    checked_prompt,
    stop_tokens,
)
from edgewise.errors import caller


def greedy(
    decoder: Decoder,
    prompt: Tensor,
    *,
    most: int,
    stop: Stop = None,
    each: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Up to `most` tokens after the prompt (batch, n), each the most likely one.

    `stop` is the token or tokens that end a row, which is then padded with the first of them;
    `each` is called with the tokens (batch,) of every step.
    """
    return _generate(decoder, prompt, lambda scores: scores.argmax(-1), most, stop, each)


def sample(
    decoder: Decoder,
    prompt: Tensor,
    *,
    most: int,
    stop: Stop = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    each: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Up to `most` tokens after the prompt, sampled from softmax(scores / temperature).

    - top_k: sample from the k most likely tokens.
    - top_p: sample from the smallest set of most likely tokens of total probability p.
    - each: called with the tokens (batch,) of every step.
    """
    _check_positive(temperature, "temperature")
    if top_k is not None:
        checked_integer(top_k, "top_k", 1)
    if top_p is not None:
        _check_positive(top_p, "top_p")
        if top_p > 1:
            raise BadDecoding(f"`top_p` is {top_p}", caller(), "give a probability up to 1")

    def choose(scores: Tensor) -> Tensor:
        scores = truncated(scores / temperature, top_k, top_p)
        return torch.multinomial(scores.softmax(-1), 1, generator=generator)[:, 0]

    return _generate(decoder, prompt, choose, most, stop, each)


def _generate(
    decoder: Decoder,
    prompt: Tensor,
    choose: Callable[[Tensor], Tensor],
    most: int,
    stop: Stop,
    each: Callable[[Tensor], None] | None,
) -> Tensor:
    """Choose tokens from the scores until all rows end."""
    tokens, found = checked_prompt(decoder, prompt, most, stop), []
    over = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    for _ in range(most):
        chosen = choose(decoder(tokens))
        found.append(chosen)
        if each is not None:
            each(chosen)
        if stop_tokens(stop):
            over |= _ends(chosen, stop)
            if bool(over.all()):
                break
        tokens = chosen[:, None]
    return _padded(torch.stack(found, 1), stop)


def truncated(scores: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Scores with -∞ for the tokens outside the top k and the top p.

    >>> truncated(torch.tensor([[1.0, 3.0, 2.0]]), 2, None)
    tensor([[-inf, 3., 2.]])
    >>> truncated(torch.tensor([[0.0, 5.0, 0.0]]), None, 0.9)
    tensor([[-inf, 5., -inf]])
    """
    if top_k is not None and top_k < scores.shape[-1]:
        least = scores.topk(top_k, -1).values[..., -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if top_p is not None:
        ordered, order = scores.sort(-1, descending=True)
        shares = ordered.softmax(-1)
        late = shares.cumsum(-1) - shares >= top_p
        scores = scores.masked_fill(late.gather(-1, order.argsort(-1)), -torch.inf)
    return scores


def _ends(tokens: Tensor, stop: Stop) -> Tensor:
    """Which tokens end a row."""
    first, *others = stop_tokens(stop)
    found = tokens == first
    for other in others:
        found |= tokens == other
    return found


def _padded(tokens: Tensor, stop: Stop) -> Tensor:
    """Tokens (batch, n), those after a stop replaced by the first stop token."""
    if not stop_tokens(stop):
        return tokens
    ends = _ends(tokens, stop).long()
    return torch.where(ends.cumsum(1) - ends > 0, stop_tokens(stop)[0], tokens)


def _check_positive(value: Any, name: str) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value < float("inf")
    ):
        raise BadDecoding(f"`{name}` must be positive, got {value!r}", caller(), "give 1.0")

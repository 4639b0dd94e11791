"""A token drawn by its probability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.decode.following import BadDecoding, Follows, Stop, begun, ended, ends, stops, whole
from edgewise.errors import caller


def sample(
    following: Follows,
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
    """Up to `most` tokens after the prompt, drawn from softmax(scores / temperature).

    - top_k: only the k likeliest tokens are drawn from.
    - top_p: only the fewest likeliest tokens whose probabilities reach p together.
    - each: is told the tokens (batch,) as they come.
    """
    _positive(temperature, "temperature")
    if top_k is not None:
        whole(top_k, "top_k", 1)
    if top_p is not None and _positive(top_p, "top_p") > 1:
        raise BadDecoding(f"`top_p` is {top_p}", caller(), "give a share between 0 and 1")
    tokens, found = begun(following, prompt, most, stop), []
    over = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    for _ in range(most):
        scores = kept(following(tokens) / temperature, top_k, top_p)
        chosen = torch.multinomial(scores.softmax(-1), 1, generator=generator)[:, 0]
        found.append(chosen)
        if each is not None:
            each(chosen)
        if stops(stop):
            over |= ends(chosen, stop)
            if bool(over.all()):
                break
        tokens = chosen[:, None]
    return ended(found, stop)


def kept(scores: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Scores of the tokens that may be drawn; those of the others are -∞.

    >>> kept(torch.tensor([[1.0, 3.0, 2.0]]), 2, None)
    tensor([[-inf, 3., 2.]])
    >>> kept(torch.tensor([[0.0, 5.0, 0.0]]), None, 0.9)
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


def _positive(value: Any, name: str) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value < float("inf")
    ):
        raise BadDecoding(f"`{name}` is {value!r}", caller(), "give a number above 0")
    return float(value)

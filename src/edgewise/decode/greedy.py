"""The likeliest token, again and again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.decode.following import Follows, Stop, begun, ended, ends, stops


def greedy(
    following: Follows,
    prompt: Tensor,
    *,
    most: int,
    stop: Stop = None,
    each: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Up to `most` tokens after the prompt (batch, n), each the likeliest; then all is `stop`.

    `stop` is a token that ends a row, or several; `each` is told the tokens (batch,) as they come.
    """
    tokens, found = begun(following, prompt, most, stop), []
    over = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    for _ in range(most):
        chosen = following(tokens).argmax(-1)
        found.append(chosen)
        if each is not None:
            each(chosen)
        if stops(stop):
            over |= ends(chosen, stop)
            if bool(over.all()):
                break
        tokens = chosen[:, None]
    return ended(found, stop)

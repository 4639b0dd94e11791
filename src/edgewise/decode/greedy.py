"""The likeliest token, again and again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.decode.following import Follows, begun, ended


def greedy(
    following: Follows,
    prompt: Tensor,
    *,
    most: int,
    stop: int | None = None,
    each: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Up to `most` tokens after the prompt (batch, n), each the likeliest; then all is `stop`.

    `each` is told the tokens (batch,) as they come.
    """
    tokens, found = begun(following, prompt, most, stop), []
    over = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    for _ in range(most):
        chosen = following(tokens).argmax(-1)
        found.append(chosen)
        if each is not None:
            each(chosen)
        if stop is not None:
            over |= chosen == stop
            if bool(over.all()):
                break
        tokens = chosen[:, None]
    return ended(found, stop)

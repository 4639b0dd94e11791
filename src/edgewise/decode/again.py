"""Scores of the next token by computing all rows again, for models that cannot grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.inputs.kinds import numbers

if TYPE_CHECKING:
    from edgewise.module import Model


class Again:
    """What `Following` is, at the cost of all tokens for each new one.

    For models whose rows hang on one another in other ways than causal attention: a recurrent
    decoder, biases for pairs of places. `fixed` are the inputs that stay.
    """

    def __init__(self, model: Model, token: str, capacity: int, **fixed: Any) -> None:
        self.model = model
        self.token = token
        self.capacity = capacity
        self.fixed: dict[str, Any] = fixed
        self.tokens: Tensor | None = None

    def __call__(self, tokens: Tensor) -> Tensor:
        """Append tokens (batch, n) and score what follows the last of them."""
        before = [] if self.tokens is None else [self.tokens]
        whole = torch.cat([*before, tokens], 1)
        given: Mapping[str, Any] = self.fixed | {self.token: numbers(whole)}
        with torch.no_grad():
            scores = self.model(**given)
        self.tokens = whole
        last: Tensor = scores[:, -1]
        return last

    def take(self, samples: Tensor) -> None:
        """Go on with these rows of the batch."""
        assert self.tokens is not None
        self.tokens = self.tokens.index_select(0, samples)
        self.fixed = {name: _selected(item, samples) for name, item in self.fixed.items()}

    @property
    def room(self) -> int:
        """How many tokens more there is room for."""
        return self.capacity - (0 if self.tokens is None else self.tokens.shape[1])


def _selected(item: Any, samples: Tensor) -> Any:
    if isinstance(item, numbers):
        return numbers(item.values.index_select(0, samples))
    return item.index_select(0, samples)

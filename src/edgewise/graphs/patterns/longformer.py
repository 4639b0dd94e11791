"""Longformer (Beltagy et al. 2020, arXiv 2004.05150)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewise.errors import caller
from edgewise.graphs.algebra import Derived
from edgewise.graphs.checks import integer, short_repr
from edgewise.graphs.errors import BadEdges, SizeMismatch
from edgewise.graphs.families import per_head, per_layer
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.dilated import dilated
from edgewise.graphs.patterns.global_tokens import global_tokens


@dataclass(frozen=True, repr=False)
class longformer(Derived):
    """A window of `radius` keys on each side, `dilation` apart, and global tokens G:
    {(i, j) : |i - j| ≤ radius·dilation, (i - j) mod dilation = 0, or i ∈ G, or j ∈ G}.

    Hugging Face's `attention_window` is 2·radius.

    >>> longformer(1).edges(4).T.tolist()[-3:]
    [[3, 0], [3, 2], [3, 3]]
    """

    radius: int
    tokens: int | tuple[int, ...] = 1
    dilation: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        integer(self.radius, "radius")
        integer(self.dilation, "dilation", 1)
        object.__setattr__(self, "tokens", global_tokens(self.tokens).tokens)

    def definition(self) -> Pattern:
        return dilated(self.radius, self.dilation) | global_tokens(self.tokens)


def longformer_layers(
    radii: Sequence[int],
    tokens: int | tuple[int, ...] = 1,
    *,
    dilations: Sequence[Sequence[int]] | None = None,
) -> per_layer:
    """A radius per layer and, optionally, a dilation per layer and head.

    >>> longformer_layers([2, 4], dilations=[[1], [2]])
    per_layer(per_head(longformer(2)), per_head(longformer(4, dilation=2)))
    """
    radii = _sequence(radii, "radii")
    if dilations is None:
        return per_layer(*(longformer(radius, tokens) for radius in radii))
    dilations = [_sequence(steps, "dilations") for steps in _sequence(dilations, "dilations")]
    if len(dilations) != len(radii):
        raise SizeMismatch(
            f"got {len(radii)} radii and {len(dilations)} lists of dilations",
            caller(),
            "give one list of dilations per layer",
        )
    return per_layer(
        *(
            per_head(*(longformer(radius, tokens, dilation=step) for step in steps))
            for radius, steps in zip(radii, dilations, strict=True)
        )
    )


def _sequence(values: Any, name: str) -> Sequence[Any]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise BadEdges(
            f"`{name}` must be a list with an entry per layer, got {short_repr(values)}",
            caller(),
            "write, for example, `longformer_layers([32, 64], dilations=[[1, 1], [1, 2]])`",
        )
    return values

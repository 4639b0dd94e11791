"""A pattern for each head, a pattern for each layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs import flex
from edgewise.graphs.errors import NotAPattern, SizeMismatch
from edgewise.graphs.pattern import Pattern
from edgewise.layouts import Blocks

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True, init=False, repr=False)
class per_head:
    """Head h has the h-th pattern: {(h, i, j) : (i, j) ∈ patternₕ}.

    Operators apply head by head; a single pattern stands for all heads.

    >>> from edgewise.graphs import causal, window
    >>> (per_head(window(1), window(2)) & causal())[1]
    window(2) & causal()
    """

    patterns: tuple[Pattern, ...]

    def __init__(self, *patterns: Pattern) -> None:
        for pattern in patterns:
            if not isinstance(pattern, Pattern):
                raise NotAPattern(
                    f"`per_head` takes patterns, got {pattern!r}", caller(), "one for each head"
                )
        if not patterns:
            raise SizeMismatch("`per_head` needs a pattern", caller(), "give one for each head")
        object.__setattr__(self, "patterns", patterns)

    def __len__(self) -> int:
        return len(self.patterns)

    def __getitem__(self, head: int) -> Pattern:
        return self.patterns[head]

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.patterns)

    def __or__(self, other: "Pattern | per_head") -> "per_head":
        return per_head(*(a | b for a, b in self._with(other)))

    def __and__(self, other: "Pattern | per_head") -> "per_head":
        return per_head(*(a & b for a, b in self._with(other)))

    def __sub__(self, other: "Pattern | per_head") -> "per_head":
        return per_head(*(a - b for a, b in self._with(other)))

    def __invert__(self) -> "per_head":
        return per_head(*(~pattern for pattern in self))

    @property
    def T(self) -> "per_head":
        return per_head(*(pattern.T for pattern in self))

    def dense(self, n: int, m: int | None = None) -> Tensor:
        """The boolean (heads, n, m) tensor."""
        return torch.stack([pattern.dense(n, m) for pattern in self])

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs over all heads."""
        return sum(pattern.count(n, m) for pattern in self)

    def blocks(self, n: int, m: int | None = None, *, block: int = 128) -> tuple[Blocks, ...]:
        return tuple(pattern.blocks(n, m, block=block) for pattern in self)

    def block_mask(
        self,
        n: int,
        m: int | None = None,
        *,
        block: int = 128,
        device: torch.device | str = "cpu",
    ) -> "BlockMask":
        """FlexAttention's `BlockMask` with one list of blocks per head."""
        tests = [pattern.predicate(n, m, device=device) for pattern in self]

        def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            out = tests[0](i, j) & (h == 0)
            for head, test in enumerate(tests[1:], start=1):
                out = out | (test(i, j) & (h == head))
            return out

        return flex.block_mask(self.blocks(n, m, block=block), mask_mod).to(device)

    def __repr__(self) -> str:
        return f"per_head({', '.join(map(repr, self.patterns))})"

    def _with(self, other: Any) -> Iterator[tuple[Pattern, Pattern]]:
        others = other.patterns if isinstance(other, per_head) else (other,) * len(self)
        if len(others) != len(self):
            raise SizeMismatch(
                f"{len(self)} heads meet {len(others)} heads", caller(), "give as many of each"
            )
        return zip(self.patterns, others, strict=True)


@dataclass(frozen=True, init=False, repr=False)
class per_layer:
    """Layer l has the l-th pattern, or the l-th pattern per head.

    >>> from edgewise.graphs import causal, window
    >>> per_layer(window(1), causal())[1]
    causal()
    """

    layers: tuple[Pattern | per_head, ...]

    def __init__(self, *layers: Pattern | per_head) -> None:
        for layer in layers:
            if not isinstance(layer, Pattern | per_head):
                raise NotAPattern(
                    f"`per_layer` takes patterns, got {layer!r}", caller(), "one for each layer"
                )
        object.__setattr__(self, "layers", layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: int) -> Pattern | per_head:
        return self.layers[layer]

    def __iter__(self) -> Iterator[Pattern | per_head]:
        return iter(self.layers)

    def __repr__(self) -> str:
        return f"per_layer({', '.join(map(repr, self.layers))})"

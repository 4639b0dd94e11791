"""A pattern for each head, a pattern for each layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs import flex
from edgewise.graphs.checks import LARGEST, shown, whole
from edgewise.graphs.errors import BadSize, NotAPattern, SizeMismatch
from edgewise.graphs.pattern import ByHead, Pattern, Span
from edgewise.graphs.pictures import compare
from edgewise.graphs.sizes import masked
from edgewise.layouts import Blocks
from edgewise.measures import Stats

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.nn.attention.flex_attention import BlockMask

One = TypeVar("One")


@dataclass(frozen=True, init=False, repr=False)
class per_head(ByHead):
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
                    f"`per_head` takes patterns, got {shown(pattern)}",
                    caller(),
                    "one for each head",
                )
        if not patterns:
            raise SizeMismatch("`per_head` needs a pattern", caller(), "give one for each head")
        object.__setattr__(self, "patterns", patterns)

    def __call__(self, *terms: Any) -> Any:
        raise NotAPattern(
            f"a pattern per head is {len(self)} sets of pairs, and an atom is one",
            caller(),
            "write a rule for each head, such as `heads[0](V.I, V.J)`, or use `attention`",
        )

    def __len__(self) -> int:
        return len(self.patterns)

    def __getitem__(self, head: int) -> Pattern:
        return _at(self.patterns, head, "head")

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.patterns)

    def __or__(self, other: "Pattern | per_head") -> "per_head":
        return per_head(*(a | b for a, b in self._with(other)))

    def __and__(self, other: "Pattern | per_head") -> "per_head":
        return per_head(*(a & b for a, b in self._with(other)))

    def __sub__(self, other: "Pattern | per_head") -> "per_head":
        return per_head(*(a - b for a, b in self._with(other)))

    def __ror__(self, other: Pattern) -> "per_head":
        return per_head(*(b | a for a, b in self._with(other)))

    def __rand__(self, other: Pattern) -> "per_head":
        return per_head(*(b & a for a, b in self._with(other)))

    def __rsub__(self, other: Pattern) -> "per_head":
        return per_head(*(b - a for a, b in self._with(other)))

    def __invert__(self) -> "per_head":
        return per_head(*(~pattern for pattern in self))

    @property
    def T(self) -> "per_head":
        return per_head(*(pattern.T for pattern in self))

    def shift(self, rows: int, keys: int | None = None) -> "per_head":
        return per_head(*(pattern.shift(rows, keys) for pattern in self))

    def restrict(self, *, queries: Span = (0, None), keys: Span = (0, None)) -> "per_head":
        return per_head(*(pattern.restrict(queries=queries, keys=keys) for pattern in self))

    def compose(self, other: "Pattern | per_head") -> "per_head":
        return per_head(*(a.compose(b) for a, b in self._with(other)))

    def power(self, hops: int) -> "per_head":
        return per_head(*(pattern.power(hops) for pattern in self))

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
        n, m, device = masked(n, m, block, device)
        tests = [pattern.predicate(n, m, device=device) for pattern in self]

        def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            out = tests[0](i, j) & (h == 0)
            for head, test in enumerate(tests[1:], start=1):
                out = out | (test(i, j) & (h == head))
            return out

        return flex.block_mask(self.blocks(n, m, block=block), mask_mod).to(device)

    def stats(self, n: int, *, heads: int = 1, d: int = 64) -> "SeveralStats":
        """The measures of each head."""
        return SeveralStats(pattern.stats(n, heads=heads, d=d) for pattern in self)

    def draw(self, n: int, m: int | None = None) -> str:
        """The matrix of each head as text, below its code."""
        return "\n\n".join(f"{pattern!r}\n{pattern.draw(n, m)}" for pattern in self)

    def plot(self, n: int) -> "Figure":
        """The heads side by side, as by `compare`."""
        return compare(*self, n=n)

    def __repr__(self) -> str:
        return f"per_head({', '.join(map(repr, self.patterns))})"

    def _with(self, other: Any) -> Iterator[tuple[Pattern, Pattern]]:
        others = other.patterns if isinstance(other, per_head) else (other,) * len(self)
        if len(others) != len(self):
            raise SizeMismatch(
                f"{len(self)} heads meet {len(others)} heads", caller(), "give as many of each"
            )
        return zip(self.patterns, others, strict=True)


class SeveralStats(tuple[Stats, ...]):
    """The measures of each head or layer, printed one below the other."""

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self))


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
                    f"`per_layer` takes patterns, got {shown(layer)}",
                    caller(),
                    "one for each layer",
                )
        if not layers:
            raise SizeMismatch("`per_layer` needs a pattern", caller(), "give one for each layer")
        object.__setattr__(self, "layers", layers)

    def __call__(self, *terms: Any) -> Any:
        raise NotAPattern(
            f"here is a set of pairs for each layer ({len(self)}), and an atom is one",
            caller(),
            "write a rule for each layer, such as `layers[0](V.I, V.J)`",
        )

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: int) -> Pattern | per_head:
        return _at(self.layers, layer, "layer")

    def __iter__(self) -> Iterator[Pattern | per_head]:
        return iter(self.layers)

    def stats(self, n: int, *, heads: int = 1, d: int = 64) -> "SeveralStats":
        """The measures of each layer, of the heads of a layer one after another."""
        return SeveralStats(one.stats(n, heads=heads, d=d) for one in self._patterns())

    def plot(self, n: int) -> "Figure":
        """The layers side by side, as by `compare`."""
        return compare(*self._patterns(), n=n)

    def _patterns(self) -> Iterator[Pattern]:
        for layer in self:
            yield from layer if isinstance(layer, per_head) else (layer,)

    def __repr__(self) -> str:
        return f"per_layer({', '.join(map(repr, self.layers))})"


def _at(several: tuple[One, ...], place: Any, name: str) -> One:
    """One of the patterns, counted from either end."""
    place, count = whole(place, name, -LARGEST), len(several)
    if not -count <= place < count:
        there = f"there is 1 {name}" if count == 1 else f"there are {count} {name}s"
        raise BadSize(
            f"{there}, and {name} {place} is asked for",
            caller(),
            f"{name}s count from 0 to {count - 1}",
        )
    return several[place]

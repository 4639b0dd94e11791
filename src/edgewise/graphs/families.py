"""A pattern for each head, for each sample, for each layer."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import and_, or_, sub
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

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
Member = TypeVar("Member", bound="Pattern | per_head")


class Family(ByHead, Generic[Member]):
    """Patterns side by side: operators apply one by one, a single pattern stands for all."""

    patterns: tuple[Member, ...]
    each: ClassVar[str]
    takes: ClassVar[tuple[type, ...]] = (Pattern,)

    def __init__(self, *patterns: Member) -> None:
        name = type(self).__name__
        for pattern in patterns:
            if not isinstance(pattern, self.takes):
                raise NotAPattern(
                    f"`{name}` takes patterns, got {shown(pattern)}",
                    caller(),
                    f"one for each {self.each}",
                )
        if not patterns:
            raise SizeMismatch(
                f"`{name}` needs a pattern", caller(), f"give one for each {self.each}"
            )
        object.__setattr__(self, "patterns", patterns)

    def __call__(self, *terms: Any) -> Any:
        raise NotAPattern(
            f"a pattern per {self.each} is {len(self)} sets of pairs, and an atom is one",
            caller(),
            f"write a rule for each {self.each}, such as `{self.each}s[0](V.I, V.J)`, "
            "or use `attention`",
        )

    def __len__(self) -> int:
        return len(self.patterns)

    def __getitem__(self, place: int) -> Member:
        return _at(self.patterns, place, self.each)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.patterns)

    def __or__(self, other: Any) -> Self:
        return NotImplemented if self._is_in(other) else self._each(or_, other)

    def __and__(self, other: Any) -> Self:
        return NotImplemented if self._is_in(other) else self._each(and_, other)

    def __sub__(self, other: Any) -> Self:
        return NotImplemented if self._is_in(other) else self._each(sub, other)

    def __ror__(self, other: Any) -> Self:
        return self._each(lambda a, b: b | a, other)

    def __rand__(self, other: Any) -> Self:
        return self._each(lambda a, b: b & a, other)

    def __rsub__(self, other: Any) -> Self:
        return self._each(lambda a, b: b - a, other)

    def __invert__(self) -> Self:
        return self._made(~pattern for pattern in self)

    @property
    def T(self) -> Self:
        return self._made(pattern.T for pattern in self)

    def shift(self, rows: int, keys: int | None = None) -> Self:
        return self._made(pattern.shift(rows, keys) for pattern in self)

    def restrict(self, *, queries: Span = (0, None), keys: Span = (0, None)) -> Self:
        return self._made(pattern.restrict(queries=queries, keys=keys) for pattern in self)

    def compose(self, other: Any) -> Self:
        return self._each(lambda a, b: a.compose(b), other)

    def power(self, hops: int) -> Self:
        return self._made(pattern.power(hops) for pattern in self)

    def dense(self, n: int, m: int | None = None) -> Tensor:
        """The boolean (heads, n, m), (samples, n, m) or (samples, heads, n, m) tensor."""
        each = [pattern.dense(n, m) for pattern in self]
        return torch.stack(torch.broadcast_tensors(*each))

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs over all patterns."""
        return sum(pattern.count(n, m) for pattern in self)

    def stats(self, n: int, *, heads: int = 1, d: int = 64) -> "SeveralStats":
        """The measures of each, of the heads of a sample one after another."""
        return SeveralStats(one.stats(n, heads=heads, d=d) for one in _patterns(self))

    def plot(self, n: int) -> "Figure":
        """The patterns side by side, as by `compare`."""
        return compare(*_patterns(self), n=n)

    def draw(self, n: int, m: int | None = None) -> str:
        """The matrix of each as text, below its code."""
        return "\n\n".join(f"{pattern!r}\n{pattern.draw(n, m)}" for pattern in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.patterns))})"

    def _is_in(self, other: Any) -> bool:
        """Whether `other` is of families such as this one, so that the operator is its own."""
        return isinstance(other, Family) and type(self) in other.takes

    def _made(self, patterns: Iterable[Any]) -> Self:
        return type(self)(*patterns)

    def _each(self, operator: Callable[[Any, Any], Any], other: Any) -> Self:
        others = other.patterns if isinstance(other, type(self)) else (other,) * len(self)
        if len(others) != len(self):
            raise SizeMismatch(
                f"{len(self)} {self.each}s meet {len(others)} {self.each}s",
                caller(),
                "give as many of each",
            )
        return self._made(operator(a, b) for a, b in zip(self.patterns, others, strict=True))


@dataclass(frozen=True, init=False, repr=False)
class per_head(Family[Pattern]):
    """Head h has the h-th pattern: {(h, i, j) : (i, j) ∈ patternₕ}.

    Operators apply head by head; a single pattern stands for all heads.

    >>> from edgewise.graphs import causal, window
    >>> (per_head(window(1), window(2)) & causal())[1]
    window(2) & causal()
    """

    patterns: tuple[Pattern, ...]
    each = "head"

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


@dataclass(frozen=True, init=False, repr=False)
class per_sample(Family[Pattern | per_head]):
    """Sample b of a batch has the b-th pattern, or the b-th pattern per head.

    Operators apply sample by sample; a single pattern, also per head, stands for all samples.

    >>> from edgewise.graphs import causal, tree
    >>> (per_sample(tree([-1, 0, 0]), tree([-1, 0, 1])) & causal())[1]
    tree([-1, 0, 1]) & causal()
    """

    patterns: tuple[Pattern | per_head, ...]
    each = "sample"
    takes = (Pattern, per_head)

    def __init__(self, *patterns: Pattern | per_head) -> None:
        super().__init__(*patterns)
        heads = [len(pattern) for pattern in patterns if isinstance(pattern, per_head)]
        if any(count != heads[0] for count in heads):
            other = next(count for count in heads if count != heads[0])
            raise SizeMismatch(
                f"`per_sample` has samples of {heads[0]} and of {other} heads",
                caller(),
                "give as many patterns per head in each sample",
            )


class SeveralStats(tuple[Stats, ...]):
    """The measures of each head, sample or layer, printed one below the other."""

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self))


Layer = Pattern | per_head | per_sample


@dataclass(frozen=True, init=False, repr=False)
class per_layer:
    """Layer l has the l-th pattern, or the l-th of patterns per head or per sample.

    >>> from edgewise.graphs import causal, window
    >>> per_layer(window(1), causal())[1]
    causal()
    """

    layers: tuple[Layer, ...]

    def __init__(self, *layers: Layer) -> None:
        for layer in layers:
            if not isinstance(layer, Pattern | per_head | per_sample):
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

    def __getitem__(self, layer: int) -> Layer:
        return _at(self.layers, layer, "layer")

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def stats(self, n: int, *, heads: int = 1, d: int = 64) -> "SeveralStats":
        """The measures of each layer, of the heads of a layer one after another."""
        return SeveralStats(one.stats(n, heads=heads, d=d) for one in _patterns(self))

    def plot(self, n: int) -> "Figure":
        """The layers side by side, as by `compare`."""
        return compare(*_patterns(self), n=n)

    def __repr__(self) -> str:
        return f"per_layer({', '.join(map(repr, self.layers))})"


def _patterns(several: Iterable[Layer]) -> Iterator[Pattern]:
    for one in several:
        yield from (one,) if isinstance(one, Pattern) else _patterns(one)


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

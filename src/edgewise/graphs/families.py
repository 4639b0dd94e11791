"""A pattern per head, per sample, per layer."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import and_, or_, sub
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor

from edgewise.errors import caller, counted
from edgewise.graphs import flex
from edgewise.graphs.cache import Cached
from edgewise.graphs.checks import LARGEST, integer, short_repr
from edgewise.graphs.drawing import compare, map_of
from edgewise.graphs.errors import BadSize, NotAPattern, SizeMismatch
from edgewise.graphs.pattern import Pattern, ReflectedOperand, Span, no_truth_value
from edgewise.layouts import Blocks
from edgewise.measures import Stats
from edgewise.notebook import side_by_side

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.nn.attention.flex_attention import BlockMask

SHOWN = 12  # patterns in a notebook
Member = TypeVar("Member", bound="Pattern | per_head | per_sample")


class PatternTuple(Generic[Member]):
    """Patterns, one for `each` head, sample or layer."""

    patterns: tuple[Member, ...]
    each: ClassVar[str]
    accepts: ClassVar[tuple[type, ...]] = (Pattern,)

    def __init__(self, *patterns: Member) -> None:
        name = type(self).__name__
        for pattern in patterns:
            if not isinstance(pattern, self.accepts):
                raise NotAPattern(
                    f"`{name}` takes patterns, got {short_repr(pattern)}",
                    caller(),
                    f"give one for each {self.each}: `{name}(window(2), causal())`",
                )
        if not patterns:
            raise SizeMismatch(
                f"`{name}` needs a pattern", caller(), f"give one for each {self.each}"
            )
        object.__setattr__(self, "patterns", patterns)

    def __call__(self, *terms: Any) -> Any:
        raise NotAPattern(
            f"an atom is one pattern, not one per {self.each} ({len(self)})",
            caller(),
            f"write a rule for each {self.each}, such as `{self.each}s[0](V.I, V.J)`",
        )

    def __len__(self) -> int:
        return len(self.patterns)

    def __bool__(self) -> bool:
        raise no_truth_value(self)

    def __getitem__(self, index: int) -> Member:
        index, count = integer(index, self.each, -LARGEST), len(self)
        if not -count <= index < count:
            raise BadSize(
                f"{self.each} {index} is out of range of {counted(count, self.each)}",
                caller(),
                f"{self.each}s count from 0 to {count - 1}",
            )
        return self.patterns[index]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.patterns)

    def stats(self, n: int, *, heads: int = 1, d: int = 64) -> "FamilyStats":
        """The measures of each pattern, the heads of a layer or sample in order.

        >>> from edgewise.graphs import causal, per_head, window
        >>> len(per_head(causal(), window(1)).stats(16))
        2
        """
        return FamilyStats(one.stats(n, heads=heads, d=d) for one in _patterns(self))

    def plot(self, n: int) -> "Figure":
        """The patterns side by side, as by `compare`.

        >>> from edgewise.graphs import causal, per_head, window
        >>> per_head(causal(), window(1)).plot(16).savefig("heads.png")  # doctest: +SKIP
        """
        return compare(*_patterns(self), n=n)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.patterns))})"

    def _repr_html_(self) -> str:
        first = list(_patterns(self))[:SHOWN]
        caption = f"{type(self).__name__}: {counted(len(self), self.each)}"
        return side_by_side([map_of(pattern) for pattern in first], caption)


class Family(PatternTuple[Member], Cached, ReflectedOperand):
    """Patterns per head or sample: operators apply elementwise, a single pattern is broadcast."""

    def __or__(self, other: Any) -> Self:
        return NotImplemented if self._is_member_of(other) else self._each(or_, other)

    def __and__(self, other: Any) -> Self:
        return NotImplemented if self._is_member_of(other) else self._each(and_, other)

    def __sub__(self, other: Any) -> Self:
        return NotImplemented if self._is_member_of(other) else self._each(sub, other)

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
        """The boolean (heads, n, m), (samples, n, m) or (samples, heads, n, m) tensor.

        >>> from edgewise.graphs import causal, per_head, window
        >>> per_head(causal(), window(1)).dense(4).shape
        torch.Size([2, 4, 4])
        """
        each = [pattern.dense(n, m) for pattern in self]
        return torch.stack(torch.broadcast_tensors(*each))

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs over all patterns.

        >>> from edgewise.graphs import causal, per_head, window
        >>> per_head(causal(), window(1)).count(4)
        20
        """
        return sum(pattern.count(n, m) for pattern in self)

    def draw(self, n: int, m: int | None = None) -> str:
        """The matrix of each as text, below its code.

        >>> from edgewise.graphs import causal, per_head, window
        >>> print(per_head(causal(), window(0)).draw(2))
        causal()
        █·
        ██
        <BLANKLINE>
        window(0)
        █·
        ·█
        """
        return "\n\n".join(f"{pattern!r}\n{pattern.draw(n, m)}" for pattern in self)

    def _is_member_of(self, other: Any) -> bool:
        """True if `other` is a family of families such as this one, and implements the operator."""
        return isinstance(other, Family) and type(self) in other.accepts

    def _made(self, patterns: Iterable[Any]) -> Self:
        return type(self)(*patterns)

    def _each(self, operator: Callable[[Any, Any], Any], other: Any) -> Self:
        others = other.patterns if isinstance(other, type(self)) else (other,) * len(self)
        if len(others) != len(self):
            raise SizeMismatch(
                f"cannot combine {len(self)} {self.each}s with {len(others)}",
                caller(),
                "give the same number on both sides, or a single pattern",
            )
        return self._made(operator(a, b) for a, b in zip(self.patterns, others, strict=True))


@dataclass(frozen=True, init=False, repr=False)
class per_head(Family[Pattern]):
    """Head h has the h-th pattern: {(h, i, j) : (i, j) ∈ patternₕ}.

    Operators apply head by head; a single pattern is broadcast to all heads.

    >>> from edgewise.graphs import causal, window
    >>> (per_head(window(1), window(2)) & causal())[1]
    window(2) & causal()
    """

    patterns: tuple[Pattern, ...]
    each = "head"

    def blocks(self, n: int, m: int | None = None, *, block: int = 128) -> tuple[Blocks, ...]:
        return tuple(pattern.blocks(n, m, block=block) for pattern in self)

    def block_mask(
        self, n: int, m: int | None = None, *, block: int = 128, device: torch.device | str = "cpu"
    ) -> "BlockMask":
        """FlexAttention's `BlockMask` with one list of blocks per head.

        >>> from edgewise.graphs import causal, window
        >>> per_head(causal(), window(8)).block_mask(256).shape
        (1, 2, 256, 256)
        """
        n, m, device = flex.block_mask_sizes(n, m, block, device)
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

    Operators apply sample by sample; a single pattern, also per head, is broadcast.

    >>> from edgewise.graphs import causal, tree
    >>> (per_sample(tree([-1, 0, 0]), tree([-1, 0, 1])) & causal())[1]
    tree([-1, 0, 1]) & causal()
    """

    patterns: tuple[Pattern | per_head, ...]
    each = "sample"
    accepts = (Pattern, per_head)

    def __init__(self, *patterns: Pattern | per_head) -> None:
        super().__init__(*patterns)
        heads = [len(pattern) for pattern in patterns if isinstance(pattern, per_head)]
        if any(count != heads[0] for count in heads):
            other = next(count for count in heads if count != heads[0])
            raise SizeMismatch(
                f"`per_sample` got samples with {heads[0]} and with {other} heads",
                caller(),
                "give every sample the same number of heads",
            )


class FamilyStats(tuple[Stats, ...]):
    """The measures of each head, sample or layer."""

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self))


Layer = Pattern | per_head | per_sample


@dataclass(frozen=True, init=False, repr=False)
class per_layer(PatternTuple[Layer]):
    """Layer l has the l-th pattern, or the l-th of patterns per head or per sample.

    >>> from edgewise.graphs import causal, window
    >>> per_layer(window(1), causal())[1]
    causal()
    """

    patterns: tuple[Layer, ...]
    each = "layer"
    accepts = (Pattern, per_head, per_sample)


def _patterns(several: Iterable[Layer]) -> Iterator[Pattern]:
    for one in several:
        yield from (one,) if isinstance(one, Pattern) else _patterns(one)

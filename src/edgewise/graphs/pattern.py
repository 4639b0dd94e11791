"""A pattern: the set of pairs (i, j) in which query i attends to key j."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, counted
from edgewise.graphs import flex
from edgewise.graphs.cache import Cached, cached
from edgewise.graphs.checks import (
    FARTHEST,
    LARGEST,
    available_device,
    check_memory,
    integer,
    nonempty,
    sequence_lengths,
    token_indices,
)
from edgewise.graphs.drawing import (
    PRINTED,
    draw_rows,
    map_of,
    plot_pattern,
    require_package,
)
from edgewise.graphs.errors import BadEdges, BadSize, NotAPair, NotAPattern, TooManyPairs
from edgewise.language import nodes, terms
from edgewise.language.operators import NoTruthValue
from edgewise.layouts import (
    CSR,
    Blocks,
    Membership,
    Rows,
    Trapezoids,
    blocks_of_rows,
    csr_of_rows,
    membership_test,
    rows_of_trapezoids,
    transposed,
)
from edgewise.measures import Stats, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.nn.attention.flex_attention import BlockMask

    from edgewise.layouts.bitmap import Bitmap
    from edgewise.layouts.boxes import BoxCells

Span = tuple[int, int | None]


class ReflectedOperand:
    """A right operand that implements `pattern | self`, `pattern & self` and `pattern - self`."""


class Pattern(Cached):
    """A set of pairs (i, j) for any number n of queries and m of keys: i attends to j.

    A subclass defines `trapezoids`, `compute_rows` or `compute_rows_between`, and `mask` where
    membership is arithmetic on i and j. m defaults to n throughout.

    >>> from edgewise.graphs import causal, window
    >>> band = causal() & window(1)
    >>> print(band.draw(4))
    █···
    ██··
    ·██·
    ··██
    >>> band.count(4), band.degrees(4).tolist(), band.contains(3, 2, n=4)
    (7, [1, 2, 2, 2], True)
    """

    precedence: ClassVar[int] = 4  # of its repr as an expression; 4 is a call
    # True if membership of (i, j) does not depend on sequence length: `growing` can append to it
    ignores_lengths: ClassVar[bool] = False
    always_printed: ClassVar[tuple[str, ...]] = ()  # fields in the repr even at their default
    # its pairs by blocks, where they have no short normal form
    bitmap: "Bitmap | BoxCells | None" = None
    depth: int = 0  # operators on the longest path of an expression, and patterns in it
    total: int = 1

    def __init_subclass__(cls) -> None:
        """NumPy integers in fields become Python ones before `__post_init__` checks them.

        What is made while Dynamo traces is made again from its fields, and checked then.
        """
        check = cls.__dict__.get("__post_init__")
        if check is not None:

            def plain(self: Pattern) -> None:
                if torch.compiler.is_dynamo_compiling():
                    return
                for name in type(self).__dataclass_fields__:  # type: ignore[attr-defined]
                    value = getattr(self, name)
                    if isinstance(value, np.integer):
                        object.__setattr__(self, name, int(value))
                check(self)

            cls.__post_init__ = plain  # type: ignore[attr-defined]

    def __or__(self, other: "Pattern") -> "Pattern":
        return algebra.associated(algebra.union, self, other)

    def __and__(self, other: "Pattern") -> "Pattern":
        return algebra.associated(algebra.intersection, self, other)

    def __ror__(self, other: Any) -> "Pattern":
        return algebra.pattern_of(other) | self

    def __rand__(self, other: Any) -> "Pattern":
        return algebra.pattern_of(other) & self

    def __rsub__(self, other: Any) -> "Pattern":
        return algebra.pattern_of(other) - self

    def __add__(self, other: Any) -> "Pattern":
        if isinstance(other, ReflectedOperand):
            return NotImplemented
        raise NotAPattern(
            "patterns are combined by `|`, `&`, `-` and `~` only",
            caller(),
            "write `a | b` for the pairs of either, `a & b` for those of both, `a - b`, `~a`; "
            "`(a - b) | (b - a)` for those of one alone",
        )

    __radd__ = __mul__ = __rmul__ = __xor__ = __rxor__ = __matmul__ = __add__

    def __sub__(self, other: "Pattern") -> "Pattern":
        if isinstance(other, ReflectedOperand):
            return NotImplemented
        if isinstance(self, algebra.difference):
            return algebra.difference(self.left, self.right | other)
        return algebra.difference(self, algebra.pattern_of(other))

    def __invert__(self) -> "Pattern":
        return self.pattern if isinstance(self, algebra.complement) else algebra.complement(self)

    def __bool__(self) -> bool:
        raise no_truth_value(self)

    @property
    def T(self) -> "Pattern":
        """{(j, i) : (i, j) ∈ self}.

        >>> from edgewise.graphs import causal
        >>> print(causal().T.draw(3))
        ███
        ·██
        ··█
        """
        return algebra.transpose(self)

    def shift(self, rows: int, keys: int | None = None) -> "Pattern":
        """{(i + rows, j + keys) : (i, j) ∈ self}; `self` is evaluated for n - rows queries.

        A negative `rows` continues a sequence: `causal().shift(-t, 0)` is the mask of new queries
        after t cached tokens.

        >>> from edgewise.graphs import window
        >>> print(window(0).shift(1, 0).draw(3))
        ···
        █··
        ·█·
        """
        return algebra.shifted(self, rows, rows if keys is None else keys)

    def restrict(self, *, queries: Span = (0, None), keys: Span = (0, None)) -> "Pattern":
        """{(i, j) ∈ self : i in queries, j in keys}; half-open ranges.

        >>> from edgewise.graphs import full
        >>> print(full().restrict(queries=(1, None), keys=(0, 2)).draw(3))
        ···
        ██·
        ██·
        """
        return algebra.restricted(self, queries=queries, keys=keys)

    def compose(self, other: "Pattern") -> "Pattern":
        """{(i, k) : (i, j) ∈ self and (j, k) ∈ other for some j}: two hops.

        >>> from edgewise.graphs import window
        >>> window(1).compose(window(2)).count(9) == window(3).count(9)
        True
        """
        return algebra.composition(self, algebra.pattern_of(other))

    def power(self, hops: int) -> "Pattern":
        """Pairs joined by exactly `hops` hops.

        >>> from edgewise.graphs import window
        >>> window(1).power(2).count(9) == window(2).count(9)
        True
        """
        return self if integer(hops, "hops", 1) == 1 else algebra.powered(self, hops)

    def compute_rows(self, n: int, m: int) -> Rows:
        """The pairs with i < n and j < m in normal form."""
        if type(self).compute_rows_between is not Pattern.compute_rows_between:
            return self.compute_rows_between(n, m, 0, n)
        return rows_of_trapezoids(n, m, self.trapezoids(n, m))

    def trapezoids(self, n: int, m: int) -> Trapezoids:
        """Trapezoids whose union has these pairs with i < n and j < m, and maybe others beyond."""
        return self.rows(n, m).trapezoids()

    def compute_rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        """Rows first ≤ i < last, numbered from 0; random patterns sample only these."""
        return self.rows(n, m).between(first, last)

    def rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        """Rows first ≤ i < last, numbered from 0."""
        if (first, last) == (0, n):
            return self.rows(n, m)
        return self.compute_rows_between(*sequence_lengths(n, m), first, last)

    def mask(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        """Elementwise (i, j) ∈ self, for integer tensors with 0 ≤ i < n and 0 ≤ j < m."""
        return Membership(self.rows(n, m), i.device)(i, j)

    @overload
    def contains(self, i: int, j: int, n: int, m: int | None = None) -> bool: ...
    @overload
    def contains(self, i: Tensor, j: Tensor, n: int, m: int | None = None) -> Tensor: ...
    def contains(
        self, i: int | Tensor, j: int | Tensor, n: int, m: int | None = None
    ) -> bool | Tensor:
        """(i, j) ∈ self, for integers or integer tensors; False for pairs outside n×m.

        >>> from edgewise.graphs import window
        >>> window(1).contains(3, 4, n=8), window(1).contains(3, 5, n=8)
        (True, False)
        """
        n, m = sequence_lengths(n, m, FARTHEST)
        if max(n, m) > LARGEST and lengths.length_dependent(self) is not None:
            sequence_lengths(n, m)
        a, b = token_indices(i, "i"), token_indices(j, "j")
        try:
            a, b = torch.broadcast_tensors(a, b)
        except RuntimeError:
            raise BadEdges(
                f"`i` has shape {tuple(a.shape)} and `j` {tuple(b.shape)}",
                caller(),
                "give shapes that broadcast",
            ) from None
        inside = (a >= 0) & (a < n) & (b >= 0) & (b < m)
        if n and m:
            inside = inside & self.mask(a.clamp(0, n - 1), b.clamp(0, m - 1), n, m)
        if isinstance(i, Tensor) or isinstance(j, Tensor):
            return inside
        return bool(inside)

    def rows(self, n: int, m: int | None = None) -> Rows:
        """The normal form: per row sorted disjoint progressions of keys.

        >>> from edgewise.graphs import window
        >>> window(1).rows(1000).count()
        2998
        """
        return cached_rows(self, *sequence_lengths(n, m))

    def dense(self, n: int, m: int | None = None) -> Tensor:
        """The boolean n×m mask, for inspection and tests.

        >>> from edgewise.graphs import causal
        >>> causal().dense(3).int().tolist()
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
        """
        n, m = sequence_lengths(n, m)
        check_memory(n * m // 8, f"a matrix of {n:,}×{m:,}")
        return self._rows_to_list(n, m).dense()

    def edges(self, n: int, m: int | None = None) -> Tensor:
        """All pairs (i, j), sorted, as a (2, e) int64 tensor.

        >>> from edgewise.graphs import causal
        >>> causal().edges(2).tolist()
        [[0, 1, 1], [0, 0, 1]]
        """
        return self._rows_to_list(n, m).edges()

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs, without listing them.

        >>> from edgewise.graphs import window
        >>> window(256).count(1_000_000)
        512934208
        """
        return self.rows(n, m).count()

    def degrees(self, n: int, m: int | None = None) -> Tensor:
        """The number of keys each query attends to.

        >>> from edgewise.graphs import window
        >>> window(1).degrees(4).tolist()
        [2, 3, 3, 2]
        """
        n, m = sequence_lengths(n, m)
        check_memory(4 * n, f"a number for each of {n:,} queries")
        return torch.from_numpy(self.rows(n, m).degrees())

    def csr(self, n: int, m: int | None = None) -> CSR:
        """All pairs as CSR.

        >>> from edgewise.graphs import causal
        >>> found = causal().csr(3)
        >>> found.ptr.tolist(), found.index.tolist()
        ([0, 1, 3, 6], [0, 0, 1, 0, 1, 2])
        """
        return csr_of_rows(self._rows_to_list(n, m))

    def _rows_to_list(self, n: int, m: int | None) -> Rows:
        """The rows, if a list of all pairs fits into memory."""
        count = self.count(n, m)
        check_memory(3 * count, f"a list of {count:,} pairs")
        return self.rows(n, m)

    def blocks(self, n: int, m: int | None = None, *, block: int = 128) -> Blocks:
        """The non-empty blocks of block×block pairs.

        >>> from edgewise.graphs import window
        >>> window(64).blocks(1024, block=128).index.numel()  # of 64
        22
        """
        n, m = sequence_lengths(n, m)
        block = integer(block, "block", 1)
        check_memory(4 * -(-n // block), f"a list of blocks of {block}")
        return blocks_of_rows(self.rows(n, m), block)

    def block_mask(
        self, n: int, m: int | None = None, *, block: int = 128, device: torch.device | str = "cpu"
    ) -> "BlockMask":
        """FlexAttention's `BlockMask`, equal to what `create_block_mask` gives.

        >>> from edgewise.graphs import causal
        >>> causal().block_mask(256).sparsity()
        25.0
        """
        n, m, device = flex.block_mask_sizes(n, m, block, device)
        test = self.predicate(n, m, device=device)
        mask = flex.block_mask([self.blocks(n, m, block=block)], lambda b, h, i, j: test(i, j))
        return mask.to(device)

    def predicate(
        self, n: int, m: int | None = None, *, device: torch.device | str = "cpu"
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """The test (i, j) ∈ self for pairs inside n×m; the tables it reads are on `device`."""
        n, m = sequence_lengths(n, m)
        device = available_device(device)
        if self.is_arithmetic:
            return lambda i, j: self.mask(i, j, n, m)
        return membership_test(self.rows(n, m), device)

    @property
    def is_arithmetic(self) -> bool:
        """True if `mask` is arithmetic on i and j and reads no table."""
        return type(self).mask is not Pattern.mask

    def columns(self, n: int, m: int | None = None) -> Rows:
        """The normal form by keys: row j has the queries that attend to key j."""
        return transposed(self.rows(n, m))

    def shard(self, n: int, m: int | None = None, *, rank: int, world: int) -> Rows:
        """The rows that rank `rank` of `world` computes, over all keys.

        >>> from edgewise.graphs import causal
        >>> [causal().shard(8, rank=rank, world=2).count() for rank in (0, 1)]
        [10, 26]
        """
        if integer(rank, "rank") >= integer(world, "world", 1):
            raise BadSize(f"rank {rank} of {world}", caller(), "ranks count from 0 to world - 1")
        return self.rows(n, m).shard(rank, world)

    def flops(self, n: int, m: int | None = None, *, heads: int = 1, d: int = 64) -> int:
        """FLOPs of attention forward: q·k and weight·v, a multiplication and an addition each.

        >>> from edgewise.graphs import full, window
        >>> full().flops(4096) / window(64).flops(4096) > 30
        True
        """
        return 4 * integer(d, "d", 1) * integer(heads, "heads", 1) * self.count(n, m)

    def bytes(
        self, n: int, m: int | None = None, *, heads: int = 1, d: int = 64, itemsize: int = 2
    ) -> int:
        """Least traffic of attention forward: q, k and v read once, the output written once.

        >>> from edgewise.graphs import window
        >>> window(64).bytes(4096, heads=8, d=64)
        16777216
        """
        n, m = sequence_lengths(n, m)
        each = integer(heads, "heads", 1) * integer(d, "d", 1) * integer(itemsize, "itemsize", 1)
        return 2 * (n + m) * each

    def stats(self, n: int, *, heads: int = 1, d: int = 64) -> Stats:
        """Measures of the graph on n tokens: hops, mixing, clustering, cost; needs SciPy.

        >>> from edgewise.graphs import ring
        >>> ring(4).stats(1024).diameter
        128
        """
        n = nonempty(n, "measure")
        check_memory(32 * n, f"measures of {n:,} tokens")
        cost = {"heads": heads, "d": d}
        flops, traffic = self.flops(n, **cost), self.bytes(n, **cost)
        require_package("scipy")
        return measured(self.rows(n), repr(self), flops=flops, bytes=traffic)

    def draw(self, n: int, m: int | None = None) -> str:
        """The mask as text, a line per query; beyond 64 tokens, cells shaded by density.

        >>> from edgewise.graphs import window
        >>> print(window(1).draw(4))
        ██··
        ███·
        ·███
        ··██
        """
        n = nonempty(n, "draw")
        return draw_rows(self.rows(n, n if m is None else nonempty(m, "draw", "m")))

    def plot(self, n: int, *, kind: str = "matrix") -> "Figure":
        """A matplotlib figure: the matrix as a density map, for any number of tokens, or the graph
        with its tokens on a circle ("ring") or in a spring layout ("force").

        >>> from edgewise.graphs import window
        >>> window(8).plot(64).savefig("window.png")  # doctest: +SKIP
        """
        return plot_pattern(self, n, kind)

    def _repr_html_(self) -> str:
        return map_of(self)

    def __str__(self) -> str:
        """The code, and below it a drawing for 16 tokens."""
        try:
            return f"{self!r}\n{self.draw(PRINTED)}"
        except EdgewiseError:  # defined for another number of tokens
            return repr(self)

    def __format__(self, spec: str) -> str:
        """In an f-string the code alone."""
        return format(repr(self), spec)

    @property
    def counts_twice(self) -> bool:
        """True if some pairs have a multiplicity above 1, which `attention` needs as `log_bias`."""
        return False

    def multiplicities(self, n: int, m: int | None = None) -> Tensor:
        """How often each pair of `edges(n)` counts in the softmax: once, unless a pattern differs.

        A graph is a set: `attention` counts every pair once unless `edge_bias=graph.log_bias(n)`
        is passed, and an expression of graphs counts each of its pairs once.

        >>> from edgewise.graphs import window
        >>> window(1).multiplicities(2).tolist()
        [1, 1, 1, 1]
        """
        return torch.ones(self.count(n, m), dtype=torch.int64)

    def log_bias(self, n: int, m: int | None = None) -> Tensor:
        """The logarithm of the multiplicities: a key counted k times has a score bias of log k.

        >>> from edgewise.graphs import window
        >>> window(1).log_bias(2).tolist()
        [0.0, 0.0, 0.0, 0.0]
        """
        return self.multiplicities(n, m).double().log()

    def __call__(self, *arguments: Any) -> nodes.PatternAtom:
        """The pattern as an atom of a rule: `window(3)(V.I, V.J)`."""
        place = caller()
        if len(arguments) != 2:
            raise NotAPair(
                f"a pattern has a query and a key, got {counted(len(arguments), 'term')}",
                place,
                "give the query and the key, such as `window(3)(V.I, V.J)`",
            )
        return nodes.PatternAtom(self, terms.checked(arguments, place), place)

    def __repr__(self) -> str:
        """Code that builds the pattern; also its text form."""
        arguments: list[str] = []
        named = False  # after an omitted argument the others need their names
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            optional = f.default is not MISSING and f.name not in self.always_printed
            if optional and value == f.default:
                named = True
            else:
                arguments.append(f"{f.name}={value!r}" if f.kw_only or named else repr(value))
        return f"{type(self).__name__}({', '.join(arguments)})"


def no_truth_value(graph: object) -> NoTruthValue:
    """`a and b` would be b, `a or b` would be a: Python drops the other graph."""
    return NoTruthValue(
        f"`{graph!r}` has no truth value",
        caller(),
        "write `a & b` for `a and b`, `a | b` for `a or b`, `~a` for `not a`; "
        "`graph is None` tells whether there is one, `graph.count(n)` whether it has pairs",
    )


@cached
def cached_rows(pattern: Pattern, n: int, m: int) -> Rows:
    """The normal form."""
    try:
        return pattern.compute_rows(n, m).read_only()
    except MemoryError:
        raise TooManyPairs(
            f"the rows of {n:,} queries do not fit into memory",
            caller(),
            "use fewer tokens, or a pattern that is arithmetic",
        ) from None


# Its expressions are patterns themselves, so it is imported after the class.
from edgewise.graphs import algebra, lengths  # noqa: E402

"""What can be asked of a set of pairs."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import flex
from edgewise.graphs.checks import room, usable, whole
from edgewise.graphs.errors import BadEdges, BadSize, NotAPair, TooManyPairs
from edgewise.graphs.pictures import PRINTED, drawn, package, plotted
from edgewise.graphs.sizes import masked, sizes, some_tokens, token
from edgewise.language import nodes, terms
from edgewise.layouts import (
    CSR,
    Blocks,
    Membership,
    Pieces,
    Rows,
    blocks_of_rows,
    csr_of_rows,
    membership,
    rows_of_pieces,
    transposed,
)
from edgewise.measures import Stats, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.nn.attention.flex_attention import BlockMask


class Pairs:
    """A set of pairs (i, j) for any number n of queries and m of keys: i hears j.

    A pattern defines `pieces(n, m)` or `form(n, m)`, and where arithmetic can say it, `holds`.
    Everywhere m is n unless given.
    """

    binding: ClassVar[int] = 4  # how tightly its written form holds together; 4 is a call
    always_written: ClassVar[tuple[str, ...]] = ()  # even where it is the default
    depth: int = 0  # of an expression how deep it is, and how many patterns it is made of
    total: int = 1

    def __init_subclass__(cls) -> None:
        """A field given as a number of NumPy is checked, kept and printed as one of Python."""
        check = cls.__dict__.get("__post_init__")
        if check is not None:

            def plain(self: Pairs) -> None:
                for name in type(self).__dataclass_fields__:  # type: ignore[attr-defined]
                    value = getattr(self, name)
                    if isinstance(value, np.integer):
                        object.__setattr__(self, name, int(value))
                check(self)

            cls.__post_init__ = plain  # type: ignore[attr-defined]

    def form(self, n: int, m: int) -> Rows:
        """The pairs with i < n and j < m in normal form."""
        return rows_of_pieces(n, m, self.pieces(n, m))

    def pieces(self, n: int, m: int) -> Pieces:
        """Pieces whose union has these pairs with i < n and j < m, and maybe others beyond."""
        return self.rows(n, m).pieces()

    def stretch(self, n: int, m: int, first: int, last: int) -> Rows:
        """Rows first ≤ i < last of the form, numbered from 0; what is random draws these alone."""
        return self.rows(n, m).between(first, last)

    def rows_between(self, n: int, m: int, first: int, last: int) -> Rows:
        """Rows first ≤ i < last, numbered from 0."""
        if (first, last) == (0, n):
            return self.rows(n, m)
        return self.stretch(*sizes(n, m), first, last)

    def holds(self, i: Tensor, j: Tensor, n: int, m: int) -> Tensor:
        """(i, j) is in the set, for integer tensors with 0 ≤ i < n and 0 ≤ j < m."""
        return Membership(self.rows(n, m), i.device)(i, j)

    @overload
    def contains(self, i: int, j: int, n: int, m: int | None = None) -> bool: ...
    @overload
    def contains(self, i: Tensor, j: Tensor, n: int, m: int | None = None) -> Tensor: ...
    def contains(
        self, i: int | Tensor, j: int | Tensor, n: int, m: int | None = None
    ) -> bool | Tensor:
        """(i, j) is in the set; a pair outside n×m never is. On integers or integer tensors."""
        n, m = sizes(n, m)
        a, b = token(i, "i"), token(j, "j")
        try:
            a, b = torch.broadcast_tensors(a, b)
        except RuntimeError:
            raise BadEdges(
                f"`i` has shape {tuple(a.shape)} and `j` {tuple(b.shape)}",
                caller(),
                "give as many of each, or one",
            ) from None
        inside = (a >= 0) & (a < n) & (b >= 0) & (b < m)
        if n and m:
            inside = inside & self.holds(a.clamp(0, n - 1), b.clamp(0, m - 1), n, m)
        if isinstance(i, Tensor) or isinstance(j, Tensor):
            return inside
        return bool(inside)

    def rows(self, n: int, m: int | None = None) -> Rows:
        """The normal form: per row sorted disjoint progressions of keys."""
        return form_of(self, *sizes(n, m))

    def dense(self, n: int, m: int | None = None) -> Tensor:
        """The boolean n×m matrix, for looking and testing."""
        n, m = sizes(n, m)
        room(n * m // 8, f"a matrix of {n:,}×{m:,}")
        return self._listed(n, m).dense()

    def edges(self, n: int, m: int | None = None) -> Tensor:
        """All pairs (i, j), sorted, as a (2, e) int64 tensor."""
        return self._listed(n, m).edges()

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs, without listing them."""
        return self.rows(n, m).count()

    def degrees(self, n: int, m: int | None = None) -> Tensor:
        """How many keys each query hears."""
        n, m = sizes(n, m)
        room(4 * n, f"a number for each of {n:,} queries")
        return torch.from_numpy(self.rows(n, m).degrees())

    def csr(self, n: int, m: int | None = None) -> CSR:
        """Every pair, as kernels read it."""
        return csr_of_rows(self._listed(n, m))

    def _listed(self, n: int, m: int | None) -> Rows:
        """The rows, if there is memory for a list of all pairs."""
        count = self.count(n, m)
        room(3 * count, f"a list of {count:,} pairs")
        return self.rows(n, m)

    def blocks(self, n: int, m: int | None = None, *, block: int = 128) -> Blocks:
        """The non-empty blocks of block×block pairs."""
        n, m = sizes(n, m)
        block = whole(block, "block", 1)
        room(4 * -(-n // block), f"a list of blocks of {block}")
        return blocks_of_rows(self.rows(n, m), block)

    def block_mask(
        self,
        n: int,
        m: int | None = None,
        *,
        block: int = 128,
        device: torch.device | str = "cpu",
    ) -> "BlockMask":
        """FlexAttention's `BlockMask`, equal to what `create_block_mask` gives."""
        n, m, device = masked(n, m, block, device)
        test = self.predicate(n, m, device=device)
        mask = flex.block_mask([self.blocks(n, m, block=block)], lambda b, h, i, j: test(i, j))
        return mask.to(device)

    def predicate(
        self, n: int, m: int | None = None, *, device: torch.device | str = "cpu"
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """The test (i, j) ∈ set for pairs inside n×m; any tables it reads lie on the device."""
        n, m = sizes(n, m)
        device = usable(device)
        if self.is_arithmetic:
            return lambda i, j: self.holds(i, j, n, m)
        return membership(self.rows(n, m), device)

    @property
    def is_arithmetic(self) -> bool:
        """Whether `holds` is arithmetic on i and j alone and reads no table."""
        return type(self).holds is not Pairs.holds

    def columns(self, n: int, m: int | None = None) -> Rows:
        """The normal form by keys: row j has the queries that hear key j."""
        return transposed(self.rows(n, m))

    def shard(self, n: int, m: int | None = None, *, rank: int, world: int) -> Rows:
        """The rows that rank `rank` of `world` computes, over all keys."""
        if whole(rank, "rank") >= whole(world, "world", 1):
            raise BadSize(f"rank {rank} of {world}", caller(), "ranks count from 0 to world - 1")
        return self.rows(n, m).shard(rank, world)

    def flops(self, n: int, m: int | None = None, *, heads: int = 1, d: int = 64) -> int:
        """Of attention forward: q·k and weight·v, a multiplication and an addition each."""
        return 4 * whole(d, "d", 1) * whole(heads, "heads", 1) * self.count(n, m)

    def bytes(
        self, n: int, m: int | None = None, *, heads: int = 1, d: int = 64, itemsize: int = 2
    ) -> int:
        """Least traffic of attention forward: q and k and v read once, the output written once."""
        n, m = sizes(n, m)
        each = whole(heads, "heads", 1) * whole(d, "d", 1) * whole(itemsize, "itemsize", 1)
        return 2 * (n + m) * each

    def stats(self, n: int, *, heads: int = 1, d: int = 64) -> Stats:
        """Measures of the graph on n tokens: hops, mixing, clustering, cost; needs SciPy.

        >>> from edgewise.graphs import ring
        >>> ring(4).stats(1024).diameter
        128
        """
        n = some_tokens(n, "measure")
        room(32 * n, f"measures of {n:,} tokens")
        cost = {"heads": heads, "d": d}
        flops, traffic = self.flops(n, **cost), self.bytes(n, **cost)
        package("scipy")
        return measured(self.rows(n), repr(self), flops=flops, bytes=traffic)

    def draw(self, n: int, m: int | None = None) -> str:
        """The matrix as text, a line per query; more than 64 tokens as cells, fuller ones darker.

        >>> from edgewise.graphs import window
        >>> print(window(1).draw(4))
        ██··
        ███·
        ·███
        ··██
        """
        n = some_tokens(n, "draw")
        return drawn(self.rows(n, n if m is None else some_tokens(m, "draw", "m")))

    def plot(self, n: int, *, kind: str = "matrix") -> "Figure":
        """A matplotlib figure: the matrix as a map of densities, for any number of tokens, or the
        graph itself, its tokens in a circle ("ring") or where springs put them ("force").
        """
        return plotted(self, n, kind)

    def __str__(self) -> str:
        """The code, and below it a drawing of the first few tokens."""
        try:
            return f"{self!r}\n{self.draw(PRINTED)}"
        except EdgewiseError:  # made for another number of tokens
            return repr(self)

    def __format__(self, spec: str) -> str:
        """In a text of others, an f-string, the code alone."""
        return format(repr(self), spec)

    @property
    def counts_twice(self) -> bool:
        """Whether some pairs count more than once; `attention` counts them by `log_bias` alone."""
        return False

    def multiplicities(self, n: int, m: int | None = None) -> Tensor:
        """How often each pair of `edges(n)` counts in a softmax: once, unless a pattern says so.

        A graph is a set: `attention` counts every pair once unless it is given
        `edge_bias=graph.log_bias(n)`, and an expression of graphs counts each of its pairs once.
        """
        return torch.ones(self.count(n, m), dtype=torch.int64)

    def log_bias(self, n: int, m: int | None = None) -> Tensor:
        """The logarithm of the multiplicities: a key counted k times is a score bias of log k."""
        return self.multiplicities(n, m).double().log()

    def __call__(self, *places: Any) -> nodes.PatternAtom:
        """The pattern as an atom of a rule: `window(3)(V.I, V.J)`."""
        place = caller()
        if len(places) != 2:
            found = "1 term" if len(places) == 1 else f"{len(places)} terms"
            raise NotAPair(
                f"a pattern has a query and a key, got {found}",
                place,
                "give the query and the key, such as `window(3)(V.I, V.J)`",
            )
        return nodes.PatternAtom(self, terms.checked(places, place), place)

    def __repr__(self) -> str:
        """Code that builds the pattern; also its text form."""
        given: list[str] = []
        named = False  # after an argument that is left out, the others need their names
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            left_out = f.default is not MISSING and f.name not in self.always_written
            if left_out and value == f.default:
                named = True
            else:
                given.append(f"{f.name}={value!r}" if f.kw_only or named else repr(value))
        return f"{type(self).__name__}({', '.join(given)})"


# The largest kept forms are those of random graphs: a few at a time, never more.
@lru_cache(maxsize=8)
def form_of(pattern: Pairs, n: int, m: int) -> Rows:
    """The normal form; that of the last few patterns is kept."""
    try:
        return pattern.form(n, m).kept()
    except MemoryError:
        raise TooManyPairs(
            f"the rows of {n:,} queries do not fit into memory",
            caller(),
            "ask for fewer tokens, or write the pattern by arithmetic",
        ) from None


def as_array(values: Tensor | np.ndarray) -> np.ndarray:
    return values.numpy(force=True) if isinstance(values, Tensor) else np.asarray(values)

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
from edgewise.graphs.errors import BadSize, SizeMismatch, whole
from edgewise.graphs.pictures import PRINTED, drawn, package, plotted
from edgewise.language import nodes, terms
from edgewise.layouts import (
    CSR,
    Blocks,
    Membership,
    Rows,
    blocks_of_rows,
    csr_of_rows,
    membership,
    transposed,
)
from edgewise.measures import Stats, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.nn.attention.flex_attention import BlockMask


class Pairs:
    """A set of pairs (i, j) for any number n of queries and m of keys: i hears j.

    A pattern defines `form(n, m)`, its normal form, and where arithmetic can say it, `holds`.
    Everywhere m is n unless given.
    """

    binding: ClassVar[int] = 4  # how tightly its written form holds together; 4 is a call

    def form(self, n: int, m: int) -> Rows:
        """The pairs with i < n and j < m in normal form."""
        raise NotImplementedError

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
        a, b = torch.as_tensor(i), torch.as_tensor(j)
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
        return self.rows(n, m).dense()

    def edges(self, n: int, m: int | None = None) -> Tensor:
        """All pairs (i, j), sorted, as a (2, e) int64 tensor."""
        return self.rows(n, m).edges()

    def count(self, n: int, m: int | None = None) -> int:
        """The number of pairs, without listing them."""
        return self.rows(n, m).count()

    def degrees(self, n: int, m: int | None = None) -> Tensor:
        """How many keys each query hears."""
        return torch.from_numpy(self.rows(n, m).degrees())

    def csr(self, n: int, m: int | None = None) -> CSR:
        """Every pair, as kernels read it."""
        return csr_of_rows(self.rows(n, m))

    def blocks(self, n: int, m: int | None = None, *, block: int = 128) -> Blocks:
        """The non-empty blocks of block×block pairs."""
        return blocks_of_rows(self.rows(n, m), whole(block, "block", 1))

    def block_mask(
        self,
        n: int,
        m: int | None = None,
        *,
        block: int = 128,
        device: torch.device | str = "cpu",
    ) -> "BlockMask":
        """FlexAttention's `BlockMask`, equal to what `create_block_mask` gives."""
        n, m = sizes(n, m)
        test = self.predicate(n, m, device=device)
        mask = flex.block_mask([self.blocks(n, m, block=block)], lambda b, h, i, j: test(i, j))
        return mask.to(device)

    def predicate(
        self, n: int, m: int | None = None, *, device: torch.device | str = "cpu"
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """The test (i, j) ∈ set for pairs inside n×m; any tables it reads lie on the device."""
        n, m = sizes(n, m)
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
        return 4 * d * heads * self.count(n, m)

    def bytes(
        self, n: int, m: int | None = None, *, heads: int = 1, d: int = 64, itemsize: int = 2
    ) -> int:
        """Least traffic of attention forward: q and k and v read once, the output written once."""
        n, m = sizes(n, m)
        return 2 * (n + m) * d * heads * itemsize

    def stats(self, n: int, *, heads: int = 1, d: int = 64) -> Stats:
        """Measures of the graph on n tokens: hops, mixing, clustering, cost; needs SciPy.

        >>> from edgewise.graphs import ring
        >>> ring(4).stats(1024).diameter
        128
        """
        n = whole(n, "n", 1)
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
        return drawn(self.rows(whole(n, "n", 1), m if m is None else whole(m, "m", 1)))

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

    def multiplicities(self, n: int, m: int | None = None) -> Tensor:
        """How often each pair of `edges(n)` counts in a softmax: once, unless a pattern says so."""
        return torch.ones(self.count(n, m), dtype=torch.int64)

    def log_bias(self, n: int, m: int | None = None) -> Tensor:
        """The logarithm of the multiplicities: a key counted k times is a score bias of log k."""
        return self.multiplicities(n, m).double().log()

    def __call__(self, i: Any, j: Any) -> nodes.PatternAtom:
        """The pattern as an atom of a rule: `window(3)(V.I, V.J)`."""
        place = caller()
        return nodes.PatternAtom(self, terms.checked((i, j), place), place)

    def __repr__(self) -> str:
        """Code that builds the pattern; also its text form."""
        given: list[str] = []
        named = False  # after an argument that is left out, the others need their names
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.default is not MISSING and value == f.default:
                named = True
            else:
                given.append(f"{f.name}={value!r}" if f.kw_only or named else repr(value))
        return f"{type(self).__name__}({', '.join(given)})"


def sizes(n: int, m: int | None = None) -> tuple[int, int]:
    """The numbers of queries and keys, checked."""
    n = whole(n, "n")
    return n, n if m is None else whole(m, "m")


# The largest kept forms are those of random graphs: a few at a time, never more.
@lru_cache(maxsize=8)
def form_of(pattern: Pairs, n: int, m: int) -> Rows:
    """The normal form; that of the last few patterns is kept."""
    return pattern.form(n, m)


def as_array(values: Tensor | np.ndarray) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def square(pattern: Pairs, n: int, m: int) -> None:
    """Refuse different numbers of queries and keys where a pattern joins tokens of one sequence."""
    if n != m:
        raise SizeMismatch(
            f"`{pattern!r}` joins the tokens of one sequence, got {n} queries and {m} keys",
            caller(),
            f"ask for n = m = {n}, or take some rows with `restrict`",
        )

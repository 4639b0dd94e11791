"""Project rows: what is computed row by row is computed before rows are gathered."""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg
from torch.nn.functional import linear

from edgewise.ground.index import run_starts
from edgewise.layouts.recorded import one_call
from edgewise.physical.lowering import Lowering, input_node, set_args
from edgewise.physical.symbols import Symbol

ELEMENTWISE = {"add", "sub", "mul", "neg", "relu", "sigmoid", "tanh", "gelu", "silu", "softplus"}
ELEMENTWISE |= {"elu", "leaky_relu", "abs", "sin", "cos", "clamp", "square", "to"}
ELEMENTWISE |= {"maximum", "minimum", "__rsub__", "rsub", "gt"}
# with an infinite value or slope somewhere: a row without readers would add 0 · ∞ to a gradient
SINGULAR = {"div", "true_divide", "__rtruediv__", "sqrt", "log", "exp", "reciprocal"}
REDUCTIONS = {"sum", "mean", "amax", "amin", "_safe_softmax"}
NORMS = {"layer_norm", "rms_norm"}
MANY = 1 << 12  # groundings, below which torch's own gathers and sums by segment do
RUN = 16  # groundings that read the same row, one after another
FEWER = 4  # times, so that it pays to compute different rows apart


@dataclass(frozen=True, eq=False)
class Gather:
    """Rows of a node, by a constant index; of some rows of it where that has no node yet."""

    base: Node
    index: Node | None
    rows: Tensor
    some: int | None = None  # how many

    @property
    def size(self) -> int:
        rows: int = self.base.meta["like"].shape[1] if self.some is None else self.some
        return rows


def gather_of(plan: Lowering, node: Any) -> Gather | None:
    """What a node gathers along the axis of rows; None if nothing, or by no constant index."""
    if not isinstance(node, Node) or node.target != "index_select" or node.args[1] != 1:
        return None
    base, _, index = node.args
    assert isinstance(base, Node)
    if not isinstance(index, Node) or index.op != "get_attr":
        return None
    return Gather(base, index, plan.constants[str(index.target)])


def project_rows(plan: Lowering) -> int:
    """f(gather(x)) → gather(f(x)) where f is computed row by row, and there are no more rows to
    compute; several products of one relation with one matrix count together."""
    read = _rows_read(plan)
    products: dict[Any, Symbol] = {}
    changed = 0
    readers = {user for gather in plan.nodes("index_select") for user in gather.users}
    for node in [*plan.graph.nodes] if readers else []:
        if node not in readers or "like" not in node.meta:
            continue
        gathers = {n: g for n in node.all_input_nodes if (g := gather_of(plan, n)) is not None}
        if not gathers:
            continue
        owner = _owner(plan, list(gathers.values()))
        if node.target is not linear:
            owner = _met(plan, list(gathers.values()), owner)
        if owner is None:
            continue
        key = (owner.base, *node.args[1:]) if node.target is linear else None
        if owner.size > max(owner.rows.shape[0], read.get(key, 0)):
            continue
        if key in products and _reads_instead(node, plan.node(products[key])):
            readers.update(node.users)
            plan.replace(node, plan.symbol(input_node(node, 0)))
            changed += 1
            continue
        call = _on_rows(plan, node, gathers, owner)
        if call is None:
            continue
        with plan.rewriting(node):
            found = products.get(key) if key is not None else None
            if found is None or plan.node(found)._erased:
                bases = {n: _moved(plan, gather, owner) for n, gather in gathers.items()}
                found = _called(plan, node, call, bases)
                if key is not None:
                    products[key] = found
            places = owner.rows if owner.index is None else plan.symbol(owner.index)
            gather = found.index_select(1, places)
            readers.update(node.users)
            plan.replace(node, gather)
        changed += 1
    return changed


def _reads_instead(node: Node, product: Node) -> bool:
    """gather(x) @ W → gather(x @ W), where the product is the only user of the gather."""
    gather = input_node(node, 0)
    if len(gather.users) > 1 or product._erased or not product < gather:
        return False
    set_args(gather, (product, *gather.args[1:]))
    gather.meta["like"] = node.meta["like"]
    return True


def _rows_read(plan: Lowering) -> Counter[Any]:
    """How many rows all products of one base with one matrix read."""
    read: Counter[Any] = Counter()
    for node in plan.nodes(linear):
        if (gather := gather_of(plan, node.args[0])) is not None:
            read[gather.base, *node.args[1:]] += gather.rows.shape[0]
    return read


def _owner(plan: Lowering, gathers: list[Gather]) -> Gather | None:
    """The gather that decides what all others gather, so that they can come after it."""
    first = gathers[0]
    if all(g.rows is first.rows and g.size == first.size for g in gathers[1:]):
        return first
    if not plan.reads_keys:
        return None
    for owner in gathers:
        if owner.size < owner.rows.shape[0] and all(
            _through(plan, gather, owner) is not None for gather in gathers
        ):
            return owner
    return None


def _met(plan: Lowering, gathers: list[Gather], owner: Gather | None) -> Gather | None:
    """A gather of the different rows that meet, where these are much fewer than what an owner has:
    each is computed once."""
    count = gathers[0].rows.shape[0]
    small = plan.usual(count) < MANY
    if small or not plan.reads_keys or any(g.rows.shape[0] != count for g in gathers):
        return owner
    fewest = count if owner is None else min(owner.size, count)
    rows = [g.rows for g in gathers]

    def find() -> tuple[Tensor, int] | None:
        number, size = rows[0], gathers[0].size
        for one in gathers[1:]:
            number, size = numbered(number, size)
            number, size = number * one.size + one.rows, size * one.size
        number, size = numbered(number, size)
        return (number, size) if size * FEWER <= fewest else None

    key = ("met", *map(id, rows), *(g.size for g in gathers), fewest)
    found: tuple[Tensor, int] | None = plan.analyse(key, find, *rows)
    return owner if found is None else Gather(gathers[0].base, None, *found)


@one_call
def numbered(rows: Tensor, size: int) -> tuple[Tensor, int]:
    """Different rows below `size` numbered in order, and how many there are; long runs of one row
    are numbered one after another, so that places in them stay regular.

    >>> numbered(torch.tensor([7, 2, 7]), 9)
    (tensor([1, 0, 1]), 2)
    """
    starts = run_starts(rows)
    runs = int(starts.sum())
    if runs * RUN <= len(rows):
        return starts.cumsum(0) - 1, runs
    if size > FEWER * len(rows):
        found, number = torch.unique(rows, return_inverse=True)
        return number, len(found)
    there = torch.zeros(size, dtype=torch.int64, device=rows.device).index_fill_(0, rows, 1)
    return (there.cumsum(0) - 1)[rows], int(there.sum())


def _through(plan: Lowering, gather: Gather, owner: Gather) -> Tensor | None:
    """c with rows = c[rows of the owner]: what a gather reads for each row of another."""
    a, b = gather.rows, owner.rows

    def find() -> Tensor | None:
        if a.shape[0] != b.shape[0]:
            return None
        each = torch.zeros(owner.size, dtype=torch.int64, device=a.device).index_copy(0, b, a)
        return each if torch.equal(each[b], a) else None

    found: Tensor | None = plan.analyse(("through", id(a), id(b), owner.size), find, a, b)
    return found


def _moved(plan: Lowering, gather: Gather, owner: Gather) -> Tensor:
    """What a gather reads, for each row of the owner's base."""
    base = plan.symbol(gather.base)
    if gather.rows is owner.rows:
        return base
    rows = _through(plan, gather, owner)
    assert rows is not None
    return base.index_select(1, rows)


def _on_rows(
    plan: Lowering, node: Node, gathers: dict[Node, Gather], owner: Gather
) -> tuple[Any, Any] | None:
    """The arguments of a call on all rows instead of gathered ones; None if it is not computed row
    by row."""
    like, count, args = node.meta["like"], owner.rows.shape[0], node.args
    first: Any = args[0]
    if not isinstance(like, Tensor) or like.ndim < 2 or like.shape[1] != count:
        return None
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    shapes = {n: n.meta["like"].shape for n in node.all_input_nodes if "like" in n.meta}
    ok = False
    if node.target is linear:
        ok = list(gathers) == [first]
    elif name in ELEMENTWISE or (name in SINGULAR and _reads_all(plan, owner)):
        ok = all(
            len(shape) == like.ndim if n in gathers else _same_in_rows(shape, like.ndim)
            for n, shape in shapes.items()
        )
    elif name == "reshape":
        if shapes[first][:2] == like.shape[:2]:
            return (first, (like.shape[0], owner.size, *like.shape[2:])), {}
    elif name in REDUCTIONS:
        axes = args[1] if len(args) > 1 else node.kwargs.get("dim")
        ok = first in gathers and _of_values(axes, len(shapes[first]))
    elif name in NORMS:
        ok = list(gathers) == [first] and len(args[1]) <= like.ndim - 2  # type: ignore[arg-type]
    elif name in ("matmul", "__matmul__"):
        ok = all(len(shape) == 4 and (n in gathers or shape[1] == 1) for n, shape in shapes.items())
    elif name == "transpose":
        ok = _of_values(args[1:], like.ndim)
    elif node.target is operator.getitem:
        items = args[1] if isinstance(args[1], tuple) else (args[1],)
        ok = items[:2] == (slice(None), slice(None)) and all(
            isinstance(item, slice) for item in items
        )
    return (args, node.kwargs) if ok else None


def _same_in_rows(shape: torch.Size, rank: int) -> bool:
    """Whether a tensor that broadcasts to `rank` axes is the same in every row."""
    return len(shape) < rank - 1 or shape[len(shape) - rank + 1] == 1


def _of_values(axes: Any, rank: int) -> bool:
    """Whether axes are neither batch nor rows."""
    axes = axes if isinstance(axes, tuple | list) else (axes,)
    return all(isinstance(a, int) and (a if a >= 0 else a + rank) >= 2 for a in axes)


def _reads_all(plan: Lowering, gather: Gather) -> bool:
    """Whether every row is read."""
    rows, size = gather.rows, gather.size

    def find() -> bool:
        return bool((torch.bincount(rows, minlength=size) > 0).all())

    return plan.reads_keys and bool(plan.analyse(("reads all", id(rows), size), find, rows))


def _called(plan: Lowering, node: Node, call: tuple[Any, Any], bases: dict[Node, Tensor]) -> Symbol:
    """A call of what a node calls, on other values."""

    def value(read: Node) -> Any:
        if read in bases:
            return bases[read]
        return plan.symbol(read) if "like" in read.meta else plan.constants[str(read.target)]

    args, kwargs = map_arg(call, value)
    if isinstance(node.target, str):
        found: Symbol = getattr(args[0], node.target)(*args[1:], **kwargs)
    else:
        found = plan.call(node.target, args, kwargs)
    return found

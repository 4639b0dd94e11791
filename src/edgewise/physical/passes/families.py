"""Family products: the matrices of a family of weights, each times the rows that it meets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.fx import Node
from torch.nn.functional import linear

from edgewise.functions import DEFINITIONS
from edgewise.kernels.edges import Grouping, grouped_linear, grouping
from edgewise.kernels.kernel_choices import Chosen, note
from edgewise.layouts.ragged import Segments, segments
from edgewise.layouts.recorded import integer, one_call
from edgewise.physical.lowering import Lowering, input_node, to_device
from edgewise.physical.passes.gathers import AGGREGATE
from edgewise.physical.passes.rows import gather_of

PRODUCTS = ("matmul", "__matmul__", torch.matmul)
DENSE = 2  # places of heads × members for each grounding, up to which products are one matrix's

_MOST = "most heads meet most members: their matrices side by side are one product"
ALL_MEMBERS = Chosen("segment_sum", "one matrix product", (("triton", _MOST), ("reference", _MOST)))


@dataclass(frozen=True, eq=False)
class FamilyProduct:
    """W_t x in each grounding: all `members` (1, members, m, d), which of them each grounding has,
    and x of `shape` (batch, rows, d), which of its rows each grounding reads (None: all)."""

    node: Node
    members: Node
    which: Tensor | None
    x: Node
    rows: Tensor | None
    shape: tuple[int, int, int]

    @property
    def count(self) -> int:
        rows: int = self.node.meta["like"].shape[1]
        return rows


def family_products(plan: Lowering) -> int:
    """A matrix for each grounding times its row → one product for each member, or of all rows with
    all members side by side."""
    changed = 0
    for node in chain.from_iterable(map(plan.nodes, PRODUCTS)):
        found = _family_product(plan, node)
        ways = (_everywhere, _in_chunks, _before_gathering, _by_member)
        changed += found is not None and any(way(plan, found) for way in ways)
    return changed


def _family_product(plan: Lowering, node: Node) -> FamilyProduct | None:
    matrices, vectors = (input_node(node, at) for at in range(2))
    shape, columns = matrices.meta["like"].shape, vectors.meta["like"].shape
    count = node.meta["like"].shape[1]
    if len(shape) != 4 or shape[0] != 1 or shape[1] != count or columns[1:] != (count, shape[3], 1):
        return None
    gather = gather_of(plan, vectors)
    if gather is None and vectors.target == "reshape":
        gather = gather_of(plan, input_node(vectors, 0))
        if gather is not None and gather.rows.shape[0] != count:
            gather = None
    x, rows = (vectors, None) if gather is None else (gather.base, gather.rows)
    size = count if gather is None else gather.size
    family = gather_of(plan, matrices)
    members, which = (matrices, None) if family is None else (family.base, family.rows)
    return FamilyProduct(node, members, which, x, rows, (columns[0], size, shape[3]))


# all members times all rows


def _everywhere(plan: Lowering, product: FamilyProduct) -> bool:
    """Groundings are members × rows, perhaps of some members only: one matrix product, and a view
    of it where they are in order, else a gather."""
    size = product.shape[1]
    which, rows, count = product.which, product.rows, product.count
    every, m = product.members.meta["like"].shape[1:3]

    def find() -> tuple[int | None, Tensor | None, Tensor | None]:
        member, own = _cpu(which), None
        if member is not None and every * size != count:
            there = torch.zeros(every, dtype=torch.bool).index_fill_(0, member, True)
            own = there.nonzero()[:, 0]
        if (every if own is None else own.shape[0]) * size != count:
            return None, None, None
        if own is not None:
            member = (there.cumsum(0) - 1)[member]
        found = _order(member, _cpu(rows), count, size, plan.device)
        return *found, to_device(own, plan.device)

    key = ("members × rows", id(which), id(rows), count, size)
    inner, pairs, own = plan.analyse(key, find, which, rows)
    members = every if own is None else own.shape[0]
    if inner is None and pairs is None:
        return False
    node, bias = product.node, None
    added = _bias_of(plan, product) if "fold biases" not in plan.without else None
    if added is not None:
        node, bias = added
    with plan.rewriting(node):
        each, vector = plan.symbol(product.members), None
        family = each if own is None else each.index_select(1, own)
        if bias is not None:
            vectors = plan.symbol(bias)
            vector = (vectors if own is None else vectors.index_select(1, own)).flatten()
        wide = linear(_all_rows(plan, product), family.flatten(0, 2), vector)
        batch = wide.shape[0]
        if inner is None:
            wide = wide.reshape(batch, count, m).index_select(1, pairs)
        elif inner != members:
            near = (inner,) if inner > 1 else ()
            wide = wide.reshape(batch, size, members // inner, *near, m).transpose(1, 2)
        plan.replace(node, wide.reshape(node.meta["like"].shape))
    return True


def _order(
    family: Tensor | None, rows: Tensor | None, count: int, size: int, device: torch.device
) -> tuple[int | None, Tensor | None]:
    """The order of groundings that are members × rows: see `product_order`; else the place of each
    among rows × members, or nothing if they are not."""
    inner = product_order(family, rows, count, size)
    if inner is not None or family is None or rows is None or not count:
        return inner, None
    pairs = rows * (count // size) + family
    every = torch.equal(torch.bincount(pairs, minlength=count), torch.ones_like(pairs))
    return None, pairs.to(device) if every else None


@one_call
def product_order(family: Tensor | None, rows: Tensor | None, count: int, size: int) -> int | None:
    """How many members follow one another in each row, if groundings are members × rows, all
    `size` of them; else None.

    1 where rows are inside members, all of them where members are inside rows, and a number
    between where the keys of a member stand on both sides.

    >>> product_order(torch.tensor([0, 1, 0, 1, 0, 1]), torch.tensor([0, 0, 1, 1, 2, 2]), 6, 3)
    2
    """
    if not count or (family is None and rows is None and count > 1):
        return None
    here = torch.arange(count)
    family, rows = (here if t is None else t for t in (family, rows))
    high, wide = int(family.max()) + 1, int(rows.max()) + 1
    if high * wide != count or size != wide:
        return None
    inner = high if wide == 1 else int((rows != 0).nonzero()[0])
    if not inner or high % inner or not torch.equal(rows, here // inner % wide):
        return None
    member = here // (inner * wide) * inner + here % inner
    return inner if torch.equal(family, member) else None


def _bias_of(plan: Lowering, product: FamilyProduct) -> tuple[Node, Node] | None:
    """A sum of the product and the vector of each member, and the vectors."""
    node = _only_user(product.node)
    if node is None or node.target != "reshape":
        return None
    shape = node.meta["like"].shape
    total = _only_user(node)
    if total is None or total.target != "add" or total.meta["like"].shape != shape:
        return None
    others = [n for n in total.all_input_nodes if n is not node]
    if len(others) != 1:
        return None
    gather, vectors = gather_of(plan, others[0]), others[0]
    rows = None
    if gather is not None:
        vectors, rows = gather.base, gather.rows
    same = rows is product.which or (
        rows is not None and product.which is not None and torch.equal(rows, product.which)
    )
    members, m = product.members.meta["like"].shape[1:3]
    if not same or vectors.meta["like"].numel() != members * m:
        return None
    return (total, vectors) if vectors.meta["like"].shape[:2] == (1, members) else None


def _only_user(node: Node) -> Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


# member by member


def _in_chunks(plan: Lowering, product: FamilyProduct) -> bool:
    """Every member has as many groundings, in order: one batched product."""
    which, node = product.which, product.node
    if which is None:
        return False

    def find() -> int | None:
        rows = which.cpu()
        parts = segments(rows, integer(rows.max()) + 1)
        return parts.width if parts.even and parts.width else None

    chunk = plan.analyse(("chunks", id(which)), find, which)
    if chunk is None:
        return False
    with plan.rewriting(node):
        x = _rows(plan, product)
        each = x.unflatten(1, (product.count // chunk, chunk))
        family = plan.symbol(product.members).flatten(0, 1)[: each.shape[1]]
        plan.replace(node, (each @ family.mT).reshape(node.meta["like"].shape))
    return True


def _before_gathering(plan: Lowering, product: FamilyProduct) -> bool:
    """Rows that are gathered from rows × members, each with its own member: those are multiplied,
    then gathered."""
    which, rows, (batch, size, d) = product.which, product.rows, product.shape
    members, m = product.members.meta["like"].shape[1:3]
    if which is None or rows is None or size % members or size > product.count:
        return False

    def find() -> bool:
        return torch.equal(which.cpu(), rows.cpu() % members)

    if not plan.analyse(("members of rows", id(which), id(rows)), find, which, rows):
        return False
    with plan.rewriting(product.node):
        each = _all_rows(plan, product).reshape(batch, size // members, members, d).transpose(1, 2)
        found = each @ plan.symbol(product.members).mT
        found = found.transpose(1, 2).reshape(batch, size, m).index_select(1, rows)
        plan.replace(product.node, found.reshape(product.node.meta["like"].shape))
    return True


def _by_member(plan: Lowering, product: FamilyProduct) -> bool:
    """The groundings of one member after another, in one kernel; where rule heads sum over most
    members, Σ W_t x_t is one product with (W_1, W_2, ...)."""
    which, node = product.which, product.node
    if which is None or not product.shape[0]:  # no sample has a product
        return False
    total = _summed(plan, node)
    if total is not None and _side_by_side(plan, product, *total):
        return True

    def find() -> tuple[Grouping, int]:
        rows = which.cpu()
        count = integer(rows.max()) + 1
        return to_device(grouping(rows, count), plan.device), count

    groups, count = plan.analyse(("members", id(which)), find, which)
    with plan.rewriting(node):
        x, family = _rows(plan, product), plan.symbol(product.members).flatten(0, 1)[:count]
        parts = [grouped_linear(each, family, groups) for each in x]
        found = parts[0][None] if len(parts) == 1 else torch.stack(parts)
        plan.replace(node, found.reshape(node.meta["like"].shape))
    return True


def _summed(plan: Lowering, node: Node) -> tuple[Node, Segments] | None:
    """The sum over rule heads that is all a product is for."""
    user = _only_user(node)
    user = _only_user(user) if user is not None and user.target == "reshape" else user
    if user is None or user.target is not AGGREGATE:
        return None
    name, parts = user.args[1:]
    segments: Segments = plan.constants[str(parts.target)]  # type: ignore[union-attr]
    summed = DEFINITIONS[str(name)].kernel == "sum" and segments.ordered
    return (user, segments) if summed else None


def _side_by_side(plan: Lowering, product: FamilyProduct, total: Node, parts: Segments) -> bool:
    which = product.which
    assert which is not None

    def find() -> Tensor | None:
        rows = which.cpu()
        count = integer(rows.max()) + 1
        if parts.count * count > DENSE * rows.shape[0]:
            return None
        places = parts.ids.cpu() * count + rows
        if torch.unique(places).shape[0] < places.shape[0]:  # a head meets a member more than once
            return None
        return places.to(plan.device)

    places = plan.analyse(("places", id(which), id(parts)), find, which, parts)
    if places is None:
        return False
    count = integer(which.max()) + 1
    with plan.rewriting(total):
        note(ALL_MEMBERS)
        spread = _spread(plan, product, places, parts.count * count)
        wide = spread.reshape(len(spread), parts.count, -1)
        family = plan.symbol(product.members).flatten(0, 1)[:count]
        found = linear(wide, family.transpose(0, 1).flatten(1))
        plan.replace(total, found.reshape(total.meta["like"].shape))
    return True


def _spread(plan: Lowering, product: FamilyProduct, places: Tensor, count: int) -> Tensor:
    """The vector that each head has for each member, zeros where it has none."""
    x, rows = _all_rows(plan, product), product.rows
    rows = torch.arange(len(places), device=places.device) if rows is None else rows
    if len(places) < count:
        x = torch.cat([x, x.new_zeros(len(x), 1, x.shape[2])], 1)
    last = places.new_full((count,), x.shape[1] - 1)
    return x.index_select(1, last.index_copy(0, places, rows))


def _all_rows(plan: Lowering, product: FamilyProduct) -> Tensor:
    return plan.symbol(product.x).reshape(product.shape)


def _rows(plan: Lowering, product: FamilyProduct) -> Tensor:
    x = _all_rows(plan, product)
    return x if product.rows is None else x.index_select(1, product.rows)


def _cpu(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.cpu()

"""Messages: what is aggregated and computed number by number is code of one kernel along edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from edgewise.functions import DEFINITIONS
from edgewise.kernels import edges
from edgewise.kernels.edges import MessageIndex, Messages, message_index
from edgewise.kernels.edges.messages import ALL, EDGE, EdgeInput
from edgewise.kernels.edges.registry import EdgeOperation, note_choice
from edgewise.kernels.kernel_choices import no_numba
from edgewise.layouts.ragged import Segments
from edgewise.physical.lowering import Lowering, input_node
from edgewise.physical.opaque import opaque
from edgewise.physical.passes.gathers import AGGREGATE, LARGEST, _gathered, is_small
from edgewise.physical.passes.rows import gather_of
from edgewise.scores import nodes

UNARY = {"neg", "relu", "sigmoid", "tanh", "exp", "square", "reciprocal", "abs", "sqrt", "silu"}
BINARY = {"add", "sub", "mul", "div", "true_divide"}
TURNED = {"__rsub__": "sub", "rsub": "sub", "__rtruediv__": "div"}


def _like(leaves: list[Tensor], messages: Messages, which: MessageIndex) -> list[Tensor]:
    width, first = max(x.shape[1] for x in leaves), leaves[0]
    note_choice(EdgeOperation("segment_messages", width, first.dtype, first.device.type))
    return [
        torch.empty(which.segments, width, dtype=first.dtype, device="meta")
        for _ in messages.outputs
    ]


@opaque(like=_like, operators=edges.segment_messages)
def segment_messages(
    leaves: list[Tensor], messages: Messages, which: MessageIndex
) -> tuple[Tensor, ...]:
    return edges.segment_messages(leaves, messages, which)


def fuse_messages(plan: Lowering) -> int:
    """aggregate(f(gathers, rows of edges)) → one kernel that computes f along the edges, for sums
    and means on a CPU; sums that share a part of f are computed together."""
    if plan.device.type != "cpu" or no_numba("cpu"):
        return 0
    changed, found = 0, [node for node in plan.nodes(AGGREGATE) if _is_summed(plan, node)]
    for together in _grouped(plan, found):
        if any(node._erased for node in together):
            continue
        built = _built(plan, together) or None
        for some in [together] if built is not None else [[node] for node in together]:
            one = built if built is not None else _built(plan, some)
            if one is not None:
                _replaced(plan, some, one)
                changed += len(some)
    return changed


def _is_summed(plan: Lowering, node: Node) -> bool:
    shape = input_node(node, 0).meta["like"].shape
    kernel = DEFINITIONS[str(node.args[1])].kernel
    wrong = kernel not in ("sum", "mean") or len(shape) != 3 or not 0 < shape[1] <= LARGEST
    return not wrong and not is_small(plan, shape)


def _segments(plan: Lowering, node: Node) -> Segments:
    found: Segments = plan.constants[str(input_node(node, 2).target)]
    return found


def _same(plan: Lowering, a: Tensor, b: Tensor) -> bool:
    """Whether two lists of rows are equal."""
    if a is b:
        return True
    if a.shape != b.shape:
        return False
    return bool(plan.analyse(("equal", id(a), id(b)), lambda: torch.equal(a, b), a, b))


def _grouped(plan: Lowering, found: list[Node]) -> list[list[Node]]:
    """Sums over the same edges that read a common value."""
    groups: list[tuple[list[Node], set[Node]]] = []
    for node in found:
        inside = _inside(plan, [node], loose=True)
        for group, shared in groups:
            first, own = _segments(plan, group[0]), _segments(plan, node)
            alike = first.count == own.count and _same(plan, first.ids, own.ids)
            sizes = {input_node(n, 0).meta["like"].shape for n in (group[0], node)}
            if alike and len(sizes) == 1 and shared & inside:
                group.append(node)
                shared |= inside
                break
        else:
            groups.append(([node], inside))
    return [group for group, _ in groups]


def _inside(plan: Lowering, together: Sequence[Node], *, loose: bool = False) -> set[Node]:
    """The values that only these sums read, computed number by number; `loose`: all they read."""
    inside, waiting = set(together), [input_node(node, 0) for node in together]
    count = input_node(together[0], 0).meta["like"].shape[1]
    while waiting:
        node = waiting.pop()
        mine = loose or all(user in inside for user in node.users)
        if node in inside or not mine or not _is_code(plan, node, count):
            continue
        inside.add(node)
        waiting += node.all_input_nodes
    return inside - set(together)


def _is_code(plan: Lowering, node: Node, count: int) -> bool:
    like = node.meta.get("like")
    if not isinstance(like, Tensor) or like.ndim != 3 or like.shape[1] != count:
        return False
    if gather_of(plan, node) is not None:
        return False
    name, operands = _name(node), node.args
    plain = not node.kwargs and all(isinstance(x, Node | int | float) for x in operands)
    if name in UNARY:
        return plain and len(operands) == 1
    if name in BINARY or name in TURNED:
        return plain and len(operands) == 2
    return name == "leaky_relu" and not set(node.kwargs) - {"negative_slope"}


def _name(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


@dataclass(eq=False)
class _Code:
    """Messages while they are written."""

    plan: Lowering
    segments: Segments
    width: int
    inside: set[Node]
    bases: list[Node] = field(default_factory=list)
    leaves: list[EdgeInput] = field(default_factory=list)
    ends: list[tuple[Tensor, int]] = field(default_factory=list)
    known: dict[Node, nodes.Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ends.append((self.segments.ids, self.segments.count))

    def of(self, item: Any) -> nodes.Node | None:
        if not isinstance(item, Node):
            return nodes.Number(float(item))
        if item not in self.known:
            found = self._call(item) if item in self.inside else self._leaf(item)
            if found is None:
                return None
            self.known[item] = found
        return self.known[item]

    def _call(self, node: Node) -> nodes.Node | None:
        name, operands = _name(node), list(node.args)
        if name in TURNED:
            name, operands = TURNED[name], operands[::-1]
        if name == "leaky_relu":
            slope: Any = node.kwargs.get("negative_slope", 0.01)
            operands = [operands[0], operands[1] if len(operands) > 1 else slope]
        found = [self.of(operand) for operand in operands]
        if None in found:
            return None
        return nodes.Call("div" if name == "true_divide" else name, tuple(found))  # type: ignore[arg-type]

    def _leaf(self, node: Node) -> nodes.Node | None:
        gather = gather_of(self.plan, node)
        base = node if gather is None else gather.base
        shape = base.meta["like"].shape
        single = len(shape) == 3 and shape[2] == 1 != self.width
        if len(shape) != 3 or shape[2] not in (1, self.width) or (single and shape[0] != 1):
            return None
        if gather is not None:
            end = self._end(gather.rows, gather.size)
        else:
            end = ALL if shape[1] == 1 else EDGE
        for at, (leaf, known) in enumerate(zip(self.leaves, self.bases, strict=True)):
            if known is base and leaf.end == end:
                return nodes.Leaf(str(at))
        self.leaves.append(EdgeInput(end, not single))
        self.bases.append(base)
        return nodes.Leaf(str(len(self.bases) - 1))

    def _end(self, rows: Tensor, size: int) -> str:
        for at, (known, count) in enumerate(self.ends):
            if size == count and _same(self.plan, rows, known):
                return str(at)
        self.ends.append((rows, size))
        return str(len(self.ends) - 1)


Built = tuple[Messages, list[Node], MessageIndex]


def _built(plan: Lowering, together: Sequence[Node]) -> Built | None:
    """The code of some sums, what it reads, and the index; None where another pass does better, or
    a value would be needed before it is there."""
    first, segments = input_node(together[0], 0), _segments(plan, together[0])
    inside = _inside(plan, together)
    if not inside or (len(together) == 1 and _is_gather(plan, together[0], segments)):
        return None
    code = _Code(plan, segments, first.meta["like"].shape[2], inside)
    outputs = [code.of(input_node(node, 0)) for node in together]
    if None in outputs or any(not base < together[0] for base in code.bases):
        return None
    lists = [rows for rows, _ in code.ends]

    def find() -> MessageIndex:
        return message_index([x.cpu().long() for x in lists], [size for _, size in code.ends])

    key = ("messages", *map(id, lists), *(size for _, size in code.ends))
    which: MessageIndex = plan.analyse(key, find, *lists)
    return Messages(tuple(code.leaves), tuple(outputs)), code.bases, which  # type: ignore[arg-type]


def _is_gather(plan: Lowering, node: Node, segments: Segments) -> bool:
    """Rows times numbers, which sums of segments take as they are."""
    data, name = input_node(node, 0), str(node.args[1])
    return segments.ordered and _gathered(plan, data, name, segments) is not None


def _replaced(plan: Lowering, together: Sequence[Node], built: Built) -> None:
    messages, bases, which = built
    values = []
    with plan.rewriting(together[0]):
        read = [plan.symbol(base) for base in bases]
        batch = max(x.shape[0] for x in read)
        pairs = zip(read, messages.leaves, strict=True)
        found = segment_messages([_flat(x, leaf, batch) for x, leaf in pairs], messages, which)
        for node, total in zip(together, found, strict=True):
            if DEFINITIONS[str(node.args[1])].kernel == "mean":
                total = total / which.ways[0].rows.ptr.diff()[:, None]
            value: Any = total.reshape(which.segments, batch, -1).transpose(0, 1)
            plan.node(value)  # written here, before the first of them is gone
            values.append(value)
    for node, value in zip(together, values, strict=True):
        plan.replace(node, value)


def _flat(x: Tensor, leaf: EdgeInput, batch: int) -> Tensor:
    """(batch, rows, d) as (rows, batch · d); numbers that all samples share stay numbers."""
    if leaf.wide and batch > 1:
        return x.expand(batch, *x.shape[1:]).transpose(0, 1).flatten(1)
    return x.reshape(x.shape[1:])

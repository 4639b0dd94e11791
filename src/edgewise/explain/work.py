"""The steps that run on given data: layouts, rows, work, and which kernel."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg
from torch.nn.functional import linear
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from edgewise.errors import counted
from edgewise.explain.present_rows import call_pairs, runs_in
from edgewise.functions import DEFINITIONS
from edgewise.functions.dimensions import show
from edgewise.graphs import full
from edgewise.ground.index import Grid, Index
from edgewise.kernels.attention.calls.kernel_calls import Split
from edgewise.kernels.attention.calls.prepared import Prepared, prepare_call
from edgewise.kernels.attention.contract import Case, Options, TermInputs
from edgewise.kernels.attention.flash import fused
from edgewise.kernels.edges import EdgeIndex, MessageIndex, Messages
from edgewise.kernels.edges.registry import REDUCTIONS
from edgewise.kernels.kernel_choices import Chosen
from edgewise.kernels.scan import Scan
from edgewise.physical.attention.nodes import ATTEND, ATTEND_ALONG, ATTEND_PRESENT
from edgewise.physical.attention.relational import ATTEND_ALONG_EDGES, RelationalStep
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.lowering import PlanStep, input_node
from edgewise.physical.opaque import is_opaque
from edgewise.physical.passes.families import ALL_MEMBERS
from edgewise.physical.plan import PhysicalPlan, run_node
from edgewise.physical.recursion.levels import Levels
from edgewise.physical.recursion.rounds import Rounds
from edgewise.physical.rule import RuleStep
from edgewise.physical.step import Step
from edgewise.profile import Piece, groundings, label
from edgewise.scores.nodes import S
from edgewise.scores.nodes import show as show_score

if TYPE_CHECKING:
    from edgewise.module import Model

TERMS = {  # of scores, as kernels take them
    "score": "the score ",
    "bias": "a bias",
    "edge_bias": "a bias of each edge",
    "edge_scale": "a factor of each edge",
    "dropout": "dropout",
}
ATTENTION = {ATTEND, ATTEND_ALONG, ATTEND_ALONG_EDGES, ATTEND_PRESENT, fused}
MOVES = {"index_select", "index", "gather", "clone", "copy_", "cat", "stack", "index_copy"}


def kernels(model: Model, step: Step, values: Mapping[str, Tensor]) -> dict[str, Any]:
    """The relations in the order they are computed, and the steps of each, read off the plan."""
    executable, plan = step.executable, model._plan(step, values)
    inputs = {
        name: _read(step, name) | ({"batch": source.batch} if source.batched else {})
        for name, source in executable.sources.items()
    }
    nodes: dict[PlanStep, list[Node]] = {work: [] for work in plan.works}
    for node in plan.graph.nodes:
        if node.meta.get("of") in nodes:
            nodes[node.meta["of"]].append(node)
    steps: dict[str, list[dict[str, Any]]] = {}
    shapes: dict[str, str] = {}
    for work in plan.works:
        steps.setdefault(work.relation, []).append(_explained(work, nodes[work], plan, values))
        shapes[work.relation] = " and ".join(map(show, work.shapes))
    relations = [
        {"relation": name, "layouts": _layouts(step, name), "values": shapes[name], "steps": made}
        | _noted(executable.refusals, name, "not attention")
        | _noted(executable.classes, name, "classes")
        | _noted(executable.unlifted, name, "not by class")
        | _noted(executable.in_full, name, "all rows")
        for name, made in steps.items()
    ]
    each = [one for made in steps.values() for one in made]
    return {
        "inputs": inputs,
        "joined": {n: {"rows": some, "of": of} for n, (some, of) in executable.joined.items()},
        "relations": relations,
        "one product": [n.meta["merged"] for n in plan.graph.nodes if "merged" in n.meta],
        "one gather": [list(names) for names in step.prepared.stacks.values()],
        "total": {key: sum(one[key] for one in each) for key in ("flops", "bytes")},
    }


def _explained(
    work: PlanStep, nodes: list[Node], plan: PhysicalPlan, values: Mapping[str, Tensor]
) -> dict[str, Any]:
    with Counter() as counter:
        for node in nodes:
            counter.node(node, plan)
    if isinstance(work.step, AttentionStep):
        made = _attention(work, nodes, plan, counter, values)
    elif isinstance(work.step, RelationalStep):
        made = _relational(work, nodes, counter)
    else:
        made = {"kernel": kernel(work, nodes)} | counter.numbers()
        made |= _reasons(work.step, work.kernels)
    count = groundings(work.step)
    return {"rule": label(work.step)} | ({} if count is None else {"groundings": count}) | made


def _noted(notes: Mapping[str, Any], name: str, what: str) -> dict[str, Any]:
    return {what: notes[name]} if name in notes else {}


def _read(step: Step, name: str) -> dict[str, Any]:
    """The layout of data, or how many of its rows are read."""
    index, taken = step.executable.sources[name].index, step.executable.taken.get(name)
    there = step.executable.there.get(name, index.rows)
    if taken is not None:
        return {"kind": "rows", "rows": len(taken), "of": there}
    return layout(index) | ({"of": there} if there != index.rows else {})


def _layouts(step: Step, names: str) -> list[dict[str, Any]]:
    known = step.executable.relations
    found = []
    for name in names.split(", "):
        if name in known:
            made, there = layout(known[name]), step.executable.there.get(name, known[name].rows)
            found.append(made | ({"of": there} if there != made["rows"] else {}))
    return found


def layout(index: Index) -> dict[str, Any]:
    """Dense axes with their lengths, or explicit rows.

    >>> layout(Grid((2, 3)))
    {'kind': 'dense', 'axes': [2, 3], 'rows': 6}
    """
    if isinstance(index, Grid):
        return {"kind": "dense", "axes": list(index.sizes), "rows": index.rows}
    return {"kind": "rows", "rows": index.rows}


class Counter(TorchDispatchMode):
    """Counts floating-point operations and the bytes that operations read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0
        self.bytes = 0
        self.largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func.is_view or func._overloadpacket.__name__ == "_unsafe_view":
            return out
        read = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        packet = func._overloadpacket
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **kwargs, out_val=out)
        elif read and packet.__name__ not in MOVES:
            self.flops += max(
                (t.numel() for t in (*read, *made) if t.is_floating_point()), default=0
            )
        self.bytes += sum(t.numel() * t.element_size() for t in (*read, *made))
        self.largest = max([self.largest, *(t.numel() for t in made)])
        return out

    def node(self, node: Node, plan: PhysicalPlan) -> None:
        """Count a node of a plan, on tensors without numbers; attention counts itself."""
        if not node.op.startswith("call") or node.target in ATTENTION:
            return
        if is_opaque(node.target):
            tensors = [n.meta["like"] for n in node.all_input_nodes if "like" in n.meta]
            made = node.meta.get("like")
            index = [plan.constants.get(str(n.target)) for n in node.all_input_nodes]
            edges = sum(
                thing.edges for thing in index if isinstance(thing, EdgeIndex | MessageIndex)
            )
            read = [t for t in (*tensors, made) if t is not None]
            each = sum(thing.calls for thing in index if isinstance(thing, Messages)) or 1
            self.flops += each * edges * max(math.prod(t.shape[1:]) for t in tensors)
            self.flops += sum(thing.flops for thing in index if isinstance(thing, Scan))
            self.bytes += sum(t.numel() * t.element_size() for t in read)
            self.largest = max([self.largest, *(t.numel() for t in read[-1:])])
            return
        args, kwargs = map_arg((node.args, node.kwargs), lambda read: read.meta.get("like"))
        if node.target is not operator.getitem or args[0] is not None:
            run_node(node, args, kwargs)

    def numbers(self) -> dict[str, int]:
        return {"flops": self.flops, "bytes": self.bytes, "largest": self.largest}


def kernel(work: PlanStep, nodes: Sequence[Node]) -> str:
    """How a step runs, in short."""
    match work.step:
        case RuleStep():
            return _rule_kernel(work.step, work.kernels, nodes)
        case Levels():
            return _levels_kernel(work.step, work.kernels)
        case Rounds(count=None):
            return "rounds until nothing changes"
        case Rounds():
            return f"{work.step.count} rounds"
    return "rules together"


def _levels_kernel(step: Levels, seen: Sequence[Chosen]) -> str:
    loops = [choice.name for choice in seen if choice.operation == "scan"]
    kind = "" if not loops or loops[0] == "levels" else f", one loop ({loops[0]})"
    return f"{step.depth} levels, one after another{kind}"


def _rule_kernel(step: RuleStep, seen: Sequence[Chosen], nodes: Sequence[Node]) -> str:
    aggregated = [choice.name for choice in seen if choice.operation in REDUCTIONS]
    one = ALL_MEMBERS.name in aggregated  # which is a product itself
    parts = ["linear"] if any(map(_is_product, nodes)) and not one else []
    parts += [f"products ({c.name})" for c in seen if c.operation == "grouped_linear"]
    if any(rows is not None for rows in step.ground.rows.values()) and not aggregated:
        parts.append("gather")
    if not step.ground.segments.trivial:
        inner = step.default if step.ground.groups is not None else step.aggregation
        name = DEFINITIONS[inner.name].word
        by = f"aggregate {name} ({aggregated[0]})" if aggregated else f"segment {name}"
        parts.append(by)
    if step.ground.groups is not None:
        parts.append(f"{DEFINITIONS[step.aggregation.name].word} in groups")
    return ", ".join(parts) or "elementwise"


def _is_product(node: Node) -> bool:
    """Whether a node is rows times a matrix, or a part of such a product."""
    of_one = node.target is operator.getitem and input_node(node, 0).target == "split_with_sizes"
    return node.target is linear or of_one


def _reasons(piece: Piece, seen: Sequence[Chosen]) -> dict[str, Any]:
    """Why not other kernels: for each that ran, and where rows are written out instead."""
    found = {name: reason for choice in seen for name, reason in choice.refusals}
    if isinstance(piece, RuleStep) and not any(c.operation in REDUCTIONS for c in seen):
        reason = piece.written_out
        found |= {} if reason is None else {"aggregate": reason}
    return {"not": found} if found else {}


def _attention(
    work: PlanStep,
    nodes: list[Node],
    plan: PhysicalPlan,
    counter: Counter,
    values: Mapping[str, Tensor],
) -> dict[str, Any]:
    """The prepared call of an attention: its kernel, its work, and why not other kernels."""
    step: AttentionStep = work.step
    attends = {node.target: node for node in nodes if node.op == "call_function"}
    if ATTEND_ALONG in attends:
        return _additive(work, attends[ATTEND_ALONG], counter)
    if not attends.keys() & ATTENTION:  # no row of it is read
        made = {"kernel": "attention (empty)", "pattern": repr(_pattern(step)), "pairs": 0}
        return made | counter.numbers() | {"not": {}}
    call = _prepared(step, attends, plan)
    pairs, flops, size = call.work
    kernel, runs = call.choice.name, None
    if ATTEND_PRESENT in attends:
        runs = runs_in(attends[ATTEND_PRESENT], plan, values)
    if runs is not None:
        own = call_pairs(runs, step.pattern, call.shape[1])
        flops, pairs = flops * own // max(pairs, 1), own
        kernel = f"{kernel}, {counted(len(runs), 'call')} without padding"
    return {
        "kernel": f"attention ({kernel})",
        "pattern": repr(_pattern(step)),
        "pairs": pairs,
        **({"mask": list(step.choice)} if step.choice else {}),
        **_terms(_case(call)),
        "flops": counter.flops + flops,
        "bytes": counter.bytes + size,
        "largest": counter.largest,
        "not": dict(call.choice.refusals),
    }


def _pattern(step: AttentionStep) -> Any:
    return full() if step.pattern is None else step.pattern


def _prepared(step: AttentionStep, attends: Mapping[Any, Node], plan: PhysicalPlan) -> Prepared:
    """The prepared call of a node; of torch's own attention, the call that it is."""
    if ATTEND in attends:
        found: Prepared = plan.constants[str(input_node(attends[ATTEND], 3).target)]
        return found
    node = attends[fused] if fused in attends else attends[ATTEND_PRESENT]
    q, k, v = (input_node(node, at).meta["like"] for at in range(3))
    bias = q.new_empty(q.shape[-2], k.shape[-2]) if step.biases else None
    dropout: Any = node.kwargs.get("dropout", 0.0) if node.target is fused else node.args[7]
    options = Options(1.0, S, dropout)
    return prepare_call(q, k, v, _pattern(step), options, TermInputs(bias), plan.device)


def _case(call: Prepared) -> Case:
    """What the kernel is chosen for; where heads differ, of the first."""
    inner = call.inner
    while isinstance(inner, Split):
        inner = inner.parts[0][1]
    return inner.layout.case


def _terms(case: Case) -> dict[str, Any]:
    """What is added to dot products or made of them, pair by pair."""
    terms = {name: text for name, text in TERMS.items() if name in case.features}
    if "score" in terms:
        terms["score"] += show_score(case.score)
    return {"terms": terms} if terms else {}


def _relational(work: PlanStep, nodes: list[Node], counter: Counter) -> dict[str, Any]:
    """Attention along edges with vectors."""
    step: RelationalStep = work.step
    choice = next(c for c in work.kernels if c.operation == "relational_attention")
    node = next(node for node in nodes if node.target is ATTEND_ALONG_EDGES)
    read = [input_node(node, at).meta["like"] for at in range(4)]
    q, _, v, x = read
    pairs = len(q) * step.heads * step.which.edges
    return {
        "kernel": f"relational attention ({choice.name})",
        "pairs": pairs,
        "flops": counter.flops + 2 * pairs * (q.shape[-1] + v.shape[-1] + x.shape[-1]),
        "bytes": counter.bytes + sum(t.numel() * t.element_size() for t in read),
        "largest": counter.largest,
        "not": dict(choice.refusals),
    }


def _additive(work: PlanStep, node: Node, counter: Counter) -> dict[str, Any]:
    """Additive attention along listed pairs."""
    step: AttentionStep = work.step
    assert step.which is not None
    choice = next(c for c in work.kernels if c.operation == "additive_attention")
    q, k, v = (input_node(node, at).meta["like"] for at in range(3))
    d, dv = q.shape[-1], v.shape[-1]
    pairs = len(q) * step.which.edges
    rows = q.shape[1] + k.shape[1]
    return {
        "kernel": f"additive attention ({choice.name})",
        "pattern": repr(step.pattern),
        "pairs": pairs,
        "flops": counter.flops + pairs * (3 * d + 2 * dv),
        "bytes": counter.bytes + len(q) * rows * (d + dv) * v.element_size(),
        "largest": counter.largest,
        "not": dict(choice.refusals),
    }

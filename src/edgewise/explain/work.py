"""The steps that run on given data: layouts, rows, work, and which kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from edgewise.functions import DEFINITIONS
from edgewise.functions.dimensions import show
from edgewise.graphs import full
from edgewise.ground.index import Grid, Index
from edgewise.kernels.attention import Case, choose
from edgewise.kernels.chosen import Chosen, watched
from edgewise.kernels.edges.registry import SEGMENTS
from edgewise.kernels.edges.registry import Case as EdgeCase
from edgewise.kernels.edges.registry import choose as choose_along_edges
from edgewise.profile import Piece, groundings, label, state_of, walk
from edgewise.run.attention import AttentionStep
from edgewise.run.column import Column
from edgewise.run.projections import products_of
from edgewise.run.recursion import Levels, Rounds
from edgewise.run.rule import RuleStep
from edgewise.run.state import State
from edgewise.run.step import Step
from edgewise.scores.nodes import S
from edgewise.scores.show import show as show_score

if TYPE_CHECKING:
    from edgewise.module import Model

TERMS = {  # of scores, as kernels take them
    "score": "the score ",
    "bias": "a bias",
    "edge_bias": "a bias of each edge",
    "edge_scale": "a factor of each edge",
    "dropout": "dropout",
}
MOVES = {"index_select", "index", "gather", "clone", "copy_", "cat", "stack", "index_copy"}


def kernels(model: Model, step: Step, values: Mapping[str, Tensor]) -> dict[str, Any]:
    """The relations in the order they are computed, and the steps of each."""
    executable = step.executable
    with torch.no_grad():
        state = state_of(model, step, values)
        inputs = {
            name: layout(source.index)
            | ({"batch": state.relations[name].data.shape[0]} if source.batched else {})
            for name, source in executable.sources.items()
        }
        found = _Found(state)
        walk(executable, state, found.visit)
    relations = [
        {"relation": name, "layouts": _layouts(step, name), "values": shapes, "steps": steps}
        | _noted(executable.refusals, name, "not attention")
        | _noted(executable.classes, name, "classes")
        | _noted(executable.unlifted, name, "not by class")
        for name, (shapes, steps) in found.relations.items()
    ]
    each = [made for _, steps in found.relations.values() for made in steps]
    return {
        "inputs": inputs,
        "relations": relations,
        "one product": [
            [name for name, _ in products] for products in executable.projections.values()
        ],
        "one gather": [list(names) for names in step.prepared.stacks.values()],
        "total": {key: sum(made[key] for made in each) for key in ("flops", "bytes")},
    }


def _noted(notes: Mapping[str, Any], name: str, what: str) -> dict[str, Any]:
    return {what: notes[name]} if name in notes else {}


def _layouts(step: Step, names: str) -> list[dict[str, Any]]:
    known = step.executable.relations
    return [layout(known[name]) for name in names.split(", ") if name in known]


def layout(index: Index) -> dict[str, Any]:
    """Dense axes with their lengths, or explicit rows.

    >>> layout(Grid((2, 3)))
    {'kind': 'dense', 'axes': [2, 3], 'rows': 6}
    """
    if isinstance(index, Grid):
        return {"kind": "dense", "axes": list(index.sizes), "rows": index.rows}
    return {"kind": "rows", "rows": index.rows}


@dataclass
class _Found:
    """Relation → the shape of its values, and its steps."""

    state: State
    relations: dict[str, tuple[str, list[dict[str, Any]]]] = field(default_factory=dict)

    def visit(self, relation: str, piece: Piece, compute: Callable[[], Any]) -> Any:
        if isinstance(piece, AttentionStep):
            result, made = _attention(piece, self.state)
        else:
            with watched() as seen, Counter() as counter:
                result = compute()
            made = {"kernel": kernel(piece, seen)} | counter.numbers() | _reasons(piece, seen)
        count = groundings(piece)
        made = {"rule": label(piece)} | ({} if count is None else {"groundings": count}) | made
        columns = list(result.values()) if isinstance(result, dict) else [result]
        shapes = " and ".join(dict.fromkeys(show(column.shape) for column in columns))
        steps = self.relations.get(relation, ("", []))[1]
        self.relations[relation] = (shapes, [*steps, made])
        return result


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

    def numbers(self) -> dict[str, int]:
        return {"flops": self.flops, "bytes": self.bytes, "largest": self.largest}


def kernel(piece: Piece, seen: Sequence[Chosen] = ()) -> str:
    """How a piece runs, in a few words; `seen` are the kernels that it ran on."""
    match piece:
        case RuleStep():
            return _rule_kernel(piece, seen)
        case Levels():
            return f"{len(piece.stages)} levels, one after another"
        case Rounds(count=None):
            return "rounds until nothing changes"
        case Rounds():
            return f"{piece.count} rounds"
    return "rules together"


def _rule_kernel(step: RuleStep, seen: Sequence[Chosen]) -> str:
    aggregated = [choice.name for choice in seen if choice.operation in SEGMENTS]
    parts = ["linear"] if any(products_of(step.ground, step.layouts)) else []
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


def _reasons(piece: Piece, seen: Sequence[Chosen]) -> dict[str, Any]:
    """Why not other kernels: for each that ran, and where rows are written out instead."""
    found = {name: reason for choice in seen for name, reason in choice.refusals}
    if isinstance(piece, RuleStep) and not any(c.operation in SEGMENTS for c in seen):
        reason = piece.written_out
        found |= {} if reason is None else {"aggregate": reason}
    return {"not": found} if found else {}


def _attention(step: AttentionStep, state: State) -> tuple[Column, dict[str, Any]]:
    """What an attention would run, without running it."""
    if step.which is not None:
        return _additive(step, state)
    with Counter() as counter:
        queries, keys = ([side.step(state) for side in s] for s in (step.queries, step.keys))
        biases, value = [side.step(state) for side in step.biases], step.value.step(state)
        biases += [side.step(state) for side in (*step.edge_bias, *step.edge_scale)]
    case = _case(step, state, [*queries, *keys, *biases, value], queries, value)
    choice = choose(case)
    size = torch.empty((), dtype=state.dtype).element_size()
    tokens = case.n * (case.d + case.dv) + case.m * (case.d + case.dv)
    made = {
        "kernel": f"attention ({choice.name})",
        "pattern": repr(step.pattern or full()),
        "pairs": case.work,
        **_terms(case),
        "flops": counter.flops + 2 * case.work * (case.d + case.dv),
        "bytes": counter.bytes + case.b * tokens * size,
        "largest": counter.largest,
        "not": dict(choice.refusals),
    }
    heads = max(math.prod(step.axes[n] for n in step.node.shared), 1)
    batch = case.b // heads if step.samples is None else 1
    zeros = torch.zeros(
        batch, step.index.rows, *value.shape, dtype=state.dtype, device=state.device
    )
    return Column(zeros), made


def _terms(case: Case) -> dict[str, Any]:
    """What is added to dot products or made of them, pair by pair."""
    terms = {name: text for name, text in TERMS.items() if name in case.features}
    if "score" in terms:
        terms["score"] += show_score(case.score)
    return {"terms": terms} if terms else {}


def _additive(step: AttentionStep, state: State) -> tuple[Column, dict[str, Any]]:
    """Additive attention along listed pairs."""
    assert step.which is not None
    with Counter() as counter:
        sides = [side.step(state) for side in (*step.queries, *step.keys, step.value)]
    heads = math.prod(step.axes[n] for n in step.node.shared)
    batch = max(column.data.shape[0] for column in sides)
    d, dv = math.prod(sides[0].shape), math.prod(sides[-1].shape)
    case = EdgeCase("additive_attention", max(d, dv), state.dtype, state.device.type)
    choice = choose_along_edges(case)
    pairs = batch * heads * step.which.edges
    size = torch.empty((), dtype=state.dtype).element_size()
    places = step.axes[step.node.query] + step.axes[step.node.key]
    made = {
        "kernel": f"additive attention ({choice.kernel.name})",
        "pattern": repr(step.pattern),
        "pairs": pairs,
        "flops": counter.flops + pairs * (3 * d + 2 * dv),
        "bytes": counter.bytes + batch * heads * places * (d + dv) * size,
        "largest": counter.largest,
        "not": dict(choice.refusals),
    }
    zeros = torch.zeros(
        batch, step.index.rows, *sides[-1].shape, dtype=state.dtype, device=state.device
    )
    return Column(zeros), made


def _case(
    step: AttentionStep,
    state: State,
    columns: list[Column],
    queries: list[Column],
    value: Column,
) -> Case:
    batch = step.samples or max(column.data.shape[0] for column in columns)
    heads = math.prod(step.axes[n] for n in step.node.shared)
    plain = Case(
        b=batch * heads,
        g=1,
        n=step.axes[step.node.query],
        m=step.axes[step.node.key],
        d=sum(math.prod(column.shape) for column in queries),
        dv=math.prod(value.shape),
        dtype=state.dtype,
        device=state.device.type,
        graph=step.pattern or full(),
        scale=1.0,
    )
    features = {"dropout"} if step.node.dropout and state.training else set()
    terms = {"bias": step.biases, "edge_bias": step.edge_bias, "edge_scale": step.edge_scale}
    features |= {name for name, given in terms.items() if given}
    score = step.score(state).node
    features |= {"score"} if score != S else set()
    return replace(plain, features=frozenset(features), score=score)

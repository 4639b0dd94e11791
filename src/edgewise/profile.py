"""Where the time of a model goes, rule by rule."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from edgewise.physical.attention.relational import RelationalStep
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.lowering import PlanStep
from edgewise.physical.plan import PhysicalPlan, run_node
from edgewise.physical.recursion.levels import Levels
from edgewise.physical.recursion.rounds import Rounds
from edgewise.physical.rule import RuleStep
from edgewise.plan.show import show_step

if TYPE_CHECKING:
    from edgewise.module import Data, Model

Piece = (
    RuleStep | AttentionStep | RelationalStep | Levels | Rounds | None
)  # None: the rules of one relation meet


@dataclass
class ProfileEntry:
    """The time of one rule, in seconds; `share` is of the forward and backward time of all."""

    relation: str
    rule: str
    rows: int
    groundings: int | None
    forward: float = 0.0
    backward: float | None = None
    share: float = 0.0


@dataclass(frozen=True)
class Profile:
    """The time of every rule, slowest first; printed, a table.

    >>> import torch
    >>> from edgewise import Program, R, V
    >>> profile = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h).profile(x=torch.ones(3))
    >>> [entry.relation for entry in profile.entries]
    ['h']
    """

    entries: tuple[ProfileEntry, ...]
    forward: float
    backward: float | None
    device: str
    repeats: int

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, lists, strings and numbers.

        >>> import torch
        >>> from edgewise import Program, R, V
        >>> model = Program([R.h(V.I) <= R.x(V.I)[2.0]]).compile(R.h)
        >>> sorted(model.profile(x=torch.ones(4)).to_json())
        ['backward', 'device', 'entries', 'forward', 'repeats']
        """
        return asdict(self) | {"entries": [asdict(entry) for entry in self.entries]}

    def __repr__(self) -> str:
        back = self.backward is not None
        head = ["relation", "rows", "groundings", "forward", *["backward"] * back, "share", "rule"]
        body = [self._cells(entry, back) for entry in self.entries]
        total = ["all", "", "", _ms(self.forward), *[_ms(self.backward)] * back, "100%", ""]
        widths = [max(len(row[c]) for row in (head, *body, total)) for c in range(len(head))]
        lines = [_line(row, widths) for row in (head, *body, total)]
        return "\n".join([*lines, f"median of {self.repeats} runs on {self.device}"])

    def _cells(self, entry: ProfileEntry, back: bool) -> list[str]:
        groundings = "" if entry.groundings is None else f"{entry.groundings:,}"
        times = [_ms(entry.forward), *[_ms(entry.backward)] * back, f"{entry.share:.0%}"]
        return [entry.relation, f"{entry.rows:,}", groundings, *times, entry.rule.split("\n")[0]]


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f} ms"


def _line(cells: list[str], widths: list[int]) -> str:
    texts = (0, len(cells) - 1)  # numbers to the right, names to the left
    pairs = enumerate(zip(cells, widths, strict=True))
    return "  ".join(c.ljust(w) if n in texts else c.rjust(w) for n, (c, w) in pairs).rstrip()


def profile(
    model: Model,
    data: Data | None,
    inputs: Mapping[str, Any],
    *,
    backward: bool = False,
    repeats: int = 5,
) -> Profile:
    """Run the plan of a model node by node, and time those of each rule."""
    step, values = model._resolved(data, inputs)
    plan = model._plan(step, values)
    tensors = [*values.values(), *model._weights().values()]
    runs = [_Run(plan, tensors, backward) for _ in range(repeats + 1)][1:]  # the first warms
    entries = []
    for work in plan.works:
        entry = ProfileEntry(work.relation, label(work.step), work.rows, groundings(work.step))
        entry.forward = median(run.forward.get(work, 0.0) for run in runs)
        if backward:
            entry.backward = median(run.backward.get(work, 0.0) for run in runs)
        entries.append(entry)
    forward = sum(entry.forward for entry in entries)
    back = sum(entry.backward or 0.0 for entry in entries) if backward else None
    for entry in entries:
        entry.share = (entry.forward + (entry.backward or 0.0)) / max(forward + (back or 0), 1e-12)
    ordered = sorted(entries, key=lambda entry: -entry.share)
    return Profile(tuple(ordered), forward, back, str(model._one.device), repeats)


class _Run:
    """One timed run; a rule's backward time begins where the gradient of its result is known."""

    def __init__(self, plan: PhysicalPlan, tensors: Sequence[Tensor], backward: bool) -> None:
        self.plan = plan
        self.forward: dict[PlanStep, float] = {}
        self.backward: dict[PlanStep, float] = {}
        self.marks: list[tuple[PlanStep | None, _Moment]] = []
        self.values: dict[Node, Any] = {}
        arguments = (node for node in plan.graph.nodes if node.op == "placeholder")
        self.values.update(zip(arguments, tensors, strict=True))
        with torch.set_grad_enabled(backward):
            every = list(plan.graph.nodes)
            for work, nodes in groupby(every, key=lambda node: node.meta.get("of")):
                self._timed(work, list(nodes))
        if backward:
            self._backward([t for t in tensors if t.requires_grad])

    def _timed(self, work: PlanStep | None, nodes: list[Node]) -> None:
        device = self.plan.device
        with torch.autograd.profiler.record_function(f"edgewise: {work and work.relation}"):
            start = _Moment(device)
            for node in nodes:
                self._computed(node)
            end = _Moment(device)
        if work is not None:
            self.forward[work] = self.forward.get(work, 0.0) + (end - start)
        for node in nodes:
            value = self.values.get(node)
            last = any(user.meta.get("of") is not work for user in node.users)
            made = node.op.startswith("call") and last
            if made and isinstance(value, Tensor) and value.requires_grad:
                value.register_hook(partial(self._mark, work))

    def _computed(self, node: Node) -> None:
        if node.op == "get_attr":
            self.values[node] = self.plan.constants[str(node.target)]
        elif node.op.startswith("call"):
            args, kwargs = map_arg((node.args, node.kwargs), self.values.__getitem__)
            self.values[node] = run_node(node, args, kwargs)

    def _mark(self, work: PlanStep | None, _: Tensor) -> None:
        self.marks.append((work, _Moment(self.plan.device)))

    def _backward(self, leaves: list[Tensor]) -> None:
        made = [self.values[node] for node in self.plan.graph.output_node().all_input_nodes]
        total = sum((output.sum() for output in made if output.requires_grad), torch.zeros(()))
        if not leaves or not total.requires_grad:
            return
        torch.autograd.grad(total, leaves, allow_unused=True)
        marks = [*self.marks, (None, _Moment(self.plan.device))]
        for (work, start), (_, end) in pairwise(marks):
            if work is not None:
                self.backward[work] = self.backward.get(work, 0.0) + (end - start)


class _Moment:
    """A point in time of a device."""

    def __init__(self, device: torch.device) -> None:
        self.event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        if self.event is not None:
            self.event.record()
        self.clock = time.perf_counter()

    def __sub__(self, earlier: _Moment) -> float:
        if self.event is None or earlier.event is None:
            return self.clock - earlier.clock
        self.event.synchronize()
        return float(earlier.event.elapsed_time(self.event)) / 1e3


def label(piece: Piece) -> str:
    """What a piece computes, in the words of the plan."""
    match piece:
        case RuleStep():
            return repr(piece.rule)
        case AttentionStep() | RelationalStep():
            return show_step(piece.node)
        case Levels() | Rounds():
            return "\n".join(repr(ground.rule) for ground in piece.component.grounds)
    return "the rules of the relation together"


def groundings(piece: Piece) -> int | None:
    """How many groundings a piece computes; None where none are listed."""
    match piece:
        case RuleStep():
            return piece.ground.count
        case Levels() | Rounds():
            return sum(ground.count for ground in piece.component.grounds)
    return None

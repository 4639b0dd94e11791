"""Where the time of a model goes, rule by rule."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from edgewise.plan.show import show_step
from edgewise.run.attention import AttentionStep
from edgewise.run.column import Column
from edgewise.run.executable import Executable, RelationStep
from edgewise.run.recursion import Levels, Rounds
from edgewise.run.rule import RuleStep
from edgewise.run.state import State
from edgewise.run.step import Step

if TYPE_CHECKING:
    from edgewise.module import Data, Model

Piece = RuleStep | AttentionStep | Levels | Rounds | None  # None: the rules of one relation meet
Result = TypeVar("Result", Column, dict[str, Column])
Visit = Callable[[str, Piece, Callable[[], Any]], Any]


def state_of(model: Model, step: Step, values: Mapping[str, Tensor]) -> State:
    """What the first step of a run reads."""
    weights, unit = {name: model.weight(name) for name in model._paths}, model._one
    state = step.state(values, weights, unit.dtype, unit.device, model.training)
    state.projections = step.executable.projections
    return state


def walk(executable: Executable, state: State, visit: Visit) -> None:
    """Run every piece of an executable through `visit(relation, piece, compute)`."""
    for step in executable.steps:
        if not isinstance(step, RelationStep):
            name = ", ".join(step.component.relations)
            state.relations.update(visit(name, step, partial(step, state)))
            continue
        parts = [state.relations[step.relation]] if step.facts else []
        for piece in step.steps:
            parts.append(visit(step.relation, piece, partial(piece, state)))
        merge = partial(step.merge, parts, state.training)
        plain = len(parts) == 1 and step.merge.line is None
        state.relations[step.relation] = merge() if plain else visit(step.relation, None, merge)


@dataclass
class Entry:
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
    """The time of every rule, slowest first; printed, a table."""

    entries: tuple[Entry, ...]
    forward: float
    backward: float | None
    device: str
    repeats: int

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, lists, strings and numbers."""
        return asdict(self) | {"entries": [asdict(entry) for entry in self.entries]}

    def __repr__(self) -> str:
        back = self.backward is not None
        head = ["relation", "rows", "groundings", "forward", *["backward"] * back, "share", "rule"]
        body = [self._cells(entry, back) for entry in self.entries]
        total = ["all", "", "", _ms(self.forward), *[_ms(self.backward)] * back, "100%", ""]
        widths = [max(len(row[c]) for row in (head, *body, total)) for c in range(len(head))]
        lines = [_line(row, widths) for row in (head, *body, total)]
        return "\n".join([*lines, f"median of {self.repeats} runs on {self.device}"])

    def _cells(self, entry: Entry, back: bool) -> list[str]:
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
    """Run a model piece by piece and time each."""
    step, values = model._resolved(data, inputs)
    runs = [_Run(model, step, values, backward) for _ in range(repeats + 1)][1:]  # the first warms
    entries = [
        Entry(relation, rule, rows, groundings)
        for relation, rule, rows, groundings in runs[0].labels
    ]
    for at, entry in enumerate(entries):
        entry.forward = median(run.forward[at] for run in runs)
        if backward:
            entry.backward = median(run.backward.get(at, 0.0) for run in runs)
    forward = sum(entry.forward for entry in entries)
    back = sum(entry.backward or 0.0 for entry in entries) if backward else None
    for entry in entries:
        entry.share = (entry.forward + (entry.backward or 0.0)) / max(forward + (back or 0), 1e-12)
    ordered = sorted(entries, key=lambda entry: -entry.share)
    return Profile(tuple(ordered), forward, back, str(model._one.device), repeats)


@dataclass
class _Run:
    """One timed run; a piece's backward time begins where the gradient of its result is known."""

    model: Model
    step: Step
    values: Mapping[str, Tensor]
    with_backward: bool
    labels: list[tuple[str, str, int, int | None]] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)
    backward: dict[int, float] = field(default_factory=dict)
    marks: list[tuple[int, _Moment]] = field(default_factory=list)

    def __post_init__(self) -> None:
        with torch.set_grad_enabled(self.with_backward):
            state = state_of(self.model, self.step, self.values)
            walk(self.step.executable, state, self._timed)
        if self.with_backward:
            self._backward(state.relations.get(self.step.output.relation))

    def _timed(self, relation: str, piece: Piece, compute: Callable[[], Result]) -> Result:
        device = self.model._one.device
        with torch.autograd.profiler.record_function(f"edgewise: {relation}"):
            start = _Moment(device)
            result = compute()
            end = _Moment(device)
        number = len(self.forward)
        columns = list(result.values()) if isinstance(result, dict) else [result]
        rows = sum(column.rows for column in columns)
        self.labels.append((relation, label(piece), rows, groundings(piece)))
        self.forward.append(end - start)
        for column in columns:
            if column.data.requires_grad:
                column.data.register_hook(partial(self._mark, number))
        return result

    def _mark(self, number: int, _: Tensor) -> None:
        self.marks.append((number, _Moment(self.model._one.device)))

    def _backward(self, output: Column | None) -> None:
        leaves: list[Tensor] = [p for p in self.model.parameters() if p.requires_grad]
        leaves += [v for v in self.values.values() if v.requires_grad]
        if not leaves or output is None or not output.data.requires_grad:
            return
        torch.autograd.grad(output.data.sum(), leaves, allow_unused=True)
        marks = [*self.marks, (-1, _Moment(self.model._one.device))]
        for (number, start), (_, end) in pairwise(marks):
            self.backward[number] = self.backward.get(number, 0.0) + (end - start)


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
        case AttentionStep():
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

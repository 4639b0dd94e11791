"""What a model would need on many ranks: memory, bytes and time, computed and not measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.distributed.errors import NotDistributed
from edgewise.distributed.rank_model import RankCache, output_rows, tables_on, token_axes
from edgewise.distributed.shards import Shards
from edgewise.distributed.simulate import Communication, communication, describe
from edgewise.distributed.traffic import RowSizes
from edgewise.errors import caller
from edgewise.graphs import full
from edgewise.graphs.pattern import Pattern
from edgewise.grow.axes import CannotGrow
from edgewise.grow.cache import PositionTables
from edgewise.grow.plan import IncrementalPlan, position_tables
from edgewise.inputs.kinds import InputLike
from edgewise.module import Model
from edgewise.physical.attention import AttentionStep

UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, eq=False)
class ModelScale:
    """The plans of a model's attentions, how many have each, and the bytes of its weights."""

    tokens: int
    ranks: int
    attentions: list[tuple[str, int, Communication]]
    weights: int

    @property
    def received(self) -> int:
        """Bytes that the worst rank receives in a forward pass."""
        return sum(count * found.worst for _, count, found in self.attentions)

    def to_json(self) -> dict[str, Any]:
        """Everything as numbers and strings."""
        each = [
            {"relation": name, "count": count, **found.to_json()}
            for name, count, found in self.attentions
        ]
        return {
            "tokens": self.tokens,
            "ranks": self.ranks,
            "attentions": each,
            "weights": self.weights,
            "received": self.received,
        }

    def show(self, bandwidth: float = 50e9) -> str:
        """As text, with the time at so many bytes a second."""
        lines = [f"weights {size(self.weights)} on each rank, or a share of it by FSDP"]
        for name, count, found in self.attentions:
            title = name if count == 1 else f"{name} and {count - 1} more like it"
            lines += ["", title, *_indented(table(found, bandwidth))]
        total = f"all attentions: the worst rank receives {size(self.received)}, "
        return "\n".join([*lines, "", f"{total}{seconds(self.received / bandwidth)}"])


def scale(
    model: Model, *, tokens: int, ranks: int, itemsize: int = 2, **inputs: InputLike
) -> ModelScale:
    """What a model would send on so many ranks; `inputs` are those of some tokens, whatever their
    number. Models and inputs on the meta device hold no numbers, and nothing is computed.

    `itemsize` is the bytes of a number: 2 for bfloat16.
    """
    counts: Counter[tuple[Pattern, RowSizes]] = Counter()
    names: dict[tuple[Pattern, RowSizes], str] = {}
    for name, graph, sizes in attention_calls(model, inputs):
        key = (graph, replace(sizes, itemsize=itemsize))
        names.setdefault(key, name)
        counts[key] += 1
    found = [
        (names[key], count, communication(key[0], tokens=tokens, ranks=ranks, sizes=key[1]))
        for key, count in counts.items()
    ]
    weights = sum(p.numel() for p in model.parameters()) * itemsize
    return ModelScale(tokens, ranks, found, weights)


class _Recorder(RankCache):
    """In the place of attention on ranks: which calls there are."""

    def __init__(self, tables: PositionTables, relations: set[str]) -> None:
        super().__init__(None, Shards(0, 1), tables, 1 << 16)  # type: ignore[arg-type]
        self.relations = relations
        self.calls: list[tuple[str, Pattern, RowSizes]] = []

    def attend(
        self, step: AttentionStep, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None
    ) -> Tensor:
        heads, shared = (x.shape[1:-2].numel() for x in (q, k))
        graph = full() if step.pattern is None else step.pattern
        more = int(bias is not None)
        sizes = RowSizes(heads, shared, q.shape[-1] + more, v.shape[-1], q.shape[0])
        self.calls.append((step.node.head.relation, graph, sizes))
        return q.new_zeros(*q.shape[:-1], v.shape[-1])


def attention_calls(model: Model, inputs: Mapping[str, Any]) -> list[tuple[str, Pattern, RowSizes]]:
    """The attentions among tokens of a model: relation, graph and the sizes of a row of each."""
    step, values = model._resolved(None, inputs)
    rows = step.executable.sources[next(iter(inputs))].index.length(0)
    try:
        axes = token_axes(step, inputs)
        tables = position_tables(step, axes, rows, model.limit)
    except CannotGrow as error:
        raise NotDistributed(
            f"tokens of different ranks meet outside of attention: {error.message}",
            error.place or caller(),
            "scale a model in which tokens meet in attention alone",
        ) from None
    unit, weights = model._one, model._weights()
    moved = tables_on(unit.device, tables)
    recorder = _Recorder(moved, axes.cached)
    plan = IncrementalPlan(step, axes, moved, unit, False)
    with torch.no_grad():
        positions = torch.arange(rows, device=unit.device)
        output_rows(plan, values, weights, positions, recorder)
    return recorder.calls


def table(found: Communication, bandwidth: float) -> list[str]:
    """One attention: what the worst rank receives, by kind, beside all-gather and Ulysses."""
    home, sizes = found.home, found.sizes
    shape = f"{sizes.heads} heads of {sizes.d}"
    if sizes.shared != sizes.heads:
        shape += f", {sizes.shared} of keys"
    graph = found.to_json()["graph"]
    lines = [f"{graph}, {home.n:,} tokens on {home.ranks} ranks, {shape}"]
    lines.append(f"{'way':<28}{describe(found.decision, home)}")
    for kind, count in found.received.items():
        lines.append(_line(f"  {kind}", int(count.max()), found.gathered, bandwidth))
    lines.append(_line("received, worst rank", found.worst, found.gathered, bandwidth))
    lines.append(_line("all-gather of keys", found.gathered, found.gathered, bandwidth))
    missing = "" if sizes.shared % home.ranks == 0 else f"  (needs {home.ranks} heads of keys)"
    ulysses = _line("heads (Ulysses)", found.by_heads, found.gathered, bandwidth)
    lines.append(ulysses + missing)
    lines.append(f"{'memory, worst rank':<28}{size(found.memory):>10}")
    lines.append(f"{'pairs, worst rank':<28}{found.imbalance:>9.2f}× the mean")
    return lines


def _line(name: str, count: int, gathered: int, bandwidth: float) -> str:
    share = f"{count / gathered:.3%}" if gathered else "-"
    return f"{name:<28}{size(count):>10}  {share:>9}  {seconds(count / bandwidth):>9}"


def size(count: float) -> str:
    """A number of bytes for people.

    >>> size(2_140_000_000)
    '2.14 GB'
    """
    for unit in UNITS[:-1]:
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {UNITS[-1]}"


def seconds(time: float) -> str:
    """A time for people.

    >>> seconds(0.0428)
    '42.8 ms'
    """
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if time * factor >= 1 or unit == "µs":
            return f"{time * factor:.3g} {unit}"
    raise AssertionError


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]

"""What a model computes at every stage: rules, plan, passes, kernels; as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, named, suggest
from edgewise.explain.work import kernels
from edgewise.kernels.scan import Scan
from edgewise.passes.fuse_attention import refusals
from edgewise.physical.recursion.scan import NAME as SCAN
from edgewise.physical.step import Step
from edgewise.pipeline import PASSES
from edgewise.plan.nodes import Plan
from edgewise.plan.show import statements

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from edgewise.distributed import Shards
    from edgewise.module import Data, Model

STAGES = ("rules", "plan", "passes", "kernels")
RANKS = "ranks"  # one more stage, where a mesh is given
UNSEEN = "none yet: give inputs, as in `model.explain(x=...)`"


class UnknownStage(EdgewiseError):
    """A model is explained as rules, plan, passes and kernels."""

    code = "unknown-stage"
    example = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).explain(stage="pass")'
    instead = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).explain(stage="passes")'


@dataclass(frozen=True)
class Explanation:
    """The stages of a model; printed, a text, and `to_json()` is the data behind it.

    >>> from edgewise import Program, R, V
    >>> list(Program([R.h(V.I) <= R.x(V.I)]).compile(R.h).explain().to_json())[:2]
    ['rules', 'plan']
    """

    stages: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Stage → dicts, lists, strings and numbers.

        >>> from edgewise import Program, R, V
        >>> list(Program([R.h(V.I) <= R.x(V.I)]).compile(R.h).explain().to_json())
        ['rules', 'plan', 'passes', 'kernels']
        """
        return self.stages

    def __repr__(self) -> str:
        parts = [f"{name}\n{_indented(_text(name, part))}" for name, part in self.stages.items()]
        return "\n\n".join(parts)


def explain(
    model: Model,
    data: Data | None,
    inputs: Mapping[str, Any],
    stage: str | None = None,
    mesh: DeviceMesh | Shards | int | None = None,
) -> Explanation:
    """Every stage of a model, or one; kernels are for these inputs, or the shapes seen last. With a
    mesh, or a number of ranks, also what they would send one another."""
    stages = STAGES if mesh is None else (*STAGES, RANKS)
    if stage is not None and not (isinstance(stage, str) and stage in stages):
        raise UnknownStage(
            f"there is no stage `{named(stage)}`",
            caller(),
            suggest(stage, stages),
        )
    if data is not None:
        model._refuse_foreign(data)
    wanted = stages if stage is None else (stage,)
    found = {name: _stage(name, model, data, inputs) for name in wanted if name != RANKS}
    if RANKS in wanted:
        plans = import_module("edgewise.distributed.model_scale").explained
        found[RANKS] = plans(model, mesh, data, inputs).to_json()
    return Explanation(found)


def _stage(name: str, model: Model, data: Data | None, inputs: Mapping[str, Any]) -> Any:
    match name:
        case "rules":
            return [repr(statement) for statement in model.program.statements]
        case "plan":
            return statements(model.stages["plan"])
        case "passes":
            return _passes(model, situation(model, data, inputs))
    found = situation(model, data, inputs)
    return None if found is None else kernels(model, *found)


def situation(
    model: Model, data: Data | None, inputs: Mapping[str, Any]
) -> tuple[Step, dict[str, Tensor]] | None:
    """The step for these inputs; without any, the one built last, on zeros."""
    last = model._last
    if isinstance(last, dict):  # of a call whose data was not grounded by itself
        if data is None and not inputs:
            return model._resolved(None, last)
        last = None
    held = (last or model._cache) if data is None else data
    if inputs or not held.built:
        needed = not inputs and held.open and model._reader.missing(held.inputs) is not None
        return None if needed else model._resolved(data, inputs)
    (shapes, dtype, device), step = list(held.built.items())[-1]
    zeros = {n: torch.zeros(shape, dtype=dtype, device=device) for n, shape in shapes}
    tensors = {n: t for n, t in held.inputs.items() if isinstance(t, Tensor)}
    return step, {n: t for n, t in tensors.items() if t.is_floating_point()} | zeros


def _passes(model: Model, found: tuple[Step, dict[str, Tensor]] | None) -> dict[str, Any]:
    reasons = {step.name: step.why for step in PASSES}
    before, fired = model.stages["plan"], []
    for name, after in model.stages["passes"]:
        fired.append({"pass": name, "why": reasons[name], **_difference(before, after)})
        before = after
    off = list(model.without)
    running = None if found is None else _running(model, *found)
    against = {} if "fuse attention" in off else refusals(before)
    return {"fired": fired, "when running": running, "switched off": off, "not fused": against}


def _running(model: Model, step: Step, values: dict[str, Tensor]) -> list[dict[str, Any]]:
    """The passes over ground rules and the graph that changed something, and in how many places."""
    plan = model._plan(step, values)
    changed = {
        "stack embeddings": len(step.prepared.stacks),
        "lift equal rows": len(step.executable.classes),
        SCAN: sum(isinstance(thing, Scan) for thing in plan.constants.values()),
        **plan.passes,
    }
    return [
        {"pass": p.name, "why": p.why, "on": p.on, "places": changed[p.name]}
        for p in PASSES
        if changed.get(p.name)
    ]


def _difference(before: Plan, after: Plan) -> dict[str, list[str]]:
    old, new = statements(before), statements(after)
    return {
        "removed": [text for text in old if text not in new],
        "added": [text for text in new if text not in old],
    }


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.split("\n"))


def _text(name: str, part: Any) -> str:
    match name:
        case "passes":
            return _passes_text(part)
        case "kernels":
            return _kernels_text(part)
        case "ranks":
            text: str = import_module("edgewise.distributed.model_scale").shown(part)
            return text
    return "\n".join(part)


def _passes_text(part: dict[str, Any]) -> str:
    lines = []
    for fired in part["fired"]:
        lines.append(f"{fired['pass']}: {fired['why']}")
        lines += [_marked("- ", text) for text in fired["removed"]]
        lines += [_marked("+ ", text) for text in fired["added"]]
    running = part["when running"]
    lines += [f"when running: {UNSEEN}"] if running is None else []
    lines += [f"{p['pass']}: {p['why']} ({_times(p['places'])})" for p in running or ()]
    lines += [f"{name}: switched off" for name in part["switched off"]]
    lines += [f"not fused: `{name}`: {reason}" for name, reason in part["not fused"].items()]
    return "\n".join(lines) or "none"


def _times(places: int) -> str:
    return f"{places:,} {'place' if places == 1 else 'places'}"


def _marked(mark: str, text: str) -> str:
    return f"  {mark}" + text.replace("\n", "\n    ")


def _kernels_text(part: dict[str, Any] | None) -> str:
    if part is None:
        return UNSEEN
    inputs = [f"{name} {_layout(layout)}" for name, layout in part["inputs"].items()]
    lines = [f"inputs: {', '.join(inputs)}"]
    joined = [f"{n} {x['rows']:,} of {x['of']:,} rows" for n, x in part["joined"].items()]
    lines += [f"joined for what is wanted: {', '.join(joined)}"] if joined else []
    for relation in part["relations"]:
        layouts = "; ".join(_layout(layout) for layout in relation["layouts"])
        classes = _classes(relation["classes"]) if "classes" in relation else ""
        lines.append(f"{relation['relation']}: {layouts}{classes}, {relation['values']}")
        if "not attention" in relation:
            lines.append(f"  not one attention: {relation['not attention']}")
        if "all rows" in relation:
            lines.append(f"  all rows, not only wanted ones: {relation['all rows']}")
        if "not by class" in relation:
            lines.append(f"  not by class: {relation['not by class']}")
        for step in relation["steps"]:
            lines += [f"  {line}" for line in _step_lines(step)]
    lines += [f"one product: {' and '.join(names)}" for names in part["one product"]]
    lines += [f"one gather: {_several(names)}" for names in part["one gather"]]
    total = part["total"]
    lines.append(f"all: {_amount(total['flops'])}FLOPs, {_amount(total['bytes'])}B moved")
    return "\n".join(lines)


def _several(names: list[str]) -> str:
    """The first of many names, and how many there are."""
    if len(names) <= 4:
        return " and ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more"


def _classes(count: int) -> str:
    return " in one class" if count == 1 else f" in {count:,} classes"


def _layout(layout: dict[str, Any]) -> str:
    batch = f", batch {layout['batch']}" if "batch" in layout else ""
    if layout["kind"] == "rows":
        of = f" of {layout['of']:,}" if "of" in layout else ""
        return f"{layout['rows']:,}{of} rows{batch}"
    return (f"dense {'×'.join(map(str, layout['axes']))}" if layout["axes"] else "one row") + batch


def _step_lines(step: dict[str, Any]) -> list[str]:
    numbers = [f"{step['groundings']:,} groundings"] if "groundings" in step else []
    numbers += [f"{step['pairs']:,} pairs"] if "pairs" in step else []
    numbers += [f"{_amount(step['flops'])}FLOPs", f"{_amount(step['bytes'])}B"]
    lines = [f"{step['kernel']}: {', '.join(numbers)}"]
    lines += [f"  {line}" for line in step.get("mask", ())]
    lines += [f"  with {', '.join(step['terms'].values())}"] if "terms" in step else []
    lines += [f"  not {name}: {reason}" for name, reason in step.get("not", {}).items()]
    return lines


def _amount(number: int) -> str:
    """1234567 as 1.2 M; ends in a space or a prefix, for a unit to follow."""
    value = float(number)
    for prefix in ("", "k", "M", "G", "T"):
        if value < 1000 or prefix == "T":
            return (
                f"{value:.0f} {prefix}" if value >= 100 or not prefix else f"{value:.1f} {prefix}"
            )
        value /= 1000
    raise AssertionError

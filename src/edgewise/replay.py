"""One sample of a compiled model, solved by the reference: `why` and `draw`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import Tensor

from edgewise.errors import EdgewiseError, EdgewiseWarning, caller
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.physical.attention import AttentionStep
from edgewise.physical.levels import Levels
from edgewise.physical.rounds import Rounds
from edgewise.physical.rule import RuleStep
from edgewise.physical.step import RelationStep, Step
from edgewise.reference import Solution, solve

if TYPE_CHECKING:
    from edgewise.module import Data, Model

MOST = 50_000


class SampleTooLarge(EdgewiseError):
    """`why` and `draw` solve a sample grounding by grounding, which is slow beyond thousands."""

    code = "sample-too-large"
    example = "Program([R.h <= (R.a(V.X), R.a(V.Y))]).compile(R.h).why(R.h, a=torch.ones(300))"
    instead = "Program([R.h <= (R.a(V.X), R.a(V.Y))]).compile(R.h).why(R.h, a=torch.ones(3))"


class UnknownSample(EdgewiseError):
    """A batch has samples from 0 on; an input without a batch is one sample."""

    code = "unknown-sample"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).why(R.h(0), sample=1, a=torch.ones(3))"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).why(R.h(0), a=torch.ones(3))"


def replay(model: Model, data: Data | None, inputs: Mapping[str, Any], sample: int = 0) -> Solution:
    """What the reference derives from one sample, with the weights that the model has now."""
    step, values = model._resolved(data, inputs)
    if step.padded:
        raise UnknownSample(
            "one sample of `model.samples` has no keys of its own",
            caller(),
            "ask the batch: `model.why(atom, data, sample=...)`",
        )
    _refuse_sample(step, values, sample)
    _refuse_size(step)
    dtype = model._one.dtype
    weights = {name: model.weight(name).detach() for name in model._paths}
    facts: list[nodes.Atom] = []
    for name, source in step.prepared.sources.items():
        if name in model._reader.arities:  # facts may be of relations that the output does not need
            column = source.data(values.get(name), weights, dtype).detach()
            facts += _facts(model, step, name, column[sample if source.batched else 0], sample)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        return solve(_needed(model), facts, dtype=dtype, weights=weights)


def _needed(model: Model) -> Program:
    """The statements that the output needs, as they were before any pass."""
    plan = model.stages["plan"]
    return Program(
        [*plan.rules, *plan.facts, *plan.lines],
        aggregation=plan.aggregation,
        domains=dict(plan.domains),
        rounds=plan.rounds,
    )


def draw(model: Model, items: Sequence[Any], inputs: Mapping[str, Any], sample: int) -> Any:
    """The network of a sample, or of the atoms among `items`; the rules if there is no data."""
    atoms = [item for item in items if isinstance(item, nodes.Atom)]
    given = [item for item in items if not isinstance(item, nodes.Atom)]
    if not items and not inputs and model.inputs:
        return model.program.draw()
    if len(given) > 1:
        raise UnknownSample(
            f"{len(given)} grounded inputs are given, expected one",
            caller(),
            "draw one after another: `model.draw(data)`",
        )
    solution = replay(model, given[0] if given else None, inputs, sample)
    return import_module("edgewise.viz").draw_solution(solution, tuple(atoms))


def _refuse_sample(step: Step, values: Mapping[str, Tensor], sample: int) -> None:
    sizes = [len(values[n]) for n, s in step.prepared.sources.items() if s.batched]
    count = step.prepared.samples if step.prepared.samples is not None else max(sizes, default=1)
    if isinstance(sample, bool) or not isinstance(sample, int) or not 0 <= sample < count:
        raise UnknownSample(
            f"there is no sample {sample!r} among {count}", caller(), "count from 0: `sample=0`"
        )


def _refuse_size(step: Step) -> None:
    rows = sum(index.rows for index in step.executable.relations.values())
    count = max([rows, *(_groundings(s) for s in step.executable.steps)])
    if count > MOST:
        raise SampleTooLarge(
            f"the sample has {count:,} atoms or groundings, more than {MOST:,}",
            caller(),
            "give fewer rows: the part of the data around the atom, or one sample of a batch",
        )


def _groundings(step: RelationStep | Levels | Rounds) -> int:
    if not isinstance(step, RelationStep):
        return sum(ground.count for ground in step.component.grounds)
    return sum(
        piece.ground.total if isinstance(piece, RuleStep) else _pairs(piece) for piece in step.steps
    )


def _pairs(step: AttentionStep) -> int:
    n, m = step.axes[step.node.query], step.axes[step.node.key]
    heads = math.prod(step.axes[name] for name in step.node.shared) * (step.samples or 1)
    return heads * (n * m if step.pattern is None else int(step.pattern.count(n, m)))


def _facts(
    model: Model, step: Step, name: str, column: Tensor, sample: int
) -> Iterator[nodes.Atom]:
    """The rows of a source that the sample has, as facts; facts of the program stay its own."""
    source = step.prepared.sources[name]
    own = {row for row, _ in source.weights}
    keyed = source.index.arity > model._reader.arities[name]  # by the number of the sample
    keys = [source.index.column(p).tolist() for p in range(source.index.arity)]
    for row in range(source.index.rows):
        key = tuple(step.prepared.constants.constant(k[row]) for k in keys)
        if row not in own and (not keyed or key[0] == sample):
            yield nodes.Atom(name, key[1:] if keyed else key)[column[row]]

"""One sample of a compiled model, solved by the reference: `why` and `draw`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.checks.atoms import ArityMismatch
from edgewise.checks.evaluation import BadQuery, NotDerivable
from edgewise.errors import EdgewiseError, EdgewiseWarning, caller, nearest, safe_repr
from edgewise.ground.index import Constants, Index
from edgewise.ground.joins.join import OverBudget
from edgewise.language import nodes
from edgewise.language.dependencies import needs
from edgewise.language.program import Program
from edgewise.language.statements import weights as weights_of
from edgewise.physical.attention.relational import RelationalStep
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.recursion.levels import Levels
from edgewise.physical.recursion.rounds import Rounds
from edgewise.physical.rule import RuleStep
from edgewise.physical.step import RelationStep, Step
from edgewise.plan.nodes import Plan
from edgewise.plan.value_ranks import RankedComparison
from edgewise.provenance import Behind, behind, one_sample, value_recursive
from edgewise.reference import Solution, solve
from edgewise.reference.evaluate import Evaluator
from edgewise.reference.ground import RuleGroundings
from edgewise.reference.why import Why
from edgewise.update.tables import Table
from edgewise.weights import WeightTable

if TYPE_CHECKING:
    from edgewise.module import Data, Model

MOST = 50_000


class SampleTooLarge(EdgewiseError):
    """A picture, and values that depend on themselves, need all groundings of a sample, which is
    slow beyond thousands."""

    code = "sample-too-large"
    example = "Program([R.h <= (R.a(V.X), R.a(V.Y))]).compile(R.h).draw(R.h, a=torch.ones(300))"
    instead = "Program([R.h <= (R.a(V.X), R.a(V.Y))]).compile(R.h).draw(R.h, a=torch.ones(3))"


class UnknownSample(EdgewiseError):
    """A batch has samples from 0 on; an input without a batch is one sample."""

    code = "unknown-sample"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).why(R.h(0), sample=1, a=torch.ones(3))"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).why(R.h(0), a=torch.ones(3))"


def why(
    model: Model, query: Any, data: Data | None, inputs: Mapping[str, Any], sample: int = 0
) -> Why:
    """The groundings behind an atom, found from the atom down; nothing else is joined.

    Where values depend on themselves, the reference solves all of the sample.
    """
    atom = _checked(model, query)
    step, values = _resolved(model, data, inputs, sample)
    plan, constants = _plan(model), step.prepared.constants
    facts, known = _facts(model, step, values, sample), _known(step, plan, sample)
    stated = {name: table.index for name, table in facts.items()}
    index = known.get(atom.relation, stated.get(atom.relation))
    _refuse_open(atom, index, constants)
    if value_recursive(plan, atom.relation):
        return _solved(model, step, values, sample).why(atom)
    if not all(constants.knows(term) for term in atom.terms):  # type: ignore[arg-type]
        raise _not_derived(atom, index, constants)
    with torch.no_grad():
        found = _behind(model, plan, atom, facts, known, constants)
    own = [rule for rule in plan.rules if rule.head.relation == atom.relation]
    read = needs(own, values_only=True).get(atom.relation, set())
    atoms = dict(found.values({atom.relation, *read}))
    if (atom.relation, atom.terms) not in atoms:
        raise _not_derived(atom, index, constants)
    return _explained(model, found, atoms, facts, atom.relation).why(atom)


def _behind(
    model: Model,
    plan: Plan,
    atom: nodes.Atom,
    facts: Mapping[str, Table],
    known: Mapping[str, Index],
    constants: Constants,
) -> Behind:
    try:
        return behind(model, plan, atom, facts, known, constants)
    except OverBudget as over:
        raise SampleTooLarge(
            f"`{atom!r}` follows from {over.args[0]:,} groundings or more, beyond the limit",
            caller(),
            "raise `compile(..., limit=...)`",
        ) from None


def _explained(
    model: Model,
    found: Behind,
    values: dict[Any, Tensor],
    facts: Mapping[str, Table],
    relation: str,
) -> Solution:
    """What is behind an atom as if the reference had solved it."""
    plan, program = _plan(model), _needed(model)
    weights = _weights(model, program)
    table = WeightTable(
        [*plan.rules, *plan.facts], dict(plan.domains), dtype=model._one.dtype, values=weights
    )
    rules = [RuleGroundings(rule, found.groundings.get(rule, ())) for rule in plan.rules]
    lines = {line.relation: line for line in plan.lines}
    evaluator = Evaluator(rules, lines, table, plan.aggregation, False)
    stated = facts.get(relation)
    if stated is not None:
        own = stated.at(found.tables[relation].index.keys)
        evaluator.facts = dict(replace(found, tables={relation: own}).values([relation]))
    return Solution(program, evaluator, values)


def replay(model: Model, data: Data | None, inputs: Mapping[str, Any], sample: int = 0) -> Solution:
    """What the reference derives from one sample, with the weights that the model has now."""
    step, values = _resolved(model, data, inputs, sample)
    return _solved(model, step, values, sample)


def _resolved(
    model: Model, data: Data | None, inputs: Mapping[str, Any], sample: int
) -> tuple[Step, dict[str, Tensor]]:
    step, values = model._resolved(data, inputs)
    if step.padded:
        raise UnknownSample(
            "one sample of `model.samples` has no keys of its own",
            caller(),
            "ask the batch: `model.why(atom, data, sample=...)`",
        )
    _refuse_sample(step, values, sample)
    return step, values


def _solved(model: Model, step: Step, values: Mapping[str, Tensor], sample: int) -> Solution:
    _refuse_size(step)
    program = _needed(model)
    weights = _weights(model, program)
    constants, stated = step.prepared.constants, []
    for name, table in _facts(model, step, values, sample).items():
        for code, value in zip(table.index.keys.tolist(), table.data, strict=True):
            stated.append(nodes.Atom(name, tuple(map(constants.constant, code)))[value])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        return solve(program, stated, dtype=model._one.dtype, weights=weights)


def _weights(model: Model, program: Program) -> dict[str, Tensor]:
    """The current weights that rules use; others belong to what selections compute."""
    used = {w.name for statement in program.statements for w in weights_of(statement)}
    return {name: model.weight(name).detach() for name in model._paths if name in used}


def _plan(model: Model) -> Plan:
    """The rules before any pass, and those by which ranks say which values compare."""
    plan: Plan = model.stages["plan"]
    compared = [
        c for c in model.stages.get("split", {}).values() if isinstance(c, RankedComparison)
    ]
    rules = [r for one in {c.head.relation: c for c in compared}.values() for r in one.rules()]
    return replace(plan, steps=(*plan.steps, *rules)) if rules else plan


def _needed(model: Model) -> Program:
    """The statements that the output needs, as they were before any pass."""
    plan = _plan(model)
    return Program(
        [*plan.rules, *plan.facts, *plan.lines],
        aggregation=plan.aggregation,
        domains=dict(plan.domains),
        rounds=plan.rounds,
    )


def draw(model: Model, items: Sequence[Any], inputs: Mapping[str, Any], sample: int) -> Any:
    """The network of a sample, or of the atoms among `items`; the rules if there is no data."""
    atoms = [item for item in items if isinstance(item, nodes.Atom)]
    grounded = [item for item in items if not isinstance(item, nodes.Atom)]
    if not items and not inputs and model.inputs:
        return model.program.draw()
    if len(grounded) > 1:
        raise UnknownSample(
            f"{len(grounded)} grounded inputs are given, expected one",
            caller(),
            "draw one after another: `model.draw(data)`",
        )
    solution = replay(model, grounded[0] if grounded else None, inputs, sample)
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


def _pairs(step: AttentionStep | RelationalStep) -> int:
    if isinstance(step, RelationalStep):
        return step.heads * step.which.edges
    n, m = step.axes[step.node.query], step.axes[step.node.key]
    heads = math.prod(step.axes[name] for name in step.node.shared) * (step.samples or 1)
    return heads * (n * m if step.pattern is None else int(step.pattern.count(n, m)))


def _facts(model: Model, step: Step, values: Mapping[str, Tensor], sample: int) -> dict[str, Table]:
    """The data of one sample, with the current weights."""
    weights = {name: model.weight(name).detach() for name in model._paths}
    found = {}
    for name, source in step.prepared.sources.items():
        if name not in model._reader.arities:
            continue  # facts may be of relations that the output does not need
        column = source.data(values.get(name), weights, model._one.dtype).detach()
        index, rows = source.index, column[sample if source.batched else 0].cpu()
        if index.arity > model._reader.arities[name]:
            index, mine = one_sample(index, sample)
            rows = rows[mine]
        found[name] = Table(index, rows)
    return found


def _known(step: Step, plan: Plan, sample: int) -> dict[str, Index]:
    """The keys of derived relations that grounding found."""
    found = {}
    for name in {rule.head.relation for rule in plan.rules}:
        index = step.executable.relations.get(name)
        if index is not None:
            batched = name in step.prepared.in_batch
            found[name] = one_sample(index, sample)[0] if batched else index
    return found


def _checked(model: Model, query: Any) -> nodes.Atom:
    """A query that is one atom of the model."""
    if not isinstance(query, nodes.Atom) or query.negated or query.weight is not None:
        raise BadQuery(
            f"`{safe_repr(query)}` is not a query", caller(), "write `model.why(R.h(1), ...)`"
        )
    arities = model._reader.arities
    relation = model.program.aliases.get(query.relation, query.relation)
    if relation not in arities:
        near = nearest(query.relation, list(arities))
        raise NotDerivable(
            f"nothing derives `{query!r}`",
            caller(),
            f"did you mean `R.{near}`?" if near else "the output needs no such relation",
        )
    if len(query.terms) != arities[relation]:
        raise ArityMismatch(
            f"the arity of `{query.relation}` is {arities[relation]}, the query has "
            f"{len(query.terms)}",
            caller(),
            "give a constant for each term",
        )
    return nodes.Atom(relation, query.terms)


def _some(relation: str, index: Index | None, constants: Constants) -> str:
    """Some atoms of a relation."""
    rows = torch.arange(0 if index is None else min(index.rows, 3))
    if index is None or not len(rows):
        return ""
    keys = torch.stack([index.column(p)[rows] for p in range(index.arity)], 1).tolist()
    atoms = [nodes.Atom(relation, tuple(map(constants.constant, key))) for key in keys]
    return ", ".join(f"`{atom!r}`" for atom in atoms)


def _refuse_open(atom: nodes.Atom, index: Index | None, constants: Constants) -> None:
    if any(isinstance(term, nodes.Variable) for term in atom.terms):
        some = _some(atom.relation, index, constants)
        raise BadQuery(
            f"`{atom!r}` has variables; `why` explains one atom",
            caller(),
            f"give one, such as {some}" if some else "give an atom without variables",
        )


def _not_derived(atom: nodes.Atom, index: Index | None, constants: Constants) -> NotDerivable:
    some = _some(atom.relation, index, constants)
    return NotDerivable(
        f"nothing derives `{atom!r}`",
        caller(),
        f"these are derived: {some}, ..." if some else "no rule has it as its head for this data",
    )

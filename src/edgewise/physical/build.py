"""A plan on data: everything that depends on keys is decided here, once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.evaluation import cyclic_recursion, fact_and_rule, is_extreme
from edgewise.functions import Law
from edgewise.graphs.checks import physical_memory
from edgewise.ground.colour_refinement import Lifting, own_rows, read_row_wise
from edgewise.ground.fixpoint import extend, least_fixpoint
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.grounder import Grounder
from edgewise.ground.index import Constants, Index, Keys, rows_of
from edgewise.ground.joins.body import Body
from edgewise.ground.joins.join import too_many_bytes
from edgewise.ground.joins.recorded import RecordedJoins
from edgewise.ground.magic_sets import Needed
from edgewise.ground.source import Source
from edgewise.ground.topological import Cyclic, stages
from edgewise.inputs.batched_rules import batched_relations
from edgewise.language import nodes
from edgewise.language.defaults import Domain
from edgewise.language.dependencies import components, needs, reachable
from edgewise.language.functions import definition
from edgewise.language.statements import remembered
from edgewise.physical.attention.grounding import attention_step
from edgewise.physical.attention.relational import RelationalStep
from edgewise.physical.attention.relational_rows import relational_step, value_rule
from edgewise.physical.attention.step import AttentionStep
from edgewise.physical.demand.need import GroundIndex
from edgewise.physical.merge import aligned, merge_of, merged
from edgewise.physical.recursion.levels import Component, Levels, by_levels
from edgewise.physical.recursion.rounds import Rounds, by_rounds, late_samples
from edgewise.physical.rule import RuleStep
from edgewise.physical.step import Executable, RelationStep
from edgewise.physical.value_shapes import Shapes
from edgewise.plan.nodes import Attention, Fused, Plan


@dataclass(frozen=True)
class Values:
    """What there is for values: bytes, the size of a number, and how often `batched` relations
    have each row."""

    bytes: int
    itemsize: int
    batch: int
    batched: frozenset[str]

    def check(self, step: RuleStep, shape: tuple[int, ...] | None) -> None:
        """Refuse a rule whose values, each of `shape`, are more than there is memory for."""
        if shape is None:
            return
        rows = _written(step) * (self.batch if step.rule.head.relation in self.batched else 1)
        needed = rows * math.prod(shape) * self.itemsize
        if needed > self.bytes:
            raise too_many_bytes(step.rule, rows, f"values of {math.prod(shape):,}", needed)


def values_of(
    plan: Plan, sources: Mapping[str, Source], dtype: torch.dtype, device: torch.device
) -> Values:
    """The memory of a device, for the values of a plan."""
    own = {name for name, source in sources.items() if source.batched}
    batch = max((sources[name].batch for name in own), default=1)
    if device.type == "cuda":
        size = int(torch.cuda.get_device_properties(device).total_memory)
    else:
        size = physical_memory()
    return Values(size, dtype.itemsize, batch, frozenset(batched_relations(plan.rules, own)))


def _written(step: RuleStep) -> int:
    """The rows that are surely written out: of heads, and of groundings that are then reduced."""
    elementwise = Law.ELEMENTWISE in definition(step.aggregation)
    alike = elementwise and step.rule.head.weight is None
    if not alike or step.sums_rows:
        return step.ground.heads.rows
    return max(step.ground.count, step.ground.heads.rows)


Step = RelationStep | Levels | Rounds


def build(
    plan: Plan,
    sources: dict[str, Source],
    constants: Constants,
    *,
    limit: int,
    weights: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...] | None],
    lift: bool = True,
    volatile: frozenset[str] = frozenset(),
    memory: Values | None = None,
    found: dict[Any, Any] | None = None,
    in_parts: bool = False,
    needed: Needed | None = None,
    recorded: RecordedJoins | None = None,
) -> Executable:
    """Ground every rule of the plan over the sources.

    `shapes` are those of the values of sources; weights are needed for theirs only. The values of
    `volatile` ones may change. `memory` is the budget for values, `found` the shapes that rules
    were found to give before. `in_parts` if only parts of it are run, each with some rows; `needed`
    are the atoms that are derived, where not all are. `recorded` are joins that are known.
    """
    lines = {line.relation: line for line in plan.lines}
    known = Shapes(weights, plan.aggregation, lines, dict(shapes), {} if found is None else found)
    options = lift, volatile, memory, in_parts, needed, recorded
    builder = _Builder(plan, sources, constants, limit, known, *options)
    steps = tuple(builder.steps())
    return Executable(
        builder.sources,
        steps,
        builder.grounder.relations,
        constants,
        builder.refusals,
        builder.classes,
        builder.lifting.refusals,
        builder.lifting.constant,
    )


def _value_rule(node: Fused) -> nodes.Rule:
    """A rule whose values have the shape of the attention's: those of what it sums."""
    if isinstance(node, Attention):
        return nodes.Rule(nodes.Atom(node.head.relation), (node.value,))
    return value_rule(node)


def _unfolded(node: Fused) -> frozenset[str]:
    """The relations whose rules a mask has in their places."""
    return node.pairs.unfolded if isinstance(node, Attention) else frozenset()


def _bodies(plan: Plan) -> Iterator[Body]:
    domains: Mapping[str, Domain] = dict(plan.domains)
    return (Body(rule, domains) for rule in plan.rules)


def _row_wise(plan: Plan) -> frozenset[str]:
    """The relations that are read row by row, the outputs among them."""
    fused = [r for s in plan.steps if not isinstance(s, nodes.Rule) for r in s.replaces]
    return read_row_wise(plan.rules, fused) | plan.wanted


def _conditions(plan: Plan) -> frozenset[str]:
    """The relations that are logarithms of one relation: conditions, where that is 0 or 1."""
    found: dict[str, bool] = {}
    for rule in plan.rules:
        name, body = rule.head.relation, rule.body
        item = body[0] if len(body) == 1 else None
        match item:
            case nodes.Apply(nodes.Function("log"), weight=None):
                plain = not rule.functions and rule.head.weight is None
                found[name] = plain and name not in found
            case _:
                found[name] = False
    return frozenset(name for name, plain in found.items() if plain)


def _fused_steps(plan: Plan) -> dict[str, Fused]:
    return {s.head.relation: s for s in plan.steps if not isinstance(s, nodes.Rule)}


def _components(plan: Plan) -> list[set[str]]:
    return components(needs(plan.rules))


def _hidden(plan: Plan) -> set[str]:
    """Weights inside of attention, and relations that only masks read, by their rules."""
    fused = _fused_steps(plan)
    found = {
        rule.head.relation
        for step in fused.values()
        for rule in step.replaces
        if rule.head.relation != step.head.relation
    }
    found |= {name for step in fused.values() for name in _unfolded(step)}
    found -= {atom.relation for atom in plan.outputs}
    readers: dict[str, set[str]] = {}
    for reader, names in needs(plan.rules).items():
        for name in names:
            readers.setdefault(name, set()).add(reader)
    weights = {step.replaces[0].head.relation: _unfolded(step) for step in fused.values()}
    count = -1
    while count != len(found):  # what is read by others is needed
        count = len(found)
        found = {
            name
            for name in found
            if name in weights
            or all(
                name in weights[reader] if reader in weights else reader in found
                for reader in readers.get(name, ())
            )
        }
    return found


class _Builder:
    def __init__(
        self,
        plan: Plan,
        sources: dict[str, Source],
        constants: Constants,
        limit: int,
        shapes: Shapes,
        lift: bool,
        volatile: frozenset[str],
        memory: Values | None,
        in_parts: bool,
        needed: Needed | None,
        recorded: RecordedJoins | None,
    ) -> None:
        self.needed = needed
        self.memory = memory
        self.in_parts = in_parts
        self.shapes = shapes
        self.plan = plan
        row_wise = frozenset(remembered(plan, _row_wise))
        self.lifting = Lifting(row_wise, volatile, lift)
        self.classes: dict[str, int] = {}
        self.sources = self._by_class(sources)
        self.lines = {line.relation: line for line in plan.lines}
        domains: Mapping[str, Domain] = dict(plan.domains)
        relations = {name: source.index for name, source in sources.items()}
        self.grounder = Grounder(constants, domains, relations, limit, recorded=recorded)
        self.refusals = dict(plan.unfused)
        self.fused = _fused_steps(plan)
        self.conditions = frozenset(remembered(plan, _conditions))
        self.bodies: tuple[Body, ...] = remembered(plan, _bodies)

    def _by_class(self, sources: Mapping[str, Source]) -> dict[str, Source]:
        """Data that rules read and do not add to: one row for each value that occurs."""
        derived = {rule.head.relation for rule in self.plan.rules}
        read = set().union(*needs(self.plan.rules, values_only=True).values())
        return {
            name: self.lifting.source(name, s) if name in read and name not in derived else s
            for name, s in sources.items()
        }

    def _fused(self, node: Fused) -> AttentionStep | RelationalStep | str:
        if isinstance(node, Attention):
            return attention_step(node, self.grounder, self.shapes.rule, self.conditions)
        if self.in_parts:
            return "some of its rows are chosen, rule by rule"
        return relational_step(node, self.grounder, self.shapes.rule)

    def steps(self) -> list[Step]:
        made: list[Step] = []
        graph = needs(self.plan.rules)
        hidden: set[str] = set(remembered(self.plan, _hidden))
        waiting: list[set[str]] = []
        for part in remembered(self.plan, _components):
            if part <= hidden:
                waiting.append(part)  # only needed if the attention that replaces it is refused
                continue
            name = next(iter(part))
            if len(part) == 1 and name in self.fused:
                step = self._fused(self.fused[name])
                for other in [w for w in waiting if self._has_facts_too(self.fused[name], w)]:
                    read = reachable(graph, other)
                    for inner in [w for w in waiting if w <= read and w != other]:
                        made += self._part(inner, graph)
                        waiting.remove(inner)
                    self._refuse_facts_beside(next(iter(other)))
                if not isinstance(step, str):
                    self.grounder.relations[name] = step.index
                    merge = merged(name, [step.index], False, self.lines.get(name))
                    made.append(RelationStep(name, (step,), merge, False))
                    self.shapes.learn(name, {_value_rule(self.fused[name]): None})
                    reads = needs(self.fused[name].replaces, values_only=True)
                    self.lifting.unknown(
                        name, "attention reads all rows", set().union(*reads.values())
                    )
                    continue
                self.refusals[name] = step
                mine = reachable(graph, [name])
                for other in [w for w in waiting if w <= mine]:
                    made += self._part(other, graph)
                    waiting.remove(other)
            made += self._part(part, graph)
        return made

    def _part(self, part: set[str], graph: Mapping[str, set[str]]) -> list[Step]:
        here = [body for body in self.bodies if body.rule.head.relation in part]
        recursive = any(part & graph[relation] for relation in part)
        if recursive:
            least_fixpoint(self.grounder, here, part)
        grounds = [self.grounder.ground(body) for body in here]
        if not recursive:
            grounds = [self._derived(ground) for ground in grounds]
        for relation in part:
            mine = [g for g in grounds if g.rule.head.relation == relation]
            self._refuse_facts(relation, mine)
            if recursive:
                extend(self.grounder, relation, [g.heads for g in mine])
        made: list[Step] = []
        values = needs((body.rule for body in here), values_only=True)
        for inner in components(values):
            for relation in inner:
                own = [g for g in grounds if g.rule.head.relation == relation]
                base = {
                    g.rule: g.segments.width
                    for g in own
                    if not inner & needs([g.rule], values_only=True)[relation]
                }
                self.shapes.learn(relation, base)
            mine = [g for g in grounds if g.rule.head.relation in inner]
            self._learn_around(inner, mine)
            if any(inner & values[relation] for relation in inner):
                made.append(self._recursive(inner, mine))
                reads = set().union(*(values[relation] for relation in inner)) - inner
                for relation in inner:
                    self.lifting.unknown(relation, "recursion computes row by row", reads)
            else:
                made.append(self._plain(next(iter(inner)), mine))
        return made

    def _derived(self, ground: GroundRule) -> GroundRule:
        """The rule heads that are needed: of others, some groundings may be missing."""
        relation = ground.rule.head.relation
        if self.needed is None or relation in self.needed.in_full:
            return ground
        held = self.needed.holds(relation, ground.heads.keys)
        if bool(held.all()):
            return ground
        index = GroundIndex(ground)
        return index.taken(index.with_groups(held.nonzero()[:, 0]))

    def _learn_around(self, part: set[str], grounds: Sequence[GroundRule]) -> None:
        """Shapes of a recursion: what has no rule outside of it reads those that have one."""
        shapes, changed = self.shapes, True
        while changed:
            changed = False
            for relation in sorted(r for r in part if shapes.known.get(r) is None):
                own = {
                    g.rule: g.segments.width for g in grounds if g.rule.head.relation == relation
                }
                found = {r: width for r, width in own.items() if shapes.rule(r, width) is not None}
                if found:
                    shapes.known.pop(relation, None)
                    shapes.learn(relation, found)
                    changed |= shapes.known.get(relation) is not None

    def _refuse_facts(self, relation: str, grounds: Sequence[GroundRule]) -> None:
        source = self.sources.get(relation)
        if source is not None and source.index.rows and not is_extreme(self.lines.get(relation)):
            refuse_facts(relation, source.index, grounds, self.grounder.constants)

    def _has_facts_too(self, node: Fused, part: set[str]) -> bool:
        """Whether a mask unites the facts of a relation with what its rules derive."""
        found = part & _unfolded(node)
        return any(name in self.sources and self.sources[name].index.rows for name in found)

    def _refuse_facts_beside(self, relation: str) -> None:
        """Of a relation whose rules a mask has in their places, those atoms are derived that are
        facts, and refused."""
        bodies = [body.rule for body in self.bodies if body.rule.head.relation == relation]
        facts = nodes.Atom(relation, hidden=True)
        rules = [replace(r, body=(replace(facts, terms=r.head.terms), *r.body)) for r in bodies]
        domains = self.grounder.domains
        self._refuse_facts(relation, [self.grounder.ground(Body(r, domains)) for r in rules])

    def _plain(self, relation: str, grounds: Sequence[GroundRule]) -> RelationStep:
        source = self.sources.get(relation)
        parts: list[Index] = [source.index] if source is not None and source.index.rows else []
        facts = bool(parts)
        parts += [g.heads for g in grounds]
        index, places = aligned(parts)
        self.grounder.relations[relation] = index
        default, line = self.plan.aggregation, self.lines.get(relation)
        known = [self.lifting.rule(g, default) for g in grounds]
        if facts and source is not None:
            known.insert(0, self.lifting.facts(relation, source))
        self.lifting.relation(relation, known, places)
        own = own_rows(line.functions if line is not None else ())
        if own is not None:
            self.lifting.refuse(relation, own)
        found = self.lifting.lifted(relation)
        expand, count = None, index.rows
        if found is not None:
            self.classes[relation] = count = found.count
            places = [found.first if at is None else at[found.first] for at in places]
            expand = found.of if relation in self.lifting.row_wise else None
        steps = []
        sizes = [parts[0].rows] if facts else []
        for at, ground in enumerate(grounds, len(sizes)):
            options = places[at], count, found is None
            less, places[at] = self.lifting.reduced(ground, known[at], *options)
            steps.append(RuleStep(less, default))
            if self.memory is not None:
                self.memory.check(steps[-1], self.shapes.known.get(relation))
            sizes.append(less.heads.rows)
        merge = merge_of(relation, index, count, places, sizes, facts, line, expand)
        return RelationStep(relation, tuple(steps), merge, facts)

    def _recursive(self, part: set[str], grounds: Sequence[GroundRule]) -> Levels | Rounds:
        relations = {r: self.grounder.relations[r] for r in sorted(part)}
        facts = {r: self._fact_rows(r) for r in relations if r in self.sources}
        component = Component(relations, tuple(grounds), facts, self.lines, self.plan.aggregation)
        try:
            atoms, units = stages(grounds, relations)
            return by_levels(component, atoms, units)
        except Cyclic as found:
            levels = found.levels
        rules = [g.rule for g in grounds]
        if self.plan.rounds is None:
            aggregation = self.plan.aggregation
            if all(is_extreme(self.lines.get(r), rules, part, r, aggregation) for r in part):
                return by_rounds(component, None, self.grounder.limit)
            raise cyclic_recursion(part, rules)
        late = late_samples(component, levels, self.plan.rounds)
        made = by_rounds(component, self.plan.rounds, self.grounder.limit, late)
        for relation, rows in made.present[-1].items():
            self.grounder.relations[relation] = Keys(relations[relation].keys[rows])
        return made

    def _fact_rows(self, relation: str) -> Tensor:
        return rows_of(self.grounder.relations[relation], self.sources[relation].index.keys)


def refuse_facts(
    relation: str, facts: Index, grounds: Iterable[GroundRule], constants: Constants
) -> None:
    """Refuse rules that derive an atom which is a fact."""
    for ground in grounds:
        keys = ground.heads.keys
        both = keys[rows_of(facts, keys) >= 0]
        if len(both):
            key = tuple(constants.constant(code) for code in both[0].tolist())
            raise fact_and_rule(relation, key, ground.rule)

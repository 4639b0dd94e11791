"""Acyclic recursion as one node: rules are lowered once, over the rows of all levels.

What does not read the recursion stays outside, so inputs are multiplied once for all levels; the
rest becomes the instructions of a loop over levels (`kernels/scan`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from inspect import unwrap
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.topological import sources
from edgewise.kernels.kernel_choices import note
from edgewise.kernels.scan import Instruction, Scan, run_scan
from edgewise.kernels.scan.autograd import choice
from edgewise.kernels.scan.unrolled import unrolled
from edgewise.language import functions, nodes
from edgewise.language.statements import combination
from edgewise.physical.functions import transform
from edgewise.physical.lowering import Lowering, input_node
from edgewise.physical.lowering_state import Column, State
from edgewise.physical.opaque import opaque
from edgewise.physical.recursion.scan_nodes import NodeWriter, NotScannedError
from edgewise.physical.result_shapes import described
from edgewise.physical.rule import RuleStep

if TYPE_CHECKING:
    from edgewise.physical.recursion.levels import Levels

NAME = "scan levels"
CROWDED = 8  # groundings for each row, above which they are aggregated where they are


def _like(scan: Scan, *tensors: Tensor) -> list[Tensor]:
    slots = [scan.slots[at] for at in scan.results]
    kind = reduce(torch.promote_types, [t.dtype for t in tensors])
    return [described((scan.batch, s.rows // scan.batch, s.width), kind) for s in slots]


@opaque(like=_like, operators=lambda scan, *tensors: list(unrolled(scan, tensors)))
def scan_levels(scan: Scan, *tensors: Tensor) -> list[Tensor]:
    """The relations of a recursion, level by level."""
    return list(run_scan(scan, *tensors))


def scanned(levels: Levels, state: State) -> dict[str, Column] | str:
    """The relations of a recursion by one loop, or why not."""
    reason = _refuses(levels, state)
    if reason is not None:
        return reason
    lowering, inside = state.lowering, set[Node]()
    first = lowering.last
    try:
        return _ScanWriter(levels, state, inside).write()
    except NotScannedError as found:
        return str(found)
    finally:
        written = lowering.written_after(first)
        for node in written:  # a rule that was refused may have written some that are not marked
            if not inside.isdisjoint(node.all_input_nodes):
                inside.add(node)
        for node in reversed(written):
            if node in inside:
                lowering.graph.erase_node(node)


def drop_unread(plan: Lowering) -> None:
    """Let loops give back only relations that something reads."""
    for node in plan.nodes(unwrap(scan_levels)):
        held = input_node(node, 0)
        scan = plan.constants[str(held.target)]
        read = sorted({at for user in node.users if isinstance(at := user.args[1], int)})
        if len(read) < len(scan.results):
            fewer = replace(scan, results=tuple(scan.results[at] for at in read))
            plan.constants[str(held.target)] = fewer
            for user in list(node.users):
                user.args = (node, read.index(cast(int, user.args[1])))


def _refuses(levels: Levels, state: State) -> str | None:
    component = levels.component
    if NAME in state.without:
        return "the pass is switched off"
    if state.device.type != "cpu" or not state.lowering.reads_keys:
        return "it runs on a CPU, for keys that are known"
    if state.cache is not None:
        return "rows are appended"
    if any(ground.groups is not None for ground in component.grounds):
        return "a softmax reads its group"
    if any(index.rows < 2 for index in component.relations.values()):
        return "a relation has one row"
    rows = sum(index.rows for index in component.relations.values())
    if sum(ground.count for ground in component.grounds) > CROWDED * rows:
        return f"there are more than {CROWDED} groundings for each row"
    for line in component.lines.values():
        if line.relation in component.relations and line.functions:
            if combination(line.functions).name != "sum":
                return f"`{line.relation}` combines its rules by {combination(line.functions).name}"
            if line.relation in component.facts:
                return f"a line does not apply to facts of `{line.relation}`"
    return None


@dataclass(frozen=True, eq=False)
class _Traced:
    """The value of a rule over all groundings, by level; `level` is that of each grounding, `heads`
    the row of each rule head in its relation."""

    value: Tensor
    level: np.ndarray
    heads: np.ndarray


class _ScanWriter:
    """Lowers the rules of a component over symbols of its relations, and turns what reads those
    into instructions."""

    def __init__(self, levels: Levels, state: State, inside: set[Node]) -> None:
        self.levels, self.state, self.component = levels, state, levels.component
        self.lowering, self.inside = state.lowering, inside
        self.position = {r: levels.order[r].numpy() for r in self.component.relations}
        self.facts = self.component.start(state)
        self.count = 1 + max(int(s.max(initial=0)) for s in levels.atom_stage.values())
        self.batch = self._batch()
        self.nodes = NodeWriter(self.lowering, self.batch, inside)
        self.builder = self.nodes.builder
        self.holes: dict[str, Node] = {}
        self.shape: dict[str, tuple[int, ...]] = {}

    def _batch(self) -> int:
        part = self.component.part
        read = {
            item.relation
            for ground in self.component.grounds
            for item in ground.body.literals
            if isinstance(item, nodes.Atom) and item.carries_value
        }
        columns = [self.state.relations[r] for r in read - part if r in self.state.relations]
        batches = {c.data.shape[0] for c in (*columns, *self.facts.values())}
        if 0 in batches:
            raise NotScannedError("the batch is empty")
        return max(batches, default=1)

    # the rules, lowered once

    def write(self) -> dict[str, Column]:
        traced = self._traced()
        sums, finals = self._relations()
        for rule, found in traced.items():
            self._contribute(sums, rule, found)
        self._contribute_facts(sums)
        for finish in finals:
            finish()
        return self._node()

    def _traced(self) -> dict[int, _Traced]:
        """Every rule; shapes become known on the way."""
        found: dict[int, _Traced] = {}
        part, grounds = self.component.part, self.component.grounds
        for relation, column in self.facts.items():
            self._hole(relation, column.shape)
        waiting = [k for k, ground in enumerate(grounds) if ground.count]
        while waiting:
            ready = [k for k in waiting if self._known(k, part)]
            if not ready:
                raise NotScannedError("the shape of a value depends on itself")
            for k in ready:
                found[k] = self._rule(k)
                self._hole(grounds[k].rule.head.relation, Column(found[k].value).shape)
                waiting.remove(k)
        return found

    def _known(self, k: int, part: set[str]) -> bool:
        ground = self.component.grounds[k]
        literals = [ground.body.literals[at] for at in sources(ground, part)]
        return all(isinstance(a, nodes.Atom) and a.relation in self.holes for a in literals)

    def _hole(self, relation: str, shape: tuple[int, ...]) -> None:
        """A symbol for a relation, where there is none; its rows are in the order of levels."""
        if relation in self.holes:
            if self.shape[relation] != shape:
                raise NotScannedError(f"`{relation}` has values of different shapes")
            return
        rows = self.component.relations[relation].rows
        like = described((self.batch, rows, *shape), self.state.dtype)
        node = self.lowering.hole(f"level_{relation}", like)
        self.inside.add(node)
        self.holes[relation], self.shape[relation] = node, shape

    def _rule(self, k: int) -> _Traced:
        component, ground = self.component, self.component.grounds[k]
        relation = ground.rule.head.relation
        level = self.levels.atom_stage[relation][component.heads[k].numpy()]
        of_grounding = level[ground.segments.ids.numpy()]
        chosen = torch.from_numpy(np.argsort(of_grounding, kind="stable"))
        moved = {}
        for at, rows in sources(ground, component.part).items():
            literal = ground.body.literals[at]
            assert isinstance(literal, nodes.Atom)
            moved[at] = torch.from_numpy(self.position[literal.relation])[rows[chosen]]
        left = torch.unique_consecutive(ground.segments.ids[chosen])
        holes = {r: Column(self.lowering.symbol(node)) for r, node in self.holes.items()}
        step = RuleStep(self._without_gathers(ground.on(chosen, moved), moved), component.default)
        before = self.lowering.last
        value = step(replace(self.state, relations=self.state.relations | holes))
        self._mark(before)
        heads = component.heads[k][left].numpy()
        data = value.data
        if value.rows != len(heads):  # one row stands for all
            data = value.expanded(len(heads)).data
            self._mark(before)
        return _Traced(data, of_grounding[chosen.numpy()], heads)

    def _without_gathers(self, ground: GroundRule, moved: Mapping[int, Tensor]) -> GroundRule:
        """All rows of a relation in order are the relation: nothing is gathered."""
        rows = dict(ground.rows)
        for at, own in ground.rows.items():
            literal = ground.body.literals[at]
            if own is None or at in moved or not isinstance(literal, nodes.Atom):
                continue
            column = self.state.relations.get(literal.relation)
            if column is not None and column.rows == len(own) and _in_order(own):
                rows[at] = None
        return replace(ground, rows=rows)

    def _mark(self, before: Node) -> None:
        """Note which nodes read the recursion, in the order in which they were written."""
        for node in self.lowering.written_after(before):
            if any(read in self.inside for read in node.all_input_nodes):
                self.inside.add(node)

    # relations: the sum of what rules and facts give, then the functions of their line

    @cached_property
    def rows(self) -> dict[str, int]:
        """The domains of the rows of relations."""
        return {r: self._domain(np.sort(s)) for r, s in self.levels.atom_stage.items()}

    def _domain(self, levels: np.ndarray) -> int:
        return self.nodes.domain(levels, self.count)

    def _relations(self) -> tuple[dict[str, int], list[Callable[[], None]]]:
        """Slots for the sums of relations, and what computes the functions of lines."""
        sums, finals, slots = dict[str, int](), list[Callable[[], None]](), self.nodes.slots
        for relation, index in self.component.relations.items():
            width = prod(self.shape[relation])
            sums[relation] = slot = self.builder.slot(index.rows, width)
            line = self.component.lines.get(relation)
            listed = [
                f
                for f in (line.functions if line is not None else ())
                if functions.kind(f) == functions.TRANSFORMATION
            ]
            if not listed:
                slots[self.holes[relation]] = slot
                continue
            hole = self.lowering.hole(f"sum_{relation}", self.holes[relation].meta["like"])
            self.inside.add(hole)
            slots[hole] = slot
            value, before = Column(self.lowering.symbol(hole)), self.lowering.last
            for function in listed:
                value = transform(function, value, self.state.training)
            if value.shape != self.shape[relation]:
                raise NotScannedError(f"the line of `{relation}` changes its shape")
            self._mark(before)
            slots[self.holes[relation]] = final = self.builder.slot(index.rows, width)
            finals.append(partial(self._finish, value.data, final, self.rows[relation]))
        return sums, finals

    def _finish(self, value: Tensor, final: int, domain: int) -> None:
        """Let the value of a line be its slot, or copy it there."""
        found = self.nodes.slot(value, domain)
        if not self.builder.place(found, final, 0):
            self.builder.add(Instruction("add", final, found, domain))

    def _contribute(self, sums: Mapping[str, int], k: int, found: _Traced) -> None:
        relation, heads = self.component.grounds[k].rule.head.relation, found.heads
        domain = self._domain(found.level)
        own = self.levels.atom_stage[relation][heads]
        self.nodes.heads = domain if len(own) == len(found.level) else self._domain(own)
        slot = self.nodes.slot(found.value, domain)
        rows = self.position[relation][heads]
        self._put(sums[relation], slot, self.nodes.heads, rows, relation)

    def _contribute_facts(self, sums: Mapping[str, int]) -> None:
        for relation, column in self.facts.items():
            rows = self.position[relation][self.component.facts[relation].numpy()]
            if column.rows != len(rows):
                raise NotScannedError(f"the facts of `{relation}` are one row")
            slot = self.nodes.input(column.data, len(rows), prod(column.shape))
            domain = self._domain(np.zeros(len(rows), np.int64))
            self._put(sums[relation], slot, domain, rows, relation)

    def _put(self, total: int, slot: int, domain: int, rows: np.ndarray, relation: str) -> None:
        """Add rows to a relation; they lie in it where no other part has them."""
        alone = self._owners(relation)[rows].max(initial=1) == 1
        in_order = bool((np.diff(rows) == 1).all())
        if alone and in_order and self.builder.place(slot, total, int(rows[0])):
            return
        table = self.builder.table(rows.astype(np.int64))
        self.builder.add(Instruction("scatter", total, slot, domain, index=table))

    def _owners(self, relation: str) -> np.ndarray:
        """How many parts (rules, facts) each row of a relation has, by position."""
        component = self.component
        found = np.zeros(component.relations[relation].rows, np.int64)
        for ground, heads in zip(component.grounds, component.heads, strict=True):
            if ground.rule.head.relation == relation and ground.count:
                found[self.position[relation][heads.numpy()]] += 1
        if relation in self.facts:
            found[self.position[relation][component.facts[relation].numpy()]] += 1
        return found

    # the node

    def _node(self) -> dict[str, Column]:
        if not self.builder.instructions:
            raise NotScannedError("nothing reads the recursion")
        relations = list(self.component.relations)
        results = [self.nodes.slots[self.holes[r]] for r in relations]
        scan = self.builder.finished(results, self.count - 1)
        others = [self.lowering.symbol(n) for n in (*self.nodes.sources, *self.nodes.matrices)]
        note(choice(scan, self.state.dtype, self.state.device.type))
        found = scan_levels(scan, *self.nodes.columns, *others)
        return {
            relation: Column(data.reshape(self.batch, data.shape[1], *self.shape[relation])).take(
                None if _in_order(order := self.levels.order[relation]) else order
            )
            for relation, data in zip(relations, found, strict=True)
        }


def _in_order(rows: Tensor) -> bool:
    return bool((rows == torch.arange(len(rows))).all())

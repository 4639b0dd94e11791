"""Padding of ragged batches: the samples of a grounded batch one by one, in one layout.

The sample is the first key, so what belongs to one lies in a row. Each part is filled up to the
longest: groundings that are added read what others read, and belong to rule heads that are not
read. So they change no value, and no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.ground.ground_rule import GroundRule
from edgewise.ground.index import Grid, Index
from edgewise.ground.joins.body import SAMPLES
from edgewise.ground.source import Source
from edgewise.language import nodes
from edgewise.layouts.ragged import Segments
from edgewise.physical.merge import Merge
from edgewise.physical.output import Output, Outputs
from edgewise.physical.rule import RuleStep
from edgewise.physical.step import RelationStep, Step


class NotPadded(EdgewiseError):
    """Samples can be padded to one layout if rules run one by one over a ragged batch of rows."""

    code = "not-padded"
    example = """\
model = Program([R.h <= R.a(V.X)]).compile(R.h)
model.samples(model.ground(a=torch.ones(3)))"""
    instead = """\
model = Program([R.h <= R.a(V.X)]).compile(R.h)
model.samples(model.ground(a=ragged([torch.ones(3), torch.ones(2)])))"""


@dataclass(frozen=True, eq=False)
class Spread:
    """Where the rows of each sample are, and how many each gets: one more than the most."""

    starts: Tensor
    size: int

    def real(self, sample: int) -> tuple[int, int]:
        return int(self.starts[sample]), int(self.starts[sample + 1])


def spread(of_row: Tensor, samples: int) -> Spread:
    """The spread of rows, in the order of their samples."""
    if bool((of_row[1:] < of_row[:-1]).any()):
        raise refused("rows of different samples are mixed")
    counts = torch.bincount(of_row, minlength=samples)
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return Spread(starts, int(counts.max()) + 1 if len(of_row) else 0)


def refused(reason: str) -> NotPadded:
    return NotPadded(
        f"the samples cannot be padded to one layout: {reason}",
        caller(),
        "give a batch: `model.ground(facts=ragged([...]))`; steps of one sample need no padding",
    )


def padded_steps(step: Step) -> list[Step]:
    """A step for each sample of a batch."""
    samples = step.prepared.samples
    if samples is None:
        raise refused("there is no ragged batch")
    return _Batch(step, samples).steps()


class _Batch:
    def __init__(self, step: Step, samples: int) -> None:
        self.step = step
        self.samples = samples
        self.own = {*step.prepared.in_batch, SAMPLES}  # relations that differ between samples
        self.spreads = {
            name: spread(index.column(0), samples)
            for name, index in self.indices().items()
            if name in self.own
        }

    def indices(self) -> dict[str, Index]:
        found = {name: source.index for name, source in self.step.executable.sources.items()}
        return found | self.step.executable.relations

    def steps(self) -> list[Step]:
        executable = self.step.executable
        sources = self.sources()
        relations: list[list[RelationStep]] = [[] for _ in range(self.samples)]
        for part in executable.steps:
            if not isinstance(part, RelationStep):
                raise refused("a rule is recursive")
            for found, one in zip(relations, self.relation(part), strict=True):
                found.append(one)
        indices: dict[str, Index] = {
            name: Grid((self.spreads[name].size,)) if name in self.spreads else index
            for name, index in executable.relations.items()
        }
        made = [
            replace(executable, sources=s, steps=tuple(parts), relations=indices)
            for s, parts in zip(sources, relations, strict=True)
        ]
        return [
            Step(self.step.prepared, one, Outputs((self.output(sample),)), padded=True)
            for sample, one in enumerate(made)
        ]

    # data

    def sources(self) -> list[dict[str, Source]]:
        found: list[dict[str, Source]] = [{} for _ in range(self.samples)]
        for name, source in self.step.executable.sources.items():
            if name not in self.own:
                for each in found:
                    each[name] = source
                continue
            if source.stored is None or source.weights:
                what = "learnable facts" if source.weights else "values that come with a step"
                raise refused(f"`{name}` has {what}")
            if source.live is not None and source.live.trained:
                raise refused(f"`{name}` needs gradients")
            stored = source.stored if source.order is None else source.stored[source.order]
            where = spread(source.index.column(0), self.samples)
            for sample, each in enumerate(found):
                a, b = where.real(sample)
                filled = _filled(stored[a:b], where.size, 1)
                each[name] = Source(Grid((where.size,)), stored=filled, shape=source.shape)
        return found

    # rules

    def relation(self, part: RelationStep) -> list[RelationStep]:
        if part.relation not in self.own:
            return [part] * self.samples
        rules: list[list[RuleStep]] = []
        heads: list[Spread] = []
        if part.facts:
            index = self.step.executable.sources[part.relation].index
            heads.append(spread(index.column(0), self.samples))
        for rule in part.steps:
            if not isinstance(rule, RuleStep):
                raise refused(f"`{part.relation}` is one fused attention")
            where = spread(rule.ground.heads.column(0), self.samples)
            heads.append(where)
            rules.append(self.rule(rule, where))
        return [
            RelationStep(
                part.relation,
                tuple(found[sample] for found in rules),
                self.merge(part, heads, sample),
                part.facts,
            )
            for sample in range(self.samples)
        ]

    def rule(self, step: RuleStep, heads: Spread) -> list[RuleStep]:
        ground = step.ground
        if not ground.count:
            return [step] * self.samples
        groundings = spread(ground.heads.column(0)[ground.segments.ids], self.samples)
        return [self.one_rule(step, heads, groundings, n) for n in range(self.samples)]

    def one_rule(self, step: RuleStep, heads: Spread, groundings: Spread, sample: int) -> RuleStep:
        ground = step.ground
        a, b = groundings.real(sample)
        parts = _segments(ground.segments, heads, groundings, sample)
        count = len(parts.ids)
        rows = {at: self.rows(ground, at, (a, b), count, sample) for at in ground.rows}
        numbers = {at: _filled(found[a:b], count, 1) for at, found in ground.numbers.items()}
        groups = None if ground.groups is None else self.groups(ground, heads, sample)
        made = GroundRule(ground.body, count, rows, numbers, Grid((heads.size,)), parts, groups)
        return replace(step, ground=made)

    def rows(
        self, ground: GroundRule, at: int, real: tuple[int, int], count: int, sample: int
    ) -> Tensor | None:
        """The rows that a literal reads, among those of the sample where it differs by sample."""
        a, b = real
        rows, literal = ground.rows[at], ground.body.literals[at]
        first = 0
        if isinstance(literal, nodes.Atom) and literal.relation in self.own:
            where = self.spreads[literal.relation]
            if rows is None and where.size == count:
                return None
            first = where.real(sample)[0]
        found = torch.arange(a, b) if rows is None else rows[a:b]
        return _filled(found - first, count, 0)

    def groups(self, ground: GroundRule, heads: Spread, sample: int) -> Segments:
        """Heads that are normalised together; those that were added are a group by themselves."""
        assert ground.groups is not None
        a, b = heads.real(sample)
        labels = torch.unique(ground.groups.ids[a:b], return_inverse=True)[1]
        most = int(heads.starts.diff().max())
        dead = torch.full((heads.size - (b - a),), most)
        return Segments(most + 1, torch.cat([labels, dead]), None, False)

    # relations

    def merge(self, part: RelationStep, heads: list[Spread], sample: int) -> Merge:
        merge, where = part.merge, self.spreads[part.relation]
        if not merge.index.rows:
            return merge
        start, end = where.real(sample)
        classes: list[Any] = []
        order, offset = torch.zeros(where.size, dtype=torch.int64), 0
        for members, rows, of_relation in merge.classes:
            mine = ((of_relation >= start) & (of_relation < end)).nonzero()[:, 0]
            size = self.class_size(merge, of_relation, members, rows, heads)
            chosen = tuple(
                None if r is None else _filled(r[mine] - heads[p].real(sample)[0], size, 0)
                for p, r in zip(members, rows, strict=True)
            )
            classes.append((members, chosen, torch.arange(size)))
            order[of_relation[mine] - start] = offset + torch.arange(len(mine))
            offset += size
        added = merge.added and tuple(
            None if at is None else self.places(at, heads[p], where, sample)
            for p, at in enumerate(merge.added)
        )
        options: dict[str, Any] = {"index": Grid((where.size,)), "rows": where.size}
        made = replace(merge, **options, places=(), sizes=(), added=added)
        vars(made).update(classes=tuple(classes), order=order)  # padded, not worked out
        return made

    def class_size(
        self,
        merge: Merge,
        of_relation: Tensor,
        members: tuple[int, ...],
        rows: tuple[Tensor | None, ...],
        heads: list[Spread],
    ) -> int:
        """As many rows as the most that a sample has, or as a part has that lies in it."""
        if len(merge.classes) == 1:
            return self.spreads[merge.relation].size
        full = [heads[p].size for p, r in zip(members, rows, strict=True) if r is None]
        of_sample = merge.index.column(0)[of_relation]
        return full[0] if full else int(torch.bincount(of_sample).max())

    def places(self, at: Tensor, heads: Spread, where: Spread, sample: int) -> Tensor:
        """Where the heads of a part are added; those that were filled in, to the last row."""
        a, b = heads.real(sample)
        found = torch.full((heads.size,), where.size - 1)
        found[: b - a] = at[a:b] - where.real(sample)[0]
        return found

    def output(self, sample: int) -> Output:
        output = self.step.output
        if output.relation not in self.own:
            return output
        a, b = self.spreads[output.relation].real(sample)
        keys = output.keys[1:, a:b]
        sizes = () if not len(keys) and b - a == 1 else None
        return replace(output, keys=keys, sizes=sizes, places=None, outside=None, real=b - a)


def _filled(found: Tensor, size: int, other: float) -> Tensor:
    """Rows padded to a size: the first repeated, or `other` if there is none."""
    missing = size - len(found)
    if not missing:
        return found
    if not len(found):
        return found.new_full((size, *found.shape[1:]), other)
    return torch.cat([found, found[:1].expand(missing, *found.shape[1:])])


def _segments(parts: Segments, heads: Spread, groundings: Spread, sample: int) -> Segments:
    """The groundings of one sample by their heads; every head that is added has one."""
    if parts.even:
        width = parts.width or 1
        return Segments(heads.size, torch.arange(heads.size).repeat_interleave(width), width)
    first, last = heads.real(sample)
    a, b = groundings.real(sample)
    most = groundings.starts.diff() + heads.size - heads.starts.diff()
    dead = torch.arange(last - first, int(most.max()) - (b - a) + last - first)
    ids = torch.cat([parts.ids[a:b] - first, dead.clamp(max=heads.size - 1)])
    return Segments(heads.size, ids, None)

"""The groundings of a rule: rows of the relations that it reads, and the rule heads it derives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from edgewise.ground.index import (
    Index,
    run_starts,
)
from edgewise.ground.joins.body import (
    Body,
)
from edgewise.language import nodes
from edgewise.layouts.ragged import Ints, Segments, segments
from edgewise.layouts.recorded import integer


@dataclass(frozen=True, eq=False)
class GroundRule:
    """The groundings of a rule, in key order.

    `rows[at]` is the row that literal `at` of the body reads in each grounding, None if it is the
    grounding's own number; `numbers[at]` are the values of a `*_eval`. `groups` are the heads that
    a softmax normalises together. `sizes[at]` are the rows that literal `at` chooses from.
    """

    body: Body
    count: int
    rows: dict[int, Tensor | None]
    numbers: dict[int, Tensor]
    heads: Index
    segments: Segments
    groups: Segments | None = None
    sizes: dict[int, int] = field(default_factory=dict)
    before: int | None = None  # groundings, with those of rule heads that equal others

    @property
    def rule(self) -> nodes.Rule:
        return self.body.rule

    @property
    def total(self) -> int:
        """All groundings, also of rule heads that are not computed because they equal others."""
        return self.count if self.before is None else self.before

    def on(self, chosen: Tensor, moved: Mapping[int, Tensor] | None = None) -> GroundRule:
        """The rule on some of its groundings, in order; `moved` are new rows of some atoms.

        Rule heads without groundings are dropped from the segments, not from `heads`.
        """
        left, ids = torch.unique_consecutive(self.segments.ids[chosen], return_inverse=True)
        rows: dict[int, Tensor | None] = {
            at: chosen if old is None else old[chosen] for at, old in self.rows.items()
        }
        groups = None if self.groups is None else relabelled(self.groups.ids[left])
        return replace(
            self,
            count=chosen.shape[0],
            rows={**rows, **(moved or {})},
            numbers={at: numbers[chosen] for at, numbers in self.numbers.items()},
            segments=segments(ids, left.shape[0]),
            groups=groups,
            sizes={},
        )


def split(
    ground: GroundRule, chosen: Tensor, starts: Ints, moved: Mapping[int, Tensor]
) -> Iterator[tuple[GroundRule, Tensor]]:
    """The rule on several stretches of its groundings, in order, each from one of `starts`, and the
    ground heads of each; `moved` are new rows of some atoms. As `on` of each, but all at once."""
    count = np.diff(starts, append=len(chosen)).tolist()
    labels = ground.segments.ids[chosen]
    fresh = run_starts(labels).numpy()
    fresh[starts] = True
    firsts, ids = np.flatnonzero(fresh), np.cumsum(fresh) - 1
    own = ids[starts]  # the first segment of each stretch
    sizes = np.diff(firsts, append=len(chosen))
    low, high = np.minimum.reduceat(sizes, own), np.maximum.reduceat(sizes, own)
    widths = [int(a) if a == b else None for a, b in zip(low, high, strict=True)]
    heads = labels[torch.from_numpy(firsts)].split(np.diff(own, append=len(firsts)).tolist())
    labels_ = torch.from_numpy(ids - np.repeat(own, count)).split(count)
    rows = {at: chosen if old is None else old[chosen] for at, old in ground.rows.items()}
    pieces = {at: every.split(count) for at, every in (rows | dict(moved)).items()}
    numbers = {at: every[chosen].split(count) for at, every in ground.numbers.items()}
    for k, left in enumerate(heads):
        yield (
            replace(
                ground,
                count=count[k],
                rows={at: each[k] for at, each in pieces.items()},
                numbers={at: each[k] for at, each in numbers.items()},
                segments=Segments(len(left), labels_[k], widths[k]),
                groups=None if ground.groups is None else relabelled(ground.groups.ids[left]),
                sizes={},
            ),
            left,
        )


def relabelled(labels: Tensor) -> Segments:
    """Segments of equal labels, numbered in the order of the labels."""
    ids = torch.unique(labels, return_inverse=True)[1]
    return segments(ids, integer(ids.max()) + 1 if ids.shape[0] else 0)


def normalised(rule: nodes.Rule) -> tuple[str, ...] | None:
    """The variables that a function of a rule names, over which rule heads are normalised."""
    found = (dict(f.arguments).get("agg_terms") for f in rule.functions)
    return next((tuple(named) for named in found if named), None)

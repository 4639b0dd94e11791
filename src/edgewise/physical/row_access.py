"""What the keys of a ground rule decide before a step: which way its rows are read and summed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from edgewise.functions import DEFINITIONS, Law
from edgewise.ground.rules import GroundRule
from edgewise.kernels.edges import EdgeIndex, edge_index, segment_index
from edgewise.language import functions, nodes
from edgewise.physical import families
from edgewise.physical.dots import Dots, dots_of, operand, pairs_in
from edgewise.physical.rule_body import place, scales_only, takes_rows
from edgewise.physical.strides import Stretch, Strides, of_ground

MANY = 1 << 12  # groundings, below which torch's own sums by segment do


@dataclass(frozen=True, eq=False)
class RowAccess:
    """A ground rule, and everything about it that is worked out once."""

    ground: GroundRule
    default: nodes.Function
    project_first: bool = True
    each_member: bool = True  # whether families of weights are met member by member

    def place(self, literal: nodes.Expression) -> int:
        return place(self.ground, literal)

    @property
    def rule(self) -> nodes.Rule:
        return self.ground.rule

    @property
    def aggregation(self) -> nodes.Function:
        own = (f for f in self.rule.functions if functions.kind(f) == functions.AGGREGATION)
        return next(own, self.default)

    @cached_property
    def dots(
        self,
    ) -> dict[int, tuple[tuple[Self, nodes.Expression], tuple[Self, nodes.Expression], Dots]]:
        """The products that are taken from products of matrices, by identity; 0 for the body."""
        if not self.project_first or self.gathers:
            return {}
        found = {}
        for at, items in pairs_in(self.rule):
            left, right = (operand(item, self.ground) for item in items)
            taken = None if left is None or right is None else dots_of(left, right)
            if left is not None and right is not None and taken is not None:
                a, b = (
                    (type(self)(side.ground, self.default), side.item) for side in (left, right)
                )
                found[at] = a, b, taken
        return found

    @cached_property
    def strides(self) -> dict[int, Strides | Stretch]:
        return of_ground(self.ground)

    @cached_property
    def within(self) -> dict[int, Self]:
        """Place of an atom → its rows alone, where a family of weights goes by its key."""
        if not self.project_first:
            return {}
        inner = self.ground.by_row()
        return {at: type(self)(ground, self.default) for at, ground in inner.items()}

    @cached_property
    def layouts(self) -> dict[int, int]:
        return families.layouts_of(self.ground) if self.each_member else {}

    @cached_property
    def chunks(self) -> dict[int, int]:
        return families.chunks_of(self.ground) if self.each_member else {}

    @cached_property
    def by_member(self) -> dict[int, families.ByMember]:
        return families.by_member_of(self.ground, self.sums_rows) if self.each_member else {}

    @property
    def written_out(self) -> str | None:
        """Why the groundings of a head are written out before they are aggregated."""
        parts, name = self.ground.segments, self.aggregation.name
        if parts.trivial:
            return None
        if self.ground.groups is not None:
            return f"{name} reads every grounding"
        if DEFINITIONS[name].kernel is None:
            return f"it does not compute {name}"
        if not self.sums_rows:
            return "what is aggregated is more than a row, or a number times a row"
        if not self.gathers:
            return "the groundings of a head lie side by side"
        return "torch aggregates single numbers as fast"

    @property
    def sums_rows(self) -> bool:
        """Whether heads aggregate rows as they are, so that rows need not be written out."""
        parts = self.ground.segments
        if parts.trivial or not parts.ordered or self.ground.groups is not None:
            return False
        aggregation = functions.definition(self.aggregation)
        if aggregation.is_extreme:
            return takes_rows(self.rule)
        return aggregation.kernel is not None and scales_only(self.rule)

    @cached_property
    def gathers(self) -> dict[int, EdgeIndex]:
        """Place of an atom → which of its rows each head aggregates, if as they are."""
        if not self.sums_rows:
            return {}
        parts = self.ground.segments
        found = {
            at: edge_index(parts.ids, rows, parts.count, self.ground.sizes[at])
            for at, rows in self.ground.rows.items()
            if rows is not None and at in self.ground.sizes
        }
        if functions.definition(self.aggregation).kernel == "mean":
            for which in found.values():
                which.mean_scales  # noqa: B018
        return found

    @cached_property
    def runs(self) -> EdgeIndex | None:
        """The groundings of each head, where many are summed and none is read from elsewhere."""
        parts = self.ground.segments
        summed = self.default if self.ground.groups is not None else self.aggregation
        if (
            Law.LINEAR not in functions.definition(summed)
            or parts.even
            or not parts.ordered
            or self.gathers
        ):
            return None
        if self.ground.count < MANY:
            return None
        found = segment_index(parts.ids, parts.count)
        if functions.definition(summed).kernel == "mean":
            found.mean_scales  # noqa: B018
        return found

    def precompute(self) -> None:
        """Work out what depends on keys alone, so that a step is nothing but tensor work."""
        both = map(functions.definition, (self.aggregation, self.default))
        listed = any(Law.NEEDS_TABLE in one for one in both) or self.rule.head.weight is not None
        for parts in (self.ground.segments, self.ground.groups):
            if parts is not None and not parts.even:
                parts.sizes  # noqa: B018
                if listed:
                    parts.padded  # noqa: B018
        self.layouts, self.chunks, self.by_member, self.gathers, self.strides, self.runs  # noqa: B018
        for left, right, _ in self.dots.values():
            left[0].precompute()
            right[0].precompute()
        for inner in self.within.values():
            inner.precompute()

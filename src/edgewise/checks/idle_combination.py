"""A combination of one value does nothing; the aggregation was probably meant."""

from __future__ import annotations

from collections.abc import Iterator

from edgewise.checks import wording
from edgewise.errors import EdgewiseWarning
from edgewise.functions import Law
from edgewise.language import Program, nodes, terms
from edgewise.language.functions import AGGREGATION, definition, kind
from edgewise.language.statements import atoms


class IdleCombination(EdgewiseWarning):
    """`F.max` combines the atoms of a body, `F.max_agg` the groundings of a rule head."""

    code = "idle-combination"
    example = "Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.max]]).check()"
    instead = "Program([(R.h(V.X) <= R.a(V.X, V.Y)) | [F.max_agg]]).check()"


def idle_combinations(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[IdleCombination]:
    for rule in program.rules:
        values = [item for item in rule.body if item.carries_value]
        aggregated = any(kind(function) == AGGREGATION for function in rule.functions)
        if len(values) != 1 or aggregated or not _has_groundings(rule):
            continue
        for function in rule.functions:
            found = definition(function)
            meant = found.counterpart
            idle = meant is not None and Law.KEEPS_ONE in found
            if meant is not None and idle and meant != program.aggregation.name:
                place = function.place or rule.place
                yield IdleCombination(
                    f"`{wording.function(place, function.name)}` combines one value, and the "
                    f"groundings are aggregated by "
                    f"`{wording.function(place, program.aggregation.name)}`",
                    place,
                    f"did you mean `{wording.function(place, meant)}`?",
                )


def _has_groundings(rule: nodes.Rule) -> bool:
    """True if a rule head can have more than one."""
    head = {v.name for v in terms.variables(rule.head.terms)}
    carrying = (atom for atom in atoms(rule) if atom.carries_value)
    return any(v.name not in head for atom in carrying for v in terms.variables(atom.terms))

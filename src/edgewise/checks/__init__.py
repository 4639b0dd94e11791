"""Checks of a program before it is evaluated.

A check is a function from a program and its facts to errors or warnings. To add one, write it and
list it in STAGES or WARNINGS.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from edgewise.checks.atoms import bad_facts, data_atoms, mismatched_arities
from edgewise.checks.function_lists import bad_lists
from edgewise.checks.lint import (
    added_ones,
    cartesian_products,
    idle_combinations,
    learnable_constants,
    likely_variables,
    singleton_variables,
    unknown_relations,
    unused_relations,
)
from edgewise.checks.misspelt import misspelt_relations
from edgewise.checks.safety import unbound_variables
from edgewise.checks.shapes import mismatched_shapes
from edgewise.checks.stratify import unstratified_negations
from edgewise.checks.weight_names import bad_weights, of_weight
from edgewise.errors import EdgewiseError, EdgewiseWarning, raise_all
from edgewise.language import Program, nodes

STAGES = (  # a stage may rely on what the stages before it have refused
    (bad_facts, mismatched_arities, misspelt_relations, bad_weights, bad_lists),
    (unbound_variables,),
    (mismatched_shapes,),
    (unstratified_negations,),
)
WARNINGS = (
    cartesian_products,
    singleton_variables,
    added_ones,
    idle_combinations,
    unknown_relations,
    unused_relations,
    learnable_constants,
    likely_variables,
)

Found = TypeVar("Found", EdgewiseError, EdgewiseWarning)


def check(program: Program, facts: Iterable[Any] = ()) -> list[EdgewiseWarning]:
    """Raise all errors of the first stage that finds any; otherwise return the warnings.

    `facts` are those of `solve`; with them the shapes of values are known exactly.

    >>> from edgewise import R, V, Program
    >>> check(Program([R.h(V.X) <= R.a(V.X)[8, 4]]))
    []
    """
    atoms = data_atoms(facts)
    refuse(program, [atoms])
    warnings: list[EdgewiseWarning] = []
    for look in WARNINGS:
        warnings += look(program, atoms)
    return _once(warnings)


def refuse(program: Program, samples: Sequence[tuple[nodes.Atom, ...]]) -> None:
    """Raise all errors of the first stage that finds any in a batch of samples.

    Facts are checked one by one, the program with one fact of each kind.
    """
    facts = _one_of_each(samples)
    for stage in STAGES:
        errors = [e for find in stage if find is not bad_facts for e in find(program, facts)]
        if bad_facts in stage:
            errors[:0] = [e for sample in samples for e in bad_facts(program, sample)]
        raise_all(_once(errors))


def _one_of_each(samples: Sequence[tuple[nodes.Atom, ...]]) -> tuple[nodes.Atom, ...]:
    kinds: dict[object, nodes.Atom] = {}
    for sample in samples:
        for atom in sample:
            shape = None if atom.weight is None else of_weight(atom.weight)
            kinds.setdefault((atom.relation, len(atom.terms), shape), atom)
    return tuple(kinds.values())


def _once(found: Sequence[Found]) -> list[Found]:
    """An error in a block that is stacked twelve times is reported once."""
    first: dict[tuple[str, Any], Found] = {}
    for item in found:
        first.setdefault((item.code, item.place or item.message), item)
    return list(first.values())

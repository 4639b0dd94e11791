"""The reference evaluator: plain loops over groundings, in float64, that define every result."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.checks import check
from edgewise.checks.atoms import data_atoms
from edgewise.checks.evaluation import NotANumber, not_a_scalar
from edgewise.functions.values import canonical
from edgewise.language import nodes
from edgewise.language.dependencies import components, needs, reachable
from edgewise.language.program import Program
from edgewise.language.statements import is_selection, name_weights
from edgewise.reference.evaluate import Evaluator, GroundAtom, Values, weight_value
from edgewise.reference.ground import ground_rules
from edgewise.reference.join import Matcher
from edgewise.reference.solution import Solution
from edgewise.weights import WeightTable, exact

__all__ = ["Solution", "solve"]


def solve(
    program: Program,
    facts: Iterable[Any] = (),
    *,
    dtype: torch.dtype = torch.float64,
    weights: Mapping[str, Any] | None = None,
    seed: int | None = None,
    training: bool = False,
) -> Solution:
    """Every atom that the program derives from the facts, with its value.

    `weights` gives weights by name (`program.weights(seed=0)` makes a set to train); the others
    start as the program says, drawn with `seed` where it gives only a shape. `training` switches
    dropout on.

    >>> from edgewise import R, V, Program
    >>> solve(Program([R.h(V.X) <= R.a(V.X)[2.0]]), [R.a(1)[3.0]])[R.h(1)].item()
    6.0
    """
    data = data_atoms(facts)
    for warning in check(program, data):
        warnings.warn(warning, stacklevel=3)
    statements = name_weights(program)
    domains = dict(program.domains)
    table = WeightTable(statements, domains, seed=seed, dtype=dtype, values=weights)
    values = _facts(statements, data, table)
    matchers = [Matcher(s, domains) for s in statements if isinstance(s, nodes.Rule)]
    lines = {s.relation: s for s in statements if isinstance(s, nodes.Line)}
    absent: frozenset[GroundAtom] = frozenset()

    def evaluated(some: list[Matcher]) -> tuple[Evaluator, Values]:
        nonlocal absent
        while True:
            rules = ground_rules(some, [nodes.Atom(*atom) for atom in values], absent)
            evaluator = Evaluator(rules, lines, table, program.aggregation, training)
            found = evaluator.everything(values, program.rounds)
            if evaluator.unreached <= absent:
                return evaluator, found
            absent |= evaluator.unreached  # what k rounds do not reach is absent for the others

    for selection, needed in selections(matchers):
        with torch.no_grad():
            found = evaluated(needed)[1]
        if any(value.ndim for atom, value in found.items() if atom[0] == selection):
            raise not_a_scalar(selection, needed[-1].rule)
        absent |= {atom for atom, value in found.items() if atom[0] == selection and not value}
    evaluator, found = evaluated(matchers)
    return Solution(program, evaluator, {a: v for a, v in found.items() if a not in absent})


def selections(matchers: Sequence[Matcher]) -> Iterator[tuple[str, list[Matcher]]]:
    """The relations that hold where their value is not 0, in an order in which each can be
    computed, with the rules that it needs."""
    graph = needs([matcher.rule for matcher in matchers])
    for part in components(graph):
        for relation in sorted(filter(is_selection, part)):
            wanted = reachable(graph, [relation])
            yield relation, [m for m in matchers if m.rule.head.relation in wanted]


def _facts(
    statements: Iterable[nodes.Statement], data: Iterable[nodes.Atom], table: WeightTable
) -> Values:
    """Facts of the program are weights; facts of the data replace them."""
    values: Values = {}
    for statement in statements:
        if isinstance(statement, nodes.Fact):
            atom = statement.atom
            values[atom.relation, atom.terms] = (  # type: ignore[index]
                torch.ones((), dtype=table.dtype)
                if atom.weight is None
                else weight_value(table, atom.weight, {})
            )
    for atom in data:
        values[atom.relation, atom.terms] = _data(atom, table.dtype)  # type: ignore[index]
    return values


def _data(atom: nodes.Atom, dtype: torch.dtype) -> Tensor:
    if atom.weight is None:
        return torch.ones((), dtype=dtype)
    value = atom.weight.value
    thing = value.thing if isinstance(value, nodes.Opaque) else value
    if getattr(getattr(thing, "dtype", None), "is_complex", False):
        raise NotANumber(f"the value of `{atom!r}` is complex", atom.place, "give real numbers")
    tensor = canonical(exact(thing, dtype))
    if tensor.isnan().any():
        raise NotANumber(f"the value of `{atom!r}` is not a number", atom.place, "drop the fact")
    return tensor

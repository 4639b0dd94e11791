"""Every variable is bound: something says which values it takes."""

from __future__ import annotations

from collections.abc import Iterator

from edgewise.checks import wording
from edgewise.errors import EdgewiseError, nearest
from edgewise.language import Program, nodes, terms
from edgewise.language.specials import computes
from edgewise.language.statements import atoms, weights


class UnboundVariable(EdgewiseError):
    """A variable that no atom binds would range over nothing in particular.

    Atoms with a value, hidden atoms, the keys of weight families and computed arithmetic bind
    variables. Negated atoms, comparisons and patterns only test them.
    """

    code = "unbound-variable"
    example = "Program([R.h(V.Item) <= (R.a(V.item), R.b(V.item))]).check()"
    instead = "Program([R.h(V.item) <= (R.a(V.item), R.b(V.item))]).check()"


def unbound_variables(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[EdgewiseError]:
    for rule in program.rules:
        yield from _unbound(rule)


def _unbound(rule: nodes.Rule) -> Iterator[EdgewiseError]:
    bound = bound_variables(rule)
    reported = set()
    for variable, where in _needed(rule):
        if variable.name not in bound and variable.name not in reported:
            reported.add(variable.name)
            yield UnboundVariable(
                f"`{variable.name}` is {where} but no body atom binds it",
                variable.place or rule.place,
                _next_step(rule, variable, bound),
            )
    head = {variable.name for variable in terms.variables(rule.head.terms)}
    for weight in weights(rule.head):
        for variable in terms.variables(weight.keys):
            if variable.name not in head | reported:
                yield UnboundVariable(
                    f"the weight of the rule head `{rule.head.relation}` has the key "
                    f"`{variable.name}`, which is not a variable of the rule head",
                    variable.place or weight.place or rule.place,
                    f"add `{variable.name}` to the rule head, or put the weight on a body atom",
                )


def bound_variables(rule: nodes.Rule) -> set[str]:
    """What atoms and families bind, and everything that arithmetic computes from it."""
    found = list(atoms(rule))
    bound = {v.name for weight in weights(rule) for v in terms.variables(weight.keys)}
    for atom in found:
        if isinstance(atom, nodes.Atom) and not atom.negated:
            bound |= {v.name for v in terms.variables(atom.terms)}
    computing = [a for a in found if isinstance(a, nodes.SpecialAtom) and not a.negated]
    size = -1
    while size != len(bound):
        size = len(bound)
        for atom in computing:
            bound |= _computed(atom, bound)
    return bound


def _computed(atom: nodes.SpecialAtom, bound: set[str]) -> set[str]:
    """The variable that a special predicate gives a value, if all its others are bound."""
    free = [
        i
        for i, term in enumerate(atom.terms)
        if isinstance(term, nodes.Variable) and term.name not in bound
    ]
    if len(free) == 1 and free[0] in computes(atom):
        return {v.name for v in terms.variables(atom.terms)}
    return set()


def _needed(rule: nodes.Rule) -> Iterator[tuple[nodes.Variable, str]]:
    """The variables that must be bound, and where they stand."""
    for variable in terms.variables(rule.head.terms):
        yield variable, f"in the rule head `{rule.head.relation}`"
    for atom in atoms(rule):
        match atom:
            case nodes.Atom(negated=True):
                where = f"in the negated atom `{atom.relation}`"
            case nodes.SpecialAtom() | nodes.PatternAtom():
                where = f"in `{wording.name(atom)}`"
            case _:
                continue
        for variable in terms.variables(atom.terms):
            yield variable, where


def _next_step(rule: nodes.Rule, variable: nodes.Variable, bound: set[str]) -> str:
    constants = {t for atom in atoms(rule) for t in atom.terms if isinstance(t, str)}
    if variable.name in constants:
        return f"`'{variable.name}'` in the body is a constant: did you mean `V.{variable.name}`?"
    near = nearest(variable.name, sorted(bound))
    if near:
        return f"did you mean `{near}`?"
    for atom in atoms(rule):
        others = [v.name for v in terms.variables(atom.terms) if v.name != variable.name]
        missing = [name for name in dict.fromkeys(others) if name not in bound]
        if isinstance(atom, nodes.SpecialAtom) and missing and variable in atom.terms:
            return (
                f"`{wording.name(atom)}` cannot compute `{variable.name}` without "
                f"`{'`, `'.join(missing)}`: add an atom that binds one, such as "
                f"`{wording.condition(rule.place, 'node', missing[0])}`"
            )
    return (
        f"add an atom that binds `{variable.name}`, such as "
        f"`{wording.condition(rule.place, 'node', variable.name)}`"
    )

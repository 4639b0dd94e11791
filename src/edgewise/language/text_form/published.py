"""What NeuraLogic's published templates add to rules: offsets, facts for all constants, types.

Each is written in rules, so that a program that was read from such a text prints as rules. Where a
relation has an offset or a fact with variables, its own rules derive `relation.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from edgewise.errors import Place
from edgewise.language import functions, nodes, statements
from edgewise.language.dependencies import needs, reachable

CONSTANT = "any.constant"  # holds for every constant of the data and of the program
NAMED = "any.name"  # the constants that the program itself writes
DERIVED, FACTS = ".rules", ".facts"  # what follows the name of a relation whose facts are apart
TYPE = ":"

Relation = tuple[str, int]  # a name and an arity


def terms_of(arity: int) -> tuple[nodes.Variable, ...]:
    """X1, X2, ..."""
    return tuple(nodes.Variable(f"X{i}") for i in range(1, arity + 1))


def type_of(name: str) -> str:
    """The relation of the constants of a type: `woman:Y` is `Y` where `"woman:"(Y)` holds."""
    return name + TYPE


def of_type(name: str, term: nodes.Term, place: Place | None = None) -> nodes.Atom:
    return nodes.Atom(type_of(name), (term,), hidden=True, place=place)


def any_constant(variable: nodes.Variable) -> nodes.Atom:
    return nodes.Atom(CONSTANT, (variable,), hidden=True, place=variable.place)


def unbound(rule: nodes.Rule) -> list[nodes.Variable]:
    """The variables of a rule head that no atom of the body has."""
    inside = {t for a in statements.atoms(rule) for t in a.terms if isinstance(t, nodes.Variable)}
    names = {variable.name for variable in inside}
    head = {t.name: t for t in rule.head.terms if isinstance(t, nodes.Variable)}
    return [variable for name, variable in head.items() if name not in names]


def bound(rule: nodes.Rule) -> nodes.Rule:
    """The same rule for every constant in place of a variable that its body does not bind."""
    return replace(rule, body=(*rule.body, *map(any_constant, unbound(rule))))


def constants(program: Iterable[nodes.Statement]) -> list[nodes.Statement]:
    """Rules for `any.constant`: the terms of relations that are data, and of the program."""
    every = statements.flatten(program)
    rules = [statement for statement in every if isinstance(statement, nodes.Rule)]
    heads = {rule.head.relation for rule in rules}
    read = {(a.relation, len(a.terms)) for rule in rules for a in _ordinary(rule)}
    read |= {(s.atom.relation, len(s.atom.terms)) for s in every if isinstance(s, nodes.Fact)}
    names = {t: None for s in every for t in _written(s) if not isinstance(t, nodes.Variable)}
    found: list[nodes.Statement] = [nodes.Fact(nodes.Atom(NAMED, (name,))) for name in names]
    read |= {(NAMED, 1)} if names else set()
    for relation, arity in sorted(read):
        if relation in heads or relation == CONSTANT or relation.endswith(TYPE):
            continue
        terms = terms_of(arity)
        body = (nodes.Atom(relation, terms, hidden=True),)
        found += [nodes.Rule(nodes.Atom(CONSTANT, (term,)), body) for term in terms]
    return found


def _ordinary(rule: nodes.Rule) -> Iterator[nodes.Atom]:
    return (atom for atom in statements.atoms(rule) if isinstance(atom, nodes.Atom))


def _written(statement: nodes.Statement) -> Iterator[nodes.Term]:
    if isinstance(statement, nodes.Rule):
        yield from statement.head.terms
        for atom in _ordinary(statement):
            yield from atom.terms
    elif isinstance(statement, nodes.Fact):
        yield from statement.atom.terms


def apart(program: list[nodes.Statement], relation: Relation) -> list[nodes.Statement]:
    """The statements with the rules of one relation under the name `relation.rules`."""
    found: list[nodes.Statement] = []
    for statement in program:
        match statement:
            case nodes.Rule(head=head) if (head.relation, len(head.terms)) == relation:
                found.append(replace(statement, head=_derived(head)))
            case nodes.Line(relation=name, arity=arity) if (name, arity) == relation:
                found.append(replace(statement, relation=name + DERIVED))
            case _:
                found.append(statement)
    return found


def _derived(atom: nodes.Atom) -> nodes.Atom:
    return replace(atom, relation=atom.relation + DERIVED)


def with_offsets(
    program: list[nodes.Statement], offsets: Mapping[Relation, nodes.Weight]
) -> list[nodes.Statement]:
    """Each offset is added to what the rules of its relation give, before its transformation."""
    for relation, offset in offsets.items():
        name, arity = relation
        heads = [s.head for s in program if isinstance(s, nodes.Rule)]
        if all((head.relation, len(head.terms)) != relation for head in heads):
            continue
        program = apart(program, relation)
        lines = [s for s in program if isinstance(s, nodes.Line) and s.relation == name + DERIVED]
        listed = [f for line in lines for f in line.functions]
        after = tuple(f for f in listed if functions.kind(f) == functions.TRANSFORMATION)
        program = [s for s in program if s not in lines]
        rest = tuple(f for f in listed if f not in after)
        if rest:
            program.append(nodes.Line(name + DERIVED, arity, rest, lines[0].place))
        head = nodes.Atom(name, terms_of(arity), place=offset.place)
        program.append(nodes.Rule(head, (_derived(head), offset), after, offset.place))
    return program


def with_facts_apart(
    program: list[nodes.Statement], relations: Iterable[Relation]
) -> list[nodes.Statement]:
    """A fact counts where no rule derives its atom: the facts of a relation that has rules.

    The facts are those of `relation.facts`. A relation that needs itself stays as it is.
    """
    for relation in relations:
        name, arity = relation
        rules = [s for s in program if isinstance(s, nodes.Rule)]
        own = [r for r in rules if (r.head.relation, len(r.head.terms)) == relation]
        graph = needs(rules)
        if not own or name in reachable(graph, graph.get(name, ())):
            continue
        program = apart(program, relation)
        head = nodes.Atom(name, terms_of(arity))
        derived, facts = _derived(head), replace(head, relation=name + FACTS)
        absent = replace(derived, negated=True)
        program += [nodes.Rule(head, (derived,)), nodes.Rule(head, (facts, absent))]
    return program


def lifted(program: list[nodes.Statement], facts: list[nodes.Atom]) -> list[nodes.Statement]:
    """Facts with variables: they hold for all constants, but where a rule derives the atom."""
    if not facts:
        return program
    program = with_facts_apart(program, {(a.relation, len(a.terms)): None for a in facts})
    names = {s.head.relation for s in program if isinstance(s, nodes.Rule)}
    for atom in facts:
        is_apart = atom.relation + DERIVED in names
        head = replace(atom, relation=atom.relation + FACTS) if is_apart else atom
        free = {t.name: t for t in atom.terms if isinstance(t, nodes.Variable)}
        body = tuple(map(any_constant, free.values()))
        program = [*program, nodes.Rule(head, body, place=atom.place)]
    return [*program, *constants(program)]


def fixed(program: list[nodes.Statement], names: set[str]) -> list[nodes.Statement]:
    """The statements with the weights of these names fixed."""

    def changed(node: Any) -> Any:
        if isinstance(node, nodes.Weight) and node.name in names:
            return node.fixed()
        return statements.mapped(node, changed)

    return [changed(statement) for statement in program] if names else program

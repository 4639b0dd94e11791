"""The relations that statements speak of, as boxes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from edgewise.language import functions, nodes
from edgewise.language.blocks import defined
from edgewise.language.statements import atoms
from edgewise.language.terms import variables
from edgewise.viz import labels
from edgewise.viz.cards import RelationBox
from edgewise.viz.svg import clipped


def relation_boxes(
    statements: Sequence[nodes.Statement], stack: nodes.Stack | None
) -> dict[str, RelationBox]:
    """Relation → box, in order of first occurrence; what a stack gives has no box of its own."""
    parameters, outputs = (stack.parameters, stack.outputs) if stack else ((), ())
    derived = {s.head.relation for s in statements if isinstance(s, nodes.Rule)}
    facts: dict[str, list[nodes.Atom]] = defaultdict(list)
    lines = {s.relation: s for s in statements if isinstance(s, nodes.Line)}
    for statement in statements:
        if isinstance(statement, nodes.Fact):
            facts[statement.atom.relation].append(statement.atom)
    stacks = [s.name for s in statements if isinstance(s, nodes.Stack)]
    seen: dict[str, str] = dict.fromkeys((f"^{p}" for p in parameters), "")
    for relation, terms in _occurrences(statements):
        if relation in derived or not any(relation.startswith(f"{name}.") for name in stacks):
            seen[relation] = seen.get(relation) or terms
    heads = [rule.head for rule in statements if isinstance(rule, nodes.Rule)]
    for head in sorted(heads, key=lambda atom: len({v.name for v in variables(atom.terms)})):
        seen[head.relation] = labels.terms(head.terms)
    read = {relation for relation, _ in _read(statements)}
    here = defined(statements)
    found = {}
    for relation, terms in seen.items():
        kind = "derived" if relation in derived else "data"
        if relation in outputs or (kind == "derived" and stack is None and relation not in read):
            kind = "result"
        if stack is not None and relation not in here:
            kind = "input"
        title = clipped(labels.name(relation), 32) + clipped(terms, 32)
        found[relation] = RelationBox(
            title, _note(kind, facts[relation], lines.get(relation)), kind
        )
    return found


def _note(kind: str, facts: Sequence[nodes.Atom], line: nodes.Line | None) -> str:
    parts = []
    if len(facts) == 1:
        weight = facts[0].weight
        fixed = " fixed" if weight is not None and weight.is_fixed else ""
        parts.append(f"fact {'1' if weight is None else labels.weight(weight)}{fixed}")
    elif facts:
        parts.append(f"{len(facts)} facts")
    elif kind == "data":
        parts.append("data")
    if line is not None and line.functions:
        combines = [f for f in line.functions if functions.kind(f) == functions.COMBINATION]
        others = [f for f in line.functions if f not in combines]
        parts.append(" → ".join(labels.function(f) for f in (*combines, *others)))
    return clipped(", ".join(parts), 40)


def _read(statements: Sequence[nodes.Statement]) -> Iterator[tuple[str, str]]:
    for statement in statements:
        match statement:
            case nodes.Rule():
                for atom in atoms(statement.body):
                    if isinstance(atom, nodes.Atom):
                        yield atom.relation, labels.terms(atom.terms)
            case nodes.Stack():
                inner = dict(reversed(list(_read(statement.statements))))
                for parameter, relation in zip(statement.parameters, statement.inputs, strict=True):
                    yield relation, inner.get(f"^{parameter}", "")
                for relation in outside(statement):
                    yield relation, inner[relation]


def _occurrences(statements: Sequence[nodes.Statement]) -> Iterator[tuple[str, str]]:
    for statement in statements:
        match statement:
            case nodes.Rule(head=head):
                yield from _read([statement])
                yield head.relation, labels.terms(head.terms)
            case nodes.Fact(atom=atom):
                yield atom.relation, labels.terms(atom.terms)
            case nodes.Line():
                yield statement.relation, ""
            case nodes.Stack():
                yield from _read([statement])


def is_condition(relation: str, stack: nodes.Stack) -> bool:
    """Whether a stack reads a relation without its values."""
    found = [a for s in stack.statements if isinstance(s, nodes.Rule) for a in atoms(s.body)]
    uses = [a for a in found if isinstance(a, nodes.Atom) and a.relation == relation]
    return bool(uses) and not any(atom.carries_value for atom in uses)


def outside(stack: nodes.Stack) -> list[str]:
    """The relations that a stack reads beside its parameters."""
    here = defined(stack.statements)
    inner = [s.name for s in stack.statements if isinstance(s, nodes.Stack)]
    return [
        relation
        for relation in dict.fromkeys(relation for relation, _ in _read(stack.statements))
        if relation not in here
        and not relation.startswith("^")
        and not any(relation.startswith(f"{name}.") for name in inner)
    ]

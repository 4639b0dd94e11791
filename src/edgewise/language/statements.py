"""The statements of a program: collected, searched, substituted in, and their weights named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgewise.errors import EdgewiseError, Span, caller, iterates, safe_repr
from edgewise.language import functions, nodes, operators

if TYPE_CHECKING:
    from edgewise.language.program import Program

MAX_NESTED = 50
SELECTION, SCORES = "@", "="  # first letters of relations that `selections` adds


class BadStatement(EdgewiseError):
    """A program holds rules, facts, relation lines, stacks, and lists of those."""

    code = "bad-statement"
    example = 'Program(["h(X) :- a(X)."])'
    instead = 'Program.parse("h(X) :- a(X).")'


def is_selection(relation: str) -> bool:
    """Whether a relation holds where its value is not 0."""
    return relation.startswith(SELECTION) and ": " in relation


def is_added(relation: str) -> bool:
    """Whether `selections` wrote a relation, not the user."""
    return relation.startswith((SELECTION, SCORES)) and ": " in relation


def written_for(relation: str) -> str:
    """The relation whose rule a relation was added for; others are themselves."""
    return relation[1:].split(": ")[0] if is_added(relation) else relation


def flatten(items: Any) -> tuple[nodes.Statement, ...]:
    """Statements in order, lists and programs opened; equal rules once."""
    found: list[nodes.Statement] = []
    known: set[nodes.Statement] = set()
    same: set[int] = set()
    for statement in _opened(items):
        _refuse_lost_atom(statement, found)
        is_new = statement not in known
        # unnamed learnable weights are never equal
        if is_new or (id(statement) not in same and has_own_weight(statement)):
            found.append(statement)
            known.add(statement)
            same.add(id(statement))
    return tuple(found)


def _opened(items: Any, depth: int = 0) -> Iterator[nodes.Statement]:
    if depth > MAX_NESTED:
        raise BadStatement(
            f"lists are nested more than {MAX_NESTED} deep", caller(), "put rules into one list"
        )
    for item in items:
        match item:
            case nodes.Rule() | nodes.Fact() | nodes.Line() | nodes.Stack():
                yield item
            case nodes.Atom() if not item.negated:
                yield fact(item)
            case nodes.ValueComparison():
                raise operators.BadHead(
                    f"`{safe_repr(item)}` compares values and derives nothing",
                    item.place,
                    "a rule is `head <= body`; a comparison is a condition in a body",
                )
            case nodes.Expression():
                raise BadStatement(
                    f"`{safe_repr(item)}` is not a rule or a fact",
                    item.place or caller(),
                    "a rule is `head <= body`, a fact a plain atom",
                )
            case str() | bytes() | dict():
                raise BadStatement(
                    f"a {type(item).__name__} is not a rule",
                    caller(),
                    "to read the text form, use `Program.parse(text)`",
                )
            case bool():
                raise BadStatement(
                    f"`{item}` is not a rule: `==` of two atoms asks whether they are the same",
                    caller(),
                    "a rule is `head <= body`",
                )
            case _ if hasattr(item, "statements"):
                yield from item.statements
            case _ if iterates(item):
                yield from _opened(item, depth + 1)
            case _:
                raise BadStatement(
                    f"`{safe_repr(item)}` is not a rule or a fact",
                    caller(),
                    "a program holds rules `head <= body`, facts, lines `R.h/1 | [...]` and stacks",
                )


def fact(atom: nodes.Atom) -> nodes.Fact:
    return nodes.Fact(replace(atom, hidden=False))


def has_own_weight(statement: nodes.Statement) -> bool:
    return any(w.name is None and not w.is_fixed for w in weights(statement))


def weights(node: Any) -> Iterator[nodes.Weight]:
    """Every weight written in a node, head before body, left to right."""
    return iter(remembered(node, _weights)) if isinstance(node, nodes.Rule) else _weights(node)


def atoms(node: Any) -> Iterator[nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom]:
    """Every atom written in a body or an expression, left to right."""
    return iter(remembered(node, _atoms)) if isinstance(node, nodes.Rule) else _atoms(node)


def remembered(node: Any, walk: Callable[[Any], Iterable[Any]]) -> tuple[Any, ...]:
    """What a walk through a rule or a plan finds; neither changes, and both are walked through
    many times."""
    known: dict[Any, tuple[Any, ...]] | None = vars(node).get("_remembered")
    if known is None:
        known = vars(node)["_remembered"] = {}
    found = known.get(walk)
    if found is None:
        found = known[walk] = tuple(walk(node))
    return found


def _weights(node: Any) -> Iterator[nodes.Weight]:
    match node:
        case nodes.Weight():
            yield node
        case nodes.Apply():
            yield from _weights(node.weight)
            yield from _weights(node.operands)
        case nodes.ValueComparison():
            yield from _weights((node.left, node.right))
        case nodes.Expression():
            yield from _weights(node.weight)
        case nodes.Rule():
            yield from _weights(node.head)
            yield from _weights(node.body)
        case nodes.Fact():
            yield from _weights(node.atom)
        case nodes.Stack():
            yield from _weights(node.statements)
        case tuple():
            for item in node:
                yield from _weights(item)


def _atoms(node: Any) -> Iterator[nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom]:
    match node:
        case nodes.Atom() | nodes.SpecialAtom() | nodes.PatternAtom():
            yield node
        case nodes.Apply():
            yield from _atoms(node.operands)
        case nodes.Rule():
            yield from _atoms(node.body)
        case tuple():
            for item in node:
                yield from _atoms(item)


def assigned_variables(rule: nodes.Rule) -> tuple[str, ...]:
    """The variables that a grounding assigns, in the order that groundings are sorted by.

    They are the rule head's, then those of atoms that carry values and of weight families, in the
    order of their first occurrence; a weight stands after what it multiplies.

    >>> from edgewise.language import R, V, W
    >>> assigned_variables(R.h(V.X) <= (R.a(V.Y)[W.w(V.T)[2,]], R._e(V.Z, V.X), R.b(V.U)))
    ('X', 'Y', 'T', 'U')
    """
    return remembered(rule, _assigned)


def _assigned(rule: nodes.Rule) -> Iterator[str]:
    terms = (*rule.head.terms, *_carried(rule.body))
    return iter(dict.fromkeys(t.name for t in terms if isinstance(t, nodes.Variable)))


def _carried(node: Any) -> Iterator[nodes.Term]:
    match node:
        case tuple():
            for item in node:
                yield from _carried(item)
        case nodes.Weight():
            yield from node.keys
        case nodes.Atom() | nodes.SpecialAtom() if node.carries_value:
            yield from node.terms
            yield from _carried(node.weight)
        case nodes.Apply():
            yield from _carried(node.operands)
            yield from _carried(node.weight)


def applied_functions(node: Any) -> Iterator[nodes.Function]:
    """Every function applied inside a body."""
    if isinstance(node, tuple):
        for item in node:
            yield from applied_functions(item)
    elif isinstance(node, nodes.Apply):
        yield node.function
        yield from applied_functions(node.operands)


def _refuse_lost_atom(statement: nodes.Statement, before: list[nodes.Statement]) -> None:
    """`h <= a, b` without parentheses leaves `b` behind as a statement of its own."""
    if not isinstance(statement, nodes.Fact):
        return
    atom = statement.atom
    open_terms = [t for t in atom.terms if isinstance(t, nodes.Variable)]
    if open_terms or (before and _same_expression(before[-1], atom)):
        raise operators.MissingParentheses(
            f"`{atom!r}` stands by itself"
            + (f", with the variable `{open_terms[0].name}`" if open_terms else " after a rule"),
            atom.place,
            "a body of several atoms needs parentheses: `head <= (a, b)`",
        )


def _same_expression(before: nodes.Statement, atom: nodes.Atom) -> bool:
    """Whether an atom follows a rule on the same line of Python, as `h <= a, b` leaves it."""
    if not isinstance(before, nodes.Rule) or len(before.body) > 1:
        return False  # a body in parentheses
    if isinstance(atom.place, Span | None):
        return False
    left = before.place.span if before.place and not isinstance(before.place, Span) else None
    right = atom.place.span
    same = left is not None and (left.file, left.line) == (right.file, right.line)
    return same and bool(right.text) and atom.weight is None


def mapped(node: Any, change: Callable[[Any], Any]) -> Any:
    """The same node with `change` applied to its parts: weight, operands, head, body."""
    match node:
        case tuple():
            return tuple(map(change, node))
        case nodes.Atom() | nodes.SpecialAtom():
            return replace(node, weight=change(node.weight))
        case nodes.Apply():
            return replace(node, operands=change(node.operands), weight=change(node.weight))
        case nodes.ValueComparison():
            return replace(node, left=change(node.left), right=change(node.right))
        case nodes.Rule():
            return replace(node, head=change(node.head), body=change(node.body))
        case nodes.Fact():
            return nodes.Fact(change(node.atom))
        case nodes.Stack():
            return replace(node, statements=change(node.statements))
    return node


def substitute(node: Any, terms: Mapping[str, nodes.Term]) -> Any:
    """The same node with variables replaced, in atoms and in the keys of weights.

    >>> from edgewise.language import R, V
    >>> substitute(R.a(V.X, V.Y), {"X": 1})
    R.a(1, V.Y)
    """

    def go(item: Any) -> Any:
        return substitute(item, terms)

    match node:
        case nodes.Variable():
            return terms.get(node.name, node)
        case nodes.Weight():
            return replace(node, keys=go(node.keys))
        case nodes.Atom() | nodes.SpecialAtom() | nodes.PatternAtom():
            node = replace(node, terms=go(node.terms))
    return mapped(node, go)


def name_weights(program: Program) -> tuple[nodes.Statement, ...]:
    """The program's statements, stacks written out, with a name on every weight.

    The weight of body atom `b` in a rule for `h` is `h.b`, that of the head `h.head`, of a fact
    `a(1)` is `a(1)`; a name that is taken gets `_2`, `_3`, ... Rules added for other relations
    change no name.

    >>> from edgewise.language import R, V, Program
    >>> name_weights(Program([R.h(V.X)[2.0] <= (R.a(V.X)[3.0], R.a(V.X)[4, 4])]))
    (R.h(V.X)["h.head": 2.0] <= (R.a(V.X)["h.a": 3.0], R.a(V.X)["h.a_2": 4, 4]),)
    """
    taken = {weight.name for statement in program.flat for weight in weights(statement)}

    def fresh(base: str) -> str:
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        return name

    return tuple(_named_statement(statement, fresh) for statement in program.flat)


def _named_statement(statement: nodes.Statement, fresh: Callable[[str], str]) -> nodes.Statement:
    match statement:
        case nodes.Rule(head=head):
            name = written_for(head.relation) + ".where" * is_selection(head.relation)
            named = replace(head, weight=_named_weight(head.weight, f"{name}.head", fresh))
            body = tuple(_named_item(item, name, fresh) for item in statement.body)
            return replace(statement, head=named, body=body)
        case nodes.Fact(atom=atom):
            keys = ",".join(str(term) for term in atom.terms)
            base = f"{atom.relation}({keys})" if keys else atom.relation
            return nodes.Fact(replace(atom, weight=_named_weight(atom.weight, base, fresh)))
    return statement


def _named_item(item: Any, head: str, fresh: Callable[[str], str]) -> Any:
    match item:
        case nodes.Weight():
            return _named_weight(item, f"{head}.bias", fresh)
        case nodes.Apply(function=function):
            weight = _named_weight(item.weight, f"{head}.{function.name}", fresh)
            operands = tuple(_named_item(operand, head, fresh) for operand in item.operands)
            return replace(item, weight=weight, operands=operands)
        case nodes.Atom(relation=name) | nodes.SpecialAtom(name=name):
            return replace(item, weight=_named_weight(item.weight, f"{head}.{name}", fresh))
    return item


def _named_weight(
    weight: nodes.Weight | None, base: str, fresh: Callable[[str], str]
) -> nodes.Weight | None:
    if weight is None or weight.name is not None:
        return weight
    return replace(weight, name=fresh(base))


SUM = nodes.Function("sum")


def combination(listed: Iterable[nodes.Function]) -> nodes.Function:
    """The combination of a rule or a line: its own, or the sum."""
    return next((f for f in listed if functions.kind(f) == functions.COMBINATION), SUM)


def aggregation_of(rule: nodes.Rule, default: nodes.Function) -> nodes.Function:
    own = (f for f in rule.functions if functions.kind(f) == functions.AGGREGATION)
    return next(own, default)


def arities_of(rules: Iterable[nodes.Rule], facts: Iterable[nodes.Fact]) -> dict[str, int]:
    """The arity of every relation."""
    found: dict[str, int] = {}
    for rule in rules:
        for atom in (rule.head, *atoms(rule.body)):
            if isinstance(atom, nodes.Atom):
                found.setdefault(atom.relation, len(atom.terms))
    for fact in facts:
        found.setdefault(fact.atom.relation, len(fact.atom.terms))
    return found

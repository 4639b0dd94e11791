"""When information of one atom can reach another: proofs about a program before there is data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from edgewise.checks.atoms import ArityMismatch
from edgewise.checks.evaluation import BadQuery
from edgewise.errors import EdgewiseError, caller, safe_repr, suggest
from edgewise.flow.bodies import key, term_name
from edgewise.flow.conditions import (
    ZERO,
    Condition,
    Literal,
    is_constant,
    is_number,
    projected,
    reduced,
    together,
)
from edgewise.flow.paths import flows, source
from edgewise.graphs import Pattern, causal, full, window
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import arities_of, atoms


class NoSinglePattern(EdgewiseError):
    """A pattern is about two integers: what flows under other conditions is a query."""

    code = "no-single-pattern"
    example = """\
program = Program([R.h(V.X) <= (R.x(V.Y), R._edge(V.X, V.Y))])
program.reaches(R.h(V.I), R.x(V.J)).pattern"""
    instead = """\
program = Program([R.h(V.X) <= (R.x(V.Y), R.special.leq(V.Y, V.X))])
program.reaches(R.h(V.I), R.x(V.J)).pattern"""


@dataclass(frozen=True)
class Reach:
    """The condition under which information of `start` reaches `end`: one of several paths.

    It never says less than there is; `exact` is False where it may say more, as recursion does
    whose bounds grow. Empty, and false, where there is no path.

    >>> from edgewise import Program, R, V
    >>> program = Program([R.h(V.I) <= (R.x(V.J), V.J <= V.I, V.I - V.J <= 2)])
    >>> found = program.reaches(R.h(V.I), R.x(V.J))
    >>> found.bounds("I", "J"), found.hops("x"), bool(found)
    ((0.0, 2.0), 0, True)
    """

    end: nodes.Atom
    start: nodes.Atom
    paths: tuple[Condition, ...]
    exact: bool

    def __bool__(self) -> bool:
        return bool(self.paths)

    @property
    def names(self) -> list[str]:
        terms = [*self.end.terms, *self.start.terms]
        return list(dict.fromkeys(t.name for t in terms if isinstance(t, nodes.Variable)))

    def bounds(self, later: str, earlier: str) -> tuple[float, float]:
        """The least and the most that one variable is above another, over all paths.

        >>> from edgewise import Program, R, V
        >>> program = Program([R.h(V.I) <= (R.x(V.J), R._x(V.I), V.J <= V.I, V.I - V.J <= 2)])
        >>> program.reaches(R.h(V.I), R.x(V.J)).bounds("I", "J")[1]
        2.0
        """
        a, b = f"v{later}", f"v{earlier}"
        tables = [path.table for path in self.paths]
        least = min((-t.get((b, a), math.inf) for t in tables), default=math.inf)
        most = max((t.get((a, b), math.inf) for t in tables), default=-math.inf)
        return least + 0.0, most + 0.0  # integers and -0.0 are printed like all others

    def hops(self, relation: str) -> int | None:
        """The most atoms of a relation on a path; None where recursion sets no bound.

        >>> from edgewise import Program, R, V
        >>> program = Program([R.h(V.I) <= (R.x(V.J), R._edge(V.J, V.I))])
        >>> program.reaches(R.h(V.I), R.x(V.J)).hops("edge")
        1
        """
        if not self.exact:
            return None
        counts = [
            sum(
                isinstance(x.node, nodes.Atom) and x.node.relation == relation
                for x in path.literals
            )
            for path in self.paths
        ]
        return max(counts, default=0)

    @property
    def pattern(self) -> Pattern:
        """The pairs (end, start) as a pattern of `edgewise.graphs`.

        >>> from edgewise import F, Program, R, V
        >>> near = (R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 2))
        >>> program = Program([R.h(V.I) <= (R.x(V.J), R.x(V.I), *near), R.g(V.I) <= R.h(V.I)])
        >>> program.reaches(R.g(V.I), R.x(V.J)).pattern
        causal() & window(2)
        """
        if len(self.names) != 2:
            raise self._no_pattern(f"there are {len(self.names)} variables")
        i, j = (f"v{name}" for name in self.names)
        found: Pattern | None = None
        for path in self.paths:
            one = _pattern(path, i, j)
            if one is None:
                raise self._no_pattern(f"one path is `{self._shown(path)}`")
            found = one if found is None else found | one
        return ~full() if found is None else found

    def _no_pattern(self, why: str) -> NoSinglePattern:
        return NoSinglePattern(
            f"what reaches `{self.end!r}` from `{self.start!r}` is not one pattern: {why}",
            caller(),
            "read the paths: `print(program.reaches(...))`",
        )

    def _shown(self, path: Condition) -> str:
        return ", ".join(_parts(path)) or "always"

    def __repr__(self) -> str:
        head = f"{self.start!r} reaches {self.end!r}"
        if not self.paths:
            return f"{self.start!r} does not reach {self.end!r}"
        lines = sorted((self._shown(path) for path in self.paths), key=lambda x: (len(x), x))
        most = "" if self.exact else " at most"
        if len(lines) == 1:
            return f"{head}{most} where {lines[0]}" if lines[0] != "always" else f"{head}{most}"
        return "\n".join([f"{head}{most} where one holds:", *(f"  {line}" for line in lines)])


def reaches(program: Program, end: Any, start: Any) -> Reach:
    """The condition under which information of one atom can reach another."""
    end, start = (_checked(program, atom) for atom in (end, start))
    found = flows(program, start.relation)
    conditions = list(found.reached.get(end.relation, ()))
    if end.relation == start.relation:
        pairs = [(key(p), source(p)) for p in range(len(end.terms))]
        equal = {(a, b, 0.0) for x, y in pairs for a, b in ((x, y), (y, x))}
        conditions.append(Condition(frozenset(equal)))
    links = set()
    for name, atom in ((key, end), (source, start)):
        for p, term in enumerate(atom.terms):
            links |= {(name(p), term_name(term), 0.0), (term_name(term), name(p), 0.0)}
    visible = [term_name(t) for t in (*end.terms, *start.terms)]
    made = []
    for one in conditions:
        both = together([one, Condition(frozenset(links))])
        if both is not None:
            made.append(projected(both, visible))
    return Reach(end, start, tuple(reduced(made)), found.exact)


def is_causal(program: Program, end: Any = None, start: Any = None) -> bool:
    """Whether no row needs a later one: information of j reaches i only where j ≤ i."""
    end, start = _ends(program, end, start)
    found = reaches(program, end, start)
    i, j = end.terms[-1], start.terms[-1]
    assert isinstance(i, nodes.Variable)
    assert isinstance(j, nodes.Variable)
    return found.bounds(i.name, j.name)[0] >= 0


def _ends(program: Program, end: Any, start: Any) -> tuple[nodes.Atom, nodes.Atom]:
    """The output and the input of a program over one sequence, where they are not named."""
    arities = arities_of(program.rules, program.facts)
    heads = {rule.head.relation for rule in program.rules}
    read = {a.relation for r in program.rules for a in _atoms(r)}
    stated = {fact.atom.relation for fact in program.facts}
    ends = [n for n in heads - read if arities[n]] if end is None else []
    starts = [n for n in read - heads - stated if arities[n]] if start is None else []
    if (end is None and len(ends) != 1) or (start is None and len(starts) != 1):
        raise BadQuery(
            f"the program has the outputs {sorted(heads - read)} and the inputs "
            f"{sorted(read - heads - stated)}",
            caller(),
            "name one of each: `program.is_causal(R.out(V.I), R.x(V.J))`",
        )
    made = []
    for atom, names, letter in ((end, ends, "I"), (start, starts, "J")):
        if atom is None:
            count = arities[names[0]]
            terms = tuple(nodes.Variable(f"{letter}{p}") for p in range(count))
            made.append(nodes.Atom(names[0], terms))
            continue
        atom = _checked(program, atom)
        if not atom.terms or not isinstance(atom.terms[-1], nodes.Variable):
            raise BadQuery(
                f"the last key of `{atom!r}` is not a variable", caller(), "write `R.out(V.I)`"
            )
        made.append(atom)
    return made[0], made[1]


def _atoms(rule: nodes.Rule) -> Iterator[nodes.Atom]:
    return (a for a in atoms(rule.body) if isinstance(a, nodes.Atom))


def _checked(program: Program, query: Any) -> nodes.Atom:
    """An atom over a relation of the program, with a term for each key."""
    if not isinstance(query, nodes.Atom) or query.negated or query.weight is not None:
        raise BadQuery(f"`{safe_repr(query)}` is not an atom", caller(), "write `R.out(V.I)`")
    relation = program.aliases.get(query.relation, query.relation)
    arities = arities_of(program.rules, program.facts)
    if relation not in arities:
        raise BadQuery(
            f"the program has no relation `{query.relation}`",
            caller(),
            suggest(query.relation, list(arities), f"its relations are {', '.join(arities)}"),
        )
    if len(query.terms) != arities[relation]:
        names = ", ".join(f"V.X{p + 1}" for p in range(arities[relation]))
        raise ArityMismatch(
            f"the arity of `{query.relation}` is {arities[relation]}, got {len(query.terms)}",
            caller(),
            f"write `R.{query.relation}({names})`",
        )
    return replace(nodes.Atom(relation, query.terms), place=None)


def _pattern(path: Condition, i: str, j: str) -> Pattern | None:
    """The pairs of one path; None where it is about more than two integers and patterns."""
    table = path.table
    # that numbers are not negative holds for all pairs of a pattern
    more = {pair: c for pair, c in table.items() if pair not in {(i, j), (j, i)}}
    if any(pair[0] != ZERO or c < 0 for pair, c in more.items()):
        return None
    found = between(-table.get((j, i), math.inf), table.get((i, j), math.inf))
    if path.literals:
        own = _chain(path, i, j)
        if own is None:
            return None
        found = own if found == full() else found & own
    return found


def _chain(path: Condition, i: str, j: str) -> Pattern | None:
    """Patterns from i to j, one after another."""
    left, at, found = set(path.literals), i, None
    while left:
        here = [x for x in left if at in x.terms]
        if len(here) != 1 or not isinstance(here[0].node, nodes.PatternAtom):
            return None
        (literal,) = here
        left -= {literal}
        one = literal.node.pattern
        one = ~one if literal.node.negated else one
        forward = literal.terms[0] == at
        at = literal.terms[1] if forward else literal.terms[0]
        one = one if forward else one.T
        found = one if found is None else found.compose(one)
    return found if at == j else None


def between(low: float, high: float) -> Pattern:
    """The pairs with low ≤ i − j ≤ high.

    >>> between(0, math.inf), between(-2, 2), between(0, 3), between(1, math.inf)
    (causal(), window(2), causal() & window(3), causal() - window(0))
    """
    if low == -high and high < math.inf:
        return window(int(high))
    parts: list[Pattern] = []
    if low > -math.inf:
        least = int(low)
        parts.append(causal() if least == 0 else _above(causal(), least))
    if high < math.inf:
        most = -int(high)
        if low == 0:
            parts.append(window(-most))
        else:
            parts.append(causal().T if most == 0 else _above(causal().T, most))
    if not parts:
        return full()
    return parts[0] if len(parts) == 1 else parts[0] & parts[1]


def _above(side: Pattern, least: int) -> Pattern:
    return side - window(least - 1) if least > 0 else side | window(-least)


def _parts(path: Condition) -> Iterator[str]:
    """What a path asks for, one after another."""
    table = path.table
    names = sorted(
        {n for pair in table for n in pair} | {t for x in path.literals for t in x.terms}
    )
    for at, a in enumerate(names):
        for b in names[at + 1 :]:
            if is_constant(a) and is_constant(b):
                continue
            text = _between_text(a, b, table.get((a, b), math.inf), -table.get((b, a), math.inf))
            if text and not _follows(table, a, b):
                yield text
    for literal in sorted(path.literals, key=_walked):
        yield _literal(literal.node, [_name(term) for term in literal.terms])


def _walked(literal: Literal) -> tuple[Any, ...]:
    """Literals along a walk: first those that begin at a visible variable."""
    return [(t.startswith("?"), t) for t in literal.terms], repr(literal.node)


def _follows(table: dict[tuple[str, str], float], a: str, b: str) -> bool:
    """Whether bounds between two names follow from those with a third, which are shown."""
    names = {n for pair in table for n in pair if not is_number(n)} - {a, b}

    def through(x: str, y: str) -> bool:
        if (x, y) not in table:
            return True
        return any(
            table.get((x, c), math.inf) + table.get((c, y), math.inf) <= table[x, y] for c in names
        )

    equal = table.get((a, b)) == 0 == table.get((b, a))
    return not equal and bool(names) and through(a, b) and through(b, a)


def _name(term: str) -> str:
    if term == ZERO:
        return "0"
    if term.startswith("?"):
        return f"A{term[1:]}"
    return term[1:]


def _between_text(a: str, b: str, most: float, least: float) -> str:
    """low ≤ a − b ≤ high, as people write it."""
    if most == math.inf and least == -math.inf:
        return ""
    x, y = _name(a), _name(b)
    if is_constant(a):
        x, y, most, least = y, x, -least, -most
    if ZERO not in (a, b) and (is_constant(a) or is_constant(b)):
        return f"{x} = {y}"
    if ZERO in (a, b):
        base = int(y)
        if most == least:
            return f"{x} = {base + int(most)}"
        low = f"{base + int(least)} <= " if least > -math.inf else ""
        return f"{low}{x}" + (f" <= {base + int(most)}" if most < math.inf else "")
    if most == least:
        return f"{x} = {_plus(y, most)}"
    if most == -least:
        return f"|{x} - {y}| <= {int(most)}"
    if least > -math.inf and most == math.inf:
        return f"{_plus(y, least)} <= {x}"
    low = f"{_plus(y, least)} <= " if least > -math.inf else ""
    return f"{low}{x} <= {_plus(y, most)}"


def _plus(name: str, number: float) -> str:
    if number == 0:
        return name
    return f"{name} + {int(number)}" if number > 0 else f"{name} - {int(-number)}"


def _literal(node: Any, terms: list[str]) -> str:
    sign = "not " if node.negated else ""
    if isinstance(node, nodes.SpecialAtom) and node.formula is not None:
        named = replace(node, terms=tuple(map(nodes.Variable, terms)), negated=False)
        return f"{sign}{named!r}".replace("V.", "")
    if isinstance(node, nodes.PatternAtom):
        return f"{sign}({node.pattern!r})({', '.join(terms)})"
    name = f"@{node.name}" if isinstance(node, nodes.SpecialAtom) else node.relation
    return f"{sign}{name}({', '.join(terms)})"

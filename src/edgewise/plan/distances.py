"""Variables that are computed from a query and a key, and depend on their distance alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewise.language import nodes
from edgewise.language.specials import computes
from edgewise.language.terms import variables

Form = tuple[int, int, int] | None  # a·I + b·J + c, or any function of I − J
COMPARED = ("leq", "lt", "geq", "gt", "eq", "neq")


class NotByDistance(Exception):
    """Internal: why variables depend on more than a distance."""


def computing(
    conditions: Sequence[nodes.Expression], read: frozenset[str], names: set[str]
) -> tuple[list[nodes.Expression], list[nodes.Expression]]:
    """The conditions that compute the variables `read` by values from `names`, and the rest."""
    found, count = set(read), -1
    while count != len(found):
        count = len(found)
        for item in conditions:
            own = {v.name for v in variables(getattr(item, "terms", ()))} - names
            found |= own if own & found else set()
    chain = [item for item in conditions if _mentions(item, found)]
    return chain, [item for item in conditions if not _mentions(item, found)]


def _mentions(item: nodes.Expression, names: set[str]) -> bool:
    return any(v.name in names for v in variables(getattr(item, "terms", ())))


def check_distances(chain: Sequence[nodes.Expression], query: str, key: str) -> None:
    """Refuse conditions unless which pairs they hold for, and with which values of their other
    variables, follows from I − J.

    >>> from edgewise.language import R, V
    >>> check_distances([R.special.sub(V.I, V.J, V.D), R.special.mod(V.D, 4, V.B)], "I", "J")
    """
    known = _Known({query: (1, 0, 0), key: (0, 1, 0)})
    left = list(chain)
    while left:
        able = [item for item in left if known.follows(item)]
        if not able:
            raise NotByDistance(f"`{left[0]!r}` is not computed from `{query}` and `{key}`")
        known.add(able[0])
        left.remove(able[0])


@dataclass
class _Known:
    forms: dict[str, Form]

    def follows(self, item: nodes.Expression) -> bool:
        """Whether enough is known to compute or test a condition."""
        match item:
            case nodes.SpecialAtom(terms=terms):
                unknown = [p for p, t in enumerate(terms) if self._is_unknown(t)]
                able = len(unknown) == 1 and unknown[0] in computes(item)
                return not unknown or (able and not item.negated)
            case nodes.Atom(terms=terms):
                return not item.negated or not any(map(self._is_unknown, terms))
        return False

    def add(self, item: nodes.Expression) -> None:
        assert isinstance(item, nodes.SpecialAtom | nodes.Atom)
        unknown = [t.name for t in variables(item.terms) if self._is_unknown(t)]
        if isinstance(item, nodes.Atom):
            self._refuse(item, all(self._is_distance(t) for t in item.terms))
            self.forms.update(dict.fromkeys(unknown))
            return
        form = self._form(item)
        if unknown:
            self.forms[unknown[0]] = form

    def _form(self, item: nodes.SpecialAtom) -> Form:
        """Of the variable that a predicate computes; the same where it tests."""
        name, terms = item.name, item.terms
        if name in ("bucket", "bucket_before"):
            sizes = all(self._is_distance(t) for t in terms[2:])
            self._refuse(item, sizes and _is_distance(self._minus(terms[0], terms[1])))
            return None
        at = next((p for p, t in enumerate(terms) if self._is_unknown(t)), None)
        if at is not None and name in ("add", "sub", "next", "eq"):
            form = self._solved(name, terms, at)
            # where it is not a distance it must be a natural number in any case
            self._refuse(item, _is_distance(form) or (form is not None and min(form) >= 0))
            return form
        if name in COMPARED and _is_distance(self._minus(*terms)):
            return None
        self._refuse(item, all(self._is_distance(t) for t in terms if not self._is_unknown(t)))
        return None

    def _solved(self, name: str, terms: tuple[nodes.Term, ...], at: int) -> Form:
        """x + y = z with one of them missing; `sub(x, y, z)` is z + y = x."""
        if name == "eq":
            return self._of(terms[1 - at])
        if name == "next":
            return _sum(self._of(terms[1 - at]), (0, 0, 1 if at else -1))
        x, y, z = terms if name == "add" else (terms[2], terms[1], terms[0])
        missing = at if name == "add" else (2, 1, 0)[at]
        if missing == 2:
            return _sum(self._of(x), self._of(y))
        return self._minus(z, y if missing == 0 else x)

    def _minus(self, x: nodes.Term, y: nodes.Term) -> Form:
        a, b = self._of(x), self._of(y)
        if x == y:
            return (0, 0, 0)
        if a is None or b is None:
            if _is_distance(a) and _is_distance(b):
                return None
            return (1, 1, -1)  # no distance
        return (a[0] - b[0], a[1] - b[1], a[2] - b[2])

    def _of(self, term: nodes.Term) -> Form:
        if isinstance(term, nodes.Variable):
            return self.forms[term.name]
        return (0, 0, term) if isinstance(term, int) else None

    def _is_unknown(self, term: nodes.Term) -> bool:
        return isinstance(term, nodes.Variable) and term.name not in self.forms

    def _is_distance(self, term: nodes.Term) -> bool:
        return self._is_unknown(term) or _is_distance(self._of(term))

    def _refuse(self, item: nodes.Expression, fine: bool) -> None:
        if not fine:
            raise NotByDistance(f"`{item!r}` depends on more than a distance")


def _is_distance(form: Form) -> bool:
    return form is None or form[0] + form[1] == 0


def _sum(a: Form, b: Form) -> Form:
    if a is None or b is None:
        # of two functions of the distance; beside a place it is none
        other = b if a is None else a
        return None if _is_distance(other) else (1, 1, -1)
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])

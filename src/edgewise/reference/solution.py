"""What solving gives: the value of every atom, with gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from edgewise.checks.atoms import ArityMismatch
from edgewise.checks.evaluation import BadQuery, NotDerivable
from edgewise.errors import caller, counted, nearest, safe_repr
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import atoms, is_added
from edgewise.language.terms import order
from edgewise.notebook import html_table, short_value
from edgewise.reference.evaluate import Evaluator, Values
from edgewise.reference.join import Key

if TYPE_CHECKING:
    from edgewise.reference.why import Why
    from edgewise.viz import Picture


class Solution(Mapping[nodes.Atom, Any]):
    """The atoms that hold and their values.

    `solution[R.h(1)]` is a value, `solution[R.h(V.X)]` an ordered mapping from atom to value.
    `weights` has the learnable weights by name, `computed` how many groundings were evaluated
    for each relation.

    >>> from edgewise.language import Program, R, V
    >>> solution = Program([R.h(V.X) <= R.a(V.X, V.Y)]).solve([R.a(1, 2)[3.0], R.a(1, 4)[0.5]])
    >>> solution[R.h(1)].item(), list(solution[R.h(V.X)])
    (3.5, [R.h(1)])
    """

    def __init__(self, program: Program, evaluator: Evaluator, values: Values) -> None:
        self.program = program
        self.weights: dict[str, Tensor] = evaluator.weights.learnable
        self.computed: dict[str, int] = {
            name: count for name, count in evaluator.computed.items() if not is_added(name)
        }
        self.evaluator = evaluator
        self.values_by_atom = values
        self._own = [atom for atom in values if not is_added(atom[0])]
        self._arities = {s.head.relation: len(s.head.terms) for s in program.rules}
        for relation, key in values:
            self._arities.setdefault(relation, len(key))
        read = (atom for rule in program.rules for atom in atoms(rule.body))
        self._known = {*self._arities, *(a.relation for a in read if isinstance(a, nodes.Atom))}

    def __getitem__(self, query: Any) -> Any:
        atom = self._checked_query(query)
        if any(isinstance(term, nodes.Variable) for term in atom.terms):
            if atom.relation not in self._known:
                raise self._missing(atom)
            return self._all(atom)
        found = self.values_by_atom.get((atom.relation, atom.terms))  # type: ignore[arg-type]
        if found is None:
            raise self._missing(atom)
        return found

    def _checked_query(self, query: Any) -> nodes.Atom:
        if not isinstance(query, nodes.Atom) or query.negated or query.weight is not None:
            raise BadQuery(
                f"`{safe_repr(query)}` is not a query", caller(), "write `solution[R.h(1)]`"
            )
        relation = self.program.aliases.get(query.relation, query.relation)
        arity = self._arities.get(relation)
        if arity is not None and arity != len(query.terms):
            variables = ", ".join(f"V.X{i + 1}" for i in range(arity))
            raise ArityMismatch(
                f"the arity of `{query.relation}` is {arity}, the query has {len(query.terms)}",
                caller(),
                f"query all of them with `R.{query.relation}({variables})`",
            )
        return nodes.Atom(relation, query.terms)

    def _all(self, query: nodes.Atom) -> dict[nodes.Atom, Tensor]:
        keys = [
            key
            for relation, key in self.values_by_atom
            if relation == query.relation and _matches(query.terms, key)
        ]
        return Answers(
            (nodes.Atom(query.relation, key), self.values_by_atom[query.relation, key])
            for key in sorted(keys, key=order)
        )

    def _missing(self, atom: nodes.Atom) -> NotDerivable:
        if atom.relation not in self._known:
            near = nearest(atom.relation, sorted(self._known))
            help = (
                f"did you mean `{nodes.Atom(near)!r}`?"
                if near
                else "no rule or fact has this relation"
            )
        else:
            some = list(self._all(nodes.Atom(atom.relation, _variables(len(atom.terms)))))[:3]
            shown = ", ".join(f"`{a!r}`" for a in some)
            help = (
                f"these are derived: {shown}" + (", ..." if len(some) == 3 else "")
                if some
                else "the relation is empty for these facts"
            )
        return NotDerivable(f"nothing derives `{atom!r}`", caller(), help)

    def why(self, atom: nodes.Atom) -> Why:
        """The groundings behind a value, with their contributions and shares.

        >>> from edgewise import Program, R, V
        >>> solution = Program([R.h <= R.x(V.I)]).solve([R.x(0)[1.0], R.x(1)[3.0]])
        >>> print(solution.why(R.h))
        R.h = 4
        R.h <= R.x(V.I)
          sum_agg over 2 groundings
           share                contribution  I  from
           75.0%  ████████████  3             1  x(1) = 3
           25.0%  ████          1             0  x(0) = 1
        """
        from edgewise.reference.why import why

        return why(self, self._checked_query(atom))

    def draw(self, *atoms: nodes.Atom) -> Picture:
        """The network this sample grounds to, or the part of it behind `atoms` (SVG).

        >>> from edgewise import Program, R, V
        >>> Program([R.h <= R.x(V.I)]).solve([R.x(0)[1.0]]).draw(R.h).svg[:4]
        '<svg'
        """
        from importlib import import_module

        return import_module("edgewise.viz").draw_solution(self, atoms)

    def __iter__(self) -> Iterator[nodes.Atom]:
        return (nodes.Atom(relation, key) for relation, key in self._own)

    def __len__(self) -> int:
        return len(self._own)

    def __repr__(self) -> str:
        relations: dict[str, int] = {}
        for relation, _ in self._own:
            relations[relation] = relations.get(relation, 0) + 1
        counts = ", ".join(f"{name}: {count}" for name, count in relations.items())
        return f"<solution of {len(self)} atoms: {counts}>"

    def _repr_html_(self) -> str:
        shown = ((nodes.Atom(*atom), self.values_by_atom[atom]) for atom in self._own)
        return _table(shown, repr(self)[1:-1], len(self))


class Answers(dict[nodes.Atom, Tensor]):
    """The atoms of a query with their values; a table in a notebook."""

    def _repr_html_(self) -> str:
        return _table(self.items(), counted(len(self), "atom"), len(self))


def _table(atoms: Iterable[tuple[nodes.Atom, Tensor]], caption: str, total: int) -> str:
    rows = ((repr(atom), short_value(value.detach().tolist())) for atom, value in atoms)
    return html_table(caption, ["atom", "value"], rows, total)


def _variables(count: int) -> tuple[nodes.Variable, ...]:
    return tuple(nodes.Variable(f"X{i}") for i in range(count))


def _matches(terms: tuple[nodes.Term, ...], key: Key) -> bool:
    bound: dict[str, nodes.Constant] = {}
    return len(terms) == len(key) and all(
        bound.setdefault(t.name, k) == k if isinstance(t, nodes.Variable) else t == k
        for t, k in zip(terms, key, strict=True)
    )

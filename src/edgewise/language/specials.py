"""The predicates on constants that are computed: `R.special.*`, in text `@name`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgewise.errors import EdgewiseError, caller, nearest, safe_repr
from edgewise.language import functions, nodes


@dataclass(frozen=True)
class Special:
    """How many terms a special predicate takes, and which one it can compute from the others.

    `computes` lists positions (from the end if negative): each can be computed alone.
    """

    least: int
    most: int | None
    computes: tuple[int, ...] = ()


MANY = None
SPECIALS = {
    "leq": Special(2, 2),
    "lt": Special(2, 2),
    "geq": Special(2, 2),
    "gt": Special(2, 2),
    "eq": Special(2, 2, (0, 1)),
    "neq": Special(2, 2),
    "in": Special(2, MANY),
    "alldiff": Special(1, MANY),
    "maxcard": Special(2, MANY),
    "add": Special(3, 3, (0, 1, 2)),
    "sub": Special(3, 3, (0, 1, 2)),
    "mul": Special(3, 3, (0, 1, 2)),
    "div": Special(3, 3, (2,)),
    "mod": Special(3, 3, (2,)),
    "next": Special(2, 2, (0, 1)),
    "bucket": Special(5, 5, (4,)),
    "bucket_before": Special(5, 5, (4,)),
    "fn": Special(1, MANY, (-1,)),
    "add_eval": Special(2, 2),
    "sub_eval": Special(2, 2),
    "mul_eval": Special(2, 2),
    "div_eval": Special(2, 2),
    "mod_eval": Special(2, 2),
    "max_eval": Special(2, 2),
    "min_eval": Special(2, 2),
}


def computes(atom: nodes.SpecialAtom) -> tuple[int, ...]:
    """The places of the terms that a predicate can compute, each from all the others."""
    if atom.formula is not None:
        return atom.formula.computes
    return tuple(place % max(len(atom.terms), 1) for place in SPECIALS[atom.name].computes)


class UnknownSpecial(EdgewiseError):
    """`R.special` holds the predicates on constants that are computed."""

    code = "unknown-special"
    example = "R.h(V.I) <= (R.a(V.I), R.special.less(V.I, 3))"
    instead = "R.h(V.I) <= (R.a(V.I), R.special.lt(V.I, 3))"


ELSEWHERE = {"less": "lt", "greater": "gt", "ne": "neq", "equal": "eq", "equals": "eq"}
ELSEWHERE |= {"le": "leq", "lte": "leq", "ge": "geq", "gte": "geq"}


def is_protocol(name: str) -> bool:
    """True for names such as `__len__` and `_repr_html_`, which Python and notebooks look up."""
    return len(name) > 1 and name.startswith("_") and name.endswith("_")


class SpecialNamespace:
    """`R.special.leq`, ..."""

    def __call__(self, *terms: Any) -> nodes.Atom:
        raise UnknownSpecial(
            "`R.special` needs the name of a predicate",
            caller(),
            'write `R.special.leq(...)`; a relation called special is `R["special"](...)`',
        )

    __le__ = __ge__ = __truediv__ = __call__

    def __getattr__(self, name: str) -> Any:
        if is_protocol(name):
            raise AttributeError(name)
        plain = name.removeprefix("_")
        if plain not in SPECIALS:
            near = ELSEWHERE.get(plain) or nearest(plain, list(SPECIALS))
            raise UnknownSpecial(
                f"there is no special predicate `{name}`",
                caller(),
                f"did you mean `R.special.{'_in' if near == 'in' else near}`?"
                if near
                else f"there are {', '.join(SPECIALS)}",
            )
        if plain == "fn":
            return self._fn
        return nodes.SpecialAtom(plain, place=caller())

    def __getitem__(self, name: str) -> Any:
        return getattr(self, str(name))

    @staticmethod
    def _fn(function: Any) -> nodes.SpecialAtom:
        """`fn(f)(X, ..., Y)` holds where f(X, ...) = Y; it computes Y."""
        if not callable(function):
            raise functions.BadFunction(
                f"`{safe_repr(function)}` is not a function",
                caller(),
                "write `R.special.fn(f)(V.X, V.Y)`",
            )
        return nodes.SpecialAtom("fn", function=nodes.Opaque(function), place=caller())

"""The predicates on constants that are computed: `R.special.*`, in text `@name`."""

from dataclasses import dataclass


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

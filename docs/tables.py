"""The reference tables: every function and special predicate, with what it gives when run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewise import EdgewiseError, F, Program, R, V, W
from edgewise.functions import AGGREGATION, COMBINATION, DEFINITIONS, REQUIRED, Definition, Law
from edgewise.language.specials import SPECIALS

OPERANDS: dict[str, tuple[Any, ...]] = {  # of combinations that two numbers are not enough for
    "lookup": ([[1.0, 2.0], [3.0, 4.0]], 1.0),
    "rotate": ([1.0, 0.0], 0.6, 0.8),
    "batch_norm": (3.0, 1.0, 4.0),
}
SPECIAL_MEANINGS = {
    "leq": "X ≤ Y",
    "lt": "X < Y",
    "geq": "X ≥ Y",
    "gt": "X > Y",
    "eq": "X is Y; any constants",
    "neq": "X is not Y; any constants",
    "in": "X is one of the others; in Python `_in`",
    "alldiff": "all terms differ",
    "maxcard": "at most k different terms: `maxcard(k, t1, ...)`",
    "add": "X + Y = Z",
    "sub": "X − Y = Z ≥ 0",
    "mul": "X · Y = Z",
    "div": "⌊X / Y⌋ = Z",
    "mod": "X mod Y = Z",
    "next": "X + 1 = Y",
    "bucket": "T5's bucket of a key at J for a query at I: `bucket(I, J, buckets, far, B)`",
    "bucket_before": "the same where keys after the query share its own bucket",
    "fn": "f(X, ...) = Y for a Python function: `fn(f)(X, ..., Y)`",
    "add_eval": "the value X + Y",
    "sub_eval": "the value X − Y",
    "mul_eval": "the value X · Y",
    "div_eval": "the value X / Y, a true division",
    "mod_eval": "the value X mod Y",
    "max_eval": "the value max(X, Y)",
    "min_eval": "the value min(X, Y)",
}


def functions() -> str:
    """The page of all functions of values."""
    kinds = dict.fromkeys(definition.kind for definition in DEFINITIONS.values())
    parts = [
        "# Functions",
        "The list after `|` holds at most one combination, any transformations, at most one "
        "aggregation. What the columns on the right show was computed when this page was made.",
    ]
    return "\n\n".join([*parts, *(_kind(kind) for kind in kinds), _laws_list()]) + "\n"


def _kind(kind: str) -> str:
    given = {
        AGGREGATION: "of three groundings 3, −1, 2",
        COMBINATION: "of two body atoms, 2 and 3",
    }.get(kind, "of the column [−1, 0.5, 2]")
    rows = [f"## {kind.capitalize()}s", ""]
    rows += [f"| function | is | {given} | laws |", "| --- | --- | --- | --- |"]
    for name, definition in DEFINITIONS.items():
        if definition.kind == kind:
            options = {option.name: option.default for option in definition.options}
            shown = ", ".join(a if v is REQUIRED else f"{a}={v!r}" for a, v in options.items())
            call = f"`F.{name}{f'({shown})' if shown else ''}`"
            of = OPERANDS.get(name)
            given = f" (of {', '.join(map(str, of))})" if of else ""
            cells = (call, _meaning(definition), _result(name, kind) + given, _laws(definition))
            rows.append(f"| {' | '.join(cell.replace('|x|', '∣x∣') for cell in cells)} |")
    return "\n".join(rows)


def _meaning(definition: Definition) -> str:
    """What it is, and where its gradient is not that of the formula."""
    gradient = f"; gradient {definition.gradient}" if definition.gradient else ""
    return definition.summary + gradient


def _laws(definition: Definition) -> str:
    return ", ".join(law.name.lower().replace("_", " ") for law in Law if law in definition)


def _laws_list() -> str:
    rows = [f"- *{law.name.lower().replace('_', ' ')}*: {law.value}" for law in Law]
    return "\n".join(["## Laws", "", *rows])


def _result(name: str, kind: str) -> str:
    function = getattr(F, name)
    options = DEFINITIONS[name].options
    written = {o.name: o.example for o in options if o.default is REQUIRED or o.example}
    function = function(**written) if written else function
    if kind == AGGREGATION:
        rule = (R.h <= R.a(V.X)) | [function]
        return _shown(rule, [R.a(1)[3.0], R.a(2)[-1.0], R.a(3)[2.0]])
    if Law.BATCH in DEFINITIONS[name]:
        x, *averages = OPERANDS[name]
        read = (W[f"average_{at}"][number].fixed() for at, number in enumerate(averages))
        return _shown(R.h <= function(R.a, *read), [R.a[x]])
    if kind == COMBINATION and name in OPERANDS:
        return _shown(R.h <= function(*(R[n] for n in "abc"[: len(OPERANDS[name])])), [
            R[n][value] for n, value in zip("abc", OPERANDS[name], strict=False)
        ])  # fmt: skip
    if kind == COMBINATION:
        return _shown((R.h <= (R.a, R.b)) | [function], [R.a[2.0], R.b[3.0]])
    return _shown((R.h <= R.a) | [function], [R.a[[-1.0, 0.5, 2.0]]])


def _shown(rule: Any, facts: list[Any]) -> str:
    try:
        value = Program([rule]).solve(facts)[R.h].tolist()
    except EdgewiseError as error:
        return error.message
    return f"`{_rounded(value)}`"


def _rounded(value: Any) -> Any:
    return [_rounded(v) for v in value] if isinstance(value, list) else round(value, 4)


def specials() -> str:
    """The page of all special predicates."""
    head = [
        "# Special predicates",
        "",
        "Conditions on constants that are computed: `R.special.leq(V.J, V.I)`, in text "
        "`@leq(J, I)`. The arithmetic is over the natural numbers. A predicate that computes an "
        "argument binds it from the others.",
        "",
        "| predicate | terms | computes | holds if |",
        "| --- | --- | --- | --- |",
    ]
    rows = []
    for name, special in SPECIALS.items():
        terms = str(special.least) if special.least == special.most else f"{special.least} or more"
        counts = len(special.computes)
        computes = "–" if not counts else "the last" if counts == 1 else "any one"
        rows.append(f"| `{name}` | {terms} | {computes} | {SPECIAL_MEANINGS[name]} |")
    return "\n".join([*head, *rows]) + "\n"


PAGES: dict[str, Callable[[], str]] = {"functions.md": functions, "specials.md": specials}

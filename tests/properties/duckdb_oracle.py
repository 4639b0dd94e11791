"""Rules as SQL: what an independent database derives from the same facts.

A relation is a table with columns k0, k1, ... for its keys, which are integers, and v for its
value, a scalar. Rules combine by sum or product.
"""

from collections.abc import Iterable, Sequence

import duckdb
from hypothesis import reject

from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.language.terms import variables

AGGREGATES = {"sum_agg": "sum", "avg_agg": "avg", "max_agg": "max", "min_agg": "min"}
COMPARISONS = {"leq": "<=", "lt": "<", "geq": ">=", "gt": ">", "neq": "<>", "eq": "="}
Answers = dict[tuple[int, ...], float]


def columns(arity: int) -> list[str]:
    return [f"k{at}" for at in range(arity)]


def store(
    database: duckdb.DuckDBPyConnection, name: str, arity: int, facts: Iterable[nodes.Atom]
) -> None:
    typed = ", ".join([*(f"{column} BIGINT" for column in columns(arity)), "v DOUBLE"])
    database.execute(f'CREATE OR REPLACE TABLE "{name}" ({typed})')
    rows = [
        [*a.terms, a.weight.value if a.weight is not None else 1.0]
        for a in facts
        if a.relation == name
    ]
    if rows:
        marks = ", ".join("?" * (arity + 1))
        database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)


def derive(database: duckdb.DuckDBPyConnection, rules: Sequence[nodes.Rule]) -> tuple[Answers, int]:
    """The relation that the rules of one head derive, and from how many groundings."""
    name, arity = rules[0].head.relation, len(rules[0].head.terms)
    reject_formulas(rules)
    queries = [grouped(rule) for rule in rules]
    count = sum(database.execute(counted(rule)).fetchone()[0] for rule in rules)
    keys = ", ".join(columns(arity))
    union = " UNION ALL ".join(queries)
    group = f"GROUP BY {keys}" if keys else "HAVING count(*) > 0"
    total = f"SELECT {', '.join([*columns(arity), 'sum(v) AS v'])} FROM ({union}) {group}"
    database.execute(f'CREATE OR REPLACE TABLE "{name}" AS {total}')
    rows = database.execute(f'SELECT * FROM "{name}"').fetchall()
    return {tuple(row[:-1]): row[-1] for row in rows}, count


def grouped(rule: nodes.Rule) -> str:
    """The groundings of one rule, aggregated by head."""
    names = [t.name if isinstance(t, nodes.Variable) else None for t in rule.head.terms]
    terms = [
        f'"{name}"' if name else str(t) for name, t in zip(names, rule.head.terms, strict=True)
    ]
    keys = [f"{term} AS {c}" for term, c in zip(terms, columns(len(terms)), strict=True)]
    chosen = [f.name for f in rule.functions if f.name.endswith("_agg")]
    value = (
        "count(*)" if chosen == ["count_agg"] else f"{AGGREGATES[(chosen or ['sum_agg'])[0]]}(v)"
    )
    group = ", ".join(dict.fromkeys(f'"{name}"' for name in names if name))
    ending = f"GROUP BY {group}" if group else "HAVING count(*) > 0"
    select = ", ".join([*keys, f"CAST({value} AS DOUBLE) AS v"])
    return f"SELECT {select} FROM ({groundings(rule)}) {ending}"


def counted(rule: nodes.Rule) -> str:
    return f"SELECT count(*) FROM ({groundings(rule)})"


def groundings(rule: nodes.Rule) -> str:
    """One row for each assignment of the variables of the head and of the atoms with values."""
    tables, where, known = joined(rule)
    for atom in atoms(rule):
        if isinstance(atom, nodes.Atom) and atom.negated:
            where.append(absent(atom, known))
    valued = [a for a in atoms(rule) if isinstance(a, nodes.Atom) and a.carries_value]
    positive = [a for a in atoms(rule) if isinstance(a, nodes.Atom) and not a.negated]
    symbol = " * " if any(f.name == "product" for f in rule.functions) else " + "
    values = [f"t{at}.v" for at, atom in enumerate(positive) if atom.carries_value]
    terms = [t for atom in (rule.head, *valued) for t in variables(atom.terms)]
    visible = [f'{known[name]} AS "{name}"' for name in dict.fromkeys(t.name for t in terms)]
    select = ", ".join([*visible, f"{symbol.join(values) or '1.0'} AS v"])
    source = f" FROM {', '.join(tables)}" if tables else ""
    return f"SELECT DISTINCT {select}{source} WHERE {' AND '.join(['true', *where])}"


def joined(rule: nodes.Rule) -> tuple[list[str], list[str], dict[str, str]]:
    """Tables, conditions, and the SQL expression of every variable."""
    tables: list[str] = []
    where: list[str] = []
    known: dict[str, str] = {}
    for atom in atoms(rule):
        if not isinstance(atom, nodes.Atom) or atom.negated:
            continue
        for position, term in enumerate(atom.terms):
            column = f"t{len(tables)}.k{position}"
            if isinstance(term, nodes.Variable) and term.name not in known:
                known[term.name] = column
            else:
                where.append(f"{column} = {shown(term, known)}")
        tables.append(f'"{atom.relation}" AS t{len(tables)}')
    waiting = [atom for atom in atoms(rule) if isinstance(atom, nodes.SpecialAtom)]
    while waiting:
        ready = next(a for a in waiting if len(unknown(a, known)) <= 1 and computable(a, known))
        waiting.remove(ready)
        where += special(ready, known)
    return tables, where, known


def unknown(atom: nodes.SpecialAtom, known: dict[str, str]) -> list[str]:
    return [v.name for v in variables(atom.terms) if v.name not in known]


def computable(atom: nodes.SpecialAtom, known: dict[str, str]) -> bool:
    return not unknown(atom, known) or atom.name in (
        "add",
        "sub",
        "mul",
        "div",
        "mod",
        "next",
        "eq",
    )


def reject_formulas(rules: list[nodes.Rule]) -> None:
    """SQL solves no equations, and its division rounds towards 0."""
    for rule in rules:
        for atom in atoms(rule.body):
            if isinstance(atom, nodes.SpecialAtom) and atom.formula is not None:
                text = atom.formula.shown(["x"] * len(atom.terms))
                if any(sign in text for sign in ("==", "//", "%")):
                    reject()


def shown(term: nodes.Term, known: dict[str, str]) -> str:
    return f"({known[term.name]})" if isinstance(term, nodes.Variable) else str(term)


def absent(atom: nodes.Atom, known: dict[str, str]) -> str:
    same = [f"n.k{at} = {shown(term, known)}" for at, term in enumerate(atom.terms)]
    tested = " AND ".join(["true", *same])
    return f'NOT EXISTS (SELECT 1 FROM "{atom.relation}" AS n WHERE {tested})'


def special(atom: nodes.SpecialAtom, known: dict[str, str]) -> list[str]:
    """The conditions that an atom makes; a variable it computes is noted in `known`."""
    missing = unknown(atom, known)
    terms = [t for t in atom.terms if not isinstance(t, str)]
    sides = [
        None if isinstance(t, nodes.Variable) and t.name in missing else shown(t, known)
        for t in terms
    ]
    if atom.formula is not None:
        text = atom.formula.shown([str(side) for side in sides])
        value, conditions = None, [text.replace("!=", "<>")]
    else:
        value, conditions = solved(atom.name, sides)
    if missing:
        known[missing[0]] = str(value)
    tested = " AND ".join(f"({condition})" for condition in conditions)
    return [f"NOT ({tested})" if atom.negated else tested] if tested else []


def solved(name: str, sides: list[str | None]) -> tuple[str | None, list[str]]:
    """The missing side, if one is, and what must hold."""
    match name, sides:
        case "sub", (x, y, d):
            return solved("add", [y, d, x])
        case "next", (x, y):
            return solved("add", [x, "1", y])
        case ("add", (None, y, z)) | ("add", (y, None, z)):
            return f"{z} - {y}", [f"{z} - {y} >= 0"]
        case ("mul", (None, y, z)) | ("mul", (y, None, z)):
            return f"{z} // {y}", [f"{z} % {y} = 0"]
        case "eq", (None, x) | (x, None):
            return x, []
        case (("add" | "mul" | "div" | "mod"), (x, y, z)):
            sign = {"add": "+", "mul": "*", "div": "//", "mod": "%"}[name]
            result = f"{x} {sign} {y}"
            defined = [f"{y} <> 0"] if sign in ("//", "%") else []
            return result, defined + ([] if z is None else [f"{result} = {z}"])
        case "in", (x, *rest):
            return None, [f"{x} IN ({', '.join(map(str, rest))})"]
        case "alldiff", _:
            return None, [f"len(list_distinct([{', '.join(map(str, sides))}])) = {len(sides)}"]
        case "maxcard", (k, *rest):
            return None, [f"len(list_distinct([{', '.join(map(str, rest))}])) <= {k}"]
        case _, (x, y):
            return None, [f"{x} {COMPARISONS[name]} {y}"]
    raise ValueError(name)

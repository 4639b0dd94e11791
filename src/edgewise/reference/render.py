"""A `Why` for people (text, HTML) and for programs (plain data)."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from edgewise.language import nodes
from edgewise.notebook import FONT, html_table

if TYPE_CHECKING:
    from edgewise.reference.why import Derivation, Grounding, Why

# how many groundings `why` prints: those with the largest shares, and how many are left out
MOST_GROUNDINGS = 20
BAR = 16


def number(x: float, digits: int = 4) -> str:
    """A number of some digits, as short as it goes.

    >>> number(0.125), number(-3.0), number(1e-17), number(123456.0)
    ('0.125', '-3', '1e-17', '1.235e+05')
    """
    shown = f"{x:.{digits}g}"
    return "0" if shown == "-0" else shown


def short(value: Tensor, most: int = 4, digits: int = 4) -> str:
    """A value, abbreviated.

    >>> import torch
    >>> short(torch.tensor(0.5)), short(torch.arange(3.0)), short(torch.zeros(8, 8))
    ('0.5', '[0, 1, 2]', '8×8 matrix')
    """
    if value.ndim == 0:
        return number(value.item(), digits)
    if value.ndim == 2 and value.shape[0] > 1:
        return f"{value.shape[0]}×{value.shape[1]} matrix"
    items = value.detach().reshape(-1).tolist()
    inside = ", ".join(number(x, digits) for x in items[:most]) + (
        ", …" if len(items) > most else ""
    )
    return f"[[{inside}]]" if value.ndim == 2 else f"[{inside}]"


def plain(atom: nodes.Atom | nodes.SpecialAtom) -> str:
    """A ground atom without `R.`.

    >>> plain(nodes.Atom("edge", (1, "a")))
    'edge(1, a)'
    """
    name = f"@{atom.name}" if isinstance(atom, nodes.SpecialAtom) else atom.relation
    return f"{name}({', '.join(map(str, atom.terms))})" if atom.terms else name


def condition(atom: nodes.Atom | nodes.SpecialAtom | nodes.PatternAtom) -> str:
    """A ground condition.

    >>> condition(nodes.Atom("edge", (1, 2), negated=True))
    'not edge(1, 2)'
    """
    if isinstance(atom, nodes.PatternAtom):
        name = f"{atom.pattern!r}({', '.join(map(str, atom.terms))})"
    else:
        name = plain(atom)
    return f"not {name}" if atom.negated else name


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


def bar(share: float | None, width: int = BAR) -> str:
    """A bar as long as the share; a light one where the grounding pulls the other way."""
    if share is None:
        return ""
    return ("█" if share > 0 else "░") * max(min(round(abs(share) * width), width), 0)


def by_share(groundings: Sequence[Grounding]) -> list[Grounding]:
    return sorted(groundings, key=lambda g: -math.inf if g.share is None else g.share, reverse=True)


def as_text(why: Why) -> str:
    head = f"{why.atom!r} = {short(why.value)}"
    if not why.derivations:
        return f"{head}\nfact"
    lines = [head]
    several = len(why.derivations) + (why.fact is not None) > 1
    if why.line is not None:
        lines.append(f"combined by {why.line!r}")
    elif several:
        lines.append(f"the sum of {len(why.derivations)} rules")
    if why.fact is not None:
        lines.append(f"fact = {short(why.fact)}, share {percent(why.fact_share)}")
    for derivation in why.derivations:
        lines.append(repr(derivation.rule))
        lines += [f"  {line}" for line in _derivation(derivation, several or why.line is not None)]
    return "\n".join(lines)


def _derivation(derivation: Derivation, of_several: bool) -> list[str]:
    count = len(derivation.groundings)
    title = f"{derivation.aggregation.name} over {count} grounding{'s' * (count != 1)}"
    if derivation.weight is not None:
        title = f"{derivation.aggregation.name}: weight {short(derivation.weight)} in its group"
    if of_several:
        title += f", gives {short(derivation.value)}, share {percent(derivation.share)}"
    title += _balance(derivation)
    lines = [title]
    for name, some in _apart(derivation):
        lines += [name] if name else []
        lines += _table(*_grounding_rows(some))
    if derivation.group:
        lines += ["group", *_table(*_group_rows(derivation))]
    return lines


def _group_rows(derivation: Derivation) -> tuple[list[str], list[list[str]]]:
    members = sorted(derivation.group, key=lambda m: -m.weight.mean().item())
    rows = [
        [percent(w := m.weight.mean().item()), bar(w), short(m.score), plain(m.atom)]
        for m in members
    ]
    for member, row in zip(members, rows, strict=True):
        row.append("← this" if member.weight is derivation.weight else "")
    return ["weight", "", "score", "atom", ""], rows


def _balance(derivation: Derivation) -> str:
    """How much is for the value and how much against it, where there is both."""
    shares = [g.share for g in derivation.groundings if g.share is not None]
    against = -sum(share for share in shares if share < 0)
    if not against:
        return ""
    return f": {percent(1 - against)} for, {percent(against)} against"


def _apart(derivation: Derivation) -> list[tuple[str, list[Grounding]]]:
    """Groundings for the value, the largest share first, and those against it."""
    ordered = by_share(derivation.groundings)
    against = [g for g in reversed(ordered) if g.share is not None and g.share < 0]
    found = [("", [g for g in ordered if g.share is None or g.share >= 0]), ("against", against)]
    return [(name, some) for name, some in found if some]


def _grounding_rows(groundings: Sequence[Grounding]) -> tuple[list[str], list[list[str]]]:
    names = [name for name, _ in groundings[0].assignment]
    where = any(g.conditions for g in groundings)
    rows = [
        [
            percent(g.share),
            bar(g.share),
            short(g.contribution),
            *(str(key) for _, key in g.assignment),
            ", ".join(f"{plain(atom)} = {short(value, 2, 3)}" for atom, value in g.used),
            *([", ".join(map(condition, g.conditions))] if where else []),
        ]
        for g in groundings
    ]
    return ["share", "", "contribution", *names, "from", *(["where"] if where else [])], rows


def _table(titles: list[str], rows: list[list[str]]) -> list[str]:
    shown = [titles, *rows[:MOST_GROUNDINGS]]
    widths = [max(len(row[c]) for row in shown) for c in range(len(titles))]
    widths[0] = max(widths[0], 6)
    lines = []
    for row in shown:
        cells = [row[0].rjust(widths[0])]
        cells += [cell.ljust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    left = len(rows) - MOST_GROUNDINGS
    return lines + ([f"   … {left} more"] if left > 0 else [])


def as_html(why: Why) -> str:
    parts = [f"<p><b>{html.escape(repr(why.atom))}</b> = {html.escape(short(why.value))}</p>"]
    if why.line is not None:
        parts.append(f"<p>combined by <code>{html.escape(repr(why.line))}</code></p>")
    if why.fact is not None:
        share = f", share {percent(why.fact_share)}" if why.derivations else ""
        parts.append(f"<p>fact = {html.escape(short(why.fact))}{share}</p>")
    for derivation in why.derivations:
        rule = html.escape(repr(derivation.rule))
        gives = f"{derivation.aggregation.name}, gives {short(derivation.value)}"
        gives += _balance(derivation)
        parts.append(f"<p><code>{rule}</code><br>{html.escape(gives)}</p>")
        for name, some in _apart(derivation):
            parts += [f"<p>{name}</p>"] if name else []
            parts.append(_html_table(*_grounding_rows(some)))
        if derivation.group:
            parts.append(_html_table(*_group_rows(derivation)))
    return f'<div style="{FONT}">{chr(10).join(parts)}</div>'


def _html_table(titles: list[str], rows: list[list[str]]) -> str:
    return html_table("", titles, rows, len(rows), MOST_GROUNDINGS)


def as_data(why: Why) -> dict[str, Any]:
    return {
        "atom": plain(why.atom),
        "value": _data(why.value),
        "fact": None if why.fact is None else _data(why.fact),
        "fact_share": why.fact_share,
        "line": None if why.line is None else repr(why.line),
        "derivations": [_derivation_data(derivation) for derivation in why.derivations],
    }


def _derivation_data(derivation: Derivation) -> dict[str, Any]:
    return {
        "rule": repr(derivation.rule),
        "aggregation": derivation.aggregation.name,
        "value": _data(derivation.value),
        "share": derivation.share,
        "weight": None if derivation.weight is None else _data(derivation.weight),
        "group": [
            {"atom": plain(m.atom), "score": _data(m.score), "weight": _data(m.weight)}
            for m in derivation.group
        ],
        "groundings": [
            {
                "assignment": dict(g.assignment),
                "used": [{"atom": plain(atom), "value": _data(value)} for atom, value in g.used],
                "conditions": [condition(atom) for atom in g.conditions],
                "contribution": _data(g.contribution),
                "share": g.share,
            }
            for g in derivation.groundings
        ],
    }


def _data(value: Tensor) -> Any:
    return value.detach().tolist()

"""How messages spell the user's own things, in the form the program is written in."""

from dataclasses import replace

from edgewise.errors import Caller, Place, Span, counted
from edgewise.language import nodes


def condition(place: Place | None, relation: str, *variables: str) -> str:
    """A hidden atom to suggest: `R._node(V.X)` in Python, `*node(X)` in text."""
    name = hidden(place, relation)
    mark = "V." if isinstance(place, Caller) else ""
    return f"{name}({', '.join(mark + v for v in variables)})"


def hidden_form(atom: nodes.Atom) -> str:
    """The atom as a condition."""
    if isinstance(atom.place, Caller):
        return repr(replace(atom, hidden=True))
    shown = (t.name if isinstance(t, nodes.Variable) else repr(t) for t in atom.terms)
    return f"*{atom.relation}({', '.join(shown)})" if atom.terms else f"*{atom.relation}"


def hidden(place: Place | None, relation: str) -> str:
    if isinstance(place, Caller):
        return f"R._{relation}" if relation.isidentifier() else f'R.hidden["{relation}"]'
    return f"*{relation}"


def function(place: Place | None, name: str) -> str:
    return f"F.{name}" if isinstance(place, Caller) else name


def weight_with_shape(item: nodes.Weight) -> str:
    """A named weight with a shape: `W.p(V.I)[64, 32]`, in text `$p(I)={64, 32}`."""
    if isinstance(item.place, Caller):
        alone = f"`{item!r}[64, 32]`"
        return alone if item.keys else f'`["{item.name}": 64, 32]`, or alone {alone}'
    shown = [t.name if isinstance(t, nodes.Variable) else repr(t) for t in item.keys]
    return f"`${item.name}{'(' + ', '.join(shown) + ')' if shown else ''}={{64, 32}}`"


def name(item: nodes.Expression) -> str:
    """What an item of a body is called."""
    match item:
        case nodes.Atom():
            return item.relation
        case nodes.SpecialAtom(formula=None):
            return f"special.{item.name}"
        case nodes.PatternAtom():
            return repr(item.pattern)
        case nodes.Apply():
            return item.function.name
        case nodes.Weight():
            return item.name or "a weight"
    return repr(item)


def terms(count: int) -> str:
    return counted(count, "term")


def elsewhere(place: Place | None, here: Place | None) -> str:
    """` (line 3)` or ` (file:3)`, seen from `here`; nothing if it is the same line or unknown."""
    there, span = _span(place), _span(here)
    if there is None or (span and (there.file, there.line) == (span.file, span.line)):
        return ""
    if span and there.file == span.file:
        return f" (line {there.line})"
    return f" ({there.file}:{there.line})"


def _span(place: Place | None) -> Span | None:
    return place.span if isinstance(place, Caller) else place


def is_python(place: Place | None) -> bool:
    """Whether something was written in Python, not in text."""
    return isinstance(place, Caller)

"""How messages spell the user's own things, in the form the program is written in."""

from edgewise.errors import Caller, Place
from edgewise.language import nodes


def condition(place: Place | None, relation: str, *variables: str) -> str:
    """A hidden atom to suggest: `R._node(V.X)` in Python, `*node(X)` in text."""
    name = hidden(place, relation)
    mark = "V." if isinstance(place, Caller) else ""
    return f"{name}({', '.join(mark + v for v in variables)})"


def hidden(place: Place | None, relation: str) -> str:
    if isinstance(place, Caller):
        return f"R._{relation}" if relation.isidentifier() else f'R.hidden["{relation}"]'
    return f"*{relation}"


def function(place: Place | None, name: str) -> str:
    return f"F.{name}" if isinstance(place, Caller) else name


def name(item: nodes.Expression) -> str:
    """What an item of a body is called."""
    match item:
        case nodes.Atom():
            return item.relation
        case nodes.SpecialAtom():
            return f"special.{item.name}"
        case nodes.PatternAtom():
            return repr(item.pattern)
        case nodes.Apply():
            return item.function.name
        case nodes.Weight():
            return item.name or "a weight"
    return repr(item)


def terms(count: int) -> str:
    return f"{count} term" + ("" if count == 1 else "s")


def where(place: Place | None) -> str:
    """` (file:line)`, or nothing where the place is not known."""
    span = place.span if isinstance(place, Caller) else place
    return f" ({span.file}:{span.line})" if span else ""

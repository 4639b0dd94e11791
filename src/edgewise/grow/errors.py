"""What a model that grows can be told wrongly."""

from edgewise.errors import EdgewiseError

_CAUSAL = """\
rules = [
    (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R.special.leq(V.J, V.I)))
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
    (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
]"""


class CannotGrow(EdgewiseError):
    """Rows can be appended where no row that was computed before would change."""

    code = "cannot-grow"
    example = "Program([R.h <= R.x(V.I)]).compile(R.h).growing(8)(x=torch.ones(1))"
    instead = f"{_CAUSAL}\nProgram(rules).compile(R.h).growing(8)(x=torch.ones(1, 4))"


class Full(EdgewiseError):
    """Keys and values are kept in buffers that are made once, for `capacity` rows."""

    code = "cache-full"
    example = f"{_CAUSAL}\nProgram(rules).compile(R.h).growing(2)(x=torch.ones(3, 4))"
    instead = f"{_CAUSAL}\nProgram(rules).compile(R.h).growing(8)(x=torch.ones(3, 4))"


class BadAppend(EdgewiseError):
    """What is appended goes on where the rows before it ended: the same inputs, the same batch."""

    code = "bad-append"
    example = f"""\
{_CAUSAL}
growing = Program(rules).compile(R.h).growing(8)
growing(x=torch.ones(2, 3, 4))
growing(x=torch.ones(1, 3, 4))"""
    instead = f"""\
{_CAUSAL}
growing = Program(rules).compile(R.h).growing(8)
growing(x=torch.ones(2, 3, 4))
growing(x=torch.ones(2, 3, 4))"""

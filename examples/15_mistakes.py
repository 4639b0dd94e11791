"""What Edgewise says when something is wrong: the place, the fact, and the next step."""

from edgewise import EdgewiseError, F, Program, R, V

facts = [R.x(1)[[1.0, 2.0]]]

MISTAKES = {
    "unbound-variable": lambda: Program([R.h(V.Node) <= R.x(V.I)]).solve(facts),
    "shape-mismatch": lambda: Program([R.h(V.I) <= R.x(V.I)[4, 3]]).solve(facts),
    "missing-parentheses": lambda: R.h(V.I) <= R.x(V.I) | [F.relu],
    "unknown-function": lambda: (R.h(V.I) <= R.x(V.I)) | [F.rellu],
    "arity-mismatch": lambda: Program([R.h(V.I) <= (R.x(V.I), R._x(V.I, V.J))]).solve(facts),
    "not-derivable": lambda: Program([R.h(V.I) <= R.x(V.I)]).solve(facts)[R.h(7)],
}


def said(mistake):
    """The error that a mistake raises."""
    try:
        mistake()
    except EdgewiseError as error:
        return error
    raise AssertionError("no error")


errors = {code: said(mistake) for code, mistake in MISTAKES.items()}
for error in errors.values():
    print(error, end="\n\n")

print(f"{len(errors)} mistakes, each with a place and a next step")
assert all(error.code == code for code, error in errors.items())
assert all(error.span and error.help for error in errors.values())

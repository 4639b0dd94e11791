"""What a newcomer is told about every mistake in tests/mistakes.py can be acted on."""

import ast
import re
from pathlib import Path

import pytest
from error_pages import errors
from mistakes import MISTAKES

import edgewise

SHELL = ("edgewise ", "torchrun ", "make ", "pip ", "hf ", "--")
# a place of a plan, names of a state, an address, the text form
OTHER = {"attention from I over J", "layer.0", "postgresql://...", ")"}
OTHER |= {"head :- body.", "h(X) :- a(X).", "edge(a, b)."}


def test_there_are_forty():
    assert len({mistake.title for mistake in MISTAKES}) == len(MISTAKES) >= 40


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_it_is_told(mistake):
    found = errors.diagnostics(mistake.source)
    assert {one.code for one in found} == {mistake.code}
    text = str(found[0])
    for words in mistake.says:
        assert words in text
    assert found[0].help
    assert re.search(r"\n +\| +\^+\n", text), "no caret"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_nothing_of_the_inside_shows(mistake):
    text = str(errors.diagnostics(mistake.source)[0])
    assert not re.search(
        r"edgewise\.(?!graphs)|Traceback|nodes\.|Opaque|Apply|None\b|0x[0-9a-f]+", text
    )
    assert "src/edgewise" not in text


def is_python(code: str) -> bool:
    """Whether a suggestion can be pasted: an expression, an argument, an operator, a weight."""
    for written in (code, f"f({code}0)", f"a{code}", f"a {code} b"):
        try:
            ast.parse(written)
        except SyntaxError:
            continue
        return True
    return False


def suggested(path: Path) -> set[str]:
    """What is between backticks in the next steps that a file writes."""
    found = set()
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1][0].isupper():
            named = [one.value for one in call.keywords if one.arg == "help"]
            for help in (*named, *call.args[2:3]):
                found |= {code for text in texts(help) for code in re.findall("`([^`]+)`", text)}
    return found


def texts(node: ast.expr) -> list[str]:
    """The texts that an expression may give; what it puts in is a name."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(p.value if isinstance(p, ast.Constant) else "x" for p in parts)]
        case ast.IfExp(body=first, orelse=second):
            return texts(first) + texts(second)
        case ast.BinOp(left=left, right=right):
            return [a + b for a in texts(left) for b in texts(right)]
    return []


def test_suggestions_are_valid_python():
    source = Path(edgewise.__file__).parent
    python = [path for path in source.rglob("*.py") if "text_form" not in path.parts]
    codes = {code: path.name for path in python for code in suggested(path)}
    codes |= {
        code: one.code
        for mistake in MISTAKES
        for one in errors.diagnostics(mistake.source)
        for code in re.findall("`([^`]+)`", one.help)
    }
    assert len(codes) > 300
    wrong = {c: at for c, at in codes.items() if not is_python(c) and not c.startswith(SHELL)}
    assert wrong.keys() == OTHER

"""NeuraLogic's text format: offsets, types, imports, `<=`; the values that its grammar means."""

import pytest

from edgewise import EdgewiseError, Program, R, V
from edgewise.language.text_form.parser import parse


def values(program, facts, relation):
    solved = program.solve([fact.atom for fact in Program.parse(facts).facts])
    return {str(atom): float(value.detach()) for atom, value in solved[relation].items()}


def test_soft_and_hard_negation():
    facts = "<2.0> a(1). <3.0> a(2). <0.3> b(2)."
    soft = values(Program.parse("h(X) :- a(X), ~b(X)."), facts, R.h(V.X))
    assert soft == pytest.approx({"R.h(2)": 3.7})
    assert values(Program.parse("h(X) :- a(X), !b(X)."), facts, R.h(V.X)) == {"R.h(1)": 2.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h(X) :- a(X).\nh/1 0.5", 2.5),
        ("h(X) :- a(X).\nh/1 0.5.\nh/1 [offset=<1.5>]", 3.5),  # the last one counts
        ("h(X) <= a(X), 0.5.", 2.5),
        ("h(X) :- a(X) 0.5.", 2.5),
        ("h(X) :- a(X). [offset=0.5]", 2.5),
        ("h(X) :- a(X).\nh(X) :- 2 a(X).\nh/1 <-6.5>\nh/1 [relu]", 0.0),
        ("h(X) :- a(X).\nh(X) :- 2 a(X).\nh/1 <1.0>\nh/1 [product]", 9.0),
        ("g/1 1.0\nh(X) :- a(X).", 2.0),
        ("h / 1 [identity]\nh(X) :- a(X).", 2.0),
        ("3 @em(X) :- a(X).\nh(X) :- @em(X).", 6.0),
        ("h(X) :- 3 @a(X).", 6.0),
    ],
)
def test_offsets_and_marks(text, expected):
    program = Program.parse(text)
    assert Program.parse(program.text()) == program
    assert values(program, "<2.0> a(1).", R.h(V.X)) == {"R.h(1)": expected}


def test_an_offset_is_learned_and_has_a_shape():
    program = Program.parse("h(X) :- {3,1} a(X).\nh/1 {3,1}")
    assert sorted(tuple(w.shape) for w in program.weights(seed=0).values()) == [(3, 1), (3, 1)]


def test_a_type_is_a_condition():
    program = Program.parse("h(woman:Y) :- s(X, woman:Y).")
    facts = "<2.0> s(a, woman:b), <3.0> s(a, man:c), <5.0> s(a, d)."
    assert values(program, facts, R.h(V.X)) == {"R.h('b')": 2.0}
    assert '*"woman:"(Y)' in program.text()


def test_weights_that_are_not_learned():
    program = Program.parse(
        "{1} h(X) :- a(X). [learnable=false]\n$w={1} g(X) :- a(X).\n$w [learnable=false]"
    )
    assert program.weights(seed=0) == {}
    assert list(Program.parse("$w={1} g :- a.\n$w [learnable=true]").weights(seed=0)) == ["w"]


def test_sparse_matrices_with_parentheses():
    (rule,) = Program.parse("h :- [2,3|(0,1:0.5),(1,2:2.0)] a.").rules
    assert rule.body[0].weight.value == ((0, 0.5, 0), (0, 0, 2.0))


def test_imports_are_relative_to_their_file(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "main.rules").write_text("import inner/one.rules  % a comment\nh(X) :- g(X).\n")
    (tmp_path / "inner" / "one.rules").write_text('import "../two.rules"\n2 g(X) :- f(X).\n')
    (tmp_path / "two.rules").write_text("f(X) :- a(X).\nf/1 1.0\n")
    program = Program.load(tmp_path / "main.rules")
    assert values(program, "<2.0> a(1).", R.h(V.X)) == {"R.h(1)": 6.0}


def test_import_is_a_relation_too():
    assert (
        Program.parse("import(X) :- a(X).\nimport :- import(1).").rules[0].head.relation == "import"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import ./main.rules", "imports itself"),
        ("import ./nothing.rules", "No such file"),
        ("import ./folder", "directory"),
        ("import ./bad.rules", "expected"),
        ("import ./binary.rules", "utf-8"),
    ],
)
def test_imports_that_fail_say_where(tmp_path, line, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "bad.rules").write_text("h(X) :- a(X,.\n")
    (tmp_path / "binary.rules").write_bytes(b"\xff\xfe\x00h")
    (tmp_path / "main.rules").write_text(f"g(X) :- a(X).\n{line}\n")
    with pytest.raises(EdgewiseError, match=message) as caught:
        Program.load(tmp_path / "main.rules")
    error = caught.value.errors[0]
    assert error.code == "syntax-error"
    assert error.span.line == (1 if "bad" in line else 2)


def test_a_text_without_a_file_imports_nothing():
    with pytest.raises(EdgewiseError, match=r"Program\.load"):
        Program.parse("import ./a.rules")


def test_facts_for_all_constants():
    text = "<3.0> e(X, X).\ne(X, Y) :- d(X, Y).\ng(X) :- n(Y), e(X, Y). [product]"
    with pytest.raises(EdgewiseError, match="a fact has none"):
        Program.parse(text)
    program = parse(text, lifts=True)
    facts = "<1.0> n(1), <10.0> n(2), <2.0> d(1, 1), <2.0> d(1, 2)."
    assert values(program, facts, R.g(V.X)) == {"R.g(1)": 22.0, "R.g(2)": 30.0}
    assert Program.parse(program.text()) == program


def test_facts_for_all_constants_alone():
    program = parse("h(X) :- e(X, a).\n<2.0> e(X, Y).", lifts=True)
    assert values(program, "", R.h(V.X)) == {"R.h('a')": 2.0}

"""The text form: the published grammar, our extensions, precedence, places and mistakes."""

import pytest

from edgewise import EdgewiseError, F, Program, R, V, W, repeat
from edgewise.errors import Span
from edgewise.graphs import global_tokens, window
from edgewise.language import nodes


def only(text: str) -> nodes.Statement:
    (statement,) = Program.parse(text).statements
    return statement


PUBLISHED = [
    ("predict :- a.", R.predict <= R.a),
    ("h(X) :- a(X), b(X, Y).", R.h(V.X) <= (R.a(V.X), R.b(V.X, V.Y))),
    ("{8,2} h(X) :- {2} a(X).", R.h(V.X)[8, 2] <= R.a(V.X)[2,]),
    ("0.5 h(X) :- -2 a(X).", R.h(V.X)[0.5] <= R.a(V.X)[-2.0]),
    ("<1.0> h(X) :- <[1, 2]> a(X).", R.h(V.X)[1.0].fixed() <= R.a(V.X)[[1, 2]].fixed()),
    ("h(X) :- [[1,2],[3,4]] a(X).", R.h(V.X) <= R.a(V.X)[[[1, 2], [3, 4]]]),
    ("h(X) :- [[1,2] [3,4]] a(X).", R.h(V.X) <= R.a(V.X)[[[1, 2], [3, 4]]]),
    ("h(X) :- [4| 1:0.5, 3:2] a(X).", R.h(V.X) <= R.a(V.X)[[0, 0.5, 0, 2]]),
    ("h(X) :- [2,3| 0,1:0.5] a(X).", R.h(V.X) <= R.a(V.X)[[[0, 0.5, 0], [0, 0, 0]]]),
    ("$w={8,2} h(X) :- $v=<0.5> a(X).", R.h(V.X)["w":8, 2] <= R.a(V.X)["v":0.5].fixed()),
    ("h(X) :- a(X), *edge(X,Y).", R.h(V.X) <= (R.a(V.X), R._edge(V.X, V.Y))),
    ("h(X) :- a(X), ~b(X), !c(X).", R.h(V.X) <= (R.a(V.X), -R.b(V.X), ~R.c(V.X))),
    ("h(X) :- a(X), @leq(X, 3).", R.h(V.X) <= (R.a(V.X), R.special.leq(V.X, 3))),
    ("h(X) :- a(X), *@leq(X, 3).", R.h(V.X) <= (R.a(V.X), R.special.leq(V.X, 3))),
    ("h(X) :- a(X), 0.5.", R.h(V.X) <= (R.a(V.X), W[0.5])),
    ("h(X) :- a(X), $b={8}.", R.h(V.X) <= (R.a(V.X), W.b[8,])),
    ("h/1(X) :- a/2(X, _y).", R.h(V.X) <= R.a(V.X, V["_y"])),
    ("h(X) :- a(X). []", R.h(V.X) <= R.a(V.X)),
    ("h(X):-a(X).[activation=tanh]", (R.h(V.X) <= R.a(V.X)) | [F.tanh]),
    ("h(X) :- a(X). [transformation=leakyrelu]", (R.h(V.X) <= R.a(V.X)) | [F.leaky_relu]),
    ("h :- a. [aggregation=avg]", (R.h <= R.a) | [F.avg_agg]),
    ("h :- a. [activation=relu, aggregation=max]", (R.h <= R.a) | [F.relu, F.max_agg]),
    ("h :- a. [combination=softmax]", (R.h <= R.a) | [F.softmax_comb]),
    ("h :- a. [^activation=sigm]", (R.h <= R.a) | [F.sigmoid]),
    ("h :- a. [activation=crossum-tanh]", (R.h <= R.a) | [F.crossum, F.tanh]),
    ("h/1 [activation=tanh]", R.h / 1 | [F.tanh]),
    ("h/1 [combination=max, activation=tanh].", R.h / 1 | [F.max, F.tanh]),
    ("a(1, b-c, d_1).", R.a(1, "b-c", "d_1")),
    ("1.0 predict.", R.predict[1.0]),
    ("% nothing\n/* nor\n% here */ a. % end", R.a),
]


@pytest.mark.parametrize(("text", "said"), PUBLISHED)
def test_published_grammar(text: str, said: object) -> None:
    assert Program.parse(text) == Program([said])
    assert Program.parse(Program.parse(text).text()) == Program([said])


# text that is printed as it is read, and the same in Python
CANONICAL = [
    ("h :- .", R.h <= ()),
    ("h(X) :- a(X), <0.5>.", R.h(V.X) <= (R.a(V.X), W[0.5].fixed())),
    ("h(X) :- a(X) + 2.0.", R.h(V.X) <= R.a(V.X) + 2),
    ("h(X) :- a(X) + $=2.0.", R.h(V.X) <= R.a(V.X) + W[2.0]),
    ("h(X) :- a(X) + -2.0.", R.h(V.X) <= R.a(V.X) + -2.0),
    ("h(X) :- $w a(X).", R.h(V.X) <= R.a(V.X)[W.w]),
    ("h(X) :- <$w> a(X).", R.h(V.X) <= R.a(V.X)[W.w.fixed()]),
    ("h(X) :- $w={= 1.0} a(X).", R.h(V.X) <= R.a(V.X)[W.w.filled(1)]),
    ("h(X) :- a(X), $b={64 = 1.0}.", R.h(V.X) <= (R.a(V.X), W.b[64,].filled(1.0))),
    ("h(X) :- $q(H, a)={16,64} a(X).", R.h(V.X) <= R.a(V.X)[W.q(V.H, "a")[16, 64]]),
    ("h(X) :- $w (a(X) + b(X)).", R.h(V.X) <= (R.a(V.X) + R.b(V.X))[W.w]),
    ("h(X) :- $w @ a(X).", R.h(V.X) <= W.w @ R.a(V.X)),
    ("h(X) :- 2.0 * a(X).", R.h(V.X) <= 2 * R.a(V.X)),
    ("h(X) :- 2.0 @add_eval(X, 1).", R.h(V.X) <= R.special.add_eval(V.X, 1)[2.0]),
    ("h(X) :- 2.0 @ @add_eval(X, 1).", R.h(V.X) <= 2.0 @ R.special.add_eval(V.X, 1)),
    ("h(X) :- a + b * c @ d.", R.h(V.X) <= R.a + R.b * R.c @ R.d),
    ("h(X) :- (a + b) * (c @ d).", R.h(V.X) <= (R.a + R.b) * (R.c @ R.d)),
    ("h(X) :- a + (b + c).", R.h(V.X) <= R.a + (R.b + R.c)),
    ("h(X) :- k(X).T @ q.T.", R.h(V.X) <= R.k(V.X).T @ R.q.T),
    ("h(X) :- {2,3} k(X).T.", R.h(V.X) <= R.k(V.X).T[2, 3]),
    ("h(X) :- ~b(X).", R.h(V.X) <= -R.b(V.X)),
    ("h(X) :- 2.0 ~b(X).", R.h(V.X) <= (-R.b(V.X))[2.0]),
    ("h(X) :- a + ~b * c.", R.h(V.X) <= R.a + (-R.b) * R.c),
    ("h(X) :- ~(a + ~b.T).", R.h(V.X) <= -(R.a + -(R.b.T))),
    ("h(X) :- !b(X), {2,2} ~a(X).", R.h(V.X) <= (~R.b(V.X), (-R.a(V.X))[2, 2])),
    ("h(X) :- 2.0 exp(a(X)).", R.h(V.X) <= F.exp(R.a(V.X))[2.0]),
    ("h(X) :- exp(a()), exp(a).", R.h(V.X) <= (F.exp(R.a), R.exp("a"))),
    ("h(X) :- max(a(X), b(), 2.0).", R.h(V.X) <= F.max(R.a(V.X), R.b, 2.0)),
    ("h(X) :- slice(a(X), rows=(0, 2)).", R.h(V.X) <= F.slice(rows=(0, 2))(R.a(V.X))),
    ("h(X) :- concat(a(X), b(X), axis=0).", R.h(V.X) <= F.concat(R.a(V.X), R.b(V.X), axis=0)),
    ("h(X) :- a(X), !*b(X).", R.h(V.X) <= (R.a(V.X), ~R._b(V.X))),
    ("h(X) :- a(X), !@in(X, a, 3).", R.h(V.X) <= (R.a(V.X), ~R.special._in(V.X, "a", 3))),
    ("h(I) :- a(J), @window(3)(I, J).", R.h(V.I) <= (R.a(V.J), window(3)(V.I, V.J))),
    ("h(?item) :- a(?item, _).", R.h(V.item) <= R.a(V.item, V["_"])),
    ('"Has"(X) :- layer.0.q(X), "a.T".', R["Has"](V.X) <= (R["layer.0.q"](V.X), R["a.T"])),
    ('a("two words", -3).', R.a("two words", -3)),
    ("[1.0, 2.0] a(1).", R.a(1)[[1, 2]]),
    ("h/2 []", R.h / 2),
    (
        "h :- a. [product, leaky_relu(0.2), clamp(low=0.0, high=1.0), softmax_agg(J, ?k)]",
        (R.h <= R.a)
        | [
            F.product,
            F.leaky_relu(0.2),
            F.clamp(0, 1),
            F.softmax_agg(agg_terms=[V.J, V.k]),
        ],
    ),
    ("h :- a. [reshape((2, 3)), topk_agg(3)]", (R.h <= R.a) | [F.reshape((2, 3)), F.topk_agg(3)]),
]


@pytest.mark.parametrize(("text", "said"), CANONICAL)
def test_one_canonical_spelling(text: str, said: object) -> None:
    assert Program.parse(text) == Program([said])
    assert Program([said]).text() == text + "\n"


def test_spaces_and_signs_are_free() -> None:
    assert only("h :- a+b.") == only("h :- a + b.") == only("h :- a & b.")
    assert only("h :- a*b.") == only("h :- a * b.")
    assert only("h :- k.T@q.") == only("h :- k.T @ q.")
    assert only("h :- a +1.0.") == only("h :- a + 1.0.")
    assert only("h :- -2.0 a.") == only("h :- -2 a.")
    assert only("h:-(a+b).T.") == only("h :- transp(a + b).")
    assert only("h :- -{2,2} a.") == only("h :- {2,2} (-a).") == only("h :- {2,2} ~a.")
    assert only("h :- ~{2,2} a.") == only("h :- {2,2} ~a.")


def test_a_tilde_is_soft_negation_as_in_neuralogic() -> None:
    program = Program.parse("h(X) :- a(X), ~b(X).")
    assert program == Program([R.h(V.X) <= (R.a(V.X), -R.b(V.X))])
    facts = Program.parse("<2.0> a(1). <3.0> a(2). <0.3> b(2).")
    solution = (program + facts).solve()
    assert {a.terms: v.item() for a, v in solution[R.h(V.X)].items()} == {(2,): 3.7}


@pytest.mark.parametrize("condition", ["*b(X)", "@leq(X, 2)", "!b(X)", "@window(1)(X, X)"])
def test_a_condition_has_no_soft_negation(condition: str) -> None:
    with pytest.raises(EdgewiseError) as caught:
        Program.parse(f"h(X) :- a(X), ~{condition}.")
    assert caught.value.code == "condition-in-expression"
    assert "write `!`" in caught.value.help


def test_compound_patterns() -> None:
    program = Program([R.h(V.I) <= (R.a(V.J), (window(3) | global_tokens(1))(V.I, V.J))])
    assert Program.parse(program.text()) == program
    assert program == Program.parse("h(I) :- a(J), @(window(3) | global_tokens(1))(I, J).")
    negated = Program.parse("h(I) :- a(J), !@window(3)(I, J).")
    assert negated == Program([R.h(V.I) <= (R.a(V.J), ~window(3)(V.I, V.J))])


ODD = ["\u2028", "\ufeff", "a.b", "a.", ".T", "-a", "A", "?x", "^x", "1", "true", "\\u{e9}", "9 a"]


@pytest.mark.parametrize(
    "constant",
    [
        *ODD,
        "",
        " ",
        '"',
        "'",
        "\\",
        "\\n",
        "\n",
        "\r\n",
        "\t",
        "%",
        "/*",
        "é",
        "😀",
        "\0",
        "\ud800",
    ],
)
def test_any_string_survives(constant: str) -> None:
    rule = R[f"{constant}r"](V.X) <= R.a(constant, V.X)[f"{constant}w" : 2, 2]
    program = Program([R.a(constant), rule])
    assert Program.parse(program.text()) == program
    assert len(program.text().split("\n")) == 3


def test_options() -> None:
    text = '[aggregation=topk_agg(3), rounds=4, H=8, ?rel=(a, "b c", 3)]\nh :- a.\n'
    program = Program(
        [R.h <= R.a],
        aggregation=F.topk_agg(3),
        rounds=4,
        domains={V.H: 8, "rel": ["a", "b c", 3]},
    )
    assert Program.parse(text) == program
    assert program.text() == text
    assert Program.parse("h :- a. [rounds=4]\n[aggregation=avg]").rounds == 4


def test_a_list_after_a_rule_is_its_own_and_a_vector_is_the_next_fact() -> None:
    program = Program.parse("h :- a.\n[aggregation=avg]\ng :- a.\n[1, 2] b.\n")
    assert program.aggregation == F.sum_agg
    assert program == Program([(R.h <= R.a) | [F.avg_agg], R.g <= R.a, R.b[[1, 2]]])


def test_several_facts_in_one_statement() -> None:
    assert Program.parse("a(1), 2.0 b(2).") == Program([R.a(1), R.b(2)[2.0]])


def test_tensors_are_printed_as_their_numbers() -> None:
    import torch

    program = Program([R.a[torch.tensor([1.0, 0.5])], R.b[torch.tensor(2)], R.c(1)[torch.eye(2)]])
    assert program.text() == "[1.0, 0.5] a.\n2.0 b.\n[[1.0, 0.0], [0.0, 1.0]] c(1).\n"


@pytest.mark.parametrize(
    "program",
    [
        Program([(R.h <= R.a) | [F.call(abs)]]),
        Program([R.h <= F.call(abs)(R.a)]),
        Program([R.h(V.X) <= (R.a(V.X), R.special.fn(abs)(V.X, V.Y))]),
    ],
)
def test_python_has_no_text_form(program: Program) -> None:
    with pytest.raises(EdgewiseError) as caught:
        program.text()
    assert caught.value.code == "no-text-form"
    assert "`abs`" in caught.value.message


STACK = """\
layer * 12 (x = tokens) -> out {
    q(I) :- {64,64} x(I).
    out(I) :- q(I), $b={64}. [relu]
}
y(I) :- layer.out(I).
"""


def test_twelve_layers_are_one_block() -> None:
    def block(x: nodes.Atom) -> list[nodes.Rule]:
        return [R.q(V.I) <= x(V.I)[64, 64], (R.out(V.I) <= (R.q(V.I), W.b[64,])) | [F.relu]]

    stack = repeat(block, 12)(R.tokens)
    program = Program([stack, R.y(V.I) <= stack.out(V.I)])
    assert program.text() == STACK
    assert Program.parse(STACK) == program
    assert len(program.rules) == 25


def test_a_parameter_called_like_a_relation_keeps_its_mark() -> None:
    stack = repeat(lambda x: [R.x(V.I) <= (x(V.I), R._x(V.I))], 2)(R.x)
    text = "layer * 2 (^x = x) -> x {\n    x(I) :- ^x(I), *x(I).\n}\n"
    assert Program([stack]).text() == text
    assert Program.parse(text) == Program([stack])


def test_blocks_in_blocks_and_several_relations() -> None:
    inner = repeat(lambda y: [R.g(V.I) <= y(V.I)], 2, name="inner")
    outer = repeat(
        lambda x, e: ([R.e2(1), inner(x), R.h(V.I) <= (R["inner.g"](V.I), e(V.I))], (R.h, R.e2)), 3
    )(R.a, R.b)
    program = Program([outer])
    assert Program.parse(program.text()) == program
    assert "inner * 2 (y = x) -> g {" in program.text()
    assert "layer * 3 (x = a, e = b) -> (h, e2) {" in program.text()


def test_nodes_know_their_place() -> None:
    text = "a(1).\nh(X) :- a(X),\n   {2,2} b(X, Y). [relu]\n"
    rule = Program.parse(text, file="x.rules").statements[1]
    assert rule.place == Span("x.rules", 2, 1, 14, "h(X) :- a(X),")
    assert rule.head.place == Span("x.rules", 2, 1, 5, "h(X) :- a(X),")
    weighted = rule.body[1]
    assert weighted.place == Span("x.rules", 3, 4, 17, "   {2,2} b(X, Y). [relu]")
    assert weighted.weight.place == Span("x.rules", 3, 4, 9, "   {2,2} b(X, Y). [relu]")
    assert weighted.terms[1].place.column == 15
    assert rule.functions[0].place.column == 20


MISTAKES = [
    ("h(X) : a(X).", "syntax-error", 6, "head :- body"),
    ("h(X) :- a(X)", "syntax-error", 13, "write `.`"),
    ("h(X) :- a(X) b(X).", "syntax-error", 14, "`,` separates"),
    ("h(X) :- A(X).", "syntax-error", 9, "lower-case"),
    ("h(X) :- a(X", "syntax-error", 12, "closed by `)`"),
    ("h(X).", "syntax-error", 3, "a fact is"),
    ("h :- (a + b.", "syntax-error", 12, "close"),
    ("h :- a. # why", "syntax-error", 9, "`%`"),
    ('h :- a("x).', "syntax-error", 8, "where it ends"),
    ("h :- a(1.5).", "bad-term", 8, "value goes"),
    ("h :- !exp(a(X)).", "bad-operator", 6, "1 − b"),
    ("!h :- a.", "bad-head", 1, "name(terms)"),
    ("h :- 2.0 3.0 a.", "two-weights", 10, "one weight"),
    ("h :- {2.5} a.", "syntax-error", 7, "rows, then columns"),
    ("h :- {0,2} a.", "bad-weight", 6, "positive"),
    ("h :- [[1,2],[3]] a.", "bad-weight", 6, "same number"),
    ("h :- [3| 5:1.0] a.", "syntax-error", 10, "from 0"),
    ("h :- a + *b.", "condition-in-expression", 11, "beside"),
    ("h :- a *b.", "syntax-error", 8, "`a, *b` for a condition"),
    ("h :- a @b.", "syntax-error", 8, "`a, @b` for a condition"),
    ("h :- {2,2} *b(X).", "syntax-error", 12, "for a product"),
    ("h :- {2,2} @leq(X, Y).", "condition-in-expression", 6, "leave the weight out"),
    ("h :- a. [norm(eps=X)]", "bad-function", 10, "write a number from 0: `norm(eps=1e-5)`"),
    ("h :- a. [slice(rows=3)]", "bad-function", 10, "`slice(rows=(0, 2))`"),
    ("h :- 2.0 !b.", "bad-weight", 6, "leave the weight out"),
    ("h :- relu6(a(X)).", "unknown-function", 6, "did you mean `relu`?"),
    ("h :- a. [rellu]", "unknown-function", 10, "did you mean `relu`?"),
    ("h :- a. [activaton=relu]", "bad-function", 10, "did you mean `activation`?"),
    ("h :- a. [activation=avg]", "bad-function", 21, "without the key"),
    ("h :- a. [leaky_relu(1, 2)]", "bad-function", 10, "`leaky_relu(0.2)`"),
    ("h :- a. [dropout]", "bad-function", 10, "dropout"),
    ("h :- a, @lex(X, Y).", "unknown-special", 9, "did you mean `@leq`?"),
    ("h :- a, @windw(3)(I, J).", "", 10, ""),
    ("h :- a, @window(3)(I, J, K).", "syntax-error", 9, "two terms"),
    ("h/1 {0}", "bad-weight", 5, "positive"),
    ("h/1 [offset=x]", "syntax-error", 13, "number"),
    ("h :- a. [learnable=maybe]", "syntax-error", 20, "learnable=false"),
    ("import ./other.rules", "syntax-error", 8, "relative to `x.rules`"),
    ("h :- [3| (5:1.0)] a.", "syntax-error", 10, "from 0"),
    ("h :- a(woman:).", "syntax-error", 14, "a term is"),
    ("$w [a=b]", "not-supported", 1, "is fixed"),
    ("h [tanh]", "syntax-error", 1, "h/1"),
    ("h/2(X) :- a(X).", "syntax-error", 1, "2 terms"),
    ("[rounds=0]", "bad-default", 2, "positive"),
    ("[relu]", "syntax-error", 2, "sets"),
    ("[rounds=2, rounds=3]", "syntax-error", 12, "once"),
    ("layer * 2 (x = a) -> g { h :- x. }", "bad-block", 1, "return one relation"),
    ("layer * 2 (x = a) -> h { h :- x.", "syntax-error", 33, "close the block"),
    ("layer * 2 (^xs = a) -> h { h :- ^x. }", "syntax-error", 33, "did you mean `^xs`?"),
    ("a(" + "9" * 5000 + ").", "bad-term", 3, "string"),
]


@pytest.mark.parametrize(("text", "code", "column", "help"), MISTAKES)
def test_mistakes(text: str, code: str, column: int, help: str) -> None:
    with pytest.raises(EdgewiseError) as caught:
        Program.parse(text, file="x.rules")
    error = caught.value.errors[0]
    assert error.code == code or not code
    assert help in error.help
    assert error.span.file == "x.rules"
    assert error.span.column == column
    assert f"--> x.rules:1:{column}" in str(error)


def test_all_mistakes_of_a_file_are_shown_together() -> None:
    text = "h(X) :- a(X)\ng(X) :- b(X).\nf(X) :- .c(X).\nlayer * 2 (x = a) -> h {\n"
    text += "  h(X) :- x(X),, .\n  g(X) :- rellu(h(X)).\n}\ne(1.5).\n"
    with pytest.raises(EdgewiseError) as caught:
        Program.parse(text)
    assert [error.span.line for error in caught.value.errors] == [1, 3, 5, 6, 8]
    assert str(caught.value).endswith("5 errors")


def test_many_mistakes_are_cut() -> None:
    with pytest.raises(EdgewiseError) as caught:
        Program.parse("h(X) : a(X).\n" * 1000)
    assert len(caught.value.errors) == 20


@pytest.mark.parametrize(
    "text",
    [
        "h :- " + "(" * 5000 + "a" + ")" * 5000 + ".",
        "h :- " + "exp(" * 5000,
        "h :- a" + " + a" * 5000 + ".",
        "h :- a" + ".T" * 5000 + ".",
        "h :- @(" + "~" * 5000 + "window(3))(I, J).",
        "a * 2 (x = y) -> z {" * 5000,
        "[" * 5000,
        '"\\"' * 5000,
        "/*" * 5000,
    ],
)
def test_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(EdgewiseError) as caught:
        Program.parse(text)
    assert caught.value.help


def test_expressions_may_be_long_and_fairly_deep() -> None:
    wide = "h(X) :- sum(" + ", ".join(["exp(a(X))"] * 500) + ").\n"
    deep = "h :- " + "exp(" * 70 + "a()" + ")" * 70 + ".\n"
    assert Program.parse(wide).text() == wide
    assert Program.parse(deep).text() == deep


def test_a_file_is_loaded(tmp_path) -> None:
    path = tmp_path / "x.rules"
    path.write_text("\ufeffh(X) :- a(X).\r\ng(X) :- h(X).\r\n", encoding="utf-8")
    assert Program.load(path) == Program([R.h(V.X) <= R.a(V.X), R.g(V.X) <= R.h(V.X)])


@pytest.mark.parametrize(
    "text",
    [
        "bond(a, b), c(a).\nbond(a, b), o(a).",
        "bond(a, b), c(a).\nbond(c, d), o(c).",
        "c(a), o(b).\nc(a).",
        "c(a).\nc(a), o(b).",
        "1.0 p :- bond(a, b), c(a).\n0.0 p :- bond(a, b), o(a).",
    ],
)
def test_samples_are_not_merged_to_one_program(text: str, tmp_path) -> None:
    path = tmp_path / "samples.txt"
    path.write_text(text)
    with pytest.raises(EdgewiseError) as caught:
        Program.load(path)
    assert caught.value.code == "samples-not-program"
    assert "edgewise.data.neuralogic" in caught.value.help
    assert caught.value.span.line == 2


@pytest.mark.parametrize(
    "text",
    [
        "a(1), b(1).",
        "a(1). a(1). b(2).",
        "a(1), b(1).\nc(2).",
        "a(1), b(1).\na(2), b(2).\nh(X) :- a(X).",
        "0.5 h :- a.\n0.5 h :- b.",
        "0.5 h :- a(1).\n0.5 h :- a(2).",
    ],
)
def test_facts_and_rules_without_variables_are_a_program(text: str, tmp_path) -> None:
    path = tmp_path / "facts.rules"
    path.write_text(text)
    program = Program.load(path)
    assert Program.parse(program.text()) == program


def test_only_text_is_parsed() -> None:
    with pytest.raises(EdgewiseError, match="is a string, got"):
        Program.parse(None)

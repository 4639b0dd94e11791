"""Pictures: valid, complete, deterministic, and nothing on top of anything."""

import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import EdgewiseError, F, Program, R, V, W, repeat
from edgewise.language import nodes
from edgewise.viz import draw_program, draw_solution
from edgewise.viz.svg import DARK, width

SVG = "{http://www.w3.org/2000/svg}"


def attention(*conditions, d=2):
    return Program(
        [
            R.q(V.I) <= R.x(V.I)[d, d],
            R.k(V.I) <= R.x(V.I)[d, d],
            R.v(V.I) <= R.x(V.I)[d, d],
            R.d_k[1 / math.sqrt(d)].fixed(),
            (R.weights(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I), *conditions))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.attention(V.I) <= (R.weights(V.I, V.J), R.v(V.J))) | [F.product],
        ]
    )


def encoder(count=12):
    def block(x):
        return [
            (R.a(V.H, V.I, V.J) <= (x(V.J).T @ x(V.I), R.hidden.mask(V.J)))
            | [F.softmax_agg(agg_terms=[V.J])],
            (R.o(V.H, V.I) <= (R.a(V.H, V.I, V.J), x(V.J)[W.v(V.H)[8, 8]])) | [F.product],
            R.r(V.I) <= (x(V.I), R.o(V.H, V.I)[W.o(V.H)[8, 8]], W.bias[8,]),
            (R.out(V.I) <= R.r(V.I)) | [F.norm],
        ]

    stack = repeat(block, count)(R.e)
    return Program([R.e(V.I) <= R.x(V.I), stack, R.y(V.I) <= stack.out(V.I)[2, 8]])


def tokens(n, d=2):
    return [R.x(i)[[float(i + c) for c in range(d)]] for i in range(n)]


def rectangles(root, *kinds):
    return [
        tuple(float(r.get(side)) for side in ("x", "y", "width", "height"))
        for r in root.iter(f"{SVG}rect")
        if r.get("class") in kinds
    ]


def words(root):
    return [t.text for t in root.iter(f"{SVG}text")]


def apart(a, b):
    return (
        a[0] + a[2] <= b[0] + 0.11
        or b[0] + b[2] <= a[0] + 0.11
        or a[1] + a[3] <= b[1] + 0.11
        or b[1] + b[3] <= a[1] + 0.11
    )


def inside(a, b):
    return (
        b[0] - 0.2 <= a[0]
        and b[1] - 0.2 <= a[1]
        and a[0] + a[2] <= b[0] + b[2] + 0.2
        and a[1] + a[3] <= b[1] + b[3] + 0.2
    )


def text_box(element):
    size, x = float(element.get("font-size")), float(element.get("x"))
    w = width(element.text, size)
    left = {"middle": x - w / 2, "end": x - w}.get(element.get("text-anchor"), x)
    return left, float(element.get("y")) - 0.8 * size, w, size


def samples(d):
    """Points on a path of moves, lines and curves."""
    at = (0.0, 0.0)
    for letter, numbers in re.findall(r"([MLC])([^MLC]*)", d):
        flat = [float(x) for x in re.findall(r"-?[\d.]+", numbers)]
        points = list(zip(flat[::2], flat[1::2], strict=True))
        if letter == "L":
            points = [at, points[0], points[0]]
        if letter != "M":
            control = [at, *points]
            for step in range(1, 20):
                t = step / 20
                yield tuple(
                    sum(
                        math.comb(3, k) * (1 - t) ** (3 - k) * t**k * p[axis]
                        for k, p in enumerate(control)
                    )
                    for axis in (0, 1)
                )
        at = points[-1]


def assert_legible(picture, node_kinds=("relation", "rule", "atom")):
    root = ET.fromstring(picture.svg)
    boxes = rectangles(root, *node_kinds)
    for a, b in itertools.combinations(boxes, 2):
        assert apart(a, b), (a, b)
    for a, b in itertools.product(rectangles(root, "stack"), boxes):
        assert inside(b, a) or apart(a, b)
    tags = rectangles(root, "weight")
    assert all(any(inside(t, b) for b in boxes) for t in tags)
    assert all(apart(a, b) for a, b in itertools.combinations(tags, 2))
    texts = [text_box(t) for t in root.iter(f"{SVG}text")]
    assert all(any(inside(t, b) for b in boxes + rectangles(root, "stack")) for t in texts)
    assert all(apart(a, b) for a, b in itertools.combinations(texts, 2))
    for path in root.iter(f"{SVG}path"):
        if path.get("class") in ("value", "hidden", "negated", "share"):
            for x, y in samples(path.get("d")):
                for left, top, w, h in boxes:
                    free = not (left + 1 < x < left + w - 1 and top + 1 < y < top + h - 1)
                    assert free, path.get("d")
    whole = (0.0, 0.0, float(root.get("width")), float(root.get("height")))
    assert all(inside(box, whole) for box in boxes + texts + rectangles(root, "stack"))
    return root


def test_a_program():
    root = assert_legible(
        attention(R.special.leq(V.J, V.I), R.hidden.edge(V.I, V.J), ~R.padding(V.J)).draw()
    )
    shown = words(root)
    for relation in ["x(I)", "q(I)", "k(I)", "v(I)", "d_k", "padding(J)"]:
        assert relation in shown
    for label in ("weights(I, J)", "attention(I)", "J ≤ I", "2×2", "product → softmax over J"):
        assert label in shown
    kinds = [path.get("class") for path in root.iter(f"{SVG}path")]
    assert (kinds.count("hidden"), kinds.count("negated")) == (1, 1)
    dashed = [p for p in root.iter(f"{SVG}path") if p.get("stroke-dasharray")]
    assert len(dashed) == 2


def test_a_stack_is_drawn_once():
    root = assert_legible(encoder().draw())
    assert words(root).count("×12") == 1
    assert len(rectangles(root, "stack")) == 1
    assert len(rectangles(root, "rule")) == 6
    assert words(root).count("out(I)") == 1


def test_stacks_in_stacks():
    def outer(x):
        inner = repeat(lambda z: [R.h(V.I) <= z(V.I)[4, 4]], 3, name="inner")(x)
        return [inner, R.out(V.I) <= inner.out(V.I), R.side(V.I) <= R.out(V.I)], (R.out,)

    root = assert_legible(Program([repeat(outer, 2)(R.x)]).draw())
    assert {"×2", "×3"} <= set(words(root))


def test_recursion_and_lines():
    rnn = (R.h(V.T) <= (R.h(V.S)[8, 8], R.x(V.T)[8, 4], R.special.next(V.S, V.T))) | [F.tanh]
    root = assert_legible(Program([rnn, R.h / 1 | [F.max, F.relu], R.y(V.T) <= R.h(V.T)]).draw())
    assert "max → relu" in words(root)


def test_a_formula_has_a_cell_for_each_atom_and_weight():
    norm = F.norm(R.x(V.I)) * W.gain[8,] + W.bias[8,] + 0.5 * R.x(V.I)
    root = assert_legible(Program([R.y(V.I)[2, 8] <= norm]).draw())
    assert words(root).count("x(I)") == 3  # the relation and two cells
    assert {"gain 8", "bias 8", "2×8"} <= set(words(root))
    assert "norm(x(I)) * gain + bias + 0.5 * x(I)" in words(root)


def test_a_solution_shows_every_atom():
    solution = attention().solve(tokens(5), seed=0)
    root = assert_legible(solution.draw())
    shown = set(words(root))
    assert {
        a.relation + (str(a.terms).replace(",)", ")") if a.terms else "") for a in solution
    } <= shown
    assert len(list(root.iter(f"{SVG}circle"))) == sum(solution.computed.values())


def test_only_what_is_behind_the_asked_atoms():
    solution = attention().solve(tokens(5), seed=0)
    shown = words(assert_legible(solution.draw(R.attention(2))))
    assert "attention(2)" in shown
    assert not {"attention(1)", "weights(1, 2)", "q(1)"} & set(shown)
    assert "attention(4)" in words(ET.fromstring(solution.draw(R.attention(V.I)).svg))


def test_a_cycle_and_a_stack_of_a_solution():
    step = (R.d(V.Y) <= (R.d(V.X), R.e(V.X, V.Y))) | [F.min_agg]
    facts = [R.d(0)[0.0], R.e(0, 1)[1.0], R.e(1, 2)[1.0], R.e(2, 0)[1.0]]
    assert_legible(Program([step, R.d / 1 | [F.min]]).solve(facts).draw())
    stack = repeat(lambda x: [R.h(V.I) <= x(V.I)[2.0]], 3)(R.x)
    solution = Program([stack]).solve([R.x(1)[1.0]])
    assert "layer.2.h(1)" in words(assert_legible(solution.draw(stack.out(1))))


def test_conditions_are_left_out_unless_asked_for():
    program = Program([R.h(V.X) <= (R.a(V.X), R._b(V.X))])
    solution = program.solve([R.a(1)[2.0], R.b(1)])
    assert "b(1)" not in words(ET.fromstring(solution.draw().svg))
    assert "b(1)" in words(ET.fromstring(solution.draw(R.b(1)).svg))


HOSTILE = [
    '<script>alert("x")</script>',
    "a&b",
    "]]>",
    "\x00\x1b",
    "\ud800",
    "注意" * 30,
    "'\"",
    "​",
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names(name):
    program = Program([R[name](V[name or "X"]) <= (R.a(V[name or "X"], name), R._b(name))])
    root = assert_legible(program.draw())
    assert not list(root.iter(f"{SVG}script"))
    solution = Program([R.h(V.X) <= R.a(V.X)]).solve([nodes.Atom("a", (name,))])
    assert not list(assert_legible(solution.draw()).iter(f"{SVG}script"))


def test_the_same_program_is_the_same_picture():
    assert encoder().draw() == encoder().draw()
    facts = tokens(4)
    first, second = (attention().solve(f, seed=0).draw().svg for f in (facts, facts[::-1]))
    assert first == second


def test_every_colour_has_one_for_the_dark():
    rule = R.h(V.X) <= (R.a(V.X)[-1.0], R.w(V.X)["w":1, 1], R._b(V.X), ~R.c(V.X), V.X < 3)
    program = Program([rule, R.out <= R.h(V.X)])
    facts = [R.a(0)[1.0], R.a(1)[2.0], R.w(0)[1.0], R.w(1)[-3.0], R.b(0), R.b(1), R.c(1)]
    solution = program.solve(facts, seed=0)
    drawings = [attention(), encoder(), program, solution]
    for svg in (drawing.draw().svg for drawing in drawings):
        used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', svg))
        assert used <= DARK.keys()
        styled = set(re.findall(r'="(#[0-9a-f]{6})"\]', svg))
        assert styled == used


def test_too_large():
    solution = Program([R.h(V.X) <= R.a(V.X)]).solve([R.a(i)[1.0] for i in range(500)])
    with pytest.raises(EdgewiseError, match="fewer atoms") as caught:
        solution.draw()
    assert caught.value.code == "picture-too-large"
    assert draw_solution(solution, [R.h(7)]).svg.startswith("<svg")


def test_saving(tmp_path):
    picture = draw_program(attention())
    assert picture.save(tmp_path / "net.svg").read_text(encoding="utf-8") == picture.svg
    assert picture._repr_svg_() == picture.svg
    with pytest.raises(EdgewiseError) as caught:
        picture.save(tmp_path / "net.png")
    assert caught.value.code == "unknown-picture-format"


def test_nothing_to_draw():
    assert_legible(Program([]).draw())
    assert_legible(Program([]).solve([]).draw())
    assert_legible(Program([R.a(1)[2.0], R.a(2)[3.0]]).draw())


names = st.sampled_from(["a", "b", "c", "h", "a_relation_with_a_long_name", "z"])
bodies = st.lists(
    st.tuples(names, st.sampled_from(["value", "hidden", "negated", "weight", "family"])),
    min_size=1,
    max_size=4,
)


def body_atom(name, kind):
    atom = nodes.Atom(name, (V.X, V.Y))
    return {
        "value": atom,
        "hidden": nodes.Atom(name, (V.X, V.Y), hidden=True),
        "negated": ~atom,
        "weight": atom[64, 32],
        "family": atom[W.family(V.X)[64, 32]],
    }[kind]


@given(rules=st.lists(st.tuples(names, bodies), min_size=1, max_size=8), nested=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_program_is_legible(rules, nested):
    statements = [
        nodes.Rule(nodes.Atom(head, (V.X, V.Y)), tuple(body_atom(*item) for item in body))
        for head, body in rules
    ]
    if nested:
        statements.append(repeat(lambda x: [*statements, R.out(V.X) <= x(V.X)], 12)(R.b))
    assert_legible(Program(statements).draw())


@given(edges=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_any_network_is_legible(edges):
    rule = (R.h(V.X) <= (R.x(V.Y), R.edge(V.X, V.Y))) | [F.product, F.max_agg]
    again = (R.z(V.X) <= (R.h(V.Y), R.x(V.X), R._edge(V.X, V.Y))) | [F.avg_agg]
    facts = [R.x(i)[float(i - 2)] for i in range(5)]
    solution = Program([rule, again]).solve([*facts, *(R.edge(*e)[1.5] for e in edges)])
    assert_legible(solution.draw())

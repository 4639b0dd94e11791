"""A repr is code that builds the thing."""

import pytest

from edgewise import F, Program, R, V, W, repeat

NAMES = {"F": F, "Program": Program, "R": R, "V": V, "W": W, "repeat": repeat}
PIECES = [
    "R.a",
    "R.a(V.X, 1, 'b')",
    "R._edge(V.X, V.Y)",
    "~R.b(V.X)",
    "~R._b(V.X)",
    'R["layer.0.q"](V.X)',
    'R["special"]',
    'R["class"]',
    'R.hidden["b_"](V.X)',
    "R['quo\"te']",
    'R.a(V["an item"], V["lambda"])',
    "R.a[2.0]",
    "R.a[1e999]",
    "R.a[[1.0, 2.0]]",
    "R.a[[[1.0, 2.0], [3.0, 4.0]]]",
    "R.a[64, 32]",
    "R.a[64,]",
    'R.a["w": 64, 32]',
    'R.a["w": (64,)]',
    'R.a["w": 2.0].fixed()',
    "R.a[W.w]",
    'R.a[W["a.w"]]',
    "R.a[W.q(V.H)[16, 64]]",
    "R.a[W.w[64,].filled(1.0)]",
    "W[64, 32]",
    "W[0.5]",
    "W[0.5].fixed()",
    "W.w.fixed()",
    "R.special.leq(V.X, 3)",
    "~R.special._in(V.X, 'a', 'b')",
    "R.special.add_eval(V.X, 1)[2.0].fixed()",
    "R.a + R.b * R.c",
    "(R.a + R.b) * R.c",
    "R.a * (R.b @ R.c)",
    "R.k(V.J).T @ R.q(V.I)",
    "(R.a + 2.0)[3.0]",
    "2.0 * R.a",
    "W[2.0].fixed() + 3.0",
    "F.exp(R.a)[2.0]",
    "F.exp(W[2.0].fixed())",
    "F.max(R.a, R.b, W[2.0].fixed())",
    "F.slice(rows=(0, 2))(R.a)",
    "F.concat(R.a, R.b, axis=0)",
    "F.leaky_relu(0.2)",
    "F.softmax_agg(agg_terms=[V.J])",
    "F.clamp(low=0.0, high=1.0)",
    "R.h/1",
    "R.h/1 | [F.sum, F.tanh]",
    "R.h <= ()",
    "R.h(V.X) <= R.a(V.X)",
    "(R.h(V.X)[2, 2] <= (R.a(V.X), W.b[2,])) | [F.product, F.relu]",
]


@pytest.mark.parametrize("code", PIECES)
def test_repr_is_the_code_itself(code: str) -> None:
    made = eval(code, dict(NAMES))
    assert repr(made) == code
    again = eval(repr(made), dict(NAMES))
    assert type(again) is type(made)
    assert repr(again) == code


def test_a_program_prints_its_options_and_stacks() -> None:
    program = Program(
        [
            repeat(
                lambda x, y: ([R.a(V.X) <= x(V.X), R.b(V.X) <= y(V.X)], (R.a, R.b)),
                3,
                name="block",
            )(R.p, R.q),
            R.h <= R["block.a"](1),
        ],
        aggregation=F.avg_agg,
        domains={V.H: 8, "R": ["a", 1]},
        rounds=2,
    )
    assert repr(program) == (
        "Program([\n"
        "    repeat(lambda x, y: ([\n"
        "        R.a(V.X) <= x(V.X),\n"
        "        R.b(V.X) <= y(V.X),\n"
        '    ], [R.a, R.b]), 3, name="block")(R.p, R.q),\n'
        '    R.h <= R["block.a"](1),\n'
        "], aggregation=F.avg_agg, domains={V.H: 8, V.R: ['a', 1]}, rounds=2)"
    )
    assert eval(repr(program), dict(NAMES)) == program


def test_an_empty_program() -> None:
    assert repr(Program()) == "Program([])"

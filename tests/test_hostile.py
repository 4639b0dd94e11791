"""Things that nobody should give are errors of ours at every door: never one of torch or Python."""

from functools import partial

import numpy as np
import pytest
import torch

from edgewise import EdgewiseError, F, Model, Program, R, V, W, load, ragged, repeat, rows, scope
from edgewise.graphs import window
from tests.refusals import assert_taken_or_refused


class Broken:
    """An object that cannot be printed, counted, iterated or compared."""

    __hash__ = None  # type: ignore[assignment]

    def _fail(self, *_):
        raise ValueError

    __repr__ = __str__ = __len__ = __iter__ = __eq__ = __bool__ = _fail


THINGS = {
    "None": None, "an integer": 3, "a negative integer": -1, "a large integer": 10**400,
    "an integer that Python does not print": 10**5000, "a float": 1.5, "NaN": float("nan"),
    "infinity": float("inf"), "a complex number": 1j, "a boolean": True, "a word": "word",
    "no text": "", "other letters": "日本語", "a null byte": "a\0b", "a long text": "x" * 5000,
    "bytes": b"x", "a list": [1], "an empty list": [], "a dictionary": {1: 2}, "a set": {1},
    "a generator": (i for i in range(3)), "a function": lambda x: x, "a type": int,
    "an object that fails": Broken(), "a number as a tensor": torch.tensor(1.0),
    "integers": torch.tensor([1, 2]), "NaN in a tensor": torch.tensor([[1.0, float("nan")]]),
    "a complex tensor": torch.ones(2, 2, dtype=torch.complex64), "booleans": torch.ones(2) > 0,
    "an empty tensor": torch.ones(0), "a meta tensor": torch.ones(2, 3, device="meta"),
    "a sparse tensor": torch.eye(3).to_sparse(), "an array": np.ones(2),
    "an array of objects": np.array([object()]), "a variable": V.X, "an atom": R.x(V.X),
    "a function of rules": F.relu, "a family": W.p, "a pattern": window(1),
    "a precision": torch.float32,
}  # fmt: skip

PROGRAM = Program([R.h(V.I) <= R.x(V.I)[2, 3]])
MODEL = PROGRAM.compile(R.h, seed=0)
GRAPH = Program([R.h(V.I) <= (R.x(V.J)[2, 3], R._e(V.J, V.I))]).compile(R.h, seed=0)
FACTS = [R.x(0)[[1.0, 2.0, 3.0]]]
SOLUTION = PROGRAM.solve(FACTS, seed=0)
X = torch.ones(2, 3)


def block(z):
    return [R.out(V.I) <= z(V.I)]


DOORS = {
    "an atom": [R.a, lambda x: R.a[x], lambda x: R.a["w":x], lambda x: R.a[2, x], lambda x: R[x]],
    "a family": [lambda x: W.p(V.H)[x], lambda x: W.p(x)[2,]],
    "a rule": [
        lambda x: R.a(V.X) + x, lambda x: x * R.a(V.X), lambda x: R.a(V.X) <= (R.b(V.X), x),
        lambda x: (R.a(V.X) <= R.b(V.X)) | x, lambda x: (R.a(V.X) <= R.b(V.X)) | [x],
    ],
    "functions": [
        F.slice, F.reshape, F.topk_agg, F.norm, F.dropout, F.leaky_relu, F.call, R.special.fn,
        lambda x: F.softmax_agg(agg_terms=x), lambda x: F.concat(axis=x),
    ],
    "a program": [
        Program, lambda x: Program([x]), lambda x: Program([], aggregation=x),
        lambda x: Program([], rounds=x), lambda x: Program([], domains=x), Program.parse,
        lambda x: Program([R.a(V.H) <= W.p(V.H)[2,]], domains={V.H: x}), Program.load,
        PROGRAM.check, lambda x: PROGRAM.check([x]),
    ],
    "blocks": [
        scope, lambda x: repeat(x, 2)(R.x), lambda x: repeat(block, x)(R.x),
        lambda x: repeat(block, 2, name=x)(R.x), repeat(block, 2),
    ],
    "solving": [
        PROGRAM.solve, lambda x: PROGRAM.solve([x]), lambda x: PROGRAM.solve(FACTS, weights=x),
        lambda x: PROGRAM.solve(FACTS, dtype=x), lambda x: PROGRAM.solve(FACTS, seed=x),
        lambda x: SOLUTION[x], SOLUTION.why, SOLUTION.draw,
    ],
    "compiling": [
        PROGRAM.compile,
        *(lambda x, o=o: PROGRAM.compile(R.h, **{o: x})(x=X)
          for o in ("fill", "limit", "seed", "dtype", "without", "check")),
    ],
    "inputs": [
        MODEL, lambda x: MODEL(x=x), lambda x: MODEL(x=X, y=x), lambda x: MODEL.rows(x=x),
        lambda x: GRAPH.ground(e=x), lambda x: GRAPH.ground(x=x), lambda x: GRAPH.ground(facts=x),
        lambda x: GRAPH.ground(facts=[x]), lambda x: rows(x), lambda x: rows(x, X),
        lambda x: rows(torch.tensor([[0, 1]]), x), ragged, lambda x: MODEL(x=ragged([x])),
        lambda x: GRAPH.ground(facts=ragged([x])), lambda x: GRAPH.ground(facts=ragged([[x]])),
    ],
    "a model": [
        MODEL.growing, lambda x: MODEL.growing(4)(x=x), lambda x: MODEL.updating(facts=x),
        lambda x: MODEL.updating().add([x]), lambda x: str(MODEL.explain(x=x)),
        lambda x: MODEL.explain(stage=x), lambda x: MODEL.profile(x=x), MODEL.why, MODEL.draw,
        MODEL.weight, MODEL.samples, lambda x: MODEL.why(R.h(0), x=x),
    ],
    "files": [load, Model.load],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("thing", THINGS)
def test_it_is_taken_or_refused(door, thing):
    for enter in DOORS[door]:
        assert_taken_or_refused(partial(enter, THINGS[thing]))


NAN = float("nan")
VALUES = {
    "meta": torch.ones(2, 3, device="meta"),
    "a column on meta": torch.ones(2, 1, device="meta"),
    "a vector on meta": torch.ones(3, device="meta"),
    "sparse": torch.eye(3).to_sparse(),
    "complex": torch.ones(2, 3, dtype=torch.complex64),
    "NaN": torch.tensor([[1.0, NAN, 1.0]]),
    "a parameter with NaN": torch.nn.Parameter(torch.tensor([[1.0, NAN, 1.0]])),
    "an array with NaN": np.array([[1.0, NAN, 1.0]]),
    "words": np.array(["a"]),
    "masked": np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]),
    "long doubles": np.ones(3, np.longdouble),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_values_without_numbers_are_refused(value):
    with pytest.raises(EdgewiseError):
        Program([R.h(V.I) <= R.x(V.I)[value]]).compile(R.h)
    with pytest.raises(EdgewiseError):
        Program([R.h(V.I) <= R.x(V.I)[value]]).solve(FACTS)
    with pytest.raises(EdgewiseError):
        PROGRAM.solve([R.x(0)[value]])
    with pytest.raises(EdgewiseError):
        MODEL.ground(facts=[R.x(0)[value]])


@pytest.mark.parametrize("name", ["meta", "sparse", "words", "masked"])
def test_weights_set_without_numbers_are_refused(name):
    with pytest.raises(EdgewiseError):
        Program([R.h(V.I) <= R.x(V.I)["w":2, 3]]).solve(FACTS, weights={"w": VALUES[name]})


def test_arrays_of_other_machines_are_read():
    value = np.arange(3, dtype=">f4")
    program = Program([R.h(V.I) <= R.x(V.I)[2.0]])
    assert program.solve([R.x(0)[value]])[R.h(0)].tolist() == [0.0, 2.0, 4.0]
    model = Program([R.h(V.I) <= R.x(V.I)[value[None]]]).compile(R.h)
    assert model(x=torch.ones(2, 3)).flatten().tolist() == [3.0, 3.0]


@pytest.mark.parametrize("sizes", [(10**20, 3), (3, 10**20), (2**62,), (2**63, 2**63)])
def test_sizes_that_are_too_large_are_refused(sizes):
    with pytest.raises(EdgewiseError, match="too large"):
        R.x(V.I)[sizes]


def test_a_weight_may_have_any_name():
    for name in ("self", "for", "torch", "forward", "step"):
        model = Program([R.h(V.I) <= R.x(V.I)[name:2, 3]]).compile(R.h, seed=0)
        traced = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(traced(x=X), model(x=X))


def test_a_model_without_numbers_is_not_saved(tmp_path):
    model = PROGRAM.compile(R.h).to("meta")
    with pytest.raises(EdgewiseError, match="meta"):
        model.save(tmp_path / "model.edgewise")


def test_precisions_that_torch_only_stores_are_refused():
    with pytest.raises(EdgewiseError, match="float8"):
        PROGRAM.compile(R.h, dtype=torch.float8_e4m3fn)
    with pytest.raises(EdgewiseError, match="float8"):
        PROGRAM.solve(FACTS, dtype=torch.float8_e4m3fn)


def test_inputs_without_names_are_refused():
    data = GRAPH.ground(e=torch.tensor([[0], [1]]))
    calls = [
        lambda: MODEL(X), lambda: MODEL(X, X), lambda: MODEL.rows(X, X), lambda: MODEL.ground(X),
        lambda: GRAPH(data, X), lambda: MODEL.growing(16)(X),
        lambda: torch.compile(MODEL, backend="eager")(X, X),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(EdgewiseError, match="without a name") as caught:
            call()
        assert "x=..." in str(caught.value)

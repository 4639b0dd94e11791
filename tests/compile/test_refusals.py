"""What cannot be meant is refused where it is said, by an error of our own."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgewise import (
    EdgewiseError,
    EdgewiseWarning,
    F,
    Program,
    R,
    V,
    load,
    rows,
    training_step,
)
from edgewise.decode import CachedDecoder

RULES = [R.h(V.I) <= R.x(V.I)["w":1.0]]


def _model(**options: Any) -> Any:
    return Program(RULES).compile(R.h, **options)


@pytest.mark.parametrize(
    "options",
    [
        *({"fill": fill} for fill in ("x", torch.ones(2), [1.0], 1e300, True)),
        *({"limit": limit} for limit in ("a", -1, 1.5, True)),
        *({"dtype": dtype} for dtype in ("float32", torch.int64)),
        *({"without": without} for without in (5, "fuse attention", None)),
        {"seed": "a"},
    ],
    ids=str,
)
def test_options(options: dict[str, Any]) -> None:
    with pytest.raises(EdgewiseError) as refused:
        _model(**options)
    assert refused.value.code == "bad-compile-option"


@pytest.mark.parametrize("fill", [None, 0, 0.5, math.inf, -math.inf])
def test_a_fill(fill: float | None) -> None:
    assert _model(fill=fill).fill == fill


@pytest.mark.parametrize("output", [~R.h(V.I), R._h, R.h["w":2, 2]], ids=str)
def test_outputs(output: Any) -> None:
    with pytest.raises(EdgewiseError) as refused:
        Program(RULES).compile(output)
    assert refused.value.code == "unknown-output"


SGD = torch.optim.SGD([torch.zeros(1)])

CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "stage": (lambda m: m.explain(stage=5), "unknown-stage"),
    "explain a number": (lambda m: m.explain(5), "bad-input"),
    "foreign": (lambda m: m.explain(_model().ground(x=torch.ones(2))), "foreign-data"),
    "sample": (lambda m: m.why(R.h(0), sample="a", x=torch.ones(2)), "unknown-sample"),
    "two": (
        lambda m: m.draw(m.ground(x=torch.ones(2)), m.ground(x=torch.ones(2))),
        "unknown-sample",
    ),
    "facts": (lambda m: m.updating(facts=5), "bad-fact"),
    "add": (lambda m: m.updating().add(5), "bad-fact"),
    "following": (lambda m: CachedDecoder(5, "token"), "bad-decoding"),  # type: ignore[arg-type]
    "following a model": (lambda m: CachedDecoder(m, "token"), "bad-decoding"),
    "training": (lambda m: training_step(5, F, SGD), "bad-input"),  # type: ignore[arg-type]
    "loss": (lambda m: training_step(m, 5, SGD), "bad-input"),  # type: ignore[arg-type]
    "optimiser": (lambda m: training_step(m, F, torch.optim.SGD), "bad-input"),  # type: ignore[arg-type]
    "load": (lambda m: load(None), "bad-model-file"),  # type: ignore[arg-type]
    "load bytes": (lambda m: load(b"model"), "bad-model-file"),  # type: ignore[arg-type]
    "save": (lambda m: m.save(5), "not-savable"),
    "complex": (lambda m: m(x=torch.ones(2, dtype=torch.complex64)), "bad-input"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    call, code = CALLS[name]
    with pytest.raises(EdgewiseError) as refused:
        call(_model())
    assert refused.value.code == code


def test_one_atom_may_be_added() -> None:
    assert _model().updating().add(R.x(1)[2.0]).data.tolist() == [2.0]


def test_a_relation_without_terms_has_one_value() -> None:
    model = Program([R.h <= R.x[2.0]]).compile(R.h)
    with pytest.raises(EdgewiseError, match="2 values"):
        model.ground(x=rows(torch.zeros(0, 2).long(), torch.ones(2)))


@pytest.mark.parametrize(
    "samples",
    [torch.tensor([7]), torch.tensor([0.5]), [0.5], ["a"], torch.zeros(0).long()],
    ids=str,
)
def test_samples_to_go_on_with(samples: Any) -> None:
    growing = _model().growing(8)
    growing(x=torch.ones(2, 3, 1))
    with pytest.raises(EdgewiseError) as refused:
        growing.take(samples)
    assert refused.value.code == "bad-append"


@pytest.mark.parametrize(
    "name", ["_cache", "_paths", "_number", "_handle", "_arities", "_derived", "_mark", "called0"]
)
def test_names_of_weights(name: str) -> None:
    rules = [(R.h(V.I) <= R.x(V.I)[name:2.0]) | [F.call(torch.nn.Identity())]]
    model = Program(rules).compile(R.h)
    assert model(x=torch.ones(2)).tolist() == [2.0, 2.0]
    assert model.weight(name).item() == 2.0


@pytest.mark.parametrize(
    "name", ["self", "facts", "stage", "json", "sample", "backward", "capacity"]
)
def test_names_of_data(name: str) -> None:
    relation = getattr(R, name)
    with pytest.raises(EdgewiseError, match=f"`{name}` is an input") as refused:
        Program([R.h(V.I) <= relation(V.I)]).compile(R.h)
    assert refused.value.code == "reserved-name"
    derived = Program([relation(V.I) <= R.x(V.I), R.h(V.I) <= relation(V.I)]).compile(R.h)
    assert derived(x=torch.ones(2)).tolist() == [1.0, 1.0]


def test_nodes_of_a_graph() -> None:
    networkx = pytest.importorskip("networkx")
    model = Program([R.h(V.X) <= (R._edge(V.X, V.Y), R.x(V.Y))]).compile(R.h)
    edges = networkx.DiGraph([(np.int64(0), np.int64(1))])
    assert model.rows(x=torch.ones(2), edge=edges).index.tolist() == [[0]]
    with pytest.raises(EdgewiseError, match="not integers"):
        model.rows(x=torch.ones(2), edge=networkx.DiGraph([(False, True)]))


def test_a_combination_of_one_value_is_told():
    rule = (R.h(V.I) <= (R.x(V.J), R._edge(V.I, V.J))) | [F.avg]
    with pytest.warns(EdgewiseWarning, match=r"idle-combination.*") as found:
        Program([rule]).compile(R.h)
    assert found[0].filename == __file__
    assert "F.avg_agg" in found[0].message.help
    with pytest.raises(EdgewiseError, match=r"no function `mean`") as refused:
        _ = F.mean
    assert "`F.avg_agg` is over groundings" in refused.value.help

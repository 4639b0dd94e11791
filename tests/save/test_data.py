"""Grounded data in files: equal after a round trip, nothing joined, and refused where broken."""

import contextlib
import json

import pytest
import safetensors.torch
import torch

import edgewise
from edgewise import F, Program, R, V, W, load, numbers, ragged, rows
from edgewise.ground.grounder import Grounder
from edgewise.physical.data import ForeignData
from edgewise.save import NotSavable
from edgewise.save.data_writing import FORMAT, KIND, MANIFEST

TWO_HOPS = [
    R.two(V.X, V.Z) <= (R.edge(V.X, V.Y), R.edge(V.Y, V.Z)),
    (R.h(V.X) <= (R._two(V.X, V.Z), R.x(V.Z)["w":3, 2])) | [F.sum_agg, F.tanh],
]
EDGES = torch.tensor([[0, 0, 1, 2, 3, 3], [1, 2, 3, 3, 0, 1]])


def compiled(rules, output=R.h, **options):
    return Program(rules).compile(output, seed=0, dtype=torch.float64, **options)


@pytest.fixture
def joined(monkeypatch):
    """The bodies that are joined."""
    found, own = [], Grounder.bindings

    def bindings(self, body, *more):
        found.append(body)
        return own(self, body, *more)

    monkeypatch.setattr(Grounder, "bindings", bindings)
    return found


def outputs(model, data, **inputs):
    model.zero_grad()
    found = model.rows(data, **inputs)
    found.data.sum().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return [found.index, found.data.detach(), *(grad.clone() for grad in grads)]


def same(ours, theirs):
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def sequence(n):
    return torch.stack([torch.arange(n - 1), torch.arange(1, n)])


CASES = {
    "dense": (TWO_HOPS, {"edge": EDGES, "x": randn(4, 2)}),
    "strings": (
        TWO_HOPS,
        {
            "edge": [("a", "b"), ("b", "ü\n"), ("ü\n", "a")],
            "x": {"a": [1.0, 2.0], "ü\n": [3.0, 4.0]},
        },
    ),
    "values of keys": (
        [(R.h(V.X) <= (R.edge(V.X, V.Y), R.x(V.Y)["w":3, 2])) | [F.product]],
        {"edge": rows(EDGES, randn(6)), "x": randn(4, 2)},
    ),
    "ragged": (
        TWO_HOPS,
        {
            "edge": ragged([EDGES, EDGES[:, :2], EDGES[:, :0]]),
            "x": ragged([randn(4, 2), randn(3, 2), randn(0, 2)]),
        },
    ),
    "ragged strings": (
        TWO_HOPS,
        {
            "edge": ragged([rows([("a", "b"), ("b", "c")]), rows([("c", "c"), ("d", "c")])]),
            "x": ragged([rows([("c",)], randn(1, 2)), rows([("c",), ("d",)], randn(2, 2))]),
        },
    ),
    "negation": (
        [(R.h(V.X) <= (R.x(V.X)["w":3, 2], ~R.edge(V.X, V.X), R._edge(V.X, V.Y)))],
        {"edge": EDGES, "x": randn(4, 2)},
    ),
    "recursion": (
        [
            R.reach(V.X, V.Y) <= R._edge(V.X, V.Y),
            R.reach(V.X, V.Z) <= (R._reach(V.X, V.Y), R._edge(V.Y, V.Z)),
            (R.h(V.X) <= (R._reach(V.X, V.Y), R.x(V.Y)["w":3, 2])) | [F.sum_agg],
        ],
        {"edge": EDGES, "x": randn(4, 2)},
    ),
    "sequence": (
        [
            R.h(V.T) <= (R.x(V.T)["w":2, 2], R._first(V.T)),
            (R.h(V.T) <= (R.x(V.T)["w":2, 2], R.h(V.S)["u":2, 2], R._after(V.S, V.T))) | [F.tanh],
        ],
        {"after": sequence(5), "first": torch.tensor([[0]]), "x": randn(5, 2)},
    ),
    "pattern": (
        [
            R.k(V.I) <= R.x(V.I)["w":2, 2],
            (R.a(V.I, V.J) <= (R.k(V.J).T, R.x(V.I), R._edge(V.I, V.J), V.J <= V.I))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.h(V.I) <= (R.a(V.I, V.J), R.x(V.J))) | [F.product],
        ],
        {"edge": EDGES, "x": randn(4, 2)},
    ),
    "one tensor twice": (
        [(R.h(V.X) <= (R.x(V.X)["w":2, 2], R.y(V.X), R._edge(V.X, V.Y))) | [F.sum]],
        dict.fromkeys(["x", "y"], randn(8, 2)[::2]) | {"edge": EDGES},
    ),
    "empty": (TWO_HOPS, {"edge": EDGES[:, :0], "x": randn(4, 2)}),
    "numbers": (
        [
            R.e(V.X) <= F.lookup(W["table":5, 2], R.x(V.X)),
            R.h(V.X) <= (R.e(V.Y), R._edge(V.X, V.Y)),
        ],
        {"edge": EDGES, "x": numbers(torch.tensor([1, 4, 0, 4]))},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_loaded_is_what_was_saved(name, tmp_path, joined):
    rules, inputs = CASES[name]
    model = compiled(rules)
    data = model.ground(**inputs)
    data.save(tmp_path / "data")
    joined.clear()
    found = model.load_data(tmp_path / "data")
    assert not joined
    if name != "empty":  # which has no gradients
        assert same(outputs(model, found), outputs(model, data))
    assert torch.equal(model.rows(found).data, model.rows(data).data)
    found.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "data").read_bytes()


FACTS = [R.edge("a", "b"), R.edge("b", 3), R.x(3)[[1.0, 2.0]], R.x("b")[[0.1, 0.3]]]


@pytest.mark.parametrize("facts", [FACTS, ragged([FACTS, [], FACTS[1:3]])], ids=["one", "batch"])
def test_facts_are_saved(facts, tmp_path, joined):
    model = compiled([(R.h(V.X) <= (R.edge(V.X, V.Y), R.x(V.Y)["w":3, 2])) | [F.product]])
    data = model.ground(facts=facts)
    data.save(tmp_path / "data")
    joined.clear()
    found = model.load_data(tmp_path / "data")
    assert not joined
    assert found.samples == data.samples
    assert same(outputs(model, found), outputs(model, data))


def test_facts_with_tensors_and_facts_of_the_program(tmp_path):
    rules = [R.x(7)[[0.5, 0.5]], R.h(V.X) <= (R.edge(V.X, V.Y), R.x(V.Y)["w":3, 2])]
    model = compiled(rules)
    data = model.ground(facts=[R.edge(0, 7), R.edge(1, 2), R.x(2)[randn(2)]])
    data.save(tmp_path / "data")
    assert same(outputs(model, model.load_data(tmp_path / "data")), outputs(model, data))


def test_shapes_that_come_with_a_step(tmp_path, joined):
    model, x = compiled(TWO_HOPS), randn(4, 2)
    data = model.ground(edge=EDGES)
    with pytest.raises(NotSavable, match="nothing is joined yet"):
        data.save(tmp_path / "data")
    wanted = outputs(model, data, x=x)
    data.save(tmp_path / "data")
    found = model.load_data(tmp_path / "data")
    joined.clear()
    assert same(outputs(model, found, x=x), wanted)
    assert not joined
    other = randn(6, 2)  # another length: joined as it is without a file
    assert same(outputs(model, found, x=other), outputs(model, data, x=other))


def test_samples_and_wanted_rows_are_taken_of_loaded_data(tmp_path):
    model = compiled(TWO_HOPS)
    inputs = CASES["ragged"][1]
    data = model.ground(**inputs)
    data.save(tmp_path / "data")
    found = model.load_data(tmp_path / "data")
    assert len(found) == 3
    assert torch.equal(model.rows(found[[1, 0]]).data, model.rows(data[[1, 0]]).data)
    one = model.ground(edge=EDGES, x=randn(4, 2))
    one.save(tmp_path / "data")
    loaded = model.load_data(tmp_path / "data")
    assert torch.equal(model(loaded, want=[3, 0]), model(one, want=[3, 0]))


def test_a_loaded_model_reads_it(tmp_path):
    model = compiled(TWO_HOPS)
    data = model.ground(edge=EDGES, x=randn(4, 2))
    data.save(tmp_path / "data")
    model.save(tmp_path / "model")
    other = load(tmp_path / "model")
    assert same(outputs(other, other.load_data(tmp_path / "data")), outputs(model, data))


def test_output_with_constants(tmp_path):
    model = compiled(TWO_HOPS, R.h(3))
    data = model.ground(edge=EDGES, x=randn(4, 2))
    data.save(tmp_path / "data")
    assert torch.equal(model(model.load_data(tmp_path / "data")), model(data))


def refused(code, call):
    with pytest.raises(edgewise.EdgewiseError) as found:
        call()
    assert found.value.code == code, found.value
    return str(found.value)


def test_what_has_no_file(tmp_path):
    model, x = compiled(TWO_HOPS), randn(4, 2)
    path = tmp_path / "data"
    batch = model.ground(**CASES["ragged"][1])
    whole = model.ground(edge=EDGES, x=x)
    learnt = model.ground(edge=EDGES, x=rows(torch.tensor([[0, 1]]), randn(2, 2).requires_grad_()))
    for data, said in [
        (batch[[0]], "some samples"),
        (model.ground(edge=EDGES, x=x, want=[0]), "some rows"),
        (model.samples(batch)[0], "some samples"),
        (learnt, "`x` needs gradients"),
    ]:
        assert said in refused("not-savable", lambda data=data: data.save(path))
    assert not list(tmp_path.iterdir())
    refused("not-savable", lambda: whole.save(3))
    refused("not-savable", lambda: whole.save(tmp_path / "no" / "folder"))
    refused("not-savable", lambda: whole.save(tmp_path))
    refused("not-savable", lambda: whole.save("a\0b"))
    code = compiled([(R.h(V.X) <= R.x(V.X)) | [F.call(torch.nn.Tanh())]])
    refused("not-savable", lambda: code.ground(x=x).save(path))
    gone = compiled(TWO_HOPS).ground(edge=EDGES, x=x)
    assert "gone" in refused("not-savable", lambda: gone.save(path))


def test_other_models_are_refused(tmp_path):
    model, path = compiled(TWO_HOPS), tmp_path / "data"
    model.ground(edge=EDGES, x=randn(4, 2)).save(path)
    for other in (
        compiled([TWO_HOPS[0], R.h(V.X) <= (R._two(V.X, V.Z), R.x(V.Z)["w":3, 2])]),
        compiled(TWO_HOPS, without=["find patterns"]),
    ):
        with pytest.raises(ForeignData, match="other rules"):
            other.load_data(path)
    single = Program(TWO_HOPS).compile(R.h, dtype=torch.float32)
    with pytest.raises(edgewise.EdgewiseError, match="float64"):
        single.load_data(path)


def test_broken_files_are_refused(tmp_path, monkeypatch):
    model, path = compiled(TWO_HOPS), tmp_path / "data"
    model.ground(edge=[("a", "b"), ("b", "a")], x={"a": [1.0, 2.0]}).save(path)
    good = path.read_bytes()
    refused("bad-data-file", lambda: model.load_data(tmp_path / "none"))
    refused("bad-data-file", lambda: model.load_data(tmp_path))
    refused("bad-data-file", lambda: model.load_data(7))
    refused("bad-data-file", lambda: model.load_data("a\0b"))
    for size in [0, 1, 7, 8, 9, 100, len(good) // 2, len(good) - 1]:
        path.write_bytes(good[:size])
        refused("bad-data-file", lambda: model.load_data(path))
    for place in range(0, len(good), 3):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x15]) + good[place + 1 :])
        refused("bad-data-file", lambda: model.load_data(path))
    model.save(path)
    refused("bad-data-file", lambda: model.load_data(path))
    path.write_bytes(good)
    refused("bad-model-file", lambda: load(path))
    monkeypatch.setattr(edgewise, "__version__", "99.0.0")
    assert "99.0.0" in refused("bad-data-file", lambda: model.load_data(path))


def test_a_manifest_that_lies_is_refused_or_right(tmp_path):
    """With hashes that are right: errors of ours, never rows that do not exist."""
    from edgewise.ground.joins.recorded import digest

    model, path = compiled(TWO_HOPS), tmp_path / "data"
    data = model.ground(edge=EDGES, x=randn(4, 2))
    data.save(path)
    tensors = safetensors.torch.load_file(path)
    manifest = json.loads(tensors.pop(MANIFEST).numpy().tobytes())
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            continue
        for other in (tensor + 1000, tensor - 1000, tensor[..., :1], tensor.double()):
            changed = tensors | {name: other.contiguous().clone()}
            said = manifest | {"tensors": [digest(changed[str(at)]) for at in range(len(changed))]}
            text = torch.frombuffer(bytearray(json.dumps(said).encode()), dtype=torch.uint8)
            about = {KIND: f"{FORMAT} {digest(text)}"}
            safetensors.torch.save_file(changed | {MANIFEST: text}, path, about)
            with contextlib.suppress(edgewise.EdgewiseError):
                model.rows(model.load_data(path))
    for name in [*manifest]:
        for other in (None, 3, "x", [], {}):
            said = manifest | {name: other}
            text = torch.frombuffer(bytearray(json.dumps(said).encode()), dtype=torch.uint8)
            about = {KIND: f"{FORMAT} {digest(text)}"}
            safetensors.torch.save_file(tensors | {MANIFEST: text}, path, about)
            with contextlib.suppress(edgewise.EdgewiseError):
                model.load_data(path)

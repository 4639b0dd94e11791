"""Saved and loaded, a model is the same; a file that is not what was saved is refused whole."""

import json
import random
import struct
import zipfile

import hypothesis.strategies as st
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings

import edgewise
from edgewise import EdgewiseError, F, Program, R, V, W, load, repeat
from edgewise.graphs import bigbird, window
from edgewise.module import Model
from edgewise.save import BadModelFile, archive


def held():
    """Tensors held by a program: two fixed ones, one parameter used twice, one scalar."""
    shared = torch.nn.Parameter(torch.randn(2, 2))
    return Program(
        [
            R.h(V.I) <= R.x(V.I)[torch.randn(2, 2)].fixed(),
            R.h(V.I) <= R.x(V.I)[torch.randn(2, 2)].fixed(),
            R.h(V.I) <= R.x(V.I)[shared],
            R.s[torch.tensor(3.0)],
            (R.out(V.I) <= (R.s, R.h(V.I)[shared])) | [F.product],
        ]
    )


def plain():
    return Program([(R.out(V.I) <= (R.x(V.I)[3, 2], W.b[[0.1, 0.2, 1e-300]])) | [F.tanh]])


def patterned():
    return Program(
        [
            R.v(V.I) <= R.x(V.I)[2, 2],
            R.out(V.I) <= (R.v(V.J), R._x(V.I), (window(1) | bigbird(block=2, seed=1))(V.I, V.J)),
        ]
    )


def family():
    return Program([R.out(V.H, V.I) <= R.x(V.I)[W.q(V.H)[2, 2]]], domains={V.H: 3})


def stacked():
    block = repeat(lambda x: [(R.out(V.I) <= x(V.I)[2, 2]) | [F.relu]], 3, name="layer")(R.x)
    return Program([block, R.out(V.I) <= block.out(V.I)[2, 2]])


def facts():
    return Program([R.e("a", 1)[0.5], R.e("b", 2), R.out(V.I) <= (R.x(V.I), R.e(V.S, V.I))])


PROGRAMS = [held, plain, patterned, family, stacked, facts]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.edgewise"


def answer(model, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    found = model(x=torch.randn(4, 2, generator=generator, dtype=torch.float64).to(dtype))
    return found if isinstance(found, torch.Tensor) else found.data


@pytest.mark.parametrize("make", PROGRAMS)
def test_the_loaded_model_is_the_saved_one(make, path):
    model = make().compile(R.out, seed=0, fill=0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    before = torch.get_rng_state()
    model.save(path)
    found = load(path)
    assert torch.equal(before, torch.get_rng_state())
    saved, loaded = model.state_dict(), found.state_dict()
    assert list(saved) == list(loaded)
    assert all(torch.equal(saved[name], loaded[name]) for name in saved)
    assert torch.equal(answer(model), answer(found))
    assert (found.fill, found.limit, found.inputs) == (model.fill, model.limit, model.inputs)


def test_it_is_loaded_by_the_class_too(path):
    plain().compile(R.out).save(path)
    assert isinstance(Model.load(path), Model)
    assert isinstance(edgewise.load(str(path)), Model)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_precision_is_kept(dtype, path):
    model = plain().compile(R.out, dtype=dtype, seed=0)
    model.save(path)
    assert answer(load(path), dtype).dtype == dtype
    assert torch.equal(answer(load(path), dtype), answer(model, dtype))


def test_tied_and_frozen_parameters_stay_so(path):
    model = held().compile(R.out)
    model.weight("h.x_3").requires_grad_(False)
    model.save(path)
    found = load(path)
    assert found.weight("h.x_3") is found.weight("out.h")
    assert not found.weight("out.h").requires_grad
    assert len(list(found.parameters())) == len(list(model.parameters()))


@pytest.mark.parametrize("fill", [None, 0.0, -1.5, float("nan"), float("inf"), float("-inf")])
def test_any_fill_is_kept(fill, path):
    plain().compile(R.out, fill=fill).save(path)
    assert repr(load(path).fill) == repr(fill)


@pytest.mark.parametrize("check", [False, True])
def test_check_is_kept(check, path):
    Program([R.h(V.I) <= R.x(V.I)]).compile(R.h, check=check).save(path)
    assert load(path).check is check


def test_training_goes_on_as_if_nothing_had_happened(path):
    model = plain().compile(R.out, seed=0)
    model.save(path)
    other = load(path)
    for one in (model, other):
        optimiser = torch.optim.Adam(one.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            answer(one).square().sum().backward()
            optimiser.step()
    assert torch.equal(answer(model), answer(other))


def test_the_same_model_gives_the_same_bytes(path, tmp_path):
    model = held().compile(R.out, seed=0)
    model.save(path)
    load(path).save(tmp_path / "again")
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


def test_large_tensors_are_not_in_the_text(path):
    program = Program([R.out(V.I) <= R.x(V.I)[torch.randn(500, 2)]])
    program.compile(R.out).save(path)
    with zipfile.ZipFile(path) as file:
        assert len(file.read(archive.RULES)) < 100


@pytest.mark.parametrize(
    "program",
    [
        Program([(R.out(V.I) <= R.x(V.I)) | [F.call(torch.nn.Tanh())]]),
        Program([R.out(V.I) <= (R.x(V.I), R.special.fn(lambda i: i > 1)(V.I))]),
    ],
    ids=["call", "fn"],
)
def test_python_is_not_saved(program, path):
    path.write_text("before")
    with pytest.raises(EdgewiseError) as caught:
        program.compile(R.out).save(path)
    assert caught.value.code == "not-savable"
    assert caught.value.help
    assert path.read_text() == "before"


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(EdgewiseError) as caught:
        plain().compile(R.out).save(tmp_path / "no" / "model")
    assert caught.value.code == "not-savable"


def test_a_failed_write_leaves_what_was_there(path, monkeypatch):
    model = plain().compile(R.out, seed=0)
    model.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(archive.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(EdgewiseError, match="full"):
        plain().compile(R.out, seed=1).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


# hostile files


def parts_of(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def signed(parts, options=()):
    """The parts with a manifest that fits them, as someone who knows the format would write."""
    manifest = json.loads(parts[archive.MANIFEST])
    manifest["parts"] = {
        name: archive.digest(parts[name]) for name in (archive.RULES, archive.WEIGHTS)
    }
    return parts | {archive.MANIFEST: json.dumps(manifest | dict(options)).encode()}


def written(path, parts, kind=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return path


def refused(path, *words):
    with pytest.raises(EdgewiseError) as caught:
        load(path)
    assert caught.value.code == "bad-model-file"
    assert caught.value.help
    assert "Traceback" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.fixture
def parts(path):
    plain().compile(R.out, seed=0).save(path)
    return parts_of(path)


def test_no_file_a_folder_and_an_empty_file(tmp_path):
    refused(tmp_path / "nothing", "no such file")
    refused(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    refused(tmp_path / "empty")


@pytest.mark.parametrize("missing", archive.PARTS)
def test_a_missing_part(parts, path, missing):
    refused(written(path, {n: d for n, d in parts.items() if n != missing}), missing)


@pytest.mark.parametrize("name", ["../../evil", "/etc/passwd", "weights.pkl", "a/manifest.json"])
def test_a_part_too_many(parts, path, name):
    refused(written(path, parts | {name: b"x"}), name)
    assert not (path.parent.parent / "evil").exists()


def test_parts_are_stored_not_compressed(parts, path):
    refused(written(path, parts, zipfile.ZIP_DEFLATED), "compressed")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_part_twice(parts, path):
    with zipfile.ZipFile(path, "w") as file:
        for name, data in [*parts.items(), (archive.RULES, b"")]:
            file.writestr(name, data)
    refused(path, "twice")


@pytest.mark.parametrize("part", [archive.RULES, archive.WEIGHTS])
def test_a_changed_part(parts, path, part):
    changed = parts[part][:-1] + bytes([parts[part][-1] ^ 1])
    refused(written(path, parts | {part: changed}), "hash", part)


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"format": NaN}',
        b'{"format": 1}',
        b'{"format": 2}',
        b'{"format": true}',
    ],
)
def test_a_manifest_that_is_none(parts, path, manifest):
    refused(written(path, parts | {archive.MANIFEST: manifest}))


@pytest.mark.parametrize(
    "options",
    [
        {"format": 99},
        {"dtype": "int8"},
        {"dtype": "load"},
        {"limit": -1},
        {"limit": True},
        {"limit": 1e400},
        {"fill": "1 + 1"},
        {"fill": [1]},
        {"output": "nothing"},
        {"output": "x"},
        {"without": ["no such pass"]},
        {"without": [1]},
        {"ties": {"b": "nothing"}},
        {"ties": {"a": 1}},
        {"ties": {"a": [1]}},
        {"frozen": [[1]]},
        {"parts": {"program.rules": 1}},
    ],
)
def test_options_that_are_none(parts, path, options):
    refused(written(path, signed(parts, options)))


@pytest.mark.parametrize(
    "rules",
    [
        b"",
        b"\xff\xfe",
        b"out(X) :- ",
        b"out(X) :- x(X)." + b"(" * 100_000,
        b"out(I) :- {1000000000000,1000000000000} x(I).",
        b"[H=1000000000000]\nout(I) :- $q(H)={1000000,1000000} x(I).",
        b"l * 1000000000 (y = x) -> o {\n    o(I) :- {2,2} y(I).\n}\nout(I) :- l.o(I).",
        b"a * 100000 (y = x) -> o {\n    b * 100000 (z = y) -> p {\n        p(I) :- z(I).\n    }\n"
        b"    o(I) :- b.p(I).\n}\nout(I) :- a.o(I).",
        b"out(I) :- {4,2} x(I), $b=[1.0, 2.0, 3.0, 4.0].",
        b"out(I) :- {3,2} x(I).",
    ],
)
def test_rules_that_do_not_fit(parts, path, rules):
    refused(written(path, signed(parts | {archive.RULES: rules})))


def header(table, data=b""):
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "weights",
    [
        b"",
        b"\x00" * 7,
        struct.pack("<Q", 1 << 62),
        struct.pack("<Q", 10**9) + b"{}",
        header({}),
        header({"b": {"dtype": "F32", "shape": [float("1e308")], "data_offsets": [0, 4]}}, b"0000"),
        header({"b": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}, b"0000"),
        header({"b": {"dtype": "F32", "shape": [-3], "data_offsets": [0, 12]}}, b"0" * 12),
        header({"b": {"dtype": "PY", "shape": [3], "data_offsets": [0, 12]}}, b"0" * 12),
        header({"b": {"dtype": "F32", "shape": [3], "data_offsets": [-4, 8]}}, b"0" * 12),
    ],
)
def test_weights_that_are_none(parts, path, weights):
    refused(written(path, signed(parts | {archive.WEIGHTS: weights})))


@pytest.mark.parametrize(
    "change",
    [
        {"b": None},
        {"b": torch.ones(4)},
        {"b": torch.ones(3, 1)},
        {"other": torch.ones(3)},
        {"_unit": torch.ones(())},
    ],
)
def test_weights_of_other_names_and_shapes(parts, path, change):
    tensors = safetensors.torch.load(parts[archive.WEIGHTS]) | change
    tensors = {name: t for name, t in tensors.items() if t is not None}
    weights = safetensors.torch.save(tensors)
    refused(written(path, signed(parts | {archive.WEIGHTS: weights})), next(iter(change)))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_weights_that_are_no_real_numbers(parts, path, dtype):
    tensors = safetensors.torch.load(parts[archive.WEIGHTS])
    weights = safetensors.torch.save(tensors | {"b": tensors["b"].to(dtype)})
    refused(written(path, signed(parts | {archive.WEIGHTS: weights})), "b")


@given(st.integers(0, 10**9))
@settings(max_examples=60)
def test_any_damage_is_seen(tmp_path_factory, seed):
    """Cut, or change a byte, anywhere: refused, or not noticed and the same model."""
    path = tmp_path_factory.mktemp("models") / "m"
    model = plain().compile(R.out, seed=0)
    model.save(path)
    data, draw = bytearray(path.read_bytes()), random.Random(seed)
    if draw.random() < 0.3:
        data = data[: draw.randrange(len(data))]
    else:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    try:
        found = load(path)
    except BadModelFile:
        return
    assert torch.equal(answer(found), answer(model))

"""Without an optional package, what needs it names the extra that really holds it."""

import ast
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import edgewise
from edgewise import EdgewiseError, attention_graph, cli, data, hf, viz, zoo
from edgewise.data.networkx_graphs import columns_of
from edgewise.distributed.partition import partition_of
from edgewise.graphs import compare, drawing, window
from edgewise.kernels import kernel_choices
from edgewise.training.data import files
from edgewise.training.data.tokens import tokenizer_of
from edgewise.training.objectives.texts import Translation
from edgewise.training.runs import logs
from edgewise.training.runs.onnx import to_onnx
from edgewise.zoo.pretrained.texts import read_tokenizer

ROOT = Path(__file__).parents[1]
NEEDS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SOURCE = Path(edgewise.__file__).parent
ELSEWHERE = {  # packages with a message of their own, and the extra that it names
    "typer": "cli",
    "rich": "cli",
    "numba": "cpu",
    "triton": "gpu",
    "flash-attn-4": "flash",
    "huggingface_hub": "models",
}
NAMED = drawing.EXTRAS | ELSEWHERE
EDGES = torch.tensor([[0, 1], [1, 0]])
MANY = torch.arange(3000).expand(2, -1)
SCHEMA = data.Schema(person=data.table("people", keys=["id"]))


def no_triton():
    return kernel_choices.no_triton("cuda")


def attended():
    return attention_graph([torch.eye(2)[None]]).edges()


USES = {
    "matplotlib": [
        lambda path: window(1).plot(8),
        lambda path: compare(window(1), n=8),
        lambda path: viz.attention(torch.eye(2), ["a", "b"]),
        lambda path: logs.require(tensorboard=False),
    ],
    "scipy": [
        lambda path: window(1).stats(8),
        lambda path: data.laplacian(MANY, 3000, size=1),
    ],
    "networkx": [
        lambda path: attended().to_networkx(),
        lambda path: columns_of(path / "people.graphml", "id", ("a", "b")),
    ],
    "pandas": [lambda path: attended().to_pandas()],
    "transformers": [lambda path: hf.use(object(), window(1))],
    "gguf": [lambda path: zoo.from_pretrained(path / "people.gguf")],
    "tokenizers": [
        lambda path: read_tokenizer(path, 10),
        lambda path: tokenizer_of("words", path, [], pieces=10),
    ],
    "sacrebleu": [lambda path: Translation().words(None)],
    "pyarrow": [
        lambda path: data.read(path / "people.arrow", SCHEMA),
        lambda path: files.read(path / "people.parquet"),
    ],
    "datasets": [lambda path: files.saved_dataset(path)],
    "duckdb": [
        lambda path: data.read(path / "people.duckdb", SCHEMA),
        lambda path: data.read(path / "people.parquet", SCHEMA),
        lambda path: data.read({"people": {"id": [1]}}, SCHEMA),
    ],
    "psycopg": [lambda path: data.read("postgresql://127.0.0.1:1/x", SCHEMA)],
    "rdkit": [lambda path: data.molecules(["CC"])],
    "pymetis": [lambda path: partition_of("metis", 2, 2, EDGES)],
    "tensorboard": [lambda path: logs.require(tensorboard=True)],
    "onnx": [lambda path: to_onnx(SimpleNamespace(architecture="bert"), path)],
    "onnxscript": [lambda path: to_onnx(SimpleNamespace(architecture="bert"), path)],
    "huggingface_hub": [lambda path: zoo.from_pretrained("nobody/nothing")],
}
CASES = [(name, number) for name, uses in USES.items() for number in range(len(uses))]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_what_needs_a_package_names_its_extra(name, number, monkeypatch, tmp_path):
    for kind in ("graphml", "gguf", "arrow", "parquet", "duckdb"):
        start = b"12345678DUCK" if kind == "duckdb" else b""
        (tmp_path / f"people.{kind}").write_bytes(start)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EdgewiseError, match=name) as caught:
        USES[name][number](tmp_path)
    assert caught.value.help == f"pip install 'edgewise[{NAMED[name]}]'"


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_the_command_names_its_extra(name, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, name, None)
    assert cli.main(["--help"]) == 2
    assert capsys.readouterr().err == f"the command needs {name}: pip install 'edgewise[cli]'\n"


@pytest.mark.parametrize(
    ("name", "refused"), [("numba", lambda: kernel_choices.no_numba("cpu")), ("triton", no_triton)]
)
def test_kernels_name_their_extra(name, refused, monkeypatch):
    monkeypatch.setattr(kernel_choices, "_installed", lambda package: package != name)
    assert f"{name} is not installed" in refused()
    assert f"edgewise[{ELSEWHERE[name]}]" in refused()


def test_each_extra_that_is_named_holds_its_package():
    for name, extra in NAMED.items():
        assert name in {re.split(r"[^\w-]", need)[0] for need in NEEDS[extra]}, (name, extra)


def test_every_optional_import_has_an_extra_and_a_case():
    own = {"edgewise", "torch", "numpy", "safetensors"} | sys.stdlib_module_names
    found = {name for path in SOURCE.rglob("*.py") for name in imported(path)} - own
    found -= {"llvmlite"}  # of numba
    assert {"flash-attn-4" if name == "flash_attn" else name for name in found} <= NAMED.keys()
    assert NAMED.keys() == USES.keys() | ELSEWHERE.keys()


def imported(path: Path) -> set[str]:
    """The packages that a file imports, but for types."""
    tree = ast.parse(path.read_text())
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    nodes = [node for node in ast.walk(tree) if id(node) not in typed]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}

"""The folder order of the package is its architecture; this file is where it is written down."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1] / "src" / "edgewise"
LAYERS = [  # each may import those before it
    *(
        "errors",
        "notebook",
        "functions",
        "language",
        "checks",
        "weights",
        "reference",
        "layouts",
        "measures",
        "graphs",
        "scores",
    ),
    *(
        "plan",
        "passes",
        "flow",
        "ground",
        "inputs",
        "data",
        "kernels",
        "physical",
        "pipeline",
        "execution",
        "module",
        "batches",
        "selecting",
        "compile",
        "epochs",
        "descent",
        "grow",
        "update",
        "provenance",
        "decode",
        "save",
    ),
    *("profile", "explain", "replay", "distributed", "pruning", "zoo", "training", "hf"),
    *("attention_graphs", "viz", "viewer", "demo", "neuralogic", "cli", "__main__"),
]
AT_CALL_TIME = {  # what reaches a later stage by name, and why
    "__init__.py": "the public names are loaded when first used",
    "cli/__init__.py": "a verb is loaded when the command runs",
    "explain/__init__.py": "with a mesh, what ranks would send",
    "graphs/drawing.py": "a graph can draw itself",
    "kernels/attention/__init__.py": "with a mesh, a call is shared among ranks",
    "language/program.py": "a program is the front of every stage: solve, draw",
    "language/text_form/expressions.py": "a pattern in the text form is a graph",
    "physical/data.py": "data can save itself",
    "module.py": "a model can save, explain, time and draw itself",
    "selecting.py": "a model whose groundings depend on values can grow",
    "replay.py": "a sample of a model can be drawn",
    "reference/solution.py": "a solution can draw itself",
    "training/runs/run.py": "a run can export itself",
    "save/reading.py": "a folder is a run or a checkpoint",
    "zoo/pretrained/loading.py": "a run is a checkpoint too",
}
EXTRAS = {  # packages that only some folders may import: the others work without them
    "matplotlib": {"demo", "viz", "graphs", "training"},
    "rich": {"demo", "cli"},
    "typer": {"cli"},
    "transformers": {"hf"},
    "sacrebleu": {"training"},
    "tokenizers": {"zoo", "training"},
    "gguf": {"zoo"},
    "pyarrow": {"training", "data"},
    "duckdb": {"data"},
    "flash_attn": {"kernels"},
    "pymetis": {"distributed"},
    "psycopg": {"data"},
    "rdkit": {"data"},
    "datasets": {"training"},
    "onnx": {"training"},
    "onnxscript": {"training"},
    "tensorboard": {"training"},
    "networkx": {"graphs", "attention_graphs", "data"},
    "scipy": {"graphs", "measures", "data"},
}
ORACLE = {  # what may import the reference evaluator: the engine is tested against it
    "replay.py": "`why` and `draw` of a model solve one sample",
    "viz/solution.py": "draws a solution",
}
FILES = sorted(ROOT.rglob("*.py"))


def layer(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path):
    """The modules that a file imports at run time; imports for type checkers do not count."""
    tree = ast.parse(path.read_text())
    typing = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_up_the_list(path):
    here = layer(path)
    if here == "__init__":
        return
    assert here in LAYERS, f"where does {here} stand? Add it to LAYERS"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "edgewise":
            there = rest.split(".")[0]
            assert there in LAYERS, f"{here} imports edgewise itself: name the module"
            assert LAYERS.index(there) <= LAYERS.index(here), (
                f"{here} must not import edgewise.{there}"
            )


def test_the_oracle_is_independent():
    found = {
        str(path.relative_to(ROOT))
        for path in FILES
        if layer(path) != "reference"
        and any(name.startswith("edgewise.reference") for name in imports(path))
    }
    assert found == set(ORACLE), "the engine has its own code, not the reference's"
    calls = {p for p in FILES if "edgewise.reference" in p.read_text() and layer(p) != "reference"}
    named = {str(path.relative_to(ROOT)) for path in calls} - found
    # `Program.solve` finds the reference by name; a model names the type of what `why` returns; the
    # package names its public types
    assert named == {
        *("__init__.py", "language/program.py", "module.py", "neuralogic/engine.py"),
        "training/predicting.py",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_oracle_shares_no_evaluation_with_the_engine(path):
    shared = {"edgewise.errors", "edgewise.functions", "edgewise.language", "edgewise.checks"}
    shared |= {"edgewise.weights", "edgewise.notebook"}
    if layer(path) == "reference":
        names = {name for name in imports(path) if name.startswith("edgewise.")}
        assert {".".join(name.split(".")[:2]) for name in names} <= shared | {"edgewise.reference"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_optional_packages_stay_where_they_belong(path):
    for name in imports(path):
        top = name.partition(".")[0]
        assert layer(path) in EXTRAS.get(top, {layer(path)}), f"{layer(path)} must not need {top}"


def test_every_way_round_the_table_is_written_down():
    found = {str(path.relative_to(ROOT)) for path in FILES if "importlib" in imports(path)}
    assert found <= set(AT_CALL_TIME), "say why in AT_CALL_TIME"


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("edgewise", "torch"),
        ("edgewise.language", "torch"),
        ("edgewise.checks", "torch"),
        ("edgewise.reference", "matplotlib"),
        ("edgewise.reference", "rich"),
    ],
)
def test_a_fresh_python_loads_only_what_it_needs(module, without):
    code = f"import sys, {module}; sys.exit({without!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

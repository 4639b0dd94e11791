"""The public boundary: what is public is documented, typed and on the API page."""

import ast
import importlib.util
import inspect
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import edgewise

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("api", ROOT / "docs" / "api.py")
api = importlib.util.module_from_spec(spec)
spec.loader.exec_module(api)

MODULES = ("edgewise", *api.MODULES)
NAMES = [(module, name) for module in MODULES for name in api.public_names(import_module(module))]
OPEN = re.compile(r"dict\[str, (typing\.)?Any\]|Graph\[(typing\.)?Any\]")  # JSON, generics

PYNEURALOGIC = [(module, name) for module in api.PYNEURALOGIC for name in api.names_in(module)]


@pytest.fixture(scope="module")
def page():
    return api.page() + api.modules_page()


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_name_exists_and_is_documented(module, name, page):
    thing = getattr(import_module(module), name)
    assert inspect.getdoc(thing), f"{module}.{name} has no docstring"
    assert f"`{name}`" in page


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_name_has_an_example(module, name):
    """In its docstring, where doctests run it; of an error, as the `example` of its page."""
    thing = getattr(import_module(module), name)
    text = inspect.getdoc(thing) or ""
    assert ">>>" in text or getattr(thing, "example", None), f"{module}.{name} has no example"
    for method, function in api.methods_of(thing):
        shown = ">>>" in inspect.getdoc(function) or f".{method}" in text or method == "forward"
        inherited = any(hasattr(base, method) for base in thing.__mro__[1:])
        assert shown or inherited, f"{module}.{name}.{method} has no example"


def test_the_interface_of_pyneuralogic_is_documented_with_examples():
    """Its signatures are those of PyNeuraLogic, which may take anything."""
    page = api.neuralogic_page()
    for module, name in PYNEURALOGIC:
        thing = getattr(import_module(module), name)
        shown = ">>>" in (inspect.getdoc(thing) or "") or getattr(thing, "example", None)
        assert shown, f"{module}.{name} has no example"
        assert f"[`{name}`]" in page
        for method, function in api.methods_of(thing):
            assert inspect.getdoc(function), f"{module}.{name}.{method} has no docstring"


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_public_signatures_have_real_types(module, name):
    thing = getattr(import_module(module), name)
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return
    functions = [(name, thing)] if inspect.isroutine(thing) else []
    functions += [(f"{name}.{method}", function) for method, function in api.methods_of(thing)]
    for shown, function in functions:
        function = function.fget if isinstance(function, property) else function
        found = inspect.signature(function)
        types = [p.annotation for n, p in found.parameters.items() if n not in ("self", "cls")]
        for annotation in (*types, found.return_annotation):
            assert annotation is not inspect.Parameter.empty, f"{shown} lacks a type"
            text = annotation if isinstance(annotation, str) else str(annotation)
            assert not re.search(r"\bAny\b", OPEN.sub("", text)), f"{shown}: {text}"


def test_type_checkers_see_the_public_names():
    tree = ast.parse((ROOT / "src" / "edgewise" / "__init__.py").read_text())
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    found = {node.names[0].asname: node.module for node in typed.body}
    homes = {name: f"edgewise.{home}" for name, home in edgewise._HOMES.items()}
    assert found == homes, "name what is public in both tables of edgewise/__init__.py"


def test_public_modules_declare_their_names():
    for module in MODULES:
        assert hasattr(import_module(module), "__all__") or module == "edgewise.zoo.parts", module


def test_there_is_one_version_number():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/edgewise/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", edgewise.__version__)


def test_the_command_prints_its_version(capsys):
    pytest.importorskip("typer")
    assert import_module("edgewise.cli").main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == edgewise.__version__
    assert "edgewise.cli" in sys.modules

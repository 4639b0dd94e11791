"""Names: one class name has one meaning, the field's words, and no function hides a module."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "edgewise"
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}

SAME_ROLE = {"Config", "Network"}  # the configuration of each model of the zoo
VAGUE = {
    *("laid", "heard", "hear", "hears", "hearing", "room", "kept", "few", "within", "given"),
    *(
        "settled",
        "asked",
        "bent",
        "whole",
        "helper",
        "helpers",
        "utils",
        "manager",
        "impl",
        "knobs",
    ),
}
COLLECTIONS = ("graphs/patterns", "passes", "zoo", "zoo/pretrained")  # a file per public name


def words(name):
    """The words of an identifier, in lower case."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def named(tree):
    """The names of the functions, classes, parameters and variables of a module, and lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                yield one.arg, one.lineno


def test_one_class_name_has_one_meaning():
    found = defaultdict(list)
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name)
    twice = {name: files for name, files in found.items() if len(files) > 1}
    assert not twice.keys() - SAME_ROLE - DUPLICATES, twice


@pytest.mark.parametrize("name", FILES)
def test_names_are_words_of_the_field(name):
    parts = name.removesuffix(".py").split("/")
    vague = [part for part in parts if words(part) & VAGUE]
    vague += [
        f"{found} (line {line})" for found, line in named(TREES[name]) if words(found) & VAGUE
    ]
    assert not vague or parts[0] in VAGUE_FOLDERS, vague


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("__init__.py")])
def test_no_name_hides_a_module(name):
    folder = name.removesuffix("/__init__.py")
    modules = {path.stem for path in (ROOT / folder).glob("*.py")}
    hidden = {
        f"{alias.asname or alias.name} of {node.module}"
        for node in TREES[name].body
        if isinstance(node, ast.ImportFrom) and folder not in COLLECTIONS
        for alias in node.names
        if (alias.asname or alias.name) in modules and node.module.endswith(f".{alias.name}")
    }
    assert not hidden or folder in HIDING_FOLDERS, hidden


# What is left to rename; nothing is added here.
DUPLICATES: set[str] = set()
VAGUE_FOLDERS = set()
HIDING_FOLDERS = set()

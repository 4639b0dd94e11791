"""Reading a model: every part is checked before anything is built, and nothing is evaluated."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from os.path import isfile
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from edgewise.compile import LIMIT, compile
from edgewise.errors import EdgewiseError, caller, named
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.module import Model
from edgewise.physical.weights import owner
from edgewise.save import archive
from edgewise.save.archive import Broken

MAX_STATEMENTS = 1_000_000
OF_FOLDERS = ("config.json", "recipe.toml", "recipe.json")  # a checkpoint, a run, an older run
DTYPES = {"float64", "float32", "float16", "bfloat16"}
OPTIONS = {
    "edgewise": str,
    "output": str,
    "fill": int | float | str | None,
    "limit": int,
    "without": list,
    "dtype": str,
    "frozen": list,
    "ties": dict,
}


class BadModelFile(EdgewiseError):
    """A file is checked completely before anything is built from it."""

    code = "bad-model-file"
    example = """\
open("model.edgewise", "w").write("not a model")
load("model.edgewise")"""
    instead = """\
Program([R.h(V.X) <= R.a(V.X)[2.0]]).compile(R.h).save("model.edgewise")
load("model.edgewise")"""


def load(path: str | Path) -> Model:
    """The model that `save` wrote: the same program, weights and outputs.

    A folder is a run of a recipe or a checkpoint; `zoo.from_pretrained` gives its tokenizer too.

    >>> import tempfile
    >>> import torch
    >>> from edgewise import Program, R, V
    >>> model = Program([R.h(V.I) <= R.x(V.I)["w":2, 3]]).compile(R.h, seed=0)
    >>> model.save(path := tempfile.mkdtemp() + "/model.edgewise")
    >>> x = torch.randn(4, 3)
    >>> torch.equal(load(path)(x=x), model(x=x))
    True
    """
    if not isinstance(path, str | Path):
        raise BadModelFile(
            f"expected a path, got {type(path).__name__}",
            caller(),
            'write `load("model.edgewise")`',
        )
    if any(isfile(Path(path) / name) for name in OF_FOLDERS):  # no error for any text
        found: Model = import_module("edgewise.zoo").from_pretrained(path).model
        return found
    try:
        parts = archive.read(Path(path))
        manifest = _manifest(parts)
        program = parsed(parts[archive.RULES])
        tensors = _tensors(parts[archive.WEIGHTS])
        return assembled(program, manifest, tensors)
    except Broken as problem:
        raise BadModelFile(
            f"`{named(str(path))}` is not an Edgewise model file: {problem}", caller(), problem.help
        ) from None


def _manifest(parts: Mapping[str, bytes]) -> dict[str, Any]:
    manifest = archive.parse(parts[archive.MANIFEST])
    if manifest.get("format") != archive.FORMAT:
        raise Broken(
            f"format {manifest.get('format')!r}, this version reads {archive.FORMAT}",
            "load it with the version of Edgewise that saved it",
        )
    check_options(manifest)
    hashes = manifest.get("parts")
    if not isinstance(hashes, dict):
        raise Broken("the manifest has no valid `parts`")
    for name in (archive.RULES, archive.WEIGHTS):
        if hashes.get(name) != archive.digest(parts[name]):
            raise Broken(f"the hash of `{name}` differs from the manifest")
    return manifest


def check_options(manifest: Mapping[str, Any]) -> None:
    """Refuse options that no model was saved with."""
    for name, kind in OPTIONS.items():
        value = manifest.get(name)
        if name not in manifest or not isinstance(value, kind) or isinstance(value, bool):
            raise Broken(f"the manifest has no valid `{name}`")
    words = [*manifest["without"], *manifest["frozen"], *manifest["ties"].values()]
    if not all(isinstance(word, str) for word in words):
        raise Broken("the manifest holds a name that is not a string")
    if not isinstance(manifest.get("dense"), bool | None):
        raise Broken("the manifest has no valid `dense`")
    if not isinstance(manifest.get("outputs", []), list):
        raise Broken("the manifest has no valid `outputs`")
    if not isinstance(manifest.get("check", False), bool):  # absent in older files
        raise Broken("the manifest has no valid `check`")
    if manifest["dtype"] not in DTYPES or manifest["limit"] < 0:
        raise Broken("the manifest has an unknown dtype or limit")


def parsed(rules: bytes) -> Program:
    try:
        program = Program.parse(rules.decode(), file=archive.RULES)
    except (EdgewiseError, ValueError, RecursionError) as problem:
        raise Broken(f"cannot parse the rules: {_first_line(problem)}") from None
    if _count(program.statements) > MAX_STATEMENTS:
        raise Broken("the rules expand to too many statements")
    return program


def _count(statements: tuple[nodes.Statement, ...]) -> int:
    """How many statements there are when stacks are written out."""
    return sum(
        s.count * _count(s.statements) if isinstance(s, nodes.Stack) else 1 for s in statements
    )


def _outputs(manifest: Mapping[str, Any]) -> nodes.Atom | list[nodes.Atom]:
    """The relation that was compiled, or several, or some rows."""
    if "outputs" not in manifest:  # all of one relation
        return nodes.Atom(manifest["output"])
    found = []
    for item in manifest["outputs"]:
        match item:
            case [str(name), [*terms]] if all(map(_is_term, terms)):
                made = [nodes.Variable(f"X{t[0]}") if isinstance(t, list) else t for t in terms]
                found.append(nodes.Atom(name, tuple(made)))
            case _:
                raise Broken("the manifest has no valid `outputs`")
    if manifest.get("several") is True:
        return found
    if len(found) != 1:
        raise Broken("the manifest has no valid `outputs`")
    return found[0]


def _is_term(term: Any) -> bool:
    is_place = isinstance(term, list) and len(term) == 1 and type(term[0]) is int
    return is_place or type(term) in (int, str)


def _first_line(problem: Exception) -> str:
    return problem.message if isinstance(problem, EdgewiseError) else type(problem).__name__


def _tensors(data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except Exception as problem:  # safetensors raises several types
        raise Broken(f"cannot read the weights: {type(problem).__name__}") from None


def _tied(manifest: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights with those that are another one under a second name."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise Broken(f"the weight `{name}` is {tensor.dtype}")
    found = dict(tensors)
    for name, other in manifest["ties"].items():
        if name in tensors or other not in tensors:
            raise Broken(f"the weight `{name}` is tied to `{other}`, which is not there")
        found[name] = tensors[other]
    return found


def assembled(
    program: Program, manifest: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> Model:
    """Build on the meta device, compare names and shapes, then load the weights."""
    tensors = _tied(manifest, tensors)
    try:
        with torch.device("meta"):
            model = compile(
                program,
                _outputs(manifest),
                fill=_number(manifest["fill"]),
                # older files count groundings
                limit=manifest["limit"] if "limit_unit" in manifest else LIMIT,
                without=manifest["without"],
                dtype=getattr(torch, manifest["dtype"]),
                check=manifest.get("check", False),
                dense=manifest.get("dense"),
            )
    except (EdgewiseError, RuntimeError, TypeError, ValueError, RecursionError) as problem:
        raise Broken(f"the rules do not compile: {_first_line(problem)}") from None
    wanted = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    for name in (*wanted, *found):
        if wanted.get(name) != found.get(name):
            raise Broken(
                f"the weight `{name}` is {_shown(found.get(name))}, the rules say "
                f"{_shown(wanted.get(name))}"
            )
    _fill(model, manifest, tensors)
    return model


def _shown(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else "×".join(map(str, shape)) or "a scalar"


def _number(number: float | str | None) -> float | None:
    if isinstance(number, str):
        if number not in ("nan", "inf", "-inf"):
            raise Broken("the manifest has no valid `fill`")
        return float(number)
    if number is not None and not abs(number) <= sys.float_info.max:
        raise Broken("the manifest has no valid `fill`")
    return None if number is None else float(number)


def _fill(model: Model, manifest: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    frozen, made = set(manifest["frozen"]), dict[int, torch.nn.Parameter]()
    for name, path in ((".".join(path), path) for path in model._paths.values()):
        place, tensor = owner(model, path), tensors[name]
        if path[-1] in place._parameters:
            learns = name not in frozen
            if id(tensor) not in made:
                made[id(tensor)] = torch.nn.Parameter(tensor, requires_grad=learns)
            place._parameters[path[-1]] = made[id(tensor)]
        else:
            place._buffers[path[-1]] = tensor
    model._buffers["_unit"] = torch.ones((), dtype=getattr(torch, manifest["dtype"]))

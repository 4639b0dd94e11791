"""Reads a checkpoint of Hugging Face, or a GGUF file, into a program with its weights."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, checks_options, nearest, raise_all
from edgewise.zoo.pretrained import files
from edgewise.zoo.pretrained.architectures import MODEL_TYPES, TEXT_PARTS
from edgewise.zoo.pretrained.constraints import NAMES, UNSUPPORTED
from edgewise.zoo.pretrained.fetch import SOURCES, hub_folder, is_hub_name
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.model import Pretrained
from edgewise.zoo.pretrained.pooling import read_pooling
from edgewise.zoo.pretrained.pruned import pruned_entries, read_pruned
from edgewise.zoo.pretrained.schema import TOKENS, CheckpointSpec, read_config, table_of
from edgewise.zoo.pretrained.tensors import Shape, TensorEntry, check_tensors, shapes_of, to_ours
from edgewise.zoo.pretrained.texts import read_tokenizer

RECIPES = ("recipe.toml", "recipe.json")  # of a run, and of one of an older version

GRAPHS = "a graph replaces attention in transformers' own model: `hf.use(model, window(256))`"
INSTEAD = {
    "torch_dtype": "write `dtype=torch.bfloat16`",
    "device": 'move it: `zoo.from_pretrained(path).to("cuda")`',
    "device_map": 'move it: `zoo.from_pretrained(path).to("cuda")`',
    "attn_implementation": GRAPHS,
    "graph": GRAPHS,
}


@checks_options(**INSTEAD)
def from_pretrained(path: str | Path, *, dtype: torch.dtype = torch.float32) -> Pretrained:
    """The model of a checkpoint: a folder as Hugging Face saves it, a name of its hub such as
    "openai-community/gpt2" (from its cache, or downloaded), a GGUF file, or a run.

    >>> import tempfile
    >>> from edgewise import zoo
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=16)
    >>> folder = tempfile.mkdtemp() + "/tiny"
    >>> zoo.save_pretrained(folder, zoo.gpt2, config, zoo.gpt2.program(config).weights(seed=0))
    >>> len(zoo.from_pretrained(folder).program.rules)
    14
    """
    if not isinstance(path, str | Path):
        raise BadPretrained(
            f"a path is a string, not {type(path).__name__}", caller(), "give the path of a folder"
        )
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise BadPretrained(
            f"`dtype` is {dtype!r}", caller(), "give a floating-point dtype: `dtype=torch.float64`"
        )
    path = hub_folder(str(path)) if is_hub_name(path) else Path(path)
    try:
        if path.suffix == ".gguf":
            from edgewise.zoo.pretrained.gguf import read_gguf

            return read_gguf(path, dtype)
        if is_run(path):
            run: Pretrained = import_module("edgewise.training.runs.run").read_run(path, dtype)
            return run
        return _folder(path, dtype)
    except EdgewiseError as error:
        place = caller()
        for one in (error, *error.errors):
            one.place = one.place or place
        raise


def is_run(path: Path) -> bool:
    """Whether a folder holds a run of a recipe, or a model that was exported from one."""
    config = path / files.CONFIG
    if not config.is_file():
        return any((path / name).is_file() for name in RECIPES)
    try:
        return files.read_json(config).get("model_type") == "edgewise"
    except BadPretrained:
        return (path / RECIPES[0]).is_file()


def _folder(path: Path, dtype: torch.dtype) -> Pretrained:
    if path.is_file():
        raise BadPretrained(
            f"`{path}` is a file, and neither a folder nor GGUF",
            help="onnxruntime runs it; give the model that it was exported from"
            if path.suffix == ".onnx"
            else "give the folder that holds `config.json`, or a file that ends in .gguf",
        )
    if not path.is_dir():
        near = nearest(str(path), list(SOURCES))
        known = f"the checkpoint `{near}` can be fetched: `zoo.fetch({near!r})`"
        raise BadPretrained(
            f"there is no folder `{path}`",
            help=known if near else "give the folder that holds `config.json`",
        )
    table = files.read_json(path / files.CONFIG)
    if (path / files.GENERATION).is_file():  # replaces what config.json says of decoding
        generation = files.read_json(path / files.GENERATION)
        own = (*NAMES, *UNSUPPORTED)
        table = {name: value for name, value in table.items() if name not in own}
        said = (name for name in (*TOKENS, *own) if generation.get(name) is not None)
        table |= {name: generation[name] for name in said}
    part = TEXT_PARTS.get(str(table.get("model_type")))
    table = part.table(table) if part else table
    spec, named = spec_for(table)
    config = read_config(spec, table)
    program = spec.MODEL.program(config)
    found = files.weight_files(path)
    shapes = files.tensor_shapes(found)
    shapes = part.only(shapes) if part else shapes
    architecture, entries, tied = entries_for(spec, config, named, shapes)
    gone = read_pruned(table)
    if gone:
        program, entries = pruned_entries(program, entries, gone)
    check_tensors(entries, shapes, shapes_of(program), tied)
    theirs = files.tensors(found)
    theirs = part.only(theirs) if part else theirs
    _check_tied(theirs, tied)
    tokenizer = path / "tokenizer.json"
    words: int = getattr(config, "vocabulary", 0)
    if (source := getattr(config, "source_vocabulary", None)) is not None:
        words = source
    return Pretrained(
        spec,
        architecture,
        config,
        program,
        to_ours(entries, {n: t.to(dtype) for n, t in theirs.items()}, shapes_of(program)),
        read_tokenizer(tokenizer, words) if tokenizer.is_file() else None,
        table,
        dtype,
        pruned=gone,
        pooling=read_pooling(path),
    )


def spec_for(table: dict[str, Any]) -> tuple[CheckpointSpec, str]:
    """The file in `architectures/` for a configuration, and its architecture."""
    kind = table.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise BadPretrained(
            f"unsupported `model_type` {kind!r}"[:120],
            help=f"supported: {', '.join((*MODEL_TYPES, *TEXT_PARTS))}",
        )
    spec = MODEL_TYPES[kind]
    named = table.get("architectures")
    architecture = named[0] if isinstance(named, list) and named else next(iter(spec.ARCHITECTURES))
    if not isinstance(architecture, str) or architecture not in spec.ARCHITECTURES:
        raise BadPretrained(
            f"unsupported architecture {architecture!r}"[:120],
            help=f"supported: {', '.join(spec.ARCHITECTURES)}",
        )
    return spec, architecture


def entries_for(
    spec: CheckpointSpec, config: Any, named: str, found: dict[str, Shape]
) -> tuple[str, list[TensorEntry], dict[str, str]]:
    """The architecture, the tensors it must have, and those it may have tied to others.

    A configuration may name another architecture than its file holds: the tensors decide, and the
    name where they fit both.
    """
    best, least = None, len(found) + 1
    for architecture in (named, *spec.ARCHITECTURES):
        entries = table_of(spec, config, architecture, found)
        tied = _tied(spec, entries)
        wanted = {e.theirs for e in entries}
        wrong = len(wanted - found.keys()) + len(found.keys() - wanted - tied.keys())
        if best is None or wrong < least:
            best, least = (architecture, entries, tied), wrong
        if not wrong:
            break
    assert best is not None
    return best


def _tied(spec: CheckpointSpec, entries: list[TensorEntry]) -> dict[str, str]:
    """Tensors that may be there → those that they must equal."""
    wanted = {e.theirs for e in entries}
    words = next((e.theirs for e in entries if e.ours == "word"), "")
    tied = {name: other for name, other in spec.TIED.items() if name not in wanted}
    return {n: o if o in wanted or not o else words for n, o in tied.items()}


def _check_tied(theirs: dict[str, Tensor], tied: dict[str, str]) -> None:
    raise_all(
        [
            BadPretrained(
                f"the tensor `{name}` differs from `{other}`, to which the rules tie it",
                help="untied checkpoints of this architecture are not supported",
            )
            for name, other in tied.items()
            if other and name in theirs and not torch.equal(theirs[name], theirs[other])
        ]
    )

"""Checkpoints of other libraries: read, checked name by name, and written back.

`from_pretrained(path)` reads a folder of `config.json`, safetensors and `tokenizer.json`, or a GGUF
file. Nothing is evaluated, and no pickle is opened.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, nearest
from edgewise.zoo.pretrained import files
from edgewise.zoo.pretrained.entries import BadPretrained, Entry, Shape, check_tensors, to_ours
from edgewise.zoo.pretrained.fetch import SOURCES, cached, fetch
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.layouts import (
    bert,
    bigbird,
    distilbert,
    gpt2,
    llama,
    longformer,
    megatron,
    mpnet,
    roberta,
    t5,
    vit,
)
from edgewise.zoo.pretrained.pretrained import TOKENS, Pretrained, save_pretrained
from edgewise.zoo.pretrained.shapes import shapes_of
from edgewise.zoo.pretrained.tokens import read_tokenizer

__all__ = [
    "LAYOUTS",
    "BadPretrained",
    "Pretrained",
    "cached",
    "fetch",
    "from_pretrained",
    "save_pretrained",
]

GENERATION = "generation_config.json"
LAYOUTS: dict[str, ModuleType] = {
    layout.TYPE: layout
    for layout in (
        *(bert, roberta, distilbert, mpnet, megatron),
        *(gpt2, llama, t5, vit, longformer, bigbird),
    )
}


def from_pretrained(path: str | Path, *, dtype: torch.dtype = torch.float32) -> Pretrained:
    """The model of a checkpoint: a folder as Hugging Face saves it, or a GGUF file."""
    if not isinstance(path, str | Path):
        raise BadPretrained(
            f"a path is a text, not {type(path).__name__}", caller(), "give the path of a folder"
        )
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise BadPretrained(
            f"`dtype` is {dtype!r}", caller(), "give a precision: `dtype=torch.float64`"
        )
    path = Path(path)
    try:
        if path.suffix == ".gguf":
            from edgewise.zoo.pretrained.gguf import read_gguf

            return read_gguf(path, dtype)
        return _folder(path, dtype)
    except EdgewiseError as error:
        error.place = error.place or caller()
        raise


def _folder(path: Path, dtype: torch.dtype) -> Pretrained:
    if not path.is_dir():
        near = nearest(str(path), list(SOURCES))
        known = f"the checkpoint `{near}` can be fetched: `zoo.fetch({near!r})`"
        raise BadPretrained(
            f"there is no folder `{path}`",
            help=known if near else "give the folder that holds `config.json`",
        )
    table = files.read_json(path / files.CONFIG)
    if (path / GENERATION).is_file():  # it has the last word on where a text begins and ends
        given = files.read_json(path / GENERATION)
        table |= {name: given[name] for name in TOKENS if given.get(name) is not None}
    layout, named = layout_for(table)
    config = layout.config(Fields(table))
    program = layout.MODEL.program(config)
    found = files.weight_files(path)
    shapes = files.tensor_shapes(found)
    architecture, entries, spare = entries_for(layout, config, named, shapes)
    check_tensors(entries, shapes, shapes_of(program), spare)
    theirs = files.tensors(found)
    _check_twins(theirs, spare)
    tokenizer, words = path / "tokenizer.json", getattr(config, "vocabulary", 0)
    return Pretrained(
        layout,
        architecture,
        config,
        program,
        to_ours(entries, {n: t.to(dtype) for n, t in theirs.items()}, shapes_of(program)),
        read_tokenizer(tokenizer, words) if tokenizer.is_file() else None,
        table,
        dtype,
    )


def layout_for(table: dict[str, Any]) -> tuple[ModuleType, str]:
    """The layout that a configuration names, and the architecture."""
    kind = table.get("model_type")
    if not isinstance(kind, str) or kind not in LAYOUTS:
        raise BadPretrained(
            f"it is a checkpoint of the model {kind!r}"[:120],
            help=f"there are rules for {', '.join(LAYOUTS)}",
        )
    layout = LAYOUTS[kind]
    named = table.get("architectures")
    architecture = (
        named[0] if isinstance(named, list) and named else next(iter(layout.ARCHITECTURES))
    )
    if not isinstance(architecture, str) or architecture not in layout.ARCHITECTURES:
        raise BadPretrained(
            f"it is a checkpoint of the architecture {architecture!r}"[:120],
            help=f"there are rules for {', '.join(layout.ARCHITECTURES)}",
        )
    return layout, architecture


def entries_for(
    layout: ModuleType, config: Any, named: str, found: dict[str, Shape]
) -> tuple[str, list[Entry], dict[str, str]]:
    """The architecture, the tensors that must be there, and doubles that may, by their twins.

    Configurations name architectures that files are not of: the tensors decide.
    """
    usual = layout.ARCHITECTURES[named][0]
    prefix = usual if any(name.startswith(usual) for name in found) else ""
    entries = list(layout.entries(config, prefix))
    heads = {
        relation: extra
        for relation, extra in layout.heads(config, prefix).items()
        if any(e.theirs in found for e in extra)
    }
    entries += [e for extra in heads.values() for e in extra]
    order = (named, *layout.ARCHITECTURES)
    fitting = (a for a in order if layout.ARCHITECTURES[a][0] == prefix)
    architecture = next(
        (a for a in fitting if set(heads) <= set(layout.ARCHITECTURES[a][1])), named
    )
    words = next(e.theirs for e in entries if e.ours == "word") if layout.SPARE else ""
    wanted = {e.theirs for e in entries}
    spare = {}
    for name, twin in layout.SPARE.items():
        if name not in wanted:
            spare[name] = twin if twin in wanted or not twin else words
    return architecture, entries, spare


def _check_twins(theirs: dict[str, Tensor], spare: dict[str, str]) -> None:
    for name, twin in spare.items():
        if twin and name in theirs and not torch.equal(theirs[name], theirs[twin]):
            raise BadPretrained(
                f"the tensor `{name}` is not the same as `{twin}`, which the rules share",
                help="the checkpoint does not tie them: there are no rules for that",
            )

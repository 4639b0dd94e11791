"""The files that make a run a model: its configuration, rules, tokenizer and weights.

`edgewise.training.folder` says what each holds.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from edgewise.module import Model
from edgewise.save.archive import digest, write
from edgewise.save.writing import options_of, rules_text, tensors_of
from edgewise.training.folder import RECIPE
from edgewise.training.recipe import Recipe
from edgewise.training.tokenizers import MASK, SPECIAL

MODEL_TYPE, FORMAT = "edgewise", 1
CONFIG, RULES, TOKENIZER = "config.json", "rules.txt", "tokenizer.json"
WEIGHTS = "model.safetensors"


def describe(out: Path, recipe: Recipe, corpus: Any, model: Model) -> None:
    """Write everything about a model but its weights."""
    parts = {RULES: rules_text(model).encode()}
    tokenizer = recipe.objective.tokenizer(corpus)
    if tokenizer is not None:
        parts[TOKENIZER] = tokenizer.to_str(pretty=True).encode()
    sections = recipe.json()
    config = {
        "model_type": MODEL_TYPE,
        "format": FORMAT,
        "edgewise": sys.modules["edgewise"].__version__,
        "task": recipe.objective.task,
        "model": sections["model"],
        "objective": sections["objective"],
        "sizes": {**corpus.sizes, "words": recipe.objective.words(corpus)},
        "tokens": _special(tokenizer) | corpus.tokens,
        "labels": list(getattr(corpus, "labels", ())),
        "program": options_of(model) | {"ties": tensors_of(model)[1]},
        "files": {name: digest(data) for name, data in parts.items()},
    }
    write(out / RECIPE, toml(sections).encode())
    for name, data in parts.items():
        write(out / name, data)
    write(out / CONFIG, (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode())


def write_weights(out: Path, model: Model, step: int) -> None:
    """Write the weights to use, by their names in the rules."""
    tensors, _ = tensors_of(model)
    header = {"format": "pt", "step": str(step), "sha256": hash_of(tensors)}
    write(out / WEIGHTS, safetensors.torch.save(tensors, metadata=header))


def hash_of(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, shapes and numbers."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _special(tokenizer: Any) -> dict[str, int]:
    """The ids of special tokens, by their names without brackets."""
    if tokenizer is None:
        return {}
    ids = {name[1:-1]: tokenizer.token_to_id(name) for name in (*SPECIAL, MASK)}
    return {name: number for name, number in ids.items() if number is not None}


def toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of numbers, strings and lists as TOML; what is None is left out.

    >>> print(toml({"model": {"kind": "gpt", "tied": True, "graphs": ["window(2)"]}}), end="")
    [model]
    kind = "gpt"
    tied = true
    graphs = ["window(2)"]
    """
    blocks = []
    for section, table in tables.items():
        lines = [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]
        blocks.append("\n".join([f"[{section}]", *lines]) + "\n")
    return "\n".join(blocks)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)} = {_toml(v)}' for k, v in value.items())}}}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

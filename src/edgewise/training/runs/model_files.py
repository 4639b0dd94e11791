"""The files that make a run a model: its configuration, rules, tokenizer and weights.

`edgewise.training.runs.folder` says what each holds.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from edgewise.errors import Span
from edgewise.module import Model
from edgewise.save import archive
from edgewise.save.archive import Broken, digest, write
from edgewise.save.reading import assembled, check_options, parsed
from edgewise.save.writing import options_of, rules_text, tensors_of
from edgewise.training.errors import BadRun
from edgewise.training.recipe import SECTIONS, Recipe
from edgewise.training.runs.card import write_card
from edgewise.training.runs.folder import RECIPE
from edgewise.training.tokenizers import MASK, SPECIAL
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.texts import read_tokenizer

MODEL_TYPE, FORMAT = "edgewise", 1
CONFIG, RULES, TOKENIZER = "config.json", "rules.txt", "tokenizer.json"
WEIGHTS = "model.safetensors"
OLDER = "recipe.json"  # only runs of older versions have it
AGAIN = "the folder is incomplete or damaged: copy it again"
FIELDS = {
    **{"task": str, "model": dict, "objective": dict, "sizes": dict, "tokens": dict},
    **{"labels": list, "program": dict, "files": dict},
}
LARGEST_SIZE = 1 << 31


def describe(out: Path, recipe: Recipe, corpus: Any, model: Model) -> None:
    """Write everything about a model but its weights."""
    parts = {RULES: rules_text(model).encode()}
    tokenizer = recipe.objective.tokenizer(corpus)
    if tokenizer is not None:
        parts[TOKENIZER] = tokenizer.to_str(pretty=True).encode()
    tables = recipe.json()
    sections = {name: tables[name] for name in SECTIONS}
    config = {
        "model_type": MODEL_TYPE,
        "format": FORMAT,
        "edgewise": sys.modules["edgewise"].__version__,
        "task": recipe.objective.task,
        "model": sections["model"],
        "objective": sections["objective"],
        "sizes": {**corpus.sizes, "words": recipe.objective.words(corpus)},
        "tokens": _special(tokenizer) | corpus.tokens,
        "texts": 2 if getattr(recipe.data, "second", "") else 1,
        "labels": list(getattr(corpus, "labels", ())),
        "program": options_of(model) | {"ties": tensors_of(model)[1]},
        "files": {name: digest(data) for name, data in parts.items()},
    }
    write(out / RECIPE, toml(sections).encode())
    for name, data in parts.items():
        write(out / name, data)
    write(out / CONFIG, (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode())
    write_card(out)


def choose(out: Path, found: Mapping[str, Any]) -> None:
    """Write which of several options of the objective the end of a run has found best."""
    config = _config(out)
    chosen = {name: found[name] for name in config["objective"] if name in found}
    if chosen:
        config["objective"] |= chosen
        write(out / CONFIG, (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode())


def write_model(
    out: Path, config: Mapping[str, Any], model: Model, tokenizer: Any, step: int
) -> None:
    """Write a model that was made from a run, with the configuration that the run has."""
    parts = {RULES: rules_text(model).encode()}
    if tokenizer is not None:
        parts[TOKENIZER] = tokenizer.to_str(pretty=True).encode()
    own = {
        "model_type": MODEL_TYPE,
        "format": FORMAT,
        "edgewise": sys.modules["edgewise"].__version__,
        **{name: config[name] for name in (*FIELDS, "texts") if name in config},
        "program": options_of(model) | {"ties": tensors_of(model)[1]},
        "files": {name: digest(data) for name, data in parts.items()},
    }
    for name, data in parts.items():
        write(out / name, data)
    write(out / CONFIG, (json.dumps(own, indent=1, ensure_ascii=False) + "\n").encode())
    write_weights(out, tensors_of(model)[0], step)


def weights_of(model: Model, is_first: bool) -> dict[str, Tensor]:
    """The weights of a model by their names in the rules; of sharded ones all ranks call this."""
    sharded = any(hasattr(p, "full_tensor") for p in model.parameters())
    return tensors_of(model)[0] if is_first or sharded else {}


def write_weights(out: Path, tensors: dict[str, Tensor], step: int, name: str = WEIGHTS) -> None:
    """Write the weights to use."""
    header = {"format": "pt", "step": str(step), "sha256": hash_of(tensors)}
    write(out / name, _ordered(safetensors.torch.save(tensors, metadata=header)))


def _ordered(data: bytes) -> bytes:
    """A safetensors file whose metadata, written in any order, is sorted: equal runs, equal bytes.

    >>> files = [safetensors.torch.save({}, metadata=dict.fromkeys("abcdef", "")) for _ in range(9)]
    >>> len({_ordered(file) for file in files})
    1
    """
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return data[:8] + text.ljust(size) + data[8 + size :]


@dataclass(frozen=True, eq=False)
class ModelFiles:
    """What the files of a run hold; `step` is that of the weights, if they say so."""

    config: dict[str, Any]
    model: Model
    tokenizer: Any
    step: int | None


def read(folder: Path) -> ModelFiles:
    """Read a model; every file is checked before anything is built."""
    config = _config(folder)
    rules = _checked(folder, RULES, config)
    tokenizer = _tokenizer(folder, config) if TOKENIZER in config["files"] else None
    tensors, step = read_weights(folder)
    try:
        check_options(config["program"])
        model = assembled(parsed(rules), config["program"], tensors)
    except Broken as problem:
        raise bad(folder, str(problem), AGAIN) from None
    return ModelFiles(config, model.eval(), tokenizer, step)


def check(folder: Path) -> dict[str, Any]:
    """The configuration of a run, whose rules and tokenizer are those that it was written with."""
    config = _config(folder)
    for name in config["files"]:
        if name in (RULES, TOKENIZER):
            _checked(folder, name, config)
    return config


def read_weights(folder: Path) -> tuple[dict[str, Tensor], int | None]:
    """The weights of a run and their step."""
    path = folder / WEIGHTS
    if not path.is_file():
        help = "wait for its first checkpoint, or continue it: `edgewise train`"
        raise bad(folder, "the run has no weights yet", help)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError):
        raise bad(folder, f"`{WEIGHTS}` is truncated or corrupt", AGAIN) from None
    if header.get("sha256", hash_of(tensors)) != hash_of(tensors):
        raise bad(folder, f"the hash of `{WEIGHTS}` differs from its header", AGAIN)
    step = header.get("step", "")
    return tensors, int(step) if step.isascii() and step.isdigit() else None


def bad(folder: Path, what: str, help: str) -> BadRun:
    return BadRun(what, Span.of("<run>", folder), help)


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = archive.parse((folder / CONFIG).read_bytes())
    except OSError as problem:
        raise bad(folder, *_without_config(folder, problem)) from None
    except Broken:
        raise bad(folder, f"`{CONFIG}` is not a JSON object: truncated or corrupt", AGAIN) from None
    if found.get("model_type") != MODEL_TYPE or found.get("format") != FORMAT:
        kind, version = found.get("model_type"), found.get("format")
        what = f"`{CONFIG}` is of the kind {kind!r}, format {version!r}"[:120]
        help = f"this version of Edgewise reads {MODEL_TYPE!r}, format {FORMAT}"
        raise bad(folder, what, help)
    for name, kind in FIELDS.items():
        if not isinstance(found.get(name), kind):
            raise bad(folder, f"`{CONFIG}` has no valid `{name}`", AGAIN)
    numbers = (*found["sizes"].values(), *found["tokens"].values())
    if not all(type(n) is int and 0 <= n < LARGEST_SIZE for n in numbers):
        raise bad(folder, f"`{CONFIG}` has no valid `sizes` or `tokens`", AGAIN)
    return found


def _without_config(folder: Path, problem: OSError) -> tuple[str, str]:
    if (folder / OLDER).is_file():
        what = "the run is of an older version, which saved no tokenizer and no rules"
        return what, "train it again; `checkpoints/` has its weights as safetensors"
    if (folder / "checkpoints").is_dir():
        return f"the run has no `{CONFIG}`", AGAIN
    if (folder / RECIPE).is_file():
        what = f"the run has no `{CONFIG}`: it was interrupted before its first step"
        return what, "run its recipe again"
    return f"`{CONFIG}` cannot be read: {problem.strerror}", "give the folder of a run"


def _checked(folder: Path, name: str, config: Mapping[str, Any]) -> bytes:
    """A file with the hash that the configuration says."""
    try:
        data = (folder / name).read_bytes()
    except OSError as problem:
        raise bad(folder, f"`{name}` cannot be read: {problem.strerror}", AGAIN) from None
    if digest(data) != config["files"].get(name):
        raise bad(folder, f"the hash of `{name}` differs from `{CONFIG}`", AGAIN)
    return data


def _tokenizer(folder: Path, config: Mapping[str, Any]) -> Any:
    _checked(folder, TOKENIZER, config)
    try:
        return read_tokenizer(folder / TOKENIZER, config["sizes"].get("words", 0))
    except BadPretrained as problem:
        raise bad(folder, problem.message, AGAIN) from None


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

    >>> print(toml({"model": {"kind": "gpt", "tied": True, "graph": ["window(2)"]}}), end="")
    [model]
    kind = "gpt"
    tied = true
    graph = ["window(2)"]
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

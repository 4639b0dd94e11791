"""The files of a checkpoint: `config.json` and safetensors, one or in shards. Never a pickle."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from edgewise.errors import caller, raise_all
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.tensors import Shape

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
LARGEST_JSON = 1 << 26
KINDS = {"F64", "F32", "F16", "BF16"}
LONGEST_NAME = 255
GENERATION = "generation_config.json"
WRITTEN = {CONFIG, WEIGHTS, GENERATION, "tokenizer.json", "modules.json", "1_Pooling"}
BESIDE = {  # what exports of a run have too
    *("README.md", "rules.txt", "recipe.toml", "tokenizer_config.json", ".gitattributes"),
    *("summary.json", "metrics.jsonl", "loss.png"),
}
# what older versions saved with the weights: numbers that are computed, not learned
COMPUTED = ("position_ids", ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; NaN and Infinity, which JSON lacks, are refused."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    if path.exists() and not path.is_file():
        raise BadPretrained(f"`{path.name}` is not a file", help="check the folder")
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise BadPretrained(
                f"`{path.name}` is too large for a JSON file", help="check the file"
            )
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except OSError as problem:
        raise BadPretrained(
            f"`{path}` cannot be read: {problem.strerror}",
            help=f"a run or a checkpoint is a folder with {CONFIG} and {WEIGHTS}",
        ) from None
    except (ValueError, RecursionError):
        raise BadPretrained(f"`{path.name}` is not JSON", help="check the file") from None
    if not isinstance(found, dict):
        raise BadPretrained(f"`{path.name}` is not a JSON object", help="check the file")
    return found


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, in order."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        pickled = [p.name for p in folder.glob("*.bin")]
        raise BadPretrained(
            f"there is no `{WEIGHTS}`" + (f", only the pickle `{pickled[0]}`" if pickled else ""),
            help="a pickle can run code and is not read: save it as safetensors"
            if pickled
            else "the checkpoint is incomplete: save it again",
        )
    names = read_json(folder / INDEX).get("weight_map")
    listed = sorted(set(names.values())) if isinstance(names, dict) and _plain(names) else []
    if not listed:
        raise BadPretrained(
            f"`{INDEX}` names no files", help="the checkpoint is incomplete: save it again"
        )
    absent = [name for name in listed if not (folder / name).is_file()]
    raise_all([BadPretrained(f"the shard `{name}` is missing", help="fetch it") for name in absent])
    return [folder / name for name in listed]


def _plain(names: dict[Any, Any]) -> bool:
    """Whether an index names files beside itself."""
    return all(
        isinstance(n, str) and n == Path(n).name and ".." not in n and len(n) <= LONGEST_NAME
        for n in names.values()
    )


def tensor_shapes(files: list[Path]) -> dict[str, Shape]:
    """The tensors of all files with their shapes, read from the headers alone."""
    found: dict[str, Shape] = {}
    problems = []
    for path in files:
        with _opened(path) as file:
            for theirs, name in _names(file):
                piece = file.get_slice(theirs)
                if name in found:
                    said = f"the tensor `{name}` is in two shards"
                    problems.append(BadPretrained(said, help="check them"))
                if (kind := piece.get_dtype()) not in KINDS:
                    known = f"weights are {', '.join(sorted(KINDS))}"
                    problems.append(BadPretrained(f"the tensor `{name}` holds {kind}", help=known))
                found[name] = tuple(piece.get_shape())
    raise_all(problems)
    return found


def tensors(files: list[Path]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for path in files:
        with _opened(path) as file:
            found |= {name: file.get_tensor(theirs) for theirs, name in _names(file)}
    return found


def _names(file: Any) -> Iterator[tuple[str, str]]:
    """The tensor names in a file with their current spelling; computed tensors are left out."""
    for name in file.keys():  # noqa: SIM118
        if not name.endswith(COMPUTED):
            today = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
            yield name, today


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            yield file
    except (safetensors.SafetensorError, OSError, ValueError) as problem:
        raise BadPretrained(
            f"`{path.name}` is damaged or truncated: {str(problem)[:120]}",
            help="fetch or save it again",
        ) from None


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder that replaces `path` once it is complete."""
    path = path.resolve()
    if not path.parent.is_dir() or path.is_file():
        raise BadPretrained(
            f"`{path}` cannot be written", caller(), "give a folder inside one that exists"
        )
    names = {p.name for p in path.iterdir()} if path.is_dir() else set()
    others = sorted(names - WRITTEN - (BESIDE if {CONFIG, WEIGHTS} <= names else set()))
    if others or path == Path.cwd():
        what = f"holds `{others[0]}`, which would be lost" if others else "is the folder you are in"
        raise BadPretrained(f"`{path}` {what}", caller(), "give a new folder")
    try:
        made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield made
            os.chmod(made, 0o755)
            _replace(path, made)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as problem:
        raise BadPretrained(
            f"`{path}` cannot be written: {problem.strerror or problem}",
            caller(),
            "free disk space, or choose another folder",
        ) from None


def _replace(path: Path, made: Path) -> None:
    before = made.with_name(f"{made.name}.before")
    if path.exists():
        os.rename(path, before)
    try:
        os.rename(made, path)
    except OSError:
        if before.exists():
            os.rename(before, path)
        raise
    shutil.rmtree(before, ignore_errors=True)


def write(folder: Path, table: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    write_json(folder / CONFIG, table)
    safetensors.torch.save_file(dict(weights), folder / WEIGHTS, metadata={"format": "pt"})


def write_json(path: Path, table: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")

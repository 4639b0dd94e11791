"""Checkpoints: one folder each, written atomically.

`model.safetensors` has the weights, `average.safetensors` their moving average if there is one,
`optimiser.safetensors` the state of the optimiser, `manifest.json` the step, the recipe, other
state, the hash of each file and its own. A folder is written under a temporary name, synced and
renamed, so a reader never sees a partial one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from edgewise.errors import Span
from edgewise.physical.weights import sharded_like
from edgewise.save.archive import digest
from edgewise.training.errors import BadCheckpoint

FORMAT = 2
FORMATS = (1, FORMAT)  # without and with the hash of the manifest
MODEL, OPTIMISER, MANIFEST = "model.safetensors", "optimiser.safetensors", "manifest.json"
AVERAGE = "average.safetensors"
TEMPORARY = re.compile(r"\.[\w-]+\.\w+\.[a-z0-9_]{8}")  # of files that are written atomically


@dataclass(frozen=True, eq=False)
class TrainingState:
    """What a run needs to continue after `step` steps."""

    step: int
    model: Mapping[str, Tensor]
    optimiser: Mapping[str, Tensor]
    numbers: Mapping[str, Any]
    average: Mapping[str, Tensor] = field(default_factory=dict)


def folder(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def write(root: Path, state: TrainingState, *, keep: int) -> Path:
    """Write a checkpoint atomically, then delete all but the newest `keep`."""
    root.mkdir(parents=True, exist_ok=True)
    clean(root)
    final = folder(root, state.step)
    made = root / f".new-{final.name}"
    tensors = {MODEL: state.model, OPTIMISER: state.optimiser}
    if state.average:
        tensors[AVERAGE] = state.average
    parts = {name: safetensors.torch.save(_plain(part)) for name, part in tensors.items()}
    manifest = {
        "format": FORMAT,
        "step": state.step,
        "numbers": dict(state.numbers),
        "files": {name: digest(data) for name, data in parts.items()},
    }
    manifest["hash"] = _own_hash(manifest)
    parts[MANIFEST] = json.dumps(manifest, indent=1, allow_nan=False).encode()
    try:
        made.mkdir()
        for name, data in parts.items():
            _put(made / name, data)
        _sync(made)
    except OSError:  # such as a full disk: free what was written of it
        shutil.rmtree(made, ignore_errors=True)
        raise
    if final.exists():
        _drop(final)
    os.rename(made, final)
    _sync(root)
    for old in steps(root)[:-keep]:
        _drop(folder(root, old))
    return final


def read_weights(path: Path, model: torch.nn.Module) -> dict[str, Tensor]:
    """Weights with the names and shapes that a model has."""
    try:
        found = safetensors.torch.load(path.read_bytes())
    except Exception:  # safetensors raises several types
        raise broken(path, "not a safetensors file: truncated or corrupt") from None
    compare(model.state_dict(), found, path, path.name)
    return found


def clean(root: Path) -> None:
    """Remove temporary folders and files that a killed run left behind."""
    for left in (*root.glob(".new-*"), *root.glob(".old-*")):
        shutil.rmtree(left)
    for left in root.parent.glob(".*"):
        if TEMPORARY.fullmatch(left.name) and left.is_file():
            left.unlink()


def steps(root: Path) -> list[int]:
    """The steps of the checkpoints that are there, oldest first."""
    names = (p.name.removeprefix("step-") for p in root.glob("step-*") if p.is_dir())
    return sorted(int(name) for name in names if name.isdigit())


def read(root: Path, step: int) -> TrainingState:
    """A checkpoint, every file checked before any is used."""
    path = folder(root, step)
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        kind, files = manifest["format"], manifest["files"]
        numbers, written = dict(manifest["numbers"]), manifest["step"]
    except (OSError, ValueError, KeyError, TypeError):
        raise broken(path, f"`{MANIFEST}` is not a checkpoint manifest") from None
    if kind not in FORMATS or written != step:
        raise broken(path, f"format {kind} and step {written}, expected {FORMAT} and {step}")
    if kind == FORMAT and manifest.pop("hash", "") != _own_hash(manifest):
        raise broken(path, f"`{MANIFEST}` was changed: its hash differs")
    found = {}
    for name in (MODEL, OPTIMISER, *((AVERAGE,) if AVERAGE in files else ())):
        try:
            data = (path / name).read_bytes()
        except OSError as problem:
            raise broken(path, f"`{name}` cannot be read: {problem.strerror}") from None
        if digest(data) != files.get(name):
            raise broken(path, f"the hash of `{name}` differs from the manifest")
        try:
            found[name] = safetensors.torch.load(data)
        except Exception:  # safetensors raises several types
            raise broken(path, f"`{name}` is truncated or corrupt") from None
    return TrainingState(step, found[MODEL], found[OPTIMISER], numbers, found.get(AVERAGE, {}))


def _own_hash(manifest: Mapping[str, Any]) -> str:
    return digest(json.dumps(manifest, sort_keys=True).encode())


def broken(path: Path, what: str) -> BadCheckpoint:
    place = Span.of("<checkpoint>", path)
    return BadCheckpoint(what, place, "remove this folder to resume from an earlier checkpoint")


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU that share no memory, as safetensors wants them."""
    return {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}


def _put(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    """Sync a folder, which holds the names of its files."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _drop(path: Path) -> None:
    """Rename before deleting, so that a partial folder is never read."""
    gone = path.with_name(f".old-{path.name}")
    os.rename(path, gone)
    shutil.rmtree(gone)


def optimiser_tensors(
    model: torch.nn.Module, optimiser: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """The state of an optimiser by the names of the weights."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{names[id(p)]}/{key}": value if isinstance(value, Tensor) else torch.tensor(value)
        for p, values in optimiser.state.items()
        for key, value in values.items()
    }


def check_state(model: torch.nn.Module, state: TrainingState, path: Path) -> None:
    """Refuse a state whose names and shapes are not those of a model and its optimiser."""
    compare(model.state_dict(), state.model, path, MODEL)
    named = dict(model.named_parameters())
    for full, tensor in state.optimiser.items():
        name = full.rpartition("/")[0]
        if name not in named or (tensor.ndim and tensor.shape != named[name].shape):
            raise broken(path, f"`{OPTIMISER}` has `{full}`, which no weight of the model has")


def place_optimiser_tensor(
    p: Tensor, optimiser: torch.optim.Optimizer, key: str, value: Tensor
) -> None:
    """Put one tensor of the state of a weight where the weight is."""
    if key == "step":  # which stays on the CPU unless the optimiser is fused
        value = value.to(p.device) if _on_device(optimiser) else value.cpu()
        optimiser.state[p][key] = value.clone()
    else:
        optimiser.state[p][key] = sharded_like(p, value.to(p.device).clone())


def _on_device(optimiser: torch.optim.Optimizer) -> bool:
    return bool(optimiser.defaults.get("fused") or optimiser.defaults.get("capturable"))


def compare(
    wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path, file: str
) -> None:
    """Refuse tensors with other names or shapes than those of a model."""
    for name in (*wanted, *found):
        a, b = wanted.get(name), found.get(name)
        if a is None or b is None or a.shape != b.shape:
            shown = ["absent" if t is None else "×".join(map(str, t.shape)) for t in (b, a)]
            raise broken(path, f"`{file}` has `{name}` {shown[0]}, the model {shown[1]}")

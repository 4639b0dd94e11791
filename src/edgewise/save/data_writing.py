"""Writing grounded data: its inputs, and the groundings that its rules were joined to.

One file of safetensors: a manifest as JSON in bytes, and tensors by number. What is built from
groundings (layouts, classes of equal rows, kernels) depends on devices and is built at loading.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from edgewise.errors import caller, named
from edgewise.ground.index import Grid, Index
from edgewise.ground.joins.recorded import RecordedJoins, digest, narrowed
from edgewise.inputs.facts import FactTable, FactTables
from edgewise.inputs.kinds import Input, parts, ragged, rows
from edgewise.module import Model
from edgewise.physical.data import Data
from edgewise.physical.prepare import joins_of
from edgewise.physical.tracing import held
from edgewise.save import archive
from edgewise.save.writing import NotSavable, options_of, rules_text

FORMAT, KIND = "1", "edgewise-data"  # one entry: several are written in any order
MANIFEST = "manifest"


def save_data(data: Data, path: str | Path) -> None:
    """Write grounded data to one file, atomically; see `Data.save`."""
    if not isinstance(path, str | Path):
        raise NotSavable(
            f"expected a path, got {type(path).__name__}",
            caller(),
            'write `data.save("graph.edgewise-data")`',
        )
    model = _model_of(data)
    writer = _DataWriter()
    manifest = {
        "edgewise": sys.modules["edgewise"].__version__,
        "program": program_digest(model),
        "open": data.open,
        "batched": sorted(data.batched),
        "inputs": {name: writer.input(item) for name, item in data.inputs.items()},
        "facts": None if data.facts is None else writer.facts(data.facts),
        **writer.recorded(joins_of(model, data)),
    }
    manifest["tensors"] = [digest(tensor) for tensor in writer.tensors]
    text = torch.frombuffer(bytearray(json.dumps(manifest).encode()), dtype=torch.uint8)
    tensors = {str(number): tensor for number, tensor in enumerate(writer.tensors)}
    about = {KIND: f"{FORMAT} {digest(text)}"}
    try:
        with archive.replacing(Path(path)) as temporary:
            safetensors.torch.save_file(tensors | {MANIFEST: text}, temporary, about)
    except (OSError, ValueError, safetensors.SafetensorError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise NotSavable(
            f"cannot write `{named(str(path))}`: {why}",
            caller(),
            "give a path in an existing, writable folder with space for the data",
        ) from None


def program_digest(model: Model) -> str:
    """The hash of the rules and options that decide what is joined."""
    options = options_of(model)
    used = {name: options.get(name) for name in ("output", "outputs", "several", "without")}
    text = rules_text(model) + json.dumps(used)
    return archive.digest(text.encode())


def _model_of(data: Data) -> Model:
    """The model of data that can be saved."""
    what, help = _refusal(data) or ("", "")
    if what:
        raise NotSavable(what, caller(), help)
    try:
        model: Model = held(data.of)
    except KeyError:
        model = None  # type: ignore[assignment]
    if model is None or model._number != data.model:
        raise NotSavable(
            "the model of the data is gone",
            caller(),
            "save data while there is the model that grounded it",
        )
    return model


def _refusal(data: Data) -> tuple[str, str] | None:
    """Why data has no file, and the next step."""
    origin = "save the data it was taken of, `model.ground(...)`, and take it of what is loaded"
    if data.is_partitioned:
        return "each rank has a part of the data", "ground it without `mesh`"
    if data.padded or data.chosen is not None:
        return "the data is some samples of other data", origin
    if data.is_part:
        return "the data was grounded for some rows", origin
    if type(data) is not Data:
        kind = "selections depend on values: nothing is joined once for all steps"
        return kind, "save the inputs"
    for name, item in data.inputs.items():
        if any(part.requires_grad for part in parts(item)):
            return (
                f"`{name}` needs gradients, which would not reach a tensor in a file",
                f"give it at the step, `model(data, {name}=...)`, or ground `{name}.detach()`",
            )
    tables = {} if data.facts is None else data.facts.tables
    for name, table in tables.items():
        if any(leaf.requires_grad for leaf in table.leaves):
            return (
                f"a fact of `{name}` needs gradients, which would not reach a tensor in a file",
                "give it the number: `tensor.detach()`",
            )
    if not data.built:
        return (
            "nothing is joined yet: some relations are not given, and may come with a call",
            "call the model once, `model(data, ...)`, then save",
        )
    return None


class _DataWriter:
    """Tensors by number, and what they are."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._written: set[int] = set()  # where their numbers are in memory

    def tensor(self, tensor: Tensor) -> int:
        own = tensor.detach().cpu().contiguous()
        memory = own.untyped_storage()
        if memory.nbytes() != own.numel() * own.itemsize or memory.data_ptr() in self._written:
            own = own.clone()  # a file holds no tensors that share memory
        self._written.add(own.untyped_storage().data_ptr())
        self.tensors.append(own)
        return len(self.tensors) - 1

    def input(self, item: Input) -> dict[str, Any]:
        match item:
            case ragged(samples=samples):
                return self._samples(samples)
            case rows(keys=keys, values=values, strings=strings):
                found = {"keys": self.tensor(narrowed(keys)), "strings": list(strings)}
                return found | ({} if values is None else {"values": self.tensor(values)})
            case Tensor():
                return {"dense": self.tensor(item)}
        raise TypeError(f"not an input: {item!r}")

    def _samples(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Samples one after the other: many are small."""
        keyed = [isinstance(sample, rows) for sample in samples]
        first = [one.keys if isinstance(one, rows) else one for one in samples]
        more = [one.values for one in samples if isinstance(one, rows) and one.values is not None]
        valued = [isinstance(one, rows) and one.values is not None for one in samples]
        strings = [list(one.strings) if isinstance(one, rows) else [] for one in samples]
        some = next((one for one in strings if one), [])
        if any(one and one != some for one in strings):
            some = strings  # type: ignore[assignment]
        return {
            "ragged": self._pool(first),
            "keyed": keyed,
            "valued": valued,
            "values": self._pool(more),
            "strings": some,
            "named": [bool(one) for one in strings],
        }

    def _pool(self, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """Tensors one after the other, those of one type in one."""
        kinds = list(dict.fromkeys(tensor.dtype for tensor in tensors))
        flat = [[t.detach().cpu().reshape(-1) for t in tensors if t.dtype == k] for k in kinds]
        return {
            "flat": [self.tensor(torch.cat(one)) for one in flat],
            "kinds": [kinds.index(tensor.dtype) for tensor in tensors],
            "shapes": [list(tensor.shape) for tensor in tensors],
        }

    def facts(self, facts: FactTables) -> dict[str, Any]:
        found = [self._fact_table(name, table) for name, table in facts.tables.items()]
        return {
            "tables": found,
            "strings": list(facts.constants.strings),
            "samples": facts.samples,
        }

    def _fact_table(self, name: str, table: FactTable) -> dict[str, Any]:
        plain = all(atom.weight is None for atom in table.atoms)
        values = table.stored(torch.float64)
        if not isinstance(values, Tensor):
            if len({value.shape for value in values}) > 1:
                raise NotSavable(
                    f"the facts of `{name}` have values of different shapes",
                    caller(),
                    "give them one shape, or leave them out: a compiled relation has one",
                )
            values = torch.stack(list(values))
        found: dict[str, Any] = {"relation": name, "keys": self.tensor(table.keys)}
        return found if plain else found | {"values": self.tensor(values)}

    def recorded(self, found: RecordedJoins) -> dict[str, Any]:
        joins = {
            name: {
                "count": one.count,
                "columns": self._columns(one.columns),
                "rows": self._columns({str(at): rows for at, rows in one.rows.items()}),
            }
            for name, one in found.joins.items()
        }
        fixpoints = {
            name: {relation: self._index(index) for relation, index in each.items()}
            for name, each in found.fixpoints.items()
        }
        return {"joins": joins, "fixpoints": fixpoints}

    def _columns(self, columns: Mapping[str, Tensor]) -> dict[str, int]:
        return {name: self.tensor(narrowed(column)) for name, column in columns.items()}

    def _index(self, index: Index) -> dict[str, Any]:
        if isinstance(index, Grid):
            return {"sizes": list(index.sizes)}
        return {"keys": self.tensor(narrowed(index.keys))}

"""Reading grounded data: every part is checked before anything is built; nothing is evaluated."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, named
from edgewise.ground.index import STRINGS, Grid, Index, Keys
from edgewise.ground.joins.join import Bindings
from edgewise.ground.joins.recorded import RecordedJoins, digest
from edgewise.inputs.facts import FactTables
from edgewise.inputs.kinds import Input, parts, ragged, rows
from edgewise.inputs.read import check_dtype
from edgewise.language import nodes
from edgewise.module import Model
from edgewise.physical.data import Data, ForeignData
from edgewise.save import archive
from edgewise.save.archive import Broken
from edgewise.save.data_writing import FORMAT, KIND, MANIFEST, program_digest

AGAIN = "ground the data again, and save it"


class BadDataFile(EdgewiseError):
    """A file is checked completely before data is built from it."""

    code = "bad-data-file"
    example = """\
model = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)
open("graph.edgewise-data", "w").write("no data")
model.load_data("graph.edgewise-data")"""
    instead = """\
model = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)
model.ground(a=torch.ones(3)).save("graph.edgewise-data")
model.load_data("graph.edgewise-data")"""


def load_data(model: Model, path: str | Path) -> Data:
    """The data that `save_data` wrote; see `Model.load_data`."""
    if not isinstance(path, str | Path):
        raise BadDataFile(
            f"expected a path, got {type(path).__name__}",
            caller(),
            'write `model.load_data("graph.edgewise-data")`',
        )
    try:
        manifest, tensors = _read(Path(path))
        if manifest["program"] != program_digest(model):
            raise ForeignData(
                f"`{named(str(path))}` was grounded for other rules, outputs or passes",
                caller(),
                "load it with the model that it was grounded by, or ground it again",
            )
        data = _DataReader(tensors, model).data(manifest)
    except Broken as problem:
        raise BadDataFile(
            f"`{named(str(path))}` is not a file of grounded data: {problem}",
            caller(),
            problem.help,
        ) from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as problem:
        if isinstance(problem, EdgewiseError):
            raise
        raise BadDataFile(
            f"`{named(str(path))}` is not a file of grounded data: its manifest is inconsistent",
            caller(),
            AGAIN,
        ) from None
    if data.stated.union(data.inputs).issuperset(model.inputs):
        model._step(data, {})
        data.recorded = None  # all is built
    return data


def _read(path: Path) -> tuple[dict[str, Any], list[Tensor]]:
    try:
        with safetensors.safe_open(path, "pt") as file:
            form, _, hash = (file.metadata() or {}).get(KIND, "").partition(" ")
            if form != FORMAT:
                raise Broken(
                    f"format {named(form)}, this version reads {FORMAT}" if form else "no format",
                    "give a file of `data.save`; models are read by `edgewise.load`",
                )
            text = file.get_tensor(MANIFEST)
            if digest(text) != hash:
                raise Broken("the hash of the manifest differs", AGAIN)
            manifest = archive.parse(text.numpy().tobytes())
            _check_version(manifest)
            hashes = manifest["tensors"]
            # copies: the file may change while there is the data
            tensors = [file.get_tensor(str(number)).clone() for number in range(len(hashes))]
    except FileNotFoundError:
        raise Broken("no such file", "check the path") from None
    except (safetensors.SafetensorError, OSError, ValueError):
        raise Broken("truncated, corrupt or another kind of file", AGAIN) from None
    for number, (tensor, hash) in enumerate(zip(tensors, hashes, strict=True)):
        if digest(tensor) != hash:
            raise Broken(f"the hash of tensor {number} differs from the manifest", AGAIN)
    return manifest, tensors


def _check_version(manifest: Mapping[str, Any]) -> None:
    """Joins are those of one version: another may ground rules in another form."""
    own, found = sys.modules["edgewise"].__version__, manifest.get("edgewise")
    if found != own:
        raise Broken(f"saved by Edgewise {named(str(found))}, this is {own}", AGAIN)


class _DataReader:
    def __init__(self, tensors: Sequence[Tensor], model: Model) -> None:
        self.tensors, self.model = tensors, model

    def data(self, manifest: Mapping[str, Any]) -> Data:
        inputs = {name: self._input(item) for name, item in manifest["inputs"].items()}
        for name, item in inputs.items():
            for part in parts(item):
                if part.is_floating_point():
                    check_dtype(name, part.dtype, self.model._one)
        facts = None if manifest["facts"] is None else self._facts(manifest["facts"])
        data = Data(self.model._number, inputs, facts, bool(manifest["open"]))
        data.of = self.model._handle
        data.batched = frozenset(manifest["batched"])
        data.recorded = self._recorded(manifest)
        return data

    def _value(self, number: int) -> Tensor:
        return self.tensors[number].to(self.model._one.device)

    def _keys(self, number: int) -> Tensor:
        found = self.tensors[number].to(torch.int64)
        if found.ndim != 2:
            raise Broken("keys are not a table", AGAIN)
        return found

    def _input(self, item: Mapping[str, Any]) -> Input:
        if "ragged" in item:
            return ragged(list(self._samples(item)))
        if "dense" in item:
            return self._value(item["dense"])
        values = self._value(item["values"]) if "values" in item else None
        return rows.of(self._keys(item["keys"]), values, tuple(item["strings"]))

    def _samples(self, item: Mapping[str, Any]) -> Iterator[rows | Tensor]:
        values = self._pool(item["values"])
        strings, names = item["strings"], item["named"]
        several = bool(strings) and isinstance(strings[0], list)
        for number, first in enumerate(self._pool(item["ragged"])):
            if not item["keyed"][number]:
                yield first.to(self.model._one.device) if first.is_floating_point() else first
                continue
            own = strings[number] if several else strings if names[number] else ()
            held = next(values) if item["valued"][number] else None
            device = self.model._one.device
            yield rows.of(first, None if held is None else held.to(device), tuple(own))

    def _pool(self, pool: Mapping[str, Any]) -> Iterator[Tensor]:
        flat, starts = [self.tensors[number] for number in pool["flat"]], [0] * len(pool["flat"])
        for kind, shape in zip(pool["kinds"], pool["shapes"], strict=True):
            size = torch.Size(shape).numel()
            yield flat[kind][starts[kind] : starts[kind] + size].reshape(shape)
            starts[kind] += size

    def _facts(self, found: Mapping[str, Any]) -> FactTables | None:
        samples: int | None = found["samples"]
        listed: list[list[nodes.Atom]] = [[] for _ in range(1 if samples is None else samples)]
        for table in found["tables"]:
            keys = self.tensors[table["keys"]].tolist()
            values = self.tensors[table["values"]] if "values" in table else None
            for row, codes in enumerate(keys):
                number, codes = (0, codes) if samples is None else (codes[0], codes[1:])
                terms = [found["strings"][c - STRINGS] if c >= STRINGS else c for c in codes]
                atom = nodes.Atom(table["relation"], tuple(terms))
                listed[number].append(atom if values is None else atom[_literal(values[row])])
        return self.model._reader.facts(listed[0] if samples is None else ragged(listed))

    def _recorded(self, manifest: Mapping[str, Any]) -> RecordedJoins:
        joins = {}
        for name, one in manifest["joins"].items():
            columns = {str(n): self._column(at, one["count"]) for n, at in one["columns"].items()}
            places = {int(n): self._column(at, one["count"]) for n, at in one["rows"].items()}
            joins[name] = Bindings(int(one["count"]), columns, places)
        fixpoints = {
            name: {relation: self._index(index) for relation, index in each.items()}
            for name, each in manifest["fixpoints"].items()
        }
        return RecordedJoins(joins, fixpoints)

    def _column(self, number: int, count: int) -> Tensor:
        found = self.tensors[number]
        if found.shape != (count,) or found.is_floating_point():
            raise Broken("groundings have columns of different lengths", AGAIN)
        return found

    def _index(self, item: Mapping[str, Any]) -> Index:
        return Grid(tuple(item["sizes"])) if "sizes" in item else Keys(self._keys(item["keys"]))


def _literal(value: Tensor) -> Any:
    return value.tolist() if value.numel() else value

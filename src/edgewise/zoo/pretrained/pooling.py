"""How a folder of sentence-transformers makes one vector of the rows of a text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.files import read_json, write_json

MODULES, POOLING = "modules.json", "1_Pooling"
MEAN, FIRST = "mean_tokens", "cls_token"
KIND = "sentence_transformers.models"
SHORT = {"mean": MEAN, "cls": FIRST}
IGNORED = ("Transformer", "Pooling", "Normalize")  # vectors are of unit length anyway


def read_pooling(folder: Path) -> str:
    """The mode of a folder: the mean, the first row, or what is not supported, in its words."""
    path = folder / POOLING / "config.json"
    others = [kind for kind in _modules(folder / MODULES) if kind not in IGNORED]
    if others:
        return f"a module `{others[0]}`"
    if not path.is_file():
        return MEAN
    table = read_json(path)
    said = table.get("pooling_mode")
    modes = [SHORT.get(said, said)] if isinstance(said, str) else _true(table)
    return " and ".join(modes) or "no mode"


def _true(table: Mapping[str, object]) -> list[str]:
    found = (name for name, on in table.items() if name.startswith("pooling_mode_") and on is True)
    return [name.removeprefix("pooling_mode_") for name in found]


def _modules(path: Path) -> list[str]:
    """The kinds of modules that a text passes."""
    if not path.is_file():
        return []
    try:
        found = [str(module["type"]) for module in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError):
        raise BadPretrained(
            f"`{path.name}` is not a list of modules", help="fetch or save it again"
        ) from None
    return [kind.rpartition(".")[2] for kind in found]


def write_pooling(folder: Path, mode: str, size: int) -> None:
    """Files from which sentence-transformers and `read_pooling` know the mode."""
    kinds = {"": "Transformer", POOLING: "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": k, "name": str(k), "path": at, "type": f"{KIND}.{kind}"}
        for k, (at, kind) in enumerate(kinds.items())
    ]
    (folder / MODULES).write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    (folder / POOLING).mkdir()
    modes = {f"pooling_mode_{name}": name == mode for name in (FIRST, MEAN)}
    write_json(folder / POOLING / "config.json", {"word_embedding_dimension": size, **modes})

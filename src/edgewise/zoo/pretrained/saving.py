"""Writing checkpoints of Hugging Face: a `config.json` that expresses the model, and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.language.program import Program
from edgewise.zoo.pretrained import files
from edgewise.zoo.pretrained.architectures import MODEL_TYPES
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.pooling import MEAN, write_pooling
from edgewise.zoo.pretrained.pruned import PrunedHeads, pruned_config, pruned_entries
from edgewise.zoo.pretrained.schema import TOKENS, CheckpointSpec, read_config, table_of
from edgewise.zoo.pretrained.tensors import TensorEntry, shapes_of, to_theirs

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from tokenizers import Tokenizer


def save_pretrained(
    path: str | Path,
    model: ModuleType,
    config: DataclassInstance,
    weights: Mapping[str, Tensor],
    *,
    spec: CheckpointSpec | None = None,
    architecture: str | None = None,
    tokenizer: Tokenizer | None = None,
    tokens: Mapping[str, object] | None = None,
    generation: Mapping[str, object] | None = None,
    pruned: PrunedHeads | None = None,
    pooling: str = MEAN,
) -> None:
    """Write weights so that `transformers` loads them; a failure leaves no partial folder.

    `weights` are those of `model.program(config)` by name; those that the architecture (by default
    the first of the model type) does not have are left out. `tokens` are special token ids by their
    names in `config.json`, such as `eos_token_id`; `generation` are fields that
    `generation_config.json` has besides. `pruned` are the heads that each layer lacks,
    `pooling` how an encoder makes one vector of a text.

    >>> import os, tempfile
    >>> from edgewise import zoo
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=16)
    >>> folder = tempfile.mkdtemp() + "/tiny"
    >>> zoo.save_pretrained(folder, zoo.gpt2, config, zoo.gpt2.program(config).weights(seed=0))
    >>> sorted(os.listdir(folder))
    ['config.json', 'model.safetensors']
    """
    spec = spec or spec_of(model, config)
    architecture = architecture or next(iter(spec.ARCHITECTURES))
    check_saved(spec, architecture, config)
    program = spec.MODEL.program(config)
    entries = table_of(spec, config, architecture, weights)
    if pruned:
        config, written = pruned_config(spec.MODEL_TYPE, config, program, pruned)
        program, entries = pruned_entries(program, entries, pruned)
        tokens = {**(tokens or {}), **written}
    _check_weights(entries, weights, program, architecture)
    theirs = to_theirs(entries, {name: w.detach().cpu() for name, w in weights.items()})
    table = {
        "model_type": spec.MODEL_TYPE,
        "architectures": [architecture],
        "dtype": str(next(iter(theirs.values())).dtype).removeprefix("torch."),
        **spec.write_config(config),
        **(tokens or {}),
    }
    with files.new_folder(Path(path)) as folder:
        files.write(folder, table, theirs)
        if generation:
            own = {name: table[name] for name in TOKENS if table.get(name) is not None}
            files.write_json(folder / files.GENERATION, {**own, **generation})
        if pooling != MEAN:
            write_pooling(folder, pooling, vars(config)["size"])
        if tokenizer is not None:
            tokenizer.save(str(folder / "tokenizer.json"))


def _check_weights(
    entries: Sequence[TensorEntry],
    weights: Mapping[str, Tensor],
    program: Program,
    architecture: str,
) -> None:
    missing = [e.ours for e in entries if e.ours not in weights]
    if missing:
        raise BadPretrained(
            f"the weight `{missing[0]}` is missing", caller(), f"`{architecture}` has it"
        )
    shapes = shapes_of(program)
    for e in entries:
        found = tuple(weights[e.ours].shape)
        if found != shapes[e.ours]:
            raise BadPretrained(
                f"the weight `{e.ours}` is {found}, the configuration says {shapes[e.ours]}",
                caller(),
                "give the configuration that the weights belong to",
            )


def check_saved(spec: CheckpointSpec, architecture: str, config: Any) -> None:
    """Refuse a configuration that `config.json` cannot express."""
    if architecture not in spec.ARCHITECTURES:
        raise BadPretrained(
            f"`{spec.MODEL_TYPE}` has no architecture {architecture!r:.60}",
            caller(),
            f"there are {', '.join(spec.ARCHITECTURES)}",
        )
    if not isinstance(config, spec.MODEL.Config):
        raise BadPretrained(
            f"the configuration is {type(config).__name__}",
            caller(),
            f"give a `zoo.{spec.MODEL.__name__.rpartition('.')[2]}.Config`",
        )
    for name in unsaid(spec, config):
        raise BadPretrained(
            f"`{spec.MODEL_TYPE}` cannot express `{name}` = {getattr(config, name)!r:.80}",
            caller(),
            "save it with `model.save(path)`, which keeps the rules",
        )


def unsaid(spec: CheckpointSpec, config: Any) -> list[str]:
    """The fields of a configuration that `config.json` cannot express."""
    again = read_config(spec, spec.write_config(config))
    return [f.name for f in fields(config) if getattr(again, f.name) != getattr(config, f.name)]


def spec_of(model: ModuleType, config: Any) -> CheckpointSpec:
    """The first model type of these rules that can express the configuration, or else the first."""
    known = [spec for spec in MODEL_TYPES.values() if spec.MODEL is model]
    if not known:
        raise BadPretrained(
            f"`{model.__name__}` has no Hugging Face architecture",
            caller(),
            "save it with `model.save(path)`",
        )
    if not isinstance(config, known[0].MODEL.Config):
        return known[0]
    return next((spec for spec in known if _expresses(spec, config)), known[0])


def _expresses(spec: CheckpointSpec, config: Any) -> bool:
    try:
        return not unsaid(spec, config)
    except EdgewiseError:
        return False

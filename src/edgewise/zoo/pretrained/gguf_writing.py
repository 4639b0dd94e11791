"""A decoder of Llama or GPT-2 as a GGUF file, which llama.cpp reads."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.drawing import require_package
from edgewise.language import F
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.gguf import CONTROL, ENDS, LAYOUTS
from edgewise.zoo.pretrained.model import Pretrained, learnable
from edgewise.zoo.pretrained.tensors import to_theirs

APPROXIMATED = "; it computes GELU by tanh, the model exactly: activations differ by up to 5e-4"
NORMAL = 1  # the type of a token that is text
PLAIN = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def write_gguf(model: Pretrained, path: Path) -> str:
    """Write a decoder with its byte-level tokenizer, in float32, atomically; says what it is."""
    require_package("gguf")
    import gguf

    split = refuse_others(model)
    handle, made = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        writer = gguf.GGUFWriter(made, model.spec.MODEL_TYPE)
        _sizes(writer, model)
        _tokenizer(writer, model, split)
        for name, weight in _tensors(model).items():
            writer.add_tensor(name, weight.numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.chmod(made, 0o644)
        os.replace(made, path)
    finally:
        Path(made).unlink(missing_ok=True)
    return "float32: llama.cpp reads it" + (APPROXIMATED if _is_exact(model) else "")


def refuse_others(model: Pretrained) -> str:
    """How the tokenizer splits text, in GGUF's words, if the format holds this model."""
    kind = getattr(model.spec, "MODEL_TYPE", model.architecture)
    if kind not in LAYOUTS:
        raise _refused(f"GGUF files are written for Llama and GPT-2, and the model is `{kind}`")
    if kind == "gpt2" and model.config.activation not in (F.gelu_tanh, F.gelu):
        raise _refused(f"GGUF's GPT-2 has GELU, and the model `{model.config.activation}`")
    if kind == "llama" and model.config.scaling is not None:
        raise _refused("rotary positions that are scaled are not written as GGUF")
    found = json.loads(model.tokenizer.to_str()) if model.tokenizer is not None else {}
    before = found.get("pre_tokenizer") or {}
    parts = before["pretokenizers"] if before.get("type") == "Sequence" else [before]
    bare = [{k: v for k, v in part.items() if k != "trim_offsets"} for part in parts]
    kinds: dict[str, list[dict[str, Any]]] = {"gpt-2": [PLAIN], "smollm": [DIGITS, PLAIN]}
    for split, wanted in kinds.items():
        if bare == wanted and found["model"]["type"] == "BPE" and not _normalizes(found):
            return split
    raise _refused("GGUF files are written with a byte-level tokenizer, as GPT-2 has it")


def _is_exact(model: Pretrained) -> bool:
    return model.spec.MODEL_TYPE == "gpt2" and bool(model.config.activation == F.gelu)


def _normalizes(tokenizer: Mapping[str, Any]) -> bool:
    found = tokenizer.get("normalizer")
    return bool(found) and found != {"type": "Sequence", "normalizers": []}


def _refused(what: str) -> BadPretrained:
    return BadPretrained(what, caller(), "`--to hf` or `--to safetensors` writes it")


def _sizes(writer: Any, model: Pretrained) -> None:
    kind, config = model.spec.MODEL_TYPE, model.config
    table = dict(model.spec.write_config(config))
    if LAYOUTS[kind].rotates:
        table["rope_theta"] = config.base
        writer.add_uint32(f"{kind}.rope.dimension_count", config.d)
    for name, theirs in LAYOUTS[kind].sizes.items():
        value = table[theirs]
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{kind}.{name}", value)


def _tokenizer(writer: Any, model: Pretrained, split: str) -> None:
    found = json.loads(model.tokenizer.to_str())
    special = {token["content"] for token in found.get("added_tokens", []) if token["special"]}
    known = model.tokenizer.get_vocab(with_added_tokens=True)
    names = {number: name for name, number in known.items()}
    tokens = [names.get(k, f"<unused {k}>") for k in range(model.config.vocabulary)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in found["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in special else NORMAL for token in tokens])
    writer.add_token_merges(merges)
    for name in ENDS:
        token = model.table.get(f"{name}_token_id")
        if isinstance(token, int):
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token)


def _tensors(model: Pretrained) -> dict[str, Tensor]:
    layout = LAYOUTS[model.spec.MODEL_TYPE]
    now = {**model.weights, **{n: model.model.weight(n).detach() for n in learnable(model.model)}}
    ours = {name: weight.float().cpu() for name, weight in now.items()}
    for name in ours if layout.rotates else ():
        if name.endswith((".q.weight", ".k.weight")):
            ours[name] = _pairs(ours[name])
    return to_theirs(layout.entries(model.config), ours)


def _pairs(weight: Tensor) -> Tensor:
    """The rules rotate features c and c + d/2, GGUF 2c and 2c + 1: rows in the order of GGUF.

    >>> import torch
    >>> _pairs(torch.tensor([0.0, 2.0, 1.0, 3.0]).reshape(1, 4, 1)).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    *lead, d, size = weight.shape
    halves = weight.reshape(*lead, 2, d // 2, size)
    return halves.transpose(-2, -3).reshape(weight.shape)

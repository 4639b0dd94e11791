"""GGUF files: one file with weights, often quantised, the configuration and the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.drawing import require_package
from edgewise.zoo.pretrained.architectures import gpt2
from edgewise.zoo.pretrained.architectures.llama import LLAMA
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.model import Pretrained
from edgewise.zoo.pretrained.schema import read_config
from edgewise.zoo.pretrained.tensors import Shape, TensorEntry, check_tensors, shapes_of, to_ours
from edgewise.zoo.pretrained.texts import checked

# fields without effect on the model
IDLE = ("tensor_data_layout", "rope.scaling.original_context_length", "rope.scaling.finetuned")
NAMES = {
    **{"attn_norm": "norm1.gain", "attn_q": "q.weight", "attn_k": "k.weight", "attn_v": "v.weight"},
    **{"attn_output": "attended.weight", "ffn_norm": "norm2.gain", "ffn_gate": "gate.weight"},
    **{"ffn_up": "up.weight", "ffn_down": "out.weight"},
}
SPLITS = ("default", "gpt-2", "smollm", "refact")
CONTROL = 3
OUTPUT = "output.weight"  # absent where the embedding is read for it
ENDS = ("bos", "eos")


@dataclass(frozen=True)
class GgufLayout:
    """How GGUF files hold the models of one architecture."""

    spec: Any
    architecture: str
    sizes: Mapping[str, str]  # fields of GGUF and of the configuration
    entries: Callable[[Any], Iterator[TensorEntry]]  # our weights and their tensors
    usual: Callable[[Any], dict[str, Any]]  # what else a file may say, with the value it has here
    rotates: bool = False


def read_gguf(path: Path, dtype: torch.dtype) -> Pretrained:
    """The model of a GGUF file of Llama or GPT-2; quantised weights are dequantised."""
    require_package("gguf")
    import gguf

    reader = _opened(path, gguf)
    fields = {name: _value(field) for name, field in reader.fields.items()}
    kind = fields.get("general.architecture")
    if kind not in LAYOUTS:
        raise BadPretrained(
            f"unsupported GGUF architecture {kind!r}"[:120],
            help=f"supported: {', '.join(LAYOUTS)}",
        )
    layout, tensors = LAYOUTS[kind], {tensor.name: tensor for tensor in reader.tensors}
    table = _table(kind, layout.sizes, fields)
    config = read_config(layout.spec, {**table, "tie_word_embeddings": OUTPUT not in tensors})
    _refuse_others(kind, fields, layout.usual(config))
    program = layout.spec.MODEL.program(config)
    shapes = {name: tuple(int(n) for n in t.shape)[::-1] for name, t in tensors.items()}
    listed = list(layout.entries(config))
    check_tensors(listed, shapes, shapes_of(program), ["rope_freqs.weight"])
    if "rope_freqs.weight" in tensors:
        raise BadPretrained(
            "rotary frequencies in `rope_freqs.weight` are not supported",
            help="use a file without them",
        )
    theirs = {e.theirs: _tensor(tensors[e.theirs], gguf).to(dtype) for e in listed}
    weights = to_ours(listed, theirs, shapes_of(program))
    for name in weights if layout.rotates else ():
        if name.endswith((".q.weight", ".k.weight")):
            weights[name] = _halves(weights[name])
    tokenizer = _tokenizer(fields, config.vocabulary)
    ends = {f"{name}_token_id": fields.get(f"tokenizer.ggml.{name}_token_id") for name in ENDS}
    known = layout.spec.write_config(config) | {
        name: token for name, token in ends.items() if token is not None
    }
    named = layout.spec, layout.architecture
    return Pretrained(*named, config, program, weights, tokenizer, known, dtype)


def _llama_entries(config: Any) -> Iterator[TensorEntry]:
    joined = {"q.weight": 3, "k.weight": 2, "v.weight": 2}
    yield TensorEntry("word", "token_embd.weight")
    for i in range(config.layers):
        for theirs, ours in NAMES.items():
            at = joined.get(ours, 1)
            yield TensorEntry(f"layer.{i}.{ours}", f"blk.{i}.{theirs}.weight", joined=at)
    yield TensorEntry("out.gain", "output_norm.weight")
    if not config.tied:
        yield TensorEntry("logits.weight", OUTPUT)


def _gpt2_entries(config: Any) -> Iterator[TensorEntry]:
    """Hugging Face's tensors by the names of the package; matrices are (out, in)."""
    import gguf

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, config.layers)
    for entry in gpt2.entries(config, "transformer."):
        part = None if entry.part is None else (0, *entry.part[1:])
        theirs = str(names.get_name(entry.theirs, (".weight", ".bias")))
        yield replace(entry, theirs=theirs, part=part, order=None)


def _rotary(config: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(("rope.dimension_count", "attention.value_length"), config.d),
        **{"rope.scaling.type": "none", "rope.scale_linear": 1.0, "attention.causal": True},
    }


LAYOUTS = {
    "llama": GgufLayout(
        LLAMA,
        "LlamaForCausalLM",
        {
            "block_count": "num_hidden_layers",
            "context_length": "max_position_embeddings",
            "embedding_length": "hidden_size",
            "feed_forward_length": "intermediate_size",
            "attention.head_count": "num_attention_heads",
            "attention.head_count_kv": "num_key_value_heads",
            "attention.key_length": "head_dim",
            "attention.layer_norm_rms_epsilon": "rms_norm_eps",
            "rope.freq_base": "rope_theta",
            "vocab_size": "vocab_size",
        },
        _llama_entries,
        _rotary,
        rotates=True,
    ),
    "gpt2": GgufLayout(
        gpt2,
        "GPT2LMHeadModel",
        {
            "block_count": "n_layer",
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "feed_forward_length": "n_inner",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
            "vocab_size": "vocab_size",
        },
        _gpt2_entries,
        lambda config: {"attention.causal": True},
    ),
}


def _opened(path: Path, gguf: Any) -> Any:
    if not path.is_file():
        raise BadPretrained(f"there is no file `{path}`", help="check the path")
    try:
        return gguf.GGUFReader(str(path))
    except Exception as problem:  # the package has no error of its own
        raise BadPretrained(
            f"`{path.name}` is not a GGUF file, truncated or corrupt: {str(problem)[:120]}",
            help="fetch it again",
        ) from None


def _value(field: Any) -> Any:
    try:
        return field.contents()
    except Exception:  # as above
        return None


def _table(kind: str, sizes: Mapping[str, str], fields: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        theirs: fields[f"{kind}.{name}"]
        for name, theirs in sizes.items()
        if f"{kind}.{name}" in fields
    }
    tokens = fields.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list):
        found.setdefault("vocab_size", len(tokens))
    return found


def _refuse_others(kind: str, fields: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """What a file says about the model beyond sizes is what the rules do, or it is refused."""
    for name, value in fields.items():
        prefix, _, inner = name.partition(".")
        if prefix != kind or inner in LAYOUTS[kind].sizes or inner in IDLE:
            continue
        if (value or inner in usual) and value != usual.get(inner):  # 0 says nothing
            raise BadPretrained(
                f"the file says `{name}` = {value!r:.60}", help="the rules do not support it"
            )


def _tensor(tensor: Any, gguf: Any) -> Tensor:
    try:
        return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
    except (NotImplementedError, ValueError) as problem:
        raise BadPretrained(
            f"the tensor `{tensor.name}` cannot be read: {str(problem)[:120]}",
            help="quantise it in another way, such as Q8_0",
        ) from None


def _halves(weight: Tensor) -> Tensor:
    """GGUF rotates features 2c and 2c + 1, the rules c and c + d/2: rows in the order of the rules.

    >>> _halves(torch.arange(4.0).reshape(1, 4, 1)).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0]
    """
    *lead, d, size = weight.shape
    pairs = weight.reshape(*lead, d // 2, 2, size)
    return pairs.transpose(-2, -3).reshape(weight.shape)


def _tokenizer(fields: Mapping[str, Any], vocabulary: int) -> Any:
    """Byte-pair encoding as the file describes it; None for other kinds."""
    tokens, merges = fields.get("tokenizer.ggml.tokens"), fields.get("tokenizer.ggml.merges")
    kind, split = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or split not in SPLITS or not tokens or not merges:
        return None
    require_package("tokenizers")
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    words = {token: k for k, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    made = Tokenizer(models.BPE(words, pairs))
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    apart = split in ("smollm", "refact")
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_]) if apart else bytes_
    made.decoder = decoders.ByteLevel()
    kinds = fields.get("tokenizer.ggml.token_type") or []
    special = [t for t, k in zip(tokens, kinds, strict=False) if k == CONTROL]
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    first = fields.get("tokenizer.ggml.bos_token_id")
    if fields.get("tokenizer.ggml.add_bos_token") is True and first in range(len(tokens)):
        begun = processors.TemplateProcessing(
            single=[tokens[first], "$A"], special_tokens=[(tokens[first], first)]
        )
        made.post_processor = processors.Sequence([begun])
    return checked(made, vocabulary)


__all__ = ["LAYOUTS", "Shape", "read_gguf"]

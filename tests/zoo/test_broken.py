"""Folders of every model type that are broken or partial: refused, with everything wrong named."""

import json

import pytest
import safetensors.torch
import torch
from small import SMALL

from edgewise import EdgewiseError, zoo
from edgewise.zoo.pretrained import MODEL_TYPES, files
from edgewise.zoo.pretrained.schema import read_config


@pytest.fixture(scope="module", params=MODEL_TYPES)
def checkpoint(request, tmp_path_factory):
    """A small checkpoint as it is saved: its folder, its configuration and its tensors."""
    spec = MODEL_TYPES[request.param]
    config = read_config(spec, SMALL[request.param])
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    weights = spec.MODEL.program(config).weights(seed=0, dtype=torch.float32)
    zoo.save_pretrained(folder, spec.MODEL, config, weights, spec=spec)
    tensors = safetensors.torch.load_file(folder / files.WEIGHTS)
    return folder, json.loads((folder / files.CONFIG).read_text()), tensors


def written(folder, path, table, tensors):
    path.mkdir()
    (path / files.CONFIG).write_text(json.dumps(table))
    safetensors.torch.save_file(tensors, path / files.WEIGHTS)
    return path


def refusals(path) -> list[str]:
    with pytest.raises(EdgewiseError) as caught:
        zoo.from_pretrained(path)
    assert {error.code for error in caught.value.errors} == {"bad-pretrained"}
    assert all(error.help and error.place for error in caught.value.errors)
    return [error.message for error in caught.value.errors]


def test_every_wrong_tensor_is_named(checkpoint, tmp_path):
    folder, table, tensors = checkpoint
    assert zoo.from_pretrained(folder).weights
    first, second = sorted(name for name in tensors if tensors[name].ndim == 2)[:2]
    wrong = {n: t for n, t in tensors.items() if n != first}
    wrong |= {second: torch.zeros(3, 99), "more": torch.zeros(2)}
    found = "\n".join(refusals(written(folder, tmp_path / "tensors", table, wrong)))
    assert f"`{first}` is missing" in found
    assert f"`{second}` is (3, 99)" in found
    assert "`more` does not belong" in found
    integers = tensors | {first: torch.zeros(2, dtype=torch.int8), second: torch.zeros(2).long()}
    found = "\n".join(refusals(written(folder, tmp_path / "kinds", table, integers)))
    assert f"`{first}` holds I8" in found
    assert f"`{second}` holds I64" in found


def test_every_wrong_field_is_named(checkpoint, tmp_path):
    folder, table, tensors = checkpoint
    fields = table.get("text_config", table)
    sizes = [n for n in SMALL[table["model_type"]].get("text_config", SMALL[table["model_type"]])]
    numbers = [name for name in sizes if type(fields.get(name)) is int][:2]
    without = {name: value for name, value in fields.items() if name != numbers[0]}
    without[numbers[1]] = "many"
    broken = table | {"text_config": without} if fields is not table else without
    found = refusals(written(folder, tmp_path / "fields", broken, tensors))
    assert any(f"`{numbers[1]}` = 'many'" in message for message in found)
    if not table["model_type"].startswith("clip"):  # which has defaults
        assert any(f"no `{numbers[0]}`" in message for message in found)


def test_files_that_are_not_all_there(checkpoint, tmp_path):
    folder, table, tensors = checkpoint
    names = sorted(tensors)
    path = written(folder, tmp_path / "cut", table, tensors)
    data = (path / files.WEIGHTS).read_bytes()
    (path / files.WEIGHTS).write_bytes(data[: len(data) // 2])
    assert "damaged or truncated" in refusals(path)[0]
    (path / files.WEIGHTS).unlink()
    index = dict.fromkeys(names, "a.safetensors") | {
        names[0]: "b.safetensors",
        names[1]: "c.safetensors",
    }
    (path / files.INDEX).write_text(json.dumps({"weight_map": index}))
    rest = {name: tensors[name] for name in names[2:]}
    safetensors.torch.save_file(rest, path / "a.safetensors")
    found = "\n".join(refusals(path))
    assert "`b.safetensors` is missing" in found
    assert "`c.safetensors` is missing" in found


@pytest.mark.parametrize(
    ("name", "said", "field"),
    [
        ("llama", {"rope_parameters": {"rope_type": "axial", "factor": 2.0}}, "'axial'"),
        ("mistral", {"layer_types": ["full_attention"] * 2}, "layer_types"),
        ("llama", {"sliding_window": 4}, "sliding_window"),
        ("qwen2", {"layer_types": ["chunked_attention"] * 2, "use_sliding_window": True,
                   "sliding_window": 3}, "layer_types"),
        ("qwen3", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3_text", {"attn_logit_softcapping": 3.0}, "attn_logit_softcapping"),
        ("phi", {"qk_layernorm": True}, "qk_layernorm"),
        ("phi3", {"resid_pdrop": 0.1}, "resid_pdrop"),
        ("bart", {"decoder_attention_heads": 1}, "decoder_attention_heads"),
        ("bart", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder"),
        ("marian", {"decoder_vocab_size": 13}, "decoder_vocab_size"),
        ("deberta-v2", {"conv_kernel_size": 2}, "conv_kernel_size"),
        ("deberta-v2", {"conv_kernel_size": 3, "conv_groups": 2}, "conv_groups"),
        ("deberta", {"pos_att_type": ["c2p"]}, "pos_att_type"),
        ("xlnet", {"attn_type": "uni"}, "attn_type"),
        ("openai-gpt", {"afn": "tanh"}, "afn"),
        ("clip_text_model", {"hidden_act": "swishy"}, "hidden_act"),
    ],
)  # fmt: skip
def test_options_without_rules_are_refused(name, said, field):
    with pytest.raises(EdgewiseError) as caught:
        read_config(MODEL_TYPES[name], SMALL[name] | said)
    assert any(field in error.message for error in caught.value.errors)

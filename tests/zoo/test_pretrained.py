"""Checkpoints in files: read completely or refused by name, written completely or not at all."""

import json
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from small import SMALL

from edgewise import EdgewiseError, F, numbers, zoo
from edgewise.language.nodes import Atom
from edgewise.zoo.pretrained import MODEL_TYPES, files
from edgewise.zoo.pretrained.model import learnable
from edgewise.zoo.pretrained.schema import read_config, table_of
from edgewise.zoo.pretrained.tensors import shapes_of
from edgewise.zoo.pretrained.texts import Tokens

# rules of BERT that a model type has no tensors for
FOLLOWS, POOLED = ({f"{n}.{w}" for w in ("weight", "bias")} for n in ("follows", "pooled"))
CLASSIFIERS = {f"{n}.{w}" for n in ("classes", "tags", "span") for w in ("weight", "bias")}
UNREAD = dict.fromkeys(("roberta", "distilbert", "mpnet"), FOLLOWS)
UNREAD |= dict.fromkeys(("longformer", "big_bird"), FOLLOWS | CLASSIFIERS)
OTHER = {"clip_text_model": ("image.", "scale"), "clip_vision_model": ("text.", "scale")}
CONFIG = zoo.gpt2.Config(12, 4, 2, 6, 2, 8, dropout=0.0)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A small checkpoint of GPT-2."""
    weights = zoo.gpt2.program(CONFIG).weights(seed=0, dtype=torch.float32)
    zoo.save_pretrained(tmp_path / "model", zoo.gpt2, CONFIG, weights)
    return tmp_path / "model"


def edit(folder: Path, **fields) -> None:
    path = folder / files.CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def edit_tensors(folder: Path, change) -> None:
    path = folder / files.WEIGHTS
    found = safetensors.torch.load_file(path)
    change(found)
    safetensors.torch.save_file(found, path)


def refusal(path) -> str:
    with pytest.raises(EdgewiseError) as caught:
        zoo.from_pretrained(path)
    assert caught.value.code == "bad-pretrained"
    assert caught.value.help
    assert caught.value.place is not None
    return str(caught.value.message)


def test_what_is_saved_is_read(folder):
    weights = zoo.gpt2.program(CONFIG).weights(seed=0, dtype=torch.float32)
    found = zoo.from_pretrained(folder)
    assert found.config == CONFIG
    assert set(found.weights) == set(weights)
    assert all(torch.equal(found.weights[name], weights[name]) for name in weights)
    assert found.output == "logits"
    assert found.model.inputs == ("token",)


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_every_table_of_names_is_of_the_program_s_weights(name):
    """Each weight of the program once, and nothing else."""
    spec = MODEL_TYPES[name]
    config = read_config(spec, SMALL[name])
    known, used = set(shapes_of(spec.MODEL.program(config))), set()
    for architecture, (_, heads, output) in spec.ARCHITECTURES.items():
        entries = table_of(spec, config, architecture, ())
        ours = [e.ours for e in entries]
        assert len(set(ours)) == len(ours), architecture
        places = [(e.theirs, e.part) for e in entries]
        assert len(set(places)) == len(places), architecture
        assert set(ours) <= known
        used |= set(ours)
        model = spec.MODEL.program(config).compile(Atom(output or spec.OUTPUT), seed=0)
        assert set(learnable(model)) <= set(ours), architecture
        assert set(heads) <= set(spec.task_heads(config, ""))
    optional = [e.ours for relation in spec.OPTIONAL for e in spec.task_heads(config, "")[relation]]
    left = known - used - set(optional) - UNREAD.get(name, set())
    assert all(weight.startswith(OTHER.get(name, ())) for weight in left), left


def test_shards_are_one_checkpoint(folder):
    whole = zoo.from_pretrained(folder).weights
    found = safetensors.torch.load_file(folder / files.WEIGHTS)
    (folder / files.WEIGHTS).unlink()
    names, index = sorted(found), {}
    for k in range(3):
        part = f"model-{k}.safetensors"
        index |= dict.fromkeys(names[k::3], part)
        safetensors.torch.save_file({n: found[n] for n in names[k::3]}, folder / part)
    (folder / files.INDEX).write_text(json.dumps({"weight_map": index}))
    again = zoo.from_pretrained(folder).weights
    assert all(torch.equal(again[name], whole[name]) for name in whole)
    (folder / "model-1.safetensors").unlink()
    assert "`model-1.safetensors` is missing" in refusal(folder)
    (folder / files.INDEX).write_text(json.dumps({"weight_map": {"a": "../../secret"}}))
    assert "names no files" in refusal(folder)
    (folder / files.INDEX).write_text(json.dumps({"weight_map": {"a": "a" * 5000}}))
    assert "names no files" in refusal(folder)
    (folder / files.CONFIG).unlink()
    os.mkfifo(folder / files.CONFIG)
    assert "is not a file" in refusal(folder)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n_embd": "large"}, "`n_embd` = 'large'"),
        ({"n_embd": 10**12}, "`n_embd` = 1000000000000"),
        ({"n_embd": 4.5}, "`n_embd` = 4.5"),
        ({"n_embd": True}, "`n_embd` = True"),
        ({"n_embd": -4}, "`n_embd` = -4"),
        ({"n_embd": [4]}, "`n_embd` = [4]"),
        ({"n_embd": 5}, "`n_embd` = 5 is not a multiple of 2 heads"),
        ({"n_layer": 10**6}, "`n_layer` = 1000000"),
        ({"n_layer": 3}, "`transformer.h.2.ln_1.weight` is missing"),
        ({"n_layer": 1}, "`transformer.h.1.attn.c_attn.bias` does not belong to this model"),
        ({"n_inner": 7}, "`transformer.h.0.mlp.c_fc.weight` is (4, 6), the configuration says"),
        ({"vocab_size": 13}, "`transformer.wte.weight` is (12, 4)"),
        ({"vocab_size": 1 << 20, "n_embd": 1 << 20}, "`transformer.wte.weight` is (12, 4)"),
        ({"activation_function": "__import__('os')"}, "`activation_function`"),
        ({"layer_norm_epsilon": "1e-5"}, "`layer_norm_epsilon` = '1e-5'"),
        ({"layer_norm_epsilon": -1.0}, "`layer_norm_epsilon` = -1.0"),
        ({"layer_norm_epsilon": 10**400}, "`layer_norm_epsilon` = 1000"),
        ({"resid_pdrop": 1.0}, "`resid_pdrop` = 1.0"),
        ({"add_cross_attention": True}, "`add_cross_attention` = True"),
        ({"model_type": "mamba"}, "`model_type` 'mamba'"),
        ({"model_type": ["gpt2"]}, "`model_type` ['gpt2']"),
        ({"model_type": "bert"}, "architecture 'GPT2LMHeadModel'"),
        ({"architectures": ["GPT2ForSequenceClassification"]}, "'GPT2ForSequenceClassification'"),
    ],
)
def test_a_configuration_that_is_wrong(folder, fields, said):
    edit(folder, **fields)
    assert said in refusal(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{'a': 1}", "is not JSON"),
        ('{"model_type": NaN}', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_configuration_that_is_none(folder, text, said):
    (folder / files.CONFIG).write_text(text)
    assert said in refusal(folder)


def test_tensors_that_are_wrong(folder):
    edit_tensors(folder, lambda found: found.update(more=torch.zeros(2)))
    assert "`more` does not belong to this model" in refusal(folder)
    edit_tensors(folder, lambda found: found.pop("more"))
    edit_tensors(folder, lambda found: found.update({"transformer.wpe.weight": torch.ones(4, 8)}))
    assert "`transformer.wpe.weight` is (4, 8), the configuration says (8, 4)" in refusal(folder)
    edit_tensors(folder, lambda found: found.pop("transformer.wpe.weight"))
    assert "`transformer.wpe.weight` is missing" in refusal(folder)
    whole = torch.ones(8, 4, dtype=torch.int8)
    edit_tensors(folder, lambda found: found.update({"transformer.wpe.weight": whole}))
    assert "`transformer.wpe.weight` holds I8" in refusal(folder)


def test_a_double_that_is_not_one(folder):
    words = safetensors.torch.load_file(folder / files.WEIGHTS)["transformer.wte.weight"]
    edit_tensors(folder, lambda found: found.update({"lm_head.weight": words.clone()}))
    zoo.from_pretrained(folder)
    edit_tensors(folder, lambda found: found.update({"lm_head.weight": words + 1}))
    assert "`lm_head.weight` differs from `transformer.wte.weight`" in refusal(folder)


@pytest.mark.parametrize("cut", [0, 4, 30, -1])
def test_files_that_are_cut(folder, cut):
    path = folder / files.WEIGHTS
    path.write_bytes(path.read_bytes()[:cut])
    assert "`model.safetensors` is damaged or truncated" in refusal(folder)


def test_a_pickle_is_not_opened(folder):
    (folder / files.WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    assert "only the pickle `pytorch_model.bin`" in refusal(folder)


def test_nothing_there(tmp_path):
    assert "there is no folder" in refusal(tmp_path / "none")
    assert "config.json` cannot be read" in refusal(tmp_path)
    assert "there is no file" in refusal(tmp_path / "none.gguf")


def test_a_tokenizer_belongs_to_its_model(folder):
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{k}": k for k in range(12)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(2)  # what a checkpoint says of lengths is not ours
    made.enable_padding(length=7)
    made.save(str(folder / "tokenizer.json"))
    found = zoo.from_pretrained(folder)
    tokens = found.tokens(["w3 w4 w5", "w6"])
    assert tokens.numbers.tolist() == [[3, 4, 5], [6, 0, 0]]
    assert tokens.mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    with pytest.raises(EdgewiseError, match="text 1 has 9 tokens, the model has 8 positions"):
        found.tokens(["w1", "w1 " * 9])
    assert found.tokens(["w1 " * 9], truncate=True).numbers.shape == (1, 8)
    made.add_tokens(["one more"])
    made.save(str(folder / "tokenizer.json"))
    assert "the tokenizer has the token id 12, the model a vocabulary of 12" in refusal(folder)
    (folder / "tokenizer.json").write_text('{"model": {}}')
    assert "`tokenizer.json` is not a tokenizer file" in refusal(folder)


def test_a_model_that_reads_no_words_has_no_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    config = zoo.vit.Config(2, 1, 3, 4, 2, 4, 1, dropout=0.0)
    zoo.save_pretrained(tmp_path / "vit", zoo.vit, config, zoo.vit.program(config).weights(seed=0))
    assert zoo.from_pretrained(tmp_path / "vit").tokenizer is None
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"w": 0}, unk_token="w"))
    made.save(str(tmp_path / "vit" / "tokenizer.json"))
    assert "has the token id 0, the model a vocabulary of 0" in refusal(tmp_path / "vit")


def test_what_a_text_does_not_say_is_named(tmp_path):
    config = zoo.t5.Config(12, 4, 2, 2, 6, 1, 1, dropout=0.0)
    zoo.save_pretrained(tmp_path / "t5", zoo.t5, config, zoo.t5.program(config).weights(seed=0))
    tokens = Tokens(torch.ones(1, 3, dtype=torch.int64), torch.ones(1, 3, dtype=torch.int64))
    with pytest.raises(EdgewiseError, match="reads `target`, which a text does not determine"):
        zoo.from_pretrained(tmp_path / "t5").inputs(tokens)


def test_a_checkpoint_without_a_head_says_what_is_missing(tmp_path):
    config = zoo.bert.Config(12, 4, 2, 6, 1, 8, dropout=0.0)
    weights = zoo.bert.program(config).weights(seed=0)
    body = {n: w for n, w in weights.items() if not n.startswith(("pooled", "guess", "logits"))}
    zoo.save_pretrained(tmp_path / "model", zoo.bert, config, body)
    found = zoo.from_pretrained(tmp_path / "model")
    found.compile("out")
    with pytest.raises(EdgewiseError, match=r"lacks `pooled\.weight`, needed by `pooled`"):
        found.compile("pooled")


def test_a_save_that_fails_leaves_what_was_there(folder, monkeypatch):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    found = zoo.from_pretrained(folder)

    def broken(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(safetensors.torch, "save_file", broken)
    with pytest.raises(EdgewiseError, match="disk full"):
        found.save_pretrained(folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_a_save_goes_only_where_it_may(tmp_path, folder):
    found = zoo.from_pretrained(folder)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    (tmp_path / "notes" / files.CONFIG).write_text("{}")
    for path in (tmp_path / "notes", tmp_path / "no" / "such", folder / files.CONFIG):
        with pytest.raises(EdgewiseError) as caught:
            found.save_pretrained(path)
        assert caught.value.code == "bad-pretrained"
    with pytest.raises(EdgewiseError, match="`word` is missing"):
        zoo.save_pretrained(tmp_path / "new", zoo.gpt2, CONFIG, {})
    with pytest.raises(EdgewiseError, match="no Hugging Face architecture"):
        zoo.save_pretrained(tmp_path / "new", zoo.gcn, zoo.gcn.Config(), {})
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "notes" / "a.txt").read_text() == "mine"


def test_a_save_goes_where_a_link_leads(tmp_path, folder, monkeypatch):
    found = zoo.from_pretrained(folder)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    found.save_pretrained(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert zoo.from_pretrained(tmp_path / "there").config == found.config
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(EdgewiseError, match="you are in"):
        found.save_pretrained(".")


NOT_SAID = {
    "a graph": (zoo.gpt2, {"graph": "window(2)"}, "cannot express `graph`"),
    "an activation": (zoo.gpt2, {"activation": F.sigmoid}, "no name for the activation"),
    "a gate": (zoo.t5, {"gated": True, "activation": F.gelu}, "cannot express `activation`"),
}


@pytest.mark.parametrize("case", NOT_SAID)
def test_what_a_configuration_cannot_say_is_not_saved(case, tmp_path):
    model, changed, said = NOT_SAID[case]
    config = replace(model.Config(), **changed)
    with pytest.raises(EdgewiseError, match=said) as caught:
        zoo.save_pretrained(tmp_path / "new", model, config, {})
    assert caught.value.code == "bad-pretrained"


def test_weights_and_configuration_belong_together(tmp_path, folder):
    found = zoo.from_pretrained(folder)
    other = replace(found.config, vocabulary=found.config.vocabulary + 1)
    with pytest.raises(EdgewiseError, match="the weight `word` is"):
        zoo.save_pretrained(tmp_path / "new", zoo.gpt2, other, found.weights)
    for config, named in ((None, None), (found.config, "GPT2ForEverything")):
        with pytest.raises(EdgewiseError) as caught:
            zoo.save_pretrained(
                tmp_path / "new", zoo.gpt2, config, found.weights, architecture=named
            )
        assert caught.value.code == "bad-pretrained"
    assert not (tmp_path / "new").exists()


def test_what_older_versions_saved_is_read(tmp_path, folder):
    """The published GPT-2 holds its masks, the published BERT names its norms otherwise."""
    tensors = safetensors.torch.load_file(folder / files.WEIGHTS)
    n = CONFIG.length
    masks = {f"transformer.h.{k}.attn.bias": torch.ones(1, 1, n, n) for k in range(CONFIG.layers)}
    safetensors.torch.save_file(tensors | masks, folder / files.WEIGHTS)
    assert torch.equal(
        zoo.from_pretrained(folder).weights["word"], tensors["transformer.wte.weight"]
    )
    config = zoo.bert.Config(12, 4, 2, 6, 1, 8, dropout=0.0)
    weights = zoo.bert.program(config).weights(seed=0)
    path = tmp_path / "bert"
    zoo.save_pretrained(path, zoo.bert, config, weights, architecture="BertForMaskedLM")
    tensors = safetensors.torch.load_file(path / files.WEIGHTS)
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): t
        for name, t in tensors.items()
    }
    more = {
        "cls.seq_relationship.weight": torch.ones(2, 4),
        "cls.seq_relationship.bias": torch.ones(2),
    }
    places = {"bert.embeddings.position_ids": torch.arange(8)[None]}
    safetensors.torch.save_file(old | more | places, path / files.WEIGHTS)
    found = zoo.from_pretrained(path).weights
    assert torch.equal(found["guessed.gain"], weights["guessed.gain"].to(found["guessed.gain"]))


@pytest.mark.parametrize(
    ("path", "how"),
    [(None, {}), (b"x", {}), ("all-minilm", {}), ("model", {"dtype": "float32"}), ("", {})],
)
def test_arguments_that_are_none(path, how):
    with pytest.raises(EdgewiseError) as caught:
        zoo.from_pretrained(path, **how)
    assert caught.value.code == "bad-pretrained"
    if path == "all-minilm":
        assert "zoo.fetch('all-minilm-l6-v2')" in str(caught.value)


def test_what_was_trained_is_what_is_saved(tmp_path, folder):
    found = zoo.from_pretrained(folder)
    with torch.no_grad():
        found.model.weight("word").add_(1.0)
    found.save_pretrained(tmp_path / "trained")
    again = zoo.from_pretrained(tmp_path / "trained")
    token = numbers([[1, 2, 3]])
    assert torch.equal(again.model(token=token), found.model(token=token))


def permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """The order of rows in GGUF: halves become neighbours, as llama.cpp's conversion does."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(weight.shape)


@pytest.mark.parametrize(("kind", "tolerance"), [("F32", 1e-5), ("F16", 1e-2), ("Q8_0", 5e-2)])
def test_gguf(tmp_path, kind, tolerance):
    gguf = pytest.importorskip("gguf")
    from theirs import transformers

    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=32,
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=32,
            num_hidden_layers=2,
            max_position_embeddings=16,
        )
    ).eval()
    path = write_gguf(gguf, theirs, tmp_path / "model.gguf", kind)
    found = zoo.from_pretrained(path)
    assert found.config.groups == 2
    token = torch.randint(0, 32, (2, 7))
    with torch.no_grad():
        expected = theirs(token).logits
    ours = found.model(token=numbers(token))
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)
    data = path.read_bytes()
    for cut in (0, 20, len(data) // 2):
        path.write_bytes(data[:cut])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert "is not a GGUF file" in refusal(path)


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, "rope.scaling.type"),
        ({"rope.scaling.type": "none", "expert_count": 0, "rope.dimension_count": 16}, None),
        ({"rope.dimension_count": 8}, "rope.dimension_count"),
        ({"attention.value_length": 8}, "attention.value_length"),
        ({"attention.causal": False}, "attention.causal"),
        ({"attention.sliding_window": 4}, "attention.sliding_window"),
    ],
)
def test_what_a_gguf_file_says_of_its_model_is_known_or_refused(tmp_path, said, refused):
    gguf = pytest.importorskip("gguf")
    from theirs import transformers

    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(vocab_size=32, intermediate_size=32, **sizes)
    model = transformers.LlamaForCausalLM(config)
    path = write_gguf(gguf, model, tmp_path / "model.gguf", "F32", said)
    if refused is None:
        found = zoo.from_pretrained(path)
        assert found.config.d == 16
        assert found.tokens(["ba"]).numbers.tolist() == [[3, 1, 0]]  # the first begins a text
    else:
        assert f"`llama.{refused}`" in refusal(path)


def write_gguf(gguf, model, path: Path, kind: str, said=None) -> Path:
    config, state = model.config, model.state_dict()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "ab", "<s>", *(f"w{k}" for k in range(28))])
    writer.add_token_types([1, 1, 1, 3, *[1] * 28])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(3)
    writer.add_add_bos_token(True)
    for name, value in (said or {}).items():
        add = {
            str: writer.add_string,
            int: writer.add_uint32,
            float: writer.add_float32,
            bool: writer.add_bool,
        }
        add[type(value)](f"llama.{name}", value)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    inner = {
        "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    for i in range(config.num_hidden_layers):
        names |= {f"blk.{i}.{a}": f"model.layers.{i}.{b}" for a, b in inner.items()}
    quantised = getattr(gguf.GGMLQuantizationType, kind)
    for theirs, name in names.items():
        weight = state[f"{name}.weight"]
        if theirs.endswith("attn_q"):
            weight = permuted(weight, config.num_attention_heads)
        if theirs.endswith("attn_k"):
            weight = permuted(weight, config.num_key_value_heads)
        plain = weight.ndim == 1
        used = gguf.GGMLQuantizationType.F32 if plain else quantised
        writer.add_tensor(f"{theirs}.weight", gguf.quantize(weight.numpy(), used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_tensors_say_what_a_checkpoint_is_of(tmp_path):
    """all-mpnet-base-v2 names `MPNetForMaskedLM` and holds `MPNetModel`."""
    config = zoo.bert.Config(12, 4, 2, 6, 1, 8, dropout=0.0)
    weights = zoo.bert.program(config).weights(seed=0)
    zoo.save_pretrained(tmp_path / "model", zoo.bert, config, weights)
    edit(tmp_path / "model", architectures=["BertForMaskedLM"])
    found = zoo.from_pretrained(tmp_path / "model")
    assert found.architecture == "BertModel"
    assert torch.equal(found.weights["pooled.bias"], weights["pooled.bias"].float())


def test_vectors_do_not_depend_on_padding_and_a_text_has_tokens(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    config = zoo.bert.Config(12, 4, 2, 6, 2, 40, dropout=0.0)
    weights = zoo.bert.program(config).weights(seed=0)
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{k}": k for k in range(12)}, unk_token="w0")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    zoo.save_pretrained(tmp_path / "model", zoo.bert, config, weights, tokenizer=words)
    found = zoo.from_pretrained(tmp_path / "model", dtype=torch.float64)
    texts = ["w1 w2", "w3 " * 40, "w4 w5 w6", "w7 " * 17]
    together = found.embed(texts, batch=4)
    alone = torch.cat([found.embed([text]) for text in texts])
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=0)
    with pytest.raises(EdgewiseError, match="text 1 has no tokens"):
        found.embed(["w1", ""])
    with pytest.raises(EdgewiseError, match="text 0 has 41 tokens"):
        found.embed(["w3 " * 41, "w1"])
    for batch in (0, -1, 2.5):
        with pytest.raises(EdgewiseError, match="`batch` must be"):
            found.embed(["w1"], batch=batch)
    with pytest.raises(EdgewiseError) as caught:
        found.embed("w1")
    assert caught.value.code == "bad-text"

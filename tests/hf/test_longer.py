"""Dense pretrained models made long: positions extended, weights unchanged."""

import copy

import hf_models as models
import pytest
import torch
from test_use import hidden, tokens

from edgewise import EdgewiseError, hf
from edgewise.graphs import full, global_tokens, window

LONG = window(4) | global_tokens(1)


def opt():
    from transformers import OPTConfig, OPTForCausalLM

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 24}
    more = {"vocab_size": 29, "max_position_embeddings": 64, "word_embed_proj_dim": 16}
    return OPTForCausalLM(OPTConfig(**sizes, **more, dropout=0.0))


def gptj():
    from transformers import GPTJConfig, GPTJForCausalLM

    return GPTJForCausalLM(GPTJConfig(vocab_size=29, n_embd=16, n_layer=1, n_head=4, rotary_dim=2))


TABLES = {
    "bert": (models.bert, "embeddings.position_embeddings", 0, 64),
    "roberta": (models.roberta, "embeddings.position_embeddings", 2, 62),
    "gpt2": (models.gpt2, "transformer.wpe", 0, 64),
    "opt": (opt, "model.decoder.embed_positions", 2, 64),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_repeated(name):
    make, path, first, length = TABLES[name]
    model = models.built(make)
    before = model.get_submodule(path).weight.clone()
    state = copy.deepcopy(model.state_dict())
    hf.longer(model, 200, LONG)
    after = model.get_submodule(path).weight
    assert len(after) == 200 + first
    assert torch.equal(after[:first], before[:first])
    for p in (0, 1, length - 1, length, 199):
        assert torch.equal(after[first + p], before[first + p % length])
    for key, value in model.state_dict().items():
        if not key.startswith(path):
            assert torch.equal(value, state[key])


@pytest.mark.parametrize("name", TABLES)
def test_short_texts_are_read_as_before(name):
    model = models.built(TABLES[name][0])
    wanted = hidden(model, tokens())
    torch.testing.assert_close(hidden(hf.longer(model, 200, full()), tokens()), wanted)


@pytest.mark.parametrize("name", TABLES)
def test_long_texts_are_read_and_trained_on(name):
    model = hf.longer(models.built(TABLES[name][0]), 200, LONG)
    out = hidden(model, tokens(1, 200))
    assert out.shape[:2] == (1, 200)
    grads = models.gradients(model, out.square().sum())
    assert grads[TABLES[name][1] + ".weight"][-1].abs().sum() > 0


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn"])
def test_rotary_angles_reach_further(kind):
    from transformers import LlamaForCausalLM

    model = models.built(models.llama)
    long = hf.longer(copy.deepcopy(model), 256, full(), rotary=kind)
    config = copy.deepcopy(model.config)
    config.max_position_embeddings = 256
    config.rope_parameters = {
        **config.rope_parameters,
        "rope_type": kind,
        "factor": 4.0,
        **({} if kind == "linear" else {"original_max_position_embeddings": 64}),
    }
    wanted = LlamaForCausalLM(config).double().eval()
    wanted.load_state_dict(model.state_dict())
    torch.testing.assert_close(hidden(long, tokens(1, 100)), hidden(wanted, tokens(1, 100)))
    assert long.config.max_position_embeddings == 256
    assert long.config.rope_parameters["rope_type"] == kind


def modernbert():
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    ends = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    kinds = ["full_attention", "sliding_attention"]
    return ModernBertForMaskedLM(
        ModernBertConfig(**models.TEXT, **ends, local_attention=8, layer_types=kinds)
    )


def gemma3():
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    sizes = {"num_key_value_heads": 2, "head_dim": 4, "sliding_window": 8}
    kinds = ["full_attention", "sliding_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**models.TEXT, **sizes, layer_types=kinds))


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn"])
@pytest.mark.parametrize("make", [modernbert, gemma3])
def test_rotary_angles_of_sliding_windows_stay(make, kind, tmp_path):
    model = models.built(make)
    long = hf.longer(copy.deepcopy(model), 256, full(), rotary=kind)
    config = copy.deepcopy(model.config)
    config.max_position_embeddings = 256
    config.rope_parameters["full_attention"] |= {
        "rope_type": kind,
        "factor": 4.0,
        **({} if kind == "linear" else {"original_max_position_embeddings": 64}),
    }
    wanted = type(model)(config).double().eval()
    wanted.load_state_dict(model.state_dict())
    torch.testing.assert_close(hidden(long, tokens(1, 100)), hidden(wanted, tokens(1, 100)))
    assert long.config.rope_parameters == config.rope_parameters
    long.save_pretrained(tmp_path)
    assert hf.load(tmp_path).config.rope_parameters == config.rope_parameters


def test_what_is_saved_loads_again(tmp_path):
    from transformers import BertModel

    model = hf.longer(models.built(models.bert), 200, LONG)
    wanted = hidden(model, tokens(1, 150))
    model.save_pretrained(tmp_path)
    again = hf.use(BertModel.from_pretrained(tmp_path, dtype=torch.float64), LONG)
    torch.testing.assert_close(hidden(again, tokens(1, 150)), wanted)


BAD = {
    "too many positions": (models.gpt2, 2_000_000_000, LONG, {}, "no-positions"),
    "no more positions": (models.bert, 64, LONG, {}, "no-positions"),
    "no positions": (models.t5, 900, LONG, {}, "no-positions"),
    "attention of its own": (gptj, 900, LONG, {}, "not-pluggable"),
    "no number": (models.bert, "900", LONG, {}, "bad-size"),
    "no graph": (models.bert, 900, None, {}, "not-an-attention"),
    "no such kind": (models.llama, 900, LONG, {"rotary": "cubic"}, "bad-choice"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_change_nothing(case):
    make, positions, graph, more, code = BAD[case]
    model = models.built(make)
    before = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    with pytest.raises(EdgewiseError) as caught:
        hf.longer(model, positions, graph, **more)
    assert caught.value.code == code
    assert {name: tuple(t.shape) for name, t in model.state_dict().items()} == before
    assert model.config._attn_implementation != "edgewise"


@pytest.mark.parametrize("name", TABLES)
def test_a_text_longer_than_the_table_is_refused_until_the_table_is(name):
    make, _, _, length = TABLES[name]
    model = hf.use(models.built(make), LONG)
    text = torch.randint(3, 20, (2, length + 1))
    assert hidden(model, text[:, :length]).shape[1] == length
    with pytest.raises(EdgewiseError, match=f"{length + 1} tokens, the model has {length} pos"):
        model(text)
    assert hidden(hf.longer(model, 200, LONG), text).shape[1] == length + 1
    hf.restore(model)
    assert not any(hook for part in model.modules() for hook in part._forward_pre_hooks.values())


def test_generation_stops_at_the_last_position_with_both_numbers():
    model = hf.use(models.built(models.gpt2), LONG)
    with pytest.raises(EdgewiseError, match="65 tokens, the model has 64"):
        model.generate(tokens()[:1], max_new_tokens=80, do_sample=False, eos_token_id=None)


def test_padding_of_opt_takes_no_position():
    model = hf.use(models.built(opt), LONG)
    mask = (torch.arange(70) >= 10).long()[None]
    assert model(torch.randint(3, 20, (1, 70)), attention_mask=mask)[0].shape[1] == 70


def test_given_positions_count_not_the_tokens():
    model = hf.use(models.built(models.gpt2), LONG)
    positions = torch.arange(50).repeat(2)[None]
    assert model(torch.randint(3, 20, (1, 100)), position_ids=positions)[0].shape[1] == 100
    with pytest.raises(EdgewiseError, match="has 64 positions"):
        model(torch.randint(3, 20, (1, 10)), position_ids=torch.arange(60, 70)[None])

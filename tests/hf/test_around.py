"""What people do around a model: Trainer, pipelines, LoRA, autocast, torch.compile."""

import copy

import hf_models as models
import pytest
import torch
from test_programs import rules
from test_relations import SAME
from test_use import hidden, tokens

from edgewise import EdgewiseWarning, R, V, hf
from edgewise.graphs import causal, global_tokens, window

NEAR = window(2) | global_tokens(1)
WORDS = ["<pad>", "<unk>", "[MASK]", *(f"w{i}" for i in range(26))]


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=words, padding_side="left", **names)


def of_kind(name, **more):
    import transformers

    torch.manual_seed(0)
    sizes = {**models.TEXT, **models.QUIET, "pad_token_id": 0, **more}
    config = transformers.BertConfig(**sizes)
    return getattr(transformers, name)(config).double().eval()


def plain(model, graph):
    other = copy.deepcopy(model)
    other.set_attn_implementation(models.register_reference(graph))
    return other


def assert_alike(a, b):
    """Equal lists and mappings, numbers up to rounding."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        a, b = list(a.values()), list(b.values())
    if isinstance(a, list):
        for one, other in zip(a, b, strict=True):
            assert_alike(one, other)
    else:
        assert a == (pytest.approx(b) if isinstance(b, float) else b)


TEXTS = ["w1 w2 w3 [MASK] w5 w6", "w9 [MASK] w4"]
PIPELINES = {
    "fill-mask": "BertForMaskedLM",
    "text-classification": "BertForSequenceClassification",
    "feature-extraction": "BertModel",
    "token-classification": "BertForTokenClassification",
}


@pytest.mark.parametrize("task", PIPELINES)
def test_pipelines(task, tokenizer):
    from transformers import pipeline

    model = of_kind(PIPELINES[task])
    other = plain(model, NEAR)
    hf.use(model, NEAR)
    for batch_size in (1, 2):
        ours, theirs = (
            pipeline(task, model=m, tokenizer=tokenizer, batch_size=b)(TEXTS)
            for m, b in ((model, batch_size), (other, 1))
        )
        if batch_size == 1:
            assert_alike(ours, theirs)
        assert len(ours) == len(theirs) == 2


@pytest.mark.parametrize("attention", [NEAR, rules(causal()(V.I, V.J))], ids=["graph", "program"])
def test_text_generation_pipeline(tokenizer, attention):
    from transformers import pipeline

    model = hf.use(models.built(models.llama), attention)
    write = pipeline("text-generation", model=model, tokenizer=tokenizer, batch_size=2)
    texts = ["w1 w2 w3 w5 w6", "w9 w4"]
    how = {"max_new_tokens": 6, "do_sample": False, "return_full_text": False}
    both = write(texts, **how)
    ids = tokenizer(texts, return_tensors="pt", padding=True)
    wanted = model.generate(**ids, max_new_tokens=6, do_sample=False, use_cache=False)
    for found, row in zip(both, wanted[:, 5:], strict=True):
        words = tokenizer.decode(row, skip_special_tokens=True).split()
        assert found[0]["generated_text"].split() == words


class Rows(torch.utils.data.Dataset):
    """Rows for classification, each with a speaker of every token."""

    def __len__(self):
        return 8

    def __getitem__(self, at):
        ids = tokens(8)[at]
        return {"input_ids": ids, "labels": int(ids[0] > 14), "speaker": ids % 3}


def train(model, folder, **options):
    from transformers import Trainer, TrainingArguments

    defaults = {
        "per_device_train_batch_size": 4, "max_steps": 3, "report_to": "none", "use_cpu": True,
        "disable_tqdm": True, "save_steps": 2, "learning_rate": 0.01, "logging_strategy": "no",
        "dataloader_pin_memory": False, "seed": 0,
    }  # fmt: skip
    arguments = TrainingArguments(str(folder), **{**defaults, **options})
    trainer = Trainer(model=model, args=arguments, train_dataset=Rows(), eval_dataset=Rows())
    return trainer, trainer.train(resume_from_checkpoint=options.get("resume"))


def test_trainer(tmp_path):
    """Steps are those of a dense mask; checkpoints keep the graph."""
    model = of_kind("BertForSequenceClassification")
    other = plain(model, NEAR)
    hf.use(model, NEAR)
    trainer, found = train(model, tmp_path / "ours")
    _, wanted = train(other, tmp_path / "theirs")
    assert found.training_loss == pytest.approx(wanted.training_loss, abs=1e-9)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    assert trainer.evaluate()["eval_loss"] > 0
    from transformers import AutoModelForSequenceClassification

    folder = tmp_path / "ours" / "checkpoint-2"
    again = hf.load(folder, AutoModelForSequenceClassification, dtype=torch.float64)
    assert hf.graph_of(again) == NEAR
    trainer.save_model(str(tmp_path / "best"))
    again = hf.load(tmp_path / "best", AutoModelForSequenceClassification, dtype=torch.float64)
    torch.testing.assert_close(hidden(again.eval(), tokens()), hidden(model.eval(), tokens()))


def test_trainer_with_relations_and_checkpointing(tmp_path):
    model = hf.use(of_kind("BertForSequenceClassification"), SAME)
    options = {"remove_unused_columns": False}
    _, found = train(copy.deepcopy(model), tmp_path / "a", **options)
    _, again = train(model, tmp_path / "b", **options, gradient_checkpointing=True)
    assert again.training_loss == pytest.approx(found.training_loss, abs=1e-9)


def lora(model, **more):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    config = LoraConfig(target_modules=["q_proj", "v_proj"], r=2, init_lora_weights=False, **more)
    return get_peft_model(model, config)


@pytest.mark.parametrize("first", ["graph", "adapter"])
def test_lora(first, tmp_path):
    """The graph may be set before or after the adapter is added."""
    base = models.built(models.llama)
    other = lora(plain(base, NEAR))
    model = lora(hf.use(base, NEAR)) if first == "graph" else hf.use(lora(base), NEAR)
    ours, theirs = (hidden(m, tokens()) for m in (model, other))
    torch.testing.assert_close(ours, theirs)
    mine, yours = (models.gradients(m, x.sum()) for m, x in ((model, ours), (other, theirs)))
    assert mine.keys() == yours.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], yours[name])
    how = {"max_new_tokens": 5, "do_sample": False}
    found = model.generate(input_ids=tokens(), **how)
    assert torch.equal(found, other.generate(input_ids=tokens(), use_cache=False, **how))
    merged = model.merge_and_unload()
    torch.testing.assert_close(hidden(merged, tokens()), ours)
    hf.use(merged, NEAR).save_pretrained(tmp_path)
    loaded = hf.load(tmp_path, type(merged), dtype=torch.float64).eval()
    torch.testing.assert_close(hidden(loaded, tokens()), ours)


def test_an_adapter_is_saved_without_the_graph(tmp_path):
    from peft import PeftModel

    model = lora(hf.use(models.built(models.llama), NEAR))
    wanted = hidden(model, tokens())
    with pytest.warns(EdgewiseWarning, match="is not saved"):
        model.save_pretrained(tmp_path)
    base = hf.use(models.built(models.llama), NEAR)
    again = PeftModel.from_pretrained(base, tmp_path).eval()
    torch.testing.assert_close(hidden(again, tokens()), wanted)


def test_weights_of_rules_beside_an_adapter():
    program = rules(causal()(V.I, V.J), score=(R.k(V.H, V.J)["near":1, 4],))
    model = lora(hf.use(models.built(models.llama), program), modules_to_save=["edgewise"])
    grads = models.gradients(model, hidden(model, tokens()).square().sum())
    assert any("near" in name for name in grads)


@pytest.mark.parametrize("attention", [NEAR, rules(causal()(V.I, V.J))], ids=["graph", "program"])
def test_autocast(attention):
    model = hf.use(models.built(models.llama, torch.float32), attention)
    wanted = hidden(model, tokens())
    with torch.autocast("cpu", torch.bfloat16):
        out = hidden(model, tokens())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), wanted, atol=0.05, rtol=0.1)
    out.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_what_the_model_used_before_makes_no_difference(name):
    model = models.built(models.llama)
    model.set_attn_implementation(name)
    wanted = hidden(plain(model, NEAR), tokens())
    torch.testing.assert_close(hidden(hf.use(model, NEAR), tokens()), wanted)
    assert hf.restore(model).config._attn_implementation == name


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo's, where a graph is cut
def test_compiled_with_relations():
    model = hf.use(of_kind("BertModel", num_hidden_layers=1), SAME)
    fast = torch.compile(model, backend="eager")
    speaker = tokens() % 3
    torch.testing.assert_close(
        hidden(fast, tokens(), speaker=speaker), hidden(model, tokens(), speaker=speaker)
    )


def test_a_full_graph_is_refused_with_the_reason():
    model = torch.compile(hf.use(models.built(models.llama), NEAR), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="compile without `fullgraph=True`"):
        model(tokens())


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_compiled_generation():
    model = hf.use(models.built(models.llama), NEAR)
    how = {"max_new_tokens": 3, "do_sample": False}
    wanted = model.generate(tokens(), **how)
    model.forward = torch.compile(model.forward, backend="eager")
    assert torch.equal(model.generate(tokens(), cache_implementation="static", **how), wanted)

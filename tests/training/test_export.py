"""Runs in the formats of others, and what is measured on them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import copied, run_of, trained

from edgewise import EdgewiseError, zoo
from edgewise.training.runs.exporting import export, push
from edgewise.training.runs.onnx import _Named

KINDS = ("generate", "classify", "translate")


def outputs(folder: Path) -> torch.Tensor:
    run = zoo.from_pretrained(folder)
    inputs = _Named(run).example(2, 8)
    with torch.no_grad():
        return _Named(run)(*inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_safetensors_hold_every_model(kind: str, tmp_path: Path) -> None:
    said = export(run_of(kind), "safetensors", tmp_path / "out")
    assert "from_pretrained" in said
    assert torch.equal(outputs(tmp_path / "out"), outputs(run_of(kind)))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    wanted = {"config.json", "rules.txt", "tokenizer.json", "model.safetensors"}
    assert names == wanted | {"README.md", "recipe.toml"}
    export(run_of(kind), "safetensors", tmp_path / "out")  # replaces its own export


@pytest.mark.parametrize("kind", ["generate", "subwords"])
def test_transformers_reads_a_gpt(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    run = zoo.from_pretrained(run_of(kind), dtype=torch.float64)
    run.save_pretrained(tmp_path / "model")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", dtype=torch.float64
    )
    tokens = torch.randint(
        run.config.vocabulary, (2, 8), generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, run.module(tokens), rtol=0, atol=1e-12)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer("to be, that")["input_ids"] == run.rows(["to be, that"])[0]
    assert tokenizer.decode(run.rows(["to be, that"])[0]) == "to be, that"
    again = zoo.from_pretrained(tmp_path / "model", dtype=torch.float64)
    assert again.generate("to be", most=3) == run.generate("to be", most=3)


def test_a_gpt_is_exported_in_the_layout_of_transformers(tmp_path: Path) -> None:
    assert "transformers reads it" in export(run_of("generate"), "hf", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "graph ," not in card  # what is as in the paper is not listed
    table = json.loads((tmp_path / "out" / "config.json").read_text())
    assert table["eos_token_id"] is table["bos_token_id"] is None  # not GPT-2's 50256
    read = zoo.from_pretrained(tmp_path / "out")
    size = sum(weight.numel() for weight in read.weights.values())
    assert repr(read) == f"Pretrained(GPT2LMHeadModel, logits, {size:,} weights)"
    read.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["eos_token_id"] is None
    sparse = {"size = 8\n": 'size = 8\ngraph = "window(2)"\ndropout = 0.1\n'}
    run = trained(tmp_path, "generate", **sparse)
    assert "cannot express `graph`" in export(run, "hf", tmp_path / "sparse")
    assert zoo.from_pretrained(tmp_path / "sparse").generate("to", most=9)


def test_without_a_layout_the_folder_is_ours(tmp_path: Path) -> None:
    said = export(run_of("classify"), "hf", tmp_path / "out")
    assert "no layout of a `classifier`" in said
    assert "transformers does not" in said
    assert zoo.from_pretrained(tmp_path / "out").classify(["a fine film"])


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_a_gpt_without_some_heads_has_no_layout(kind: str, tmp_path: Path) -> None:
    zoo.from_pretrained(run_of("subwords")).prune({0: [1]}).save(tmp_path / "small")
    if kind == "gguf":
        with pytest.raises(EdgewiseError, match="no pruned heads") as found:
            export(tmp_path / "small", "gguf", tmp_path / "small.gguf")
        assert found.value.code == "not-exportable"
        assert not list(tmp_path.glob("*.gguf"))
        return
    said = export(tmp_path / "small", "hf", tmp_path / "out")
    assert "no pruned heads" in said
    assert "transformers does not" in said
    assert push(tmp_path / "small", tmp_path / "hub") == said
    assert torch.equal(outputs(tmp_path / "out"), outputs(tmp_path / "small"))


def test_onnx_gives_equal_outputs(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    sparse = {"size = 8\n": 'size = 8\ngraph = ["window(2)", "strided(3)"]\n'}
    run = trained(tmp_path, "generate", **sparse)
    export(run, "onnx", tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    tokens = torch.randint(10, (1, 8), generator=torch.Generator().manual_seed(0))
    model = zoo.from_pretrained(run).module
    for rows in (tokens, tokens[:, :1], tokens.reshape(2, 4), tokens.repeat(3, 1)[:, :5]):
        (found,) = session.run(None, {"token": rows.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(found, model(rows).numpy(), atol=1e-6)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument):
        session.run(None, {"token": tokens.repeat(1, 2).numpy()})  # longer than the context


@pytest.mark.parametrize("kind", ["classify", "translate", "embed"])
def test_onnx_reads_texts_of_any_length(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    said = export(run_of(kind), "onnx", tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    module = _Named(zoo.from_pretrained(run_of(kind)))
    lengths = (3, 8) if "of up to" in said else (8,)
    for n in lengths:
        inputs = module.example(2, n)
        named = zip(module.program.inputs, (x.numpy() for x in inputs), strict=True)
        (found,) = session.run(None, dict(named))
        with torch.no_grad():
            np.testing.assert_allclose(found, module(*inputs).numpy(), atol=1e-5)


@pytest.mark.parametrize(("kind", "graph"), [("classify", "window(1)"), ("translate", "causal()")])
def test_onnx_along_a_graph_ignores_padding(kind: str, graph: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    run = trained(tmp_path, kind, **{"layers = 1": f'layers = 1\ngraph = "{graph}"'})
    export(run, "onnx", tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    module = _Named(zoo.from_pretrained(run))
    names, inputs = list(module.program.inputs), module.example(2, 7)
    mask = inputs[names.index("mask")]
    mask[1, 3:] = 0
    if "share" in names:
        inputs[names.index("share")] = mask / mask.sum(1, keepdim=True)
    for x in inputs:
        if not x.is_floating_point():
            x.copy_(torch.arange(x.numel()).reshape(x.shape) % module.words)
    (found,) = session.run(None, dict(zip(names, (x.numpy() for x in inputs), strict=True)))
    with torch.no_grad():
        np.testing.assert_allclose(found, module(*inputs).numpy(), atol=1e-5)


def test_onnx_of_a_graph_that_depends_on_the_length(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    random = {"size = 8\n": 'size = 8\ngraph = "random_edges(2, seed=1)"\n'}
    run = trained(tmp_path, "generate", **random)
    assert "texts of 8 tokens" in export(run, "onnx", tmp_path / "model.onnx")


def test_gguf_holds_a_llama(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({a: k for k, a in enumerate([*letters, "to"])}, [("t", "o")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    config = zoo.llama.Config(260, 16, heads=4, hidden=24, layers=2, length=32, groups=2, d=4)
    weights = zoo.llama.program(config).weights(seed=0, dtype=torch.float32)
    how = {"tokenizer": tokenizer, "tokens": {"eos_token_id": 3}}
    zoo.save_pretrained(tmp_path / "model", zoo.llama, config, weights, **how)
    export(tmp_path / "model", "gguf", tmp_path / "model.gguf")
    ours, found = (zoo.from_pretrained(tmp_path / name) for name in ("model", "model.gguf"))
    assert found.table["eos_token_id"] == 3
    assert found.tokenizer.encode("to be é").ids == tokenizer.encode("to be é").ids
    assert ours.generate("to be", most=8) == found.generate("to be", most=8)
    for name, weight in ours.weights.items():
        assert torch.equal(weight, found.weights[name])


def test_gguf_holds_a_gpt(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    transformers = pytest.importorskip("transformers")
    run = zoo.from_pretrained(run_of("subwords"))
    assert "GELU by tanh" in export(run_of("subwords"), "gguf", tmp_path / "model.gguf")
    export(run_of("subwords"), "hf", tmp_path / "model")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, 1)
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    found = {tensor.name: torch.tensor(tensor.data) for tensor in reader.tensors}
    for name, weight in theirs.items():
        if name != "lm_head.weight":  # tied
            turned = weight.t() if ".c_" in name and weight.ndim == 2 else weight
            assert torch.equal(found.pop(names.get_name(name, (".weight", ".bias"))), turned)
    assert not found
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "gpt2"
    assert fields["gpt2.context_length"] == 8
    assert fields["tokenizer.ggml.tokens"][5] == run.tokenizer.id_to_token(5)
    assert fields["tokenizer.ggml.eos_token_id"] == run.tokenizer.token_to_id("<end>")
    ours, again = (
        zoo.from_pretrained(tmp_path / "model"),
        zoo.from_pretrained(tmp_path / "model.gguf"),
    )
    assert (again.config.size, again.config.heads, again.config.layers) == (8, 2, 1)
    assert again.table["eos_token_id"] == fields["tokenizer.ggml.eos_token_id"]
    assert again.tokenizer.encode("to be").ids == ours.tokenizer.encode("to be").ids
    assert again.weights.keys() == ours.weights.keys()
    for name, weight in ours.weights.items():
        assert torch.equal(weight, again.weights[name]), name


@pytest.mark.parametrize(
    ("kind", "to", "out", "words"),
    [
        ("generate", "gguf", "model.gguf", "with a byte-level tokenizer"),
        ("classify", "gguf", "model.gguf", "no layout of a `classifier`"),
        ("generate", "gguf", "model", "not the name of a file in the format GGUF"),
        ("generate", "onnx", "model.bin", "the format ONNX"),
        ("recurrent", "onnx", "model.onnx", "a recurrent model cannot be written as ONNX"),
        ("generate", "onx", "model", "no format `onx`"),
        ("generate", "onnx", "no/such/model.onnx", "cannot be written"),
        ("generate", "hf", "no/such/model", "cannot be written"),
    ],
)
def test_what_cannot_be_exported_is_said(
    kind: str, to: str, out: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(EdgewiseError, match=words):
        export(run_of(kind), to, tmp_path / out)
    assert not list(tmp_path.iterdir())


def test_a_card_does_not_need_the_summary(tmp_path: Path) -> None:
    run = copied("generate", tmp_path)
    (run / "summary.json").write_text('{"steps": ')
    push(run, tmp_path / "hub")
    assert "At step 4" in (tmp_path / "hub" / "README.md").read_text()


def test_a_folder_for_the_hub_has_a_card(tmp_path: Path) -> None:
    for _ in range(2):  # the second replaces the first
        push(run_of("translate"), tmp_path / "hub", name="me/small")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: edgewise\npipeline_tag: translation\n")
    assert 'zoo.from_pretrained("me/small")' in card
    assert "test bleu" in card
    assert "encoder" in card
    assert "*.safetensors filter=lfs" in (tmp_path / "hub" / ".gitattributes").read_text()
    assert "checkpoints" not in {path.name for path in (tmp_path / "hub").iterdir()}
    assert zoo.from_pretrained(tmp_path / "hub").translate(["a dog"])
    (tmp_path / "hub" / "notes.txt").write_text("mine")
    with pytest.raises(EdgewiseError, match="would be lost"):
        push(run_of("translate"), tmp_path / "hub")


def test_a_run_has_a_card_of_its_results() -> None:
    card = (run_of("classify") / "README.md").read_text()
    summary = json.loads((run_of("classify") / "summary.json").read_text())
    assert f"| test accuracy | {summary['test accuracy']:.4f} |" in card
    assert "Classes: 0, 1." in card

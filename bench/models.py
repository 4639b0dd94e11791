"""Every Transformer of the zoo beside the implementation that it is equal to.

PYTHONPATH=src python bench/models.py [model ...] writes docs/models.md: rules, lines of the other
implementation, the largest difference of outputs in float64, and the time of a forward pass.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import models_papers
import torch
from measure import RESULTS, commit, machine, write

from edgewise import numbers, zoo
from edgewise.cli.models import rules_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
ROUNDS = 5
PAGE = Path(__file__).parents[1] / "docs" / "models.md"
SMALL = {"hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 40}
LARGE = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
TEXT = {"vocab_size": 5000, "max_position_embeddings": 520, "num_hidden_layers": 4}
RENAMED = {
    "DistilBert": {"hidden_size": "dim", "num_attention_heads": "n_heads",
                   "intermediate_size": "hidden_dim", "num_hidden_layers": "n_layers"},
    "GPT2": {"hidden_size": "n_embd", "num_attention_heads": "n_head",
             "intermediate_size": "n_inner", "num_hidden_layers": "n_layer",
             "max_position_embeddings": "n_positions"},
    "T5": {"hidden_size": "d_model", "num_attention_heads": "num_heads",
           "intermediate_size": "d_ff", "num_hidden_layers": "num_layers"},
}  # fmt: skip
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "BERT": ("BertModel", zoo.bert, {}),
    "RoBERTa": ("RobertaModel", zoo.bert, {}),
    "DistilBERT": ("DistilBertModel", zoo.bert, {}),
    "MPNet": ("MPNetModel", zoo.bert, {}),
    "Megatron-BERT": ("MegatronBertModel", zoo.megatron, {}),
    "GPT-2": ("GPT2LMHeadModel", zoo.gpt2, {"bos_token_id": 0, "eos_token_id": 0}),
    "Llama": ("LlamaForCausalLM", zoo.llama, {"num_key_value_heads": 2}),
    "T5": ("T5ForConditionalGeneration", zoo.t5, {"d_kv": 16}),
    "ViT": ("ViTForImageClassification", zoo.vit, {"image_size": 64, "patch_size": 8}),
    "Longformer": ("LongformerModel", zoo.longformer, {"attention_window": 32}),
    "BigBird": ("BigBirdModel", zoo.bigbird, {"block_size": 8, "num_random_blocks": 2}),
}
COUNTED = {
    "RoBERTa": zoo.bert.ROBERTA,
    "DistilBERT": zoo.bert.DISTILBERT,
    "MPNet": zoo.bert.MPNET,
    "Sparse Transformer": zoo.sparse.Config(layers=2),  # its two kinds of layers, each once
}


class KeepDouble(torch.overrides.TorchFunctionMode):
    """`transformers` computes norms, angles and softmaxes in float32: here they stay float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def kept(item):
            return torch.float64 if item is torch.float32 else item

        if function is torch.Tensor.float:
            return args[0].double()
        args = tuple(map(kept, args)) if isinstance(args, tuple) else args
        return function(*args, **{k: kept(v) for k, v in (kwargs or {}).items()})


def theirs(name: str, sizes: dict[str, int], extra: dict[str, Any]) -> Any:
    family = name.partition("Model")[0].partition("For")[0].partition("LMHead")[0]
    given = {**sizes, **extra}
    if family == "ViT":
        given = {
            k: v for k, v in given.items() if k not in ("vocab_size", "max_position_embeddings")
        }
    if family == "T5":
        given.pop("max_position_embeddings")
    if family == "Llama":
        given["num_attention_heads"] = 4 if given["hidden_size"] == 24 else 6
    if family == "Longformer":
        given["attention_window"] = [extra["attention_window"]] * sizes["num_hidden_layers"]
    renamed = {RENAMED.get(family, {}).get(k, k): v for k, v in given.items()}
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**renamed)
    return getattr(transformers, name)(config).eval()


def ours(model: Any, dtype: torch.dtype) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return zoo.from_pretrained(folder, dtype=dtype)


def called(name: str, found: Any, batch: int, n: int, dtype: torch.dtype) -> tuple[Any, Any]:
    """Two functions without arguments that compute the same: theirs of a model, and ours."""
    torch.manual_seed(1)
    relation = "out" if found.output in ("embedding", "out") else "logits"
    model = found.compile(relation)
    if name.startswith("ViT"):
        pixel = torch.randn(batch, 3, 64, 64, dtype=dtype)
        inputs = {"pixel": pixel[..., None]}
        return lambda m: m(pixel_values=pixel).logits, lambda: model(**inputs)
    token = torch.randint(3, 5000, (batch, n))
    mask = torch.ones_like(token)
    if name.startswith("T5"):
        inputs = {
            "source": numbers(token), "mask": mask.to(dtype)[..., None], "target": numbers(token),
        }  # fmt: skip
        return (
            lambda m: m(input_ids=token, attention_mask=mask, decoder_input_ids=token).logits,
            lambda: model(**inputs),
        )
    known = {
        "token": numbers(token), "mask": mask.to(dtype)[..., None],
        "segment": numbers(torch.zeros_like(token)),
    }  # fmt: skip
    inputs = {k: known[k] for k in model.inputs}
    more = {}
    if name.startswith("Longformer"):
        more["global_attention_mask"] = (torch.arange(n) == 0).long().expand(batch, n)

    def run(m: Any) -> torch.Tensor:
        if name.startswith("BigBird"):
            m.set_attention_type("block_sparse")
        out = m(token, attention_mask=mask, **more)
        return out.logits if relation == "logits" else out.last_hidden_state

    return run, lambda: model(**inputs)


def measured(title: str) -> dict[str, Any]:
    name, module, extra = CASES[title]
    small = theirs(name, {**TEXT, **SMALL, "num_hidden_layers": 2}, extra).double()
    found = ours(small, torch.float64)
    run, mine = called(name, found, 2, 101, torch.float64)
    if title == "Llama":  # their speeds of rotation are stored in float32
        rotary = small.model.rotary_emb
        with KeepDouble():
            rotary.inv_freq = rotary.compute_default_rope_parameters(rotary.config)[0].double()
    with torch.no_grad(), KeepDouble():
        expected = run(small)
    error = (mine() - expected).abs().max().item()
    large = theirs(name, {**TEXT, **LARGE}, extra)
    run, mine = called(name, ours(large, torch.float32), 4, 256, torch.float32)
    a, b = alternately(mine, lambda: run(large))
    file = Path(inspect.getfile(type(large)))
    lines = sum(bool(line.strip()) for line in file.read_text().splitlines())
    reference = f"{file.name} of transformers {transformers.__version__}"
    return row(title, module, found.program, reference, lines, error, a, b)


def measured_by_equations(title: str) -> dict[str, Any]:
    """A model without a layout of checkpoints: beside `transformers`, or the torch of tests."""
    module, config, mine, run, code = models_papers.CASES[title](False, torch.float64)
    with torch.no_grad(), KeepDouble():
        expected = run()
    error = (mine() - expected).abs().max().item()
    program = module.program(config)
    _, _, mine, run, _ = models_papers.CASES[title](True, torch.float32)
    a, b = alternately(mine, run)
    file, lines = models_papers.lines(code)
    library = "" if "/" in file else f" of transformers {transformers.__version__}"
    return row(title, module, program, file + library, lines, error, a, b)


def alternately(ours: Any, theirs: Any) -> tuple[float, float]:
    """Process time of both, the least of several runs in turn."""
    taken: tuple[list[float], list[float]] = ([], [])
    with torch.inference_mode():
        for _ in range(3):  # the second call writes the step down, later ones run it
            ours()
        theirs()
        for _ in range(ROUNDS):
            for run, times in ((ours, taken[0]), (theirs, taken[1])):
                start = time.process_time()
                run()
                times.append(time.process_time() - start)
    return min(taken[0]), min(taken[1])


def row(
    title: str, module: Any, program: Any, reference: str, lines: int, error: float,
    ours: float, theirs: float,
) -> dict[str, Any]:  # fmt: skip
    return {
        "model": title,
        "module": module.__name__.rpartition(".")[2],
        "rules": rules_of(program),
        "reference": reference,
        "lines": lines,
        "largest difference": error,
        "ours ms": round(1e3 * ours, 1),
        "theirs ms": round(1e3 * theirs, 1),
        "load": round(os.getloadavg()[0], 1),
        "commit": commit(),
    }


def page(rows: list[dict[str, Any]], where: dict[str, Any]) -> str:
    loads = [r["load"] for r in rows]
    commits = sorted({r["commit"] for r in rows})
    head = [
        "# Models",
        "",
        "Models as rules, each compared with a reference implementation: the number of rules "
        "(those of a repeated layer once, of the Sparse Transformer's two kinds of layers each "
        "once), the non-blank lines of the other implementation, the largest difference of "
        "outputs in float64, and the time of a forward pass of 4 texts of 256 tokens through 4 "
        "layers of 384, ours over theirs. † Plain torch in `tests/zoo`, written from the equations "
        "of the paper for clarity, not speed. BP-Transformer is timed on one text, the recurrent "
        "model on 64 tokens.",
        "",
        f"{where['hardware']}, one thread, process time, alternating runs, load {min(loads):.0f} "
        f"to {max(loads):.0f}, torch {torch.__version__}, commit {' and '.join(commits)}; made by "
        "`bench/models.py`. Gradients of all weights are compared in `tests/zoo`.",
        "",
        "| model | rules | lines elsewhere | difference | time |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    body = [
        f"| {r['model']} (`zoo.{r['module']}`) | {counted(r['model'], r['module'])} | "
        f"{r['lines']:,}"
        f"{' †' * r['reference'].startswith('tests')} | "
        f"{r['largest difference']:.0e} | {r['ours ms'] / r['theirs ms']:.2f}× |"
        for r in rows
    ]
    return "\n".join([*head, *body, "", *others({r["module"] for r in rows}), ""])


def counted(title: str, name: str) -> int:
    """The rules of a model as it is now; those of the results are of the commit of its times."""
    module = getattr(zoo, name)
    return rules_of(module.program(COUNTED.get(title, module.Config())))


def others(measured: set[str]) -> list[str]:
    """The models of the zoo that the table does not have, with what tests compare them to."""
    lines = [
        "The other models of the zoo; some graph networks are timed in "
        "[benchmarks](benchmarks.md). What each is equal to is tested in `tests/zoo` and "
        "`tests/parity`.",
        "",
        "| model | rules | equal to |",
        "| --- | ---: | --- |",
    ]
    for module in zoo.MODELS:
        name = module.__name__.rpartition(".")[2]
        if name not in measured:
            text = inspect.getdoc(module) or ""
            title = text.splitlines()[0].partition(":")[0].rstrip(".")
            equal = re.search(r"Parity: (.*?)[.;](?: |$)", " ".join(text.split()))
            lines.append(
                f"| {title} (`zoo.{name}`) | {counted(title, name)} | {equal[1] if equal else ''} |"
            )
    return lines


def main() -> None:
    torch.set_num_threads(1)
    every = [*CASES, *models_papers.CASES]
    kept = {r["model"]: r for r in json.loads((RESULTS / "models.json").read_text())["results"]}
    for title in sys.argv[1:] or every:
        kept[title] = measured(title) if title in CASES else measured_by_equations(title)
        print(kept[title], flush=True)
        rows = [kept[name] for name in every if name in kept]
        write("models", rows)
        PAGE.write_text(page(rows, machine()), encoding="utf-8")


if __name__ == "__main__":
    main()

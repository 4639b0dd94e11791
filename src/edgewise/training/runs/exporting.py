"""A run in the formats of others: a folder for transformers or for the hub, GGUF, ONNX."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgewise.errors import EdgewiseError, caller, suggest
from edgewise.graphs import causal, parse
from edgewise.training.errors import NotExportable
from edgewise.training.models.language import Gpt
from edgewise.training.runs import model_files
from edgewise.training.runs.card import CARD, card
from edgewise.training.runs.folder import RECIPE
from edgewise.training.runs.onnx import to_onnx
from edgewise.training.runs.run import Run
from edgewise.zoo import gpt2
from edgewise.zoo.pretrained import MODEL_TYPES, Pretrained, from_pretrained, save_pretrained
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.files import new_folder
from edgewise.zoo.pretrained.gguf_writing import write_gguf
from edgewise.zoo.pretrained.saving import check_saved
from edgewise.zoo.pretrained.tensors import shapes_of

MODEL = (model_files.CONFIG, model_files.RULES, model_files.TOKENIZER, model_files.WEIGHTS)
BESIDE = (RECIPE, "summary.json", "metrics.jsonl", "loss.png")  # what a reader of a card looks at
ATTRIBUTES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"


def export(folder: str | Path, to: str, out: str | Path) -> str:
    """Write the model of a run or of a checkpoint in another format; returns what was written.

    `to` is "hf", "safetensors", "gguf" or "onnx". A model without a layout in transformers is
    written for "hf" as for "safetensors": rules, weights and tokenizer, which `from_pretrained`
    reads.

    >>> from edgewise import training
    >>> recipe = training.load("recipe.toml")
    >>> _ = list(training.train(recipe, "run"))
    >>> _ = training.export("run", "safetensors", "out")
    >>> Path("out").exists()
    True
    """
    if to not in FORMATS:
        raise NotExportable(f"there is no format `{to}`", caller(), suggest(to, list(FORMATS)))
    folder, out = Path(folder), Path(out)
    try:
        return FORMATS[to](folder, from_pretrained(folder), out)
    except OSError as problem:
        what = f"`{out}` cannot be written: {problem.strerror or problem}"
        raise NotExportable(what, caller(), "choose another place") from None


def push(folder: str | Path, to: str | Path, *, name: str | None = None) -> str:
    """Prepare a folder for the hub: the model, its card and what was measured. Nothing is sent.

    >>> from edgewise import training
    >>> recipe = training.load("recipe.toml")
    >>> _ = list(training.train(recipe, "run"))
    >>> _ = training.push("run", "card", name="tiny")
    >>> Path("card/README.md").exists()
    True
    """
    folder, to = Path(folder), Path(to)
    run = from_pretrained(folder)
    if not isinstance(run, Run):
        what = f"`{folder}` is a checkpoint of {run.architecture}, not a run"
        raise NotExportable(what, caller(), "upload its folder as it is")
    with new_folder(to) as made:
        said = _hugging_face(folder, run, made, name=name or to.absolute().name)
        for beside in BESIDE:
            if (folder / beside).is_file():
                shutil.copyfile(folder / beside, made / beside)
        (made / ".gitattributes").write_text(ATTRIBUTES, encoding="utf-8")
    return said


def _to_hugging_face(folder: Path, model: Pretrained, out: Path) -> str:
    if not isinstance(model, Run):
        model.save_pretrained(out)
        return f"{model.architecture}: transformers reads it"
    with new_folder(out) as made:
        return _hugging_face(folder, model, made, name=out.absolute().name)


def _hugging_face(folder: Path, run: Run, made: Path, *, name: str) -> str:
    """Fill a folder in a layout of transformers, or else in ours, and say which."""
    why = no_layout(run)
    if why is None:
        save_run(run, made / "model")
        for path in (made / "model").iterdir():
            path.rename(made / path.name)
        (made / "model").rmdir()
        said = "GPT2LMHeadModel: transformers reads it"
    else:
        _copy(folder, made)
        said = f"{why}: `zoo.from_pretrained` reads the folder, transformers does not"
    text = card(folder, name=name, transformers=why is None)
    (made / CARD).write_text(text, encoding="utf-8")
    return said


def _to_safetensors(folder: Path, model: Pretrained, out: Path) -> str:
    if not isinstance(model, Run):
        model.save_pretrained(out)
        return f"{model.architecture}: one file of safetensors"
    with new_folder(out) as made:
        _copy(folder, made)
        (made / CARD).write_text(card(folder, name=out.absolute().name), encoding="utf-8")
    return "weights, rules and tokenizer: `zoo.from_pretrained` reads the folder"


def _copy(folder: Path, made: Path) -> None:
    for name in (*MODEL, RECIPE):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, made / name)


def _to_gguf(folder: Path, model: Pretrained, out: Path) -> str:
    _check_file(out, ".gguf")
    try:
        return write_gguf(_as_gpt2(model) if isinstance(model, Run) else model, out)
    except BadPretrained as problem:
        raise NotExportable(problem.message, caller(), problem.help) from None


def _to_onnx(folder: Path, model: Pretrained, out: Path) -> str:
    _check_file(out, ".onnx")
    return to_onnx(model, out)


def _check_file(out: Path, suffix: str) -> None:
    if out.suffix != suffix or out.is_dir():
        what = f"`{out}` is not the name of a file in the format {suffix[1:].upper()}"
        raise NotExportable(what, caller(), f"end it in {suffix}")
    if not out.absolute().parent.is_dir():
        what = f"`{out}` cannot be written: no such folder"
        raise NotExportable(what, caller(), f"make it: mkdir -p {out.parent}")


FORMATS: dict[str, Callable[[Path, Pretrained, Path], str]] = {
    "hf": _to_hugging_face,
    "safetensors": _to_safetensors,
    "gguf": _to_gguf,
    "onnx": _to_onnx,
}


def no_layout(run: Run) -> str | None:
    """Why no architecture of transformers is this model, if none is."""
    if not isinstance(run.config.model, Gpt):
        return f"transformers has no layout of a `{run.architecture}`"
    try:
        check_saved(MODEL_TYPES["gpt2"], LAYOUT, _sizes(run))
    except EdgewiseError as problem:
        return problem.message
    if shapes_of(gpt2.program(_sizes(run))) != shapes_of(run.program):
        return "the layout of `gpt2` in transformers has no pruned heads"
    return None


LAYOUT = "GPT2LMHeadModel"
WRITES_ALL = "`--to safetensors` writes every model"


def _sizes(run: Run) -> gpt2.Config:
    """The configuration without dropout, which a trained model does not have."""
    config: gpt2.Config = run.config.model.sizes(run.config.vocabulary, run.config.length)
    all_earlier = isinstance(config.graph, str) and parse(config.graph) == causal()
    graph = None if all_earlier else config.graph  # as GPT-2 has it anyway
    return replace(config, dropout=0.0, attention_dropout=None, graph=graph)


def _as_gpt2(run: Run) -> Pretrained:
    """A GPT of ours as the checkpoint of GPT-2 that it is."""
    why = no_layout(run)
    if why is not None:
        raise NotExportable(f"GGUF has no layout of the model: {why}", caller(), WRITES_ALL)
    config, spec = _sizes(run), MODEL_TYPES["gpt2"]
    weights = {n: p.detach() for n, p in run.model.named_parameters()}
    how: Any = {"tokenizer": run.tokenizer, "table": run.table}
    return Pretrained(spec, LAYOUT, config, gpt2.program(config), weights, **how)


def save_run(run: Run, path: Path) -> None:
    """Write a GPT as `GPT2LMHeadModel`, with its tokenizer."""
    why = no_layout(run)
    if why is not None:
        raise NotExportable(why, caller(), WRITES_ALL)
    end = run.table["tokens"].get("end")
    tokens = {"bos_token_id": end, "eos_token_id": end}  # null, or transformers takes GPT-2's
    weights = {n: p.detach() for n, p in run.model.named_parameters()}
    how: Any = {"tokenizer": run.tokenizer, "tokens": tokens}
    save_pretrained(path, gpt2, _sizes(run), weights, **how)
    if run.tokenizer is not None:
        table: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "model_max_length": run.config.length,
        }
        if end is not None:
            table["eos_token"] = run.tokenizer.id_to_token(end)
        text = json.dumps(table, indent=2, ensure_ascii=False) + "\n"
        (path / "tokenizer_config.json").write_text(text, encoding="utf-8")

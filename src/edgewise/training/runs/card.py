"""The model card of a run: what it is, how it is used, how it was trained, what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgewise.save.archive import write
from edgewise.training.runs.folder import RECIPE, rows

CARD = "README.md"
HUB = {  # the task of a run in the words of the hub
    "generate": "text-generation",
    "translate": "translation",
    "classify": "text-classification",
    "embed": "feature-extraction",
    "parse": "token-classification",
    "predict": "graph-ml",
}
CALLS = {  # how a model of each task is used: in Python, and from a shell
    "generate": ('generate("{text}", most=50)', '"{text}"'),
    "translate": ('translate(["{text}"])', '"{text}"'),
    "classify": ('classify(["{text}"])', '"{text}"'),
    "embed": ('embed(["{text}"])', '"{text}"'),
    "parse": ('parse(["{text}"])', '"{text}"'),
}
TEXTS = {
    "generate": "To be",
    "translate": "a man walks",
    "classify": "a fine film",
    "embed": "be",
    "parse": "a man walks",
}
LONGEST_RULES = 6000  # characters of rules that a card shows


def write_card(folder: Path) -> None:
    """Write the card of a run into its folder."""
    write(folder / CARD, card(folder).encode())


def card(folder: Path, *, name: str | None = None, transformers: bool = False) -> str:
    """The card from the files of a run, for its own folder or one that `transformers` reads."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    recipe = (folder / RECIPE).read_text(encoding="utf-8") if (folder / RECIPE).is_file() else ""
    title = name or folder.absolute().name
    parts = [
        _front(config, transformers),
        f"# {title}",
        _what(config, folder),
        _use(config, title, transformers),
        _measured(folder),
        _rules(folder),
        f"## Recipe\n\n`edgewise train {RECIPE} --data FOLDER` repeats the run; its data is in the "
        f"folder.\n\n```toml\n{recipe.strip()}\n```"
        if recipe
        else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front(config: dict[str, Any], transformers: bool) -> str:
    lines = [
        f"library_name: {'transformers' if transformers else 'edgewise'}",
        f"pipeline_tag: {HUB[config['task']]}",
        "tags:",
        "- edgewise",
        f"- {config['model']['kind']}",
    ]
    return "\n".join(["---", *lines, "---"])


def _what(config: dict[str, Any], folder: Path) -> str:
    options = ", ".join(
        f"{key} {_shown(value)}"
        for key, value in config["model"].items()
        if key != "kind" and value not in ("", None)  # empty: as in the paper
    )
    words = config["sizes"].get("words")
    vocabulary = f"a vocabulary of {words:,} tokens; " if words else ""
    labels = config.get("labels")
    more = f" Classes: {', '.join(labels)}." if labels else ""
    size = _summary(folder).get("parameters")
    weights = f"{size:,} weights, " if isinstance(size, int) else ""
    return (
        f"A `{config['model']['kind']}` trained with [Edgewise](https://pypi.org/project/edgewise) "
        f"{config['edgewise']}: {weights}{vocabulary}{options}.{more}"
    )


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).strip('"')


def _use(config: dict[str, Any], title: str, transformers: bool) -> str:
    task = config["task"]
    if task == "predict":
        python = f'from edgewise import training\n\nprint(next(training.predict("{title}")))'
        shell = f'edgewise predict {title}\nedgewise why {title} "logits(0)"'
        return f"## Use\n\n```python\n{python}\n```\n\n```sh\n{shell}\n```"
    python, shell = (call.format(text=TEXTS[task]) for call in CALLS[task])
    lines = [
        "## Use",
        f'```python\nfrom edgewise import zoo\n\nmodel = zoo.from_pretrained("{title}")\n'
        f"print(model.{python})\n```",
        f"```sh\nedgewise {task} {title} {shell}\n```",
    ]
    if transformers:
        lines.append(
            "It is in GPT-2's layout, without code of its own:\n\n```python\n"
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            f'model = AutoModelForCausalLM.from_pretrained("{title}")\n'
            f'tokenizer = AutoTokenizer.from_pretrained("{title}")\n```'
        )
    return "\n\n".join(lines)


def _summary(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError:
        found = {}  # damaged: the card says what the metrics say
    return found if isinstance(found, dict) else {}


def _measured(folder: Path) -> str:
    summary = _summary(folder)
    if summary:
        lead = f"After {summary.get('steps', 0):,} steps."
    else:
        measured = [row for row in rows(folder / "metrics.jsonl") if "validation loss" in row]
        if not measured:
            return "## Results\n\nNothing was measured yet."
        summary = measured[-1]
        lead = f"At step {summary['step']:,}; the run is not finished."
    table = [f"| {name} | {value:.4f} |" for name, value in summary.items() if type(value) is float]
    picture = "\n\n![loss](loss.png)" if (folder / "loss.png").is_file() else ""
    return "\n".join([f"## Results\n\n{lead}\n", "| | |", "| --- | --- |", *table]) + picture


def _rules(folder: Path) -> str:
    path = folder / "rules.txt"
    text = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    if not text:
        return ""
    shown = text if len(text) <= LONGEST_RULES else text[:LONGEST_RULES].rpartition("\n")[0]
    more = "" if shown == text else "\n\nThe rest is in `rules.txt`."
    return f"## Rules\n\nThe model is these rules.\n\n```prolog\n{shown}\n```{more}"

"""`edgewise prune`: a model without its least important attention heads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.checkpoint import Json, Model, json_line, opened, read_texts
from edgewise.errors import Span, suggest

if TYPE_CHECKING:
    from edgewise.zoo.pretrained import Pretrained


def prune(
    model: Model,
    data: Annotated[
        Path,
        typer.Option(
            help="texts, one per line; of a classifier each with a tab and its label after it"
        ),
    ],
    out: Annotated[Path, typer.Option(help="the folder to write")],
    keep: Annotated[float, typer.Option(help="the share of heads that stays")] = 0.5,
    method: Annotated[
        str, typer.Option(help="gradient: of a gate of each head; ablation: the loss without it")
    ] = "gradient",
    as_json: Json = False,
) -> None:
    """Write a smaller model, without the heads that matter least for texts."""
    from edgewise.pruning import importance
    from edgewise.pruning import prune as pruned

    found = opened(model)
    samples = _samples(found, read_texts([], data), data)
    scores = importance(found, samples, method=method)
    heads = scores.least(keep=keep)
    small = pruned(found, heads)
    _write(small, out)
    before, after = (sum(w.numel() for w in m.weights.values()) for m in (found, small))
    if as_json:
        said = {"pruned": {str(layer): some for layer, some in heads.items()}}
        typer.echo(json_line(**scores.json(), **said, weights=[before, after], out=str(out)))
        return
    typer.echo(repr(scores))
    for layer, some in heads.items():
        typer.echo(f"layer {layer}: without {', '.join(map(str, some))}")
    typer.echo(f"{out}: {after:,} of {before:,} weights")


def _samples(model: "Pretrained", lines: list[str], file: Path) -> list[Any]:
    """Texts, or texts with the numbers of their labels."""
    from edgewise.pruning.errors import BadImportance

    if model.output != "classes" and getattr(model, "task", "") != "classify":
        return list(lines)
    names = {str(k): v for k, v in (model.table.get("id2label") or {}).items()}
    labels = list(getattr(model, "labels", ())) or [names[k] for k in sorted(names, key=int)]
    found: list[Any] = []
    for number, line in enumerate(lines, 1):
        text, _, label = line.rpartition("\t")
        if label not in labels:
            raise BadImportance(
                f"line {number} has the label `{label[:40]}`",
                Span.of("<file>", file),
                suggest(label, labels, f"labels are {', '.join(labels[:8])}"),
            )
        found.append((text, labels.index(label)))
    return found


def _write(model: "Pretrained", out: Path) -> None:
    save = getattr(model, "save", None) or model.save_pretrained
    save(out)

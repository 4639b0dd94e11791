"""`edgewise models`: the models of the zoo as rules, and the checkpoints that can be fetched."""

import inspect
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.errors import EdgewiseError, Span, suggest

if TYPE_CHECKING:
    from edgewise.language.program import Program


class UnknownModel(EdgewiseError):
    """The zoo holds models by name; `edgewise models` lists them."""

    code = "unknown-model"
    example = """\
from edgewise.cli.models import models
models("brt")"""
    instead = """\
from edgewise.cli.models import models
models("gcn")"""


def models(
    name: Annotated[str | None, typer.Argument(help="a model to print, such as bert")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List models and checkpoints, or print one model as rules."""
    from edgewise.zoo.pretrained import cached
    from edgewise.zoo.pretrained.fetch import SOURCES

    if name is not None:
        print(f"{inspect.getdoc(_model(name))}\n\n{_model(name).program(_model(name).Config())}")
        return
    found = [_row(key, model) for key, model in _names().items()]
    ready = [
        {"name": key, "what": s.what, "megabytes": s.megabytes, "fetched": cached(key) is not None}
        for key, s in SOURCES.items()
    ]
    if as_json:
        print(json.dumps({"models": found, "checkpoints": ready}, indent=1, ensure_ascii=False))
        return
    print("models                 rules  reads checkpoints of")
    for row in found:
        print(f"{row['name']:<22} {row['rules']:>5}  {', '.join(row['model_types'])}")
    print("\ncheckpoints            MB     what")
    for one in ready:
        print(f"{one['name']:<22} {one['megabytes']:>5}  {one['what']}")


def _names() -> dict[str, Any]:
    from edgewise.zoo import MODELS

    return {model.__name__.rpartition(".")[2]: model for model in MODELS}


def _model(name: str) -> Any:
    known = _names()
    if name not in known:
        raise UnknownModel(
            f"there is no model `{name}`",
            Span.of("<model>", name),
            suggest(name, list(known)),
        )
    return known[name]


def _row(name: str, model: Any) -> dict[str, Any]:
    from edgewise.zoo.pretrained import MODEL_TYPES

    types = [spec.MODEL_TYPE for spec in MODEL_TYPES.values() if spec.MODEL is model]
    return {"name": name, "rules": rules_of(model.program(model.Config())), "model_types": types}


def rules_of(program: "Program") -> int:
    """The rules that a reader sees: those of a stack once."""
    return _count(program.statements)


def _count(statements: Any) -> int:
    from edgewise.language.nodes import Stack

    return sum(_count(s.statements) if isinstance(s, Stack) else 1 for s in statements)

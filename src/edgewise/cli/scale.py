"""`edgewise scale`: what a pattern or a model would need on many ranks."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.errors import EdgewiseError, Span, suggest

if TYPE_CHECKING:
    from edgewise.distributed.model_scale import ModelScale
    from edgewise.language import Program


class NotScalable(EdgewiseError):
    """A pattern, or a model of the zoo whose tokens meet in attention, can be scaled."""

    code = "not-scalable"
    example = """\
from edgewise.cli.scale import scale
scale("gcn")"""
    instead = """\
from edgewise.cli.scale import scale
scale("window(3)", tokens=4096, ranks=8)"""


def scale(
    what: Annotated[
        str,
        typer.Argument(help='a pattern such as "window(256)", a model such as gpt2, or a recipe'),
    ],
    ranks: Annotated[int, typer.Option(help="number of ranks")] = 512,
    tokens: Annotated[int, typer.Option(help="number of tokens")] = 1 << 20,
    heads: Annotated[int, typer.Option(help="heads of a pattern")] = 8,
    key_heads: Annotated[int | None, typer.Option(help="heads of keys, if fewer")] = None,
    size: Annotated[int, typer.Option(help="features of a head of a pattern")] = 64,
    graph: Annotated[str | None, typer.Option(help="the pattern of a model's layers")] = None,
    vocabulary: Annotated[int, typer.Option(help="words of a recipe's model")] = 50_257,
    gigabytes: Annotated[
        list[float] | None,
        typer.Option(help="GB a second that a rank receives, 50 unless given; once for each"),
    ] = None,
    by_residue: Annotated[
        bool, typer.Option("--by-residue", help="tokens on ranks in the order that suits strides")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Compute memory, bytes by kind and time on many ranks, beside all-gather and Ulysses."""
    from edgewise.distributed import RowSizes, best_shards, communication
    from edgewise.graphs import Pattern, parse
    from edgewise.graphs.checks import integer
    from edgewise.zoo import MODELS

    for name, number in (("ranks", ranks), ("tokens", tokens), ("heads", heads), ("size", size)):
        integer(number, name, 1)
    integer(vocabulary, "vocabulary", 1)
    for rate in gigabytes or ():
        if not 0 < rate < float("inf"):
            place = Span.of("<gigabytes>", rate)
            raise NotScalable(f"a rank receives {rate} GB a second", place, "give more than 0")
    rates = [rate * 1e9 for rate in gigabytes or ()]
    names = {model.__name__.rpartition(".")[2]: model for model in MODELS}
    if what in names or what.endswith(".toml"):
        place = Span.of("<what>", what)
        rules = (
            _of_zoo(names[what], graph, place)
            if what in names
            else _of_recipe(what, graph, vocabulary, tokens, place)
        )
        found = _scaled(rules, tokens, ranks, place)
        print(json.dumps(found.to_json(), indent=1) if as_json else found.show(*rates))
        return
    pattern = parse(what) if "(" in what else None
    if not isinstance(pattern, Pattern):
        raise NotScalable(
            f"`{what}` is neither one pattern nor a model",
            Span.of("<what>", what),
            suggest(what, list(names)),
        )
    sizes = RowSizes(heads, key_heads, size)
    shards = best_shards(pattern, tokens, ranks) if by_residue else None
    plan = communication(pattern, tokens=tokens, ranks=ranks, sizes=sizes, shards=shards)
    print(json.dumps(plan.to_json(), indent=1) if as_json else plan.show(*rates))


HELP = "scale a decoder or an encoder, such as gpt2 or llama"


def _of_zoo(module: Any, graph: str | None, place: Span) -> "Program":
    """The rules of a model of the zoo."""
    if graph is not None and "graph" not in module.Config.__dataclass_fields__:
        raise NotScalable(
            f"`{place.text}` has no graph to choose: leave out `--graph`", place, HELP
        )
    config = module.Config() if graph is None else module.Config(graph=graph)
    return module.program(config)


def _of_recipe(
    path: str, graph: str | None, vocabulary: int, tokens: int, place: Span
) -> "Program":
    """The rules of a recipe's model, for texts of this many tokens."""
    from edgewise.training.models.language import LanguageTransformer
    from edgewise.training.recipe import load

    recipe = load(path, () if graph is None else [f"model.graph={json.dumps(graph)}"])
    if not isinstance(recipe.model, LanguageTransformer):
        raise NotScalable(f"the model of `{path}` is not one of texts", place, HELP)
    return recipe.model.program(vocabulary, tokens)


def _scaled(program: "Program", tokens: int, ranks: int, place: Span) -> "ModelScale":
    import torch

    from edgewise.distributed.errors import NotDistributed
    from edgewise.distributed.model_scale import scale
    from edgewise.inputs.kinds import numbers
    from edgewise.language import R

    heads = {rule.head.relation for rule in program.rules}
    output = next((one for one in ("logits", "out") if one in heads), None)
    if output is None:
        raise NotScalable(f"`{place.text}` is not a model of tokens", place, HELP)
    with torch.device("meta"):
        model = program.compile(R[output]).to("meta").eval()
        if not {"token", "source"} & set(model.inputs):
            raise NotScalable(f"`{place.text}` is not a model of tokens", place, HELP)
        zeros = torch.zeros(1, 8, dtype=torch.int64)
        inputs: Any = {one: numbers(zeros) for one in model.inputs}
    try:
        return scale(model, tokens=tokens, ranks=ranks, **inputs)
    except NotDistributed as error:
        raise NotScalable(f"`{place.text}`: {error.message}", place, HELP) from None

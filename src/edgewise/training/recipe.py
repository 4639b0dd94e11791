"""A recipe: one TOML file with everything that a run depends on."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from edgewise.errors import EdgewiseError, Span, caller, raise_all, suggest
from edgewise.training.data import DATA
from edgewise.training.errors import BadRecipe
from edgewise.training.models import MODELS
from edgewise.training.models.graph import GraphNetwork
from edgewise.training.models.language import LanguageTransformer
from edgewise.training.objectives import OBJECTIVES
from edgewise.training.overrides import Places, overridden
from edgewise.training.schema import Mistakes, number, one_of

MAX_INT = 2**31


@dataclass(frozen=True)
class Training:
    """Optimisation, logging and checkpoints.

    AdamW with weight decay on matrices, or Adam, whose decay is part of the gradient. The learning
    rate grows over `warmup` steps, then follows `schedule`: cosine to `least_rate`, 1/√step (noam),
    or constant. `fresh_rate` is the rate of weights that the checkpoint of a model does not have,
    by default the same. A step is one batch, or the mean gradient of `accumulate` of them. `ema` is
    the decay of a moving average of the weights, which is then what is evaluated and saved.
    `patience` stops after this many evaluations without a lower validation loss. The final
    evaluation is of the last model, or of the best by validation loss. `deterministic` makes GPU
    runs reproducible bit for bit, at some cost in speed.
    """

    steps: int = number(least=0)
    batch: int = number(least=1)
    seed: int = number(0, least=0, below=2**63)
    optimiser: str = one_of("adamw", "adamw", "adam")
    rate: float = number(1e-3, least=0.0, below=1e36)
    schedule: str = one_of("cosine", "cosine", "noam", "constant")
    warmup: int = number(100, least=0)
    least_rate: float = number(0.0, least=0.0)
    fresh_rate: float = number(0.0, least=0.0, below=1e36)
    beta1: float = number(0.9, least=0.0, below=1.0)
    beta2: float = number(0.99, least=0.0, below=1.0)
    eps: float = number(1e-8, least=0.0)
    weight_decay: float = number(0.1, least=0.0)
    clip: float = number(1.0, least=0.0)
    accumulate: int = number(1, least=1)
    ema: float = number(0.0, least=0.0, below=1.0)
    patience: int = number(0, least=0)
    precision: str = one_of("float32", "float32", "bfloat16", "float16", "float64")
    compile: bool = False
    deterministic: bool = False
    log: int = number(10, least=1)
    evaluate: int = number(250, least=1)
    checkpoint: int = number(250, least=1)
    keep: int = number(2, least=1)
    measured: str = one_of("last", "last", "best")


@dataclass(frozen=True)
class Distributed:
    """How the ranks that torchrun starts share a run; one process runs the same recipe alone.

    `shard`: "ddp", examples of a batch; "fsdp2", those and the weights; "context", tokens of a
    text; "graph", nodes of a graph, by `partition`. `ranks`, unless 0, is how many there must be.
    """

    shard: str = one_of("ddp", "ddp", "fsdp2", "context", "graph")
    ranks: int = number(0, least=0)
    partition: str = one_of("metis", "metis", "contiguous")


@dataclass(frozen=True)
class Recipe:
    """The sections of a recipe; `path` is where it was read from.

    >>> recipe = load("recipe.toml")
    >>> recipe.model.size, recipe.json()["training"]["steps"]
    (8, 2)
    """

    data: Any
    model: Any
    objective: Any
    training: Training
    distributed: Distributed = Distributed()
    path: Path = field(default=Path("recipe.toml"), compare=False)

    def json(self) -> dict[str, Any]:
        """The recipe with its defaults, as a table of tables."""
        found: dict[str, Any] = {name: asdict(getattr(self, name)) for name in PLAIN}
        for name, kinds in KINDS.items():
            part = getattr(self, name)
            kind = next(kind for kind, cls in kinds.items() if cls is type(part))
            found[name] = {"kind": kind, **asdict(part)}
        return json.loads(json.dumps(found))


KINDS: dict[str, dict[str, Any]] = {"data": DATA, "model": MODELS, "objective": OBJECTIVES}
PLAIN: dict[str, Any] = {"training": Training, "distributed": Distributed}  # without kinds
SECTIONS = (*KINDS, *PLAIN)
OPTIONAL = ("distributed",)


def load(path: str | Path, settings: Iterable[str] = ()) -> Recipe:
    """Read and check a recipe; all its errors are reported together.

    `settings` change keys: `["model.graph=window(64)", "training.seed=2"]`.

    >>> load("recipe.toml", ["training.steps=8"]).training.steps
    8
    """
    if not isinstance(path, str | Path):
        what = f"the path of a recipe is a string, not {type(path).__name__}"
        raise BadRecipe(what, caller(), 'write `load("recipe.toml")`')
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise BadRecipe(
            f"`{path}` cannot be read: {why}", _file_span(path), "give a recipe in TOML"
        ) from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise _syntax(problem, path, text) from None
    tables, places = overridden(tables, settings)
    return _RecipeReader(path, text, places).recipe(tables)


def check_recipe(recipe: Any) -> None:
    """Refuse what is not a recipe, such as the path of one."""
    if not isinstance(recipe, Recipe):
        what = f"expected a recipe, got {recipe!r:.60}"
        raise BadRecipe(what, caller(), "read it first: `training.load(path)`")


def section(name: str, table: dict[str, Any], path: Path) -> Any:
    """One checked section, as a run has it in its configuration."""
    reader = _RecipeReader(path, "")
    found = reader.section(name, table)
    check = getattr(found, "check", None)
    for _, what, help in check() if check else ():
        reader.errors.append(BadRecipe(what, _file_span(path), help))
    raise_all(reader.errors)
    return found


def _syntax(problem: tomllib.TOMLDecodeError, path: Path, text: str) -> BadRecipe:
    what = str(problem)
    found = re.search(r"line (\d+), column (\d+)", what)
    line, column = (int(found[1]), int(found[2])) if found else (len(text.splitlines()) or 1, 1)
    lines = text.splitlines() or [""]
    span = Span(str(path), line, column, column + 1, source=lines[min(line, len(lines)) - 1])
    what = re.sub(r" \(at .*\)", "", what)
    return BadRecipe(
        f"this is not TOML: {what[:1].lower()}{what[1:]}", span, "write `name = value`"
    )


def _file_span(path: Path) -> Span:
    return Span.of("<recipe>", path)


class _RecipeReader:
    """Checks tables against the sections, and knows the line of every key."""

    def __init__(self, path: Path, text: str, places: Places | None = None) -> None:
        self.path, self.lines, self.places = path, text.splitlines(), places or {}
        self.errors: list[EdgewiseError] = []

    def recipe(self, tables: dict[str, Any]) -> Recipe:
        for name in tables:
            if name not in SECTIONS:
                self._say(f"there is no section `{name}`", None, name, _near(name, SECTIONS))
        tables = {name: {} for name in OPTIONAL} | tables
        parts = {name: self.section(name, tables.get(name)) for name in SECTIONS}
        raise_all(self.errors)
        recipe = Recipe(**parts, path=self.path)
        self._fits(recipe)
        raise_all(self.errors)
        return recipe

    def section(self, name: str, table: Any) -> Any:
        if not isinstance(table, dict):
            what = "is missing" if table is None else "is not a table"
            return self._say(f"the section `[{name}]` {what}", None, name, f"add `[{name}]`")
        table = dict(table)
        if name not in KINDS:
            return self._values(name, PLAIN[name], table)
        kind, kinds = table.pop("kind", None), KINDS[name]
        if not isinstance(kind, str) or kind not in kinds:
            what = "needs a `kind`" if kind is None else f"has no kind `{kind}`"
            return self._say(f"`[{name}]` {what}", name, "kind", _near(str(kind), list(kinds)))
        return self._values(name, kinds[kind], table)

    def _values(self, section: str, cls: Any, table: dict[str, Any]) -> Any:
        known = {f.name: f for f in fields(cls)}
        hints = get_type_hints(cls)
        for key in table:
            if key not in known:
                self._say(f"`[{section}]` has no `{key}`", section, key, _near(key, list(known)))
        values = {}
        for key, spec in known.items():
            if key in table:
                values[key] = self._value(section, key, table[key], hints[key], spec.metadata)
            elif spec.default is MISSING and spec.default_factory is MISSING:
                self._say(f"`[{section}]` lacks `{key}`", None, section, f"write `{key} = ...`")
        return None if self.errors else cls(**values)

    def _value(self, section: str, key: str, value: Any, kind: Any, limits: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        options = kind.__args__ if hasattr(kind, "__args__") else (kind,)
        if float in options and number:
            value = float(value)
        if type(value) not in options:
            wanted = " or ".join(WORDS.get(option, str(option)) for option in options)
            return self._say(f"`{key}` is {value!r}, not {wanted}", section, key, f"give {wanted}")
        if value is not None and value not in limits.get("choices", (value,)):
            help = _near(str(value), limits["choices"])
            return self._say(f"`{key}` cannot be {value!r}", section, key, help)
        below = limits.get("below", MAX_INT if type(value) is int else math.inf)
        if number and not limits and type(value) is float and not math.isfinite(value):
            return self._say(f"`{key}` is {value}", section, key, "give a finite number")
        if number and not limits.get("least", value) <= value < below:
            wanted = f"at least {limits.get('least')}"
            wanted += f" and below {below}" if "below" in limits or value >= below else ""
            return self._say(f"`{key}` is {value}, it must be {wanted}", section, key, wanted)
        return value

    def _fits(self, recipe: Recipe) -> None:
        """What the parts of a recipe need of each other."""
        for name in ("data", "model"):
            part, allowed = getattr(recipe, name), getattr(recipe.objective, name)
            if type(part) not in allowed:
                kinds = [kind for kind, cls in KINDS[name].items() if cls in allowed]
                kind = recipe.json()["objective"]["kind"]
                self._say(
                    f"the objective `{kind}` does not support this {name}",
                    name,
                    "kind",
                    f"choose one of {', '.join(kinds)}",
                )
        for name in KINDS:
            check = getattr(getattr(recipe, name), "check", None)
            for key, what, help in check() if check else ():
                self._say(what, name, key, help)
        for key, what, help in _refused_shards(recipe):
            self._say(what, "distributed", key, help)

    def _say(self, what: str, section: str | None, key: str, help: str) -> None:
        self.errors.append(BadRecipe(what, self._place(section, key), help))

    def _place(self, section: str | None, key: str) -> Span:
        """The setting or the line of a key, the line of a section's header, or the first line."""
        known = (section, key) if section is not None else (key, "")
        if known in self.places:
            return self.places[known]
        inside: str | None = None
        for at, line in enumerate(self.lines, start=1):
            header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
            inside = header[1] if header else inside
            found = header if section is None and header and header[1] == key else None
            if section is not None and inside == section:
                found = re.match(rf"\s*(\"?{re.escape(key)}\"?)\s*=", line)
            if section is None and inside is None:
                found = re.match(rf"\s*({re.escape(key)})\s*=", line)
            if found:
                return Span(str(self.path), at, found.start(1) + 1, found.end(1) + 1, line)
        if section is not None:
            return self._place(None, section)
        return Span(str(self.path), 1, 1, 2, source=self.lines[0] if self.lines else " ")


def _refused_shards(recipe: Recipe) -> Mistakes:
    """What the other sections refuse to be sharded by."""
    how, shard = recipe.training, recipe.distributed.shard
    takes: dict[str, Any] = {"context": LanguageTransformer, "graph": GraphNetwork}
    if not isinstance(recipe.model, takes.get(shard, object)):
        kinds = [kind for kind, cls in MODELS.items() if issubclass(cls, takes[shard])]
        what = f"`{shard}` does not share this model among ranks"
        yield "shard", what, f"only {', '.join(kinds)} can; write `ddp` or `fsdp2`"
    if shard != "ddp" and how.compile:
        what = f"`compile` and `{shard}` do not go together"
        yield "shard", what, "write `ddp`, or `compile = false`"
    if shard == "fsdp2" and not recipe.objective.passes_once:
        what = "`fsdp2` needs an objective that is one call of the model"
        yield "shard", what, "write `ddp`"


WORDS = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    list: "a list",
    type(None): "nothing",
}


def _near(name: str, names: Any) -> str:
    return suggest(name, list(names))

"""A model with the weights of a checkpoint: its program, its configuration, its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import whole
from edgewise.inputs.kinds import numbers
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.module import Model
from edgewise.zoo.pretrained import files
from edgewise.zoo.pretrained.entries import BadPretrained, Entry, to_theirs
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.generate import generate, translate
from edgewise.zoo.pretrained.shapes import shapes_of
from edgewise.zoo.pretrained.tokens import Tokens, listed, padded

# what a configuration says beyond sizes, of tokens that stand for no word
TOKENS = tuple(f"{name}_token_id" for name in ("bos", "eos", "pad", "decoder_start"))
ENDLESS = 1 << 30  # positions of a model that only knows distances


FEW_WIDTHS = 16  # every width of a batch is laid out once: texts come in many lengths


@dataclass(eq=False)
class Pretrained:
    """What `from_pretrained` gives.

    `program` are the rules, `weights` all weights by name, `layout` how they are saved. `model` is
    the program compiled for `output`.
    """

    layout: ModuleType
    architecture: str
    config: Any
    program: Program
    weights: dict[str, Tensor]
    tokenizer: Any = None
    table: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    compiled: dict[str, Model] = field(default_factory=dict, repr=False)

    @property
    def output(self) -> str:
        """The relation that the model is for: `embedding` of a text, `logits` of tokens."""
        return str(self.layout.OUTPUT)

    @property
    def model(self) -> Model:
        return self.compile(self.output)

    def compile(self, relation: str) -> Model:
        """A module that computes a relation of the program, with the weights of the checkpoint."""
        if relation not in self.compiled:
            model = self.program.compile(nodes.Atom(relation), seed=0, dtype=self.dtype)
            absent = [n for n in learnable(model) if n not in self.weights]
            if absent:
                raise BadPretrained(
                    f"the checkpoint has no `{absent[0]}`, which `{relation}` needs",
                    caller(),
                    f"it was saved as `{self.architecture}`; compute another relation",
                )
            with torch.no_grad():
                for name in learnable(model):
                    model.weight(name).copy_(self.weights[name])
            self.compiled[relation] = model.eval()
        return self.compiled[relation]

    def tokens(
        self,
        texts: Sequence[str],
        *,
        truncate: bool = False,
        multiple: int = 1,
        which: Sequence[int] | None = None,
    ) -> Tokens:
        """Texts as numbers, padded to the longest, or to a multiple above it."""
        if self.tokenizer is None:
            raise BadPretrained(
                "the checkpoint has no `tokenizer.json`", caller(), "give numbers to `model`"
            )
        rows = [found.ids for found in self.tokenizer.encode_batch(listed(texts))]
        first = getattr(self.config, "first", 0)
        longest = getattr(self.config, "positions", ENDLESS) - first
        pad = max(first - 1, 0)
        how: Any = {"truncate": truncate, "multiple": multiple, "which": which}
        return padded(rows, longest=longest, pad=pad, **how)

    def inputs(self, tokens: Tokens, relation: str | None = None) -> dict[str, Any]:
        """What `model` reads for a batch of texts."""
        known = {
            "token": numbers(tokens.numbers),
            "mask": tokens.mask.to(self.dtype).unsqueeze(-1),
            "segment": numbers(torch.zeros_like(tokens.numbers)),
        }
        read = self.compile(relation or self.output).inputs
        if other := [name for name in read if name not in known]:
            raise BadPretrained(
                f"`{self.architecture}` reads `{other[0]}`, which one text does not say",
                caller(),
                f"give the model its inputs by name: {', '.join(f'`{name}`' for name in read)}",
            )
        return {name: known[name] for name in read}

    def embed(self, texts: Sequence[str], *, batch: int = 32, truncate: bool = False) -> Tensor:
        """A vector of length 1 for each text."""
        if self.output != "embedding":
            raise BadPretrained(
                f"`{self.architecture}` gives no vector of a text", caller(), "use an encoder"
            )
        texts, batch = listed(texts), whole(batch, "batch", 1)
        order = sorted(range(len(texts)), key=lambda k: len(texts[k]))  # little padding
        found = torch.zeros(len(texts), self.config.size, dtype=self.dtype)
        model = self.model
        with torch.inference_mode():
            for start in range(0, len(order), batch):
                some = order[start : start + batch]
                given = [texts[k] for k in some]
                tokens = self.tokens(given, truncate=truncate, multiple=FEW_WIDTHS, which=some)
                empty = (tokens.mask.sum(1) == 0).nonzero()
                if len(empty):
                    raise BadPretrained(
                        f"text {some[int(empty[0])]} has no tokens", caller(), "leave it out"
                    )
                found[some] = model(**self.inputs(tokens)).to("cpu")
        return found

    def generate(self, prompt: str, **options: Any) -> str:
        """The text that follows a prompt; see `edgewise.zoo.pretrained.generate`."""
        return generate(self, prompt, **options)

    def translate(self, texts: Sequence[str], *, most: int = 128, beams: int = 4) -> list[str]:
        """What an encoder–decoder makes of texts, by beam search."""
        return translate(self, texts, most=most, beams=beams)

    def save_pretrained(self, path: str | Path) -> None:
        """Write it as Hugging Face does, with the weights that the compiled models have now."""
        now = dict(self.weights)
        for model in self.compiled.values():
            now |= {name: model.weight(name).detach().cpu() for name in learnable(model)}
        save_pretrained(
            path,
            self.layout.MODEL,
            self.config,
            now,
            layout=self.layout,
            architecture=self.architecture,
            tokenizer=self.tokenizer,
            tokens={name: self.table[name] for name in TOKENS if name in self.table},
        )


def learnable(model: Model) -> list[str]:
    """The names of weights that a checkpoint holds: not those that rules fix."""
    return [n for n in model._paths if isinstance(model.weight(n), torch.nn.Parameter)]


def table_of(layout: ModuleType, config: Any, architecture: str) -> Iterator[Entry]:
    """The names of an architecture: the body, and the heads that it has."""
    prefix, heads = layout.ARCHITECTURES[architecture]
    yield from layout.entries(config, prefix)
    for relation, entries in layout.heads(config, prefix).items():
        if relation in heads:
            yield from entries


def save_pretrained(
    path: str | Path,
    model: ModuleType,
    config: Any,
    weights: Mapping[str, Tensor],
    *,
    layout: ModuleType | None = None,
    architecture: str | None = None,
    tokenizer: Any = None,
    tokens: Mapping[str, Any] | None = None,
) -> None:
    """Write weights so that `transformers` loads them, all or nothing.

    `weights` are those of `model.program(config)` by name; what the architecture (the first of the
    layout, if none is named) has no place for is left out. `tokens` are the numbers of those that
    begin and end a text, by their names in a configuration.
    """
    layout = layout or layout_of(model)
    architecture = architecture or next(iter(layout.ARCHITECTURES))
    check_saved(layout, architecture, config)
    entries = list(table_of(layout, config, architecture))
    missing = [
        e.ours for e in entries if e.ours not in weights and not _optional(layout, config, e)
    ]
    if missing:
        raise BadPretrained(
            f"the weight `{missing[0]}` is not given", caller(), f"`{architecture}` has it"
        )
    shapes = shapes_of(layout.MODEL.program(config))
    for e in entries:
        if e.ours in weights and tuple(weights[e.ours].shape) != shapes[e.ours]:
            raise BadPretrained(
                f"the weight `{e.ours}` is {tuple(weights[e.ours].shape)}, the configuration says "
                f"{shapes[e.ours]}",
                caller(),
                "give the configuration that the weights are of",
            )
    theirs = to_theirs(entries, {name: w.detach().cpu() for name, w in weights.items()})
    table = {
        "model_type": layout.TYPE,
        "architectures": [architecture],
        "dtype": str(next(iter(theirs.values())).dtype).removeprefix("torch."),
        **layout.table(config),
        **(tokens or {}),
    }
    with files.new_folder(Path(path)) as folder:
        files.write(folder, table, theirs)
        if tokenizer is not None:
            tokenizer.save(str(folder / "tokenizer.json"))


def check_saved(layout: ModuleType, architecture: str, config: Any) -> None:
    """Refuse what a `config.json` cannot say: it would be read as another model."""
    if architecture not in layout.ARCHITECTURES:
        raise BadPretrained(
            f"`{layout.TYPE}` has no architecture {architecture!r:.60}",
            caller(),
            f"there are {', '.join(layout.ARCHITECTURES)}",
        )
    if not isinstance(config, layout.MODEL.Config):
        raise BadPretrained(
            f"the configuration is {type(config).__name__}",
            caller(),
            f"give a `zoo.{layout.MODEL.__name__.rpartition('.')[2]}.Config`",
        )
    again = layout.config(Fields(layout.table(config)))
    for name in (f.name for f in fields(config)):
        if getattr(again, name) != getattr(config, name):
            raise BadPretrained(
                f"`{layout.TYPE}` has no place for `{name}` = {getattr(config, name)!r:.80}",
                caller(),
                "save it with `model.save(path)`, which keeps the rules",
            )


def _optional(layout: ModuleType, config: Any, entry: Entry) -> bool:
    """Whether a checkpoint may do without a weight: one of a head."""
    return any(entry.ours == e.ours for head in layout.heads(config, "").values() for e in head)


def layout_of(model: ModuleType) -> ModuleType:
    from edgewise.zoo.pretrained import LAYOUTS

    for layout in LAYOUTS.values():
        if layout.MODEL is model:
            return layout
    raise BadPretrained(
        f"there is no layout for `{model.__name__}`", caller(), "save it with `model.save(path)`"
    )

"""A trained run as a model: texts in, texts, classes, trees or vectors out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import torch
from torch import Tensor
from torch.nn.functional import normalize

from edgewise.data.trees import DependencyTree
from edgewise.decode.decoder import Decoder, FittingDecoder, checked_integer
from edgewise.errors import EdgewiseError, caller
from edgewise.graphs.checks import integer
from edgewise.inputs.kinds import numbers
from edgewise.language import nodes
from edgewise.module import Model
from edgewise.pruning import prune
from edgewise.pruning.layers import checked_layers
from edgewise.training.errors import WrongTask
from edgewise.training.models.classifier import mask_of
from edgewise.training.recipe import section
from edgewise.training.runs import model_files
from edgewise.training.tokenizers import encoded
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.files import new_folder
from edgewise.zoo.pretrained.model import UNLIMITED, Pretrained, shares_of
from edgewise.zoo.pretrained.pruned import with_pruned
from edgewise.zoo.pretrained.texts import BadText, Text, TextTooLong, Tokens, listed, padded

DOES = {  # what a model of each task does
    "generate": "continues texts",
    "translate": "translates texts",
    "classify": "classifies texts",
    "embed": "embeds texts",
    "parse": "parses sentences",
    "predict": "predicts on graphs",
}


@dataclass(eq=False, repr=False)
class Run(Pretrained):
    """What `from_pretrained` gives for a run: the model, its tokenizer and its task.

    `module` is the model as it was trained, `step` the step of its weights. `classify`, `embed`,
    `generate`, `parse` and `translate` say so if the model is for another task;
    a parser gives trees: `run.parse(["it rains"])[0].heads` is `[2, 0]`. A translator compares
    translations of different lengths by `run.penalty`.

    >>> from edgewise import training
    >>> recipe = training.load("recipe.toml")
    >>> _ = list(training.train(recipe, "run"))
    >>> from edgewise import zoo
    >>> run = zoo.from_pretrained("run")
    >>> run.step, len(run.generate("to ", most=3, seed=0))
    (2, 3)
    >>> len(run.rows(["to be"])[0])
    5
    >>> run.prune({0: [1]}).save("small")
    >>> small = zoo.from_pretrained("small")
    >>> small.model.weight("layer.0.q.weight").shape, len(small.generate("to ", most=3, seed=0))
    (torch.Size([1, 4, 8]), 3)
    """

    task: str = ""
    module: Any = None
    step: int | None = None
    labels: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        size = sum(weight.numel() for weight in self.weights.values())
        return f"Run({self.architecture}, to {self.task}, {size:,} weights, step {self.step})"

    @property
    def output(self) -> str:
        return str(self.table["program"]["output"])

    @property
    def model(self) -> Model:
        model: Model = self.module.program
        return model

    @property
    def penalty(self) -> float:
        """The length penalty of translations."""
        alpha = self.table["objective"].get("alpha", 1.0)
        chosen: float = alpha[0] if isinstance(alpha, list) else alpha  # the run did not end
        return chosen

    def to(self, device: str | torch.device) -> Self:
        self.module.to(device)
        return super().to(device)

    def compile(self, relation: str) -> Model:
        if relation == self.output:
            return self.model
        if relation not in self.compiled:
            model = self.program.compile(nodes.Atom(relation), dtype=self.dtype).eval()
            state = self.model.state_dict()
            model.load_state_dict({name: state[name] for name in model.state_dict()})
            self.compiled[relation] = model.to(self.device)
        return self.compiled[relation]

    def prune(self, heads: Mapping[int, Sequence[int]]) -> Self:
        model = prune(self.model, heads)
        sizes = SimpleNamespace(**self.table["sizes"])
        module = self.config.model.module(model, sizes.words, sizes).eval()
        weights = {name: p.detach() for name, p in model.named_parameters()}
        rules = {"program": model.program, "weights": weights, "module": module}
        counts = checked_layers(self.model.program)
        pruned = with_pruned({}, heads, counts) or self.pruned
        return replace(self, **rules, compiled={}, pruned=pruned)

    def save(self, path: str | Path) -> None:
        """Write rules, weights and tokenizer to a folder that `zoo.from_pretrained` reads."""
        with new_folder(Path(path)) as folder:
            model_files.write_model(folder, self.table, self.model, self.tokenizer, self.step or 0)

    def rows(self, texts: Sequence[Text], *, truncate: bool = False) -> list[list[int]]:
        """The token ids of each text, or pair of texts, as in training: with the end of a source.

        A text without tokens is an error.
        """
        self._check_texts(texts)
        found = self._encoded(texts, truncate)
        for k, row in enumerate(found):
            if not row:
                raise BadPretrained(f"text {k} has no tokens", caller(), "leave it out")
        return found

    def _encoded(self, texts: Sequence[Text], truncate: bool) -> list[list[int]]:
        """Token ids; no text but an empty one has none."""
        tokenizer, special = self._tokenizer(), self.task == "classify"
        if truncate and special:  # as in training: a last special token stays
            tokenizer.enable_truncation(self.config.length)
        found = encoded(tokenizer, list(texts), special=special)
        tokenizer.no_truncation()
        if self.task != "translate":
            return found
        most, end = self.config.length - 1 if truncate else sys.maxsize, self.table["tokens"]["end"]
        return [[*row[:most], end] if row else row for row in found]

    def _check_texts(self, texts: Sequence[Text]) -> None:
        """Texts, or pairs of them where the model was trained on pairs."""
        pairs = self.table.get("texts") == 2
        if not pairs or isinstance(texts, str):
            listed(cast("Sequence[str]", texts))
            return
        for k, pair in enumerate(texts):
            if not isinstance(pair, tuple) or len(pair) != 2:
                what = f"the model reads pairs of texts, text {k} is {pair!r:.60}"
                help = 'give pairs: `[("a text", "another")]`; in a shell, with a tab between'
                raise BadText(what, caller(), help)
            listed(pair)

    def _tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise BadPretrained("the run has no tokenizer", caller(), "give inputs to `model`")
        return self.tokenizer

    def tokens(
        self,
        texts: Sequence[Text],
        *,
        truncate: bool = False,
        multiple: int = 1,
        which: Sequence[int] | None = None,
    ) -> Tokens:
        """Token ids of texts; a pair of texts has a tab between them."""
        how: Any = {"truncate": truncate, "multiple": multiple, "which": which}
        read: Sequence[Any] = texts
        if self.table.get("texts") == 2 and not isinstance(texts, str):
            read = [tuple(t.split("\t")) if isinstance(t, str) else t for t in texts]
        self._check_texts(read)
        rows = self._encoded(read, truncate)
        return padded(rows, longest=self.config.length, **how).to(self.device)

    def decoder(self, read: int, most: int) -> tuple[Decoder, int]:
        """Cached rows while all tokens fit; beyond, the last tokens predict the next."""
        window = partial(WindowDecoder, self.model, self.config.length)
        if read + most > self.config.length:
            return window(), most
        return FittingDecoder(lambda: super(Run, self).decoder(read, most)[0], window), most

    def check_prompt(self, prompt: str) -> None:
        """Tokens after the context are predicted from as many tokens as the context has."""
        self._check_task("generate")
        (row,) = encoded(self._tokenizer(), listed([prompt]))
        if len(row) > self.config.length:
            raise TextTooLong(
                f"the prompt has {len(row)} tokens, the model reads {self.config.length}",
                caller(),
                "shorten it: the last tokens count most",
            )

    def translate(
        self,
        texts: Sequence[str],
        *,
        most: int | None = None,
        beams: int | None = None,
        batch: int = 32,
        truncate: bool = False,
    ) -> list[str]:
        """The translation of each text, by beam search as the recipe says or with `beams`."""
        self._check_task("translate")
        if most is not None:
            checked_integer(most, "most", 1)
        how = {"beams": self.table["objective"].get("beams", 5) if beams is None else beams}
        start, stop = (self.table["tokens"][name] for name in ("start", "end"))
        how |= {"alpha": self.penalty, "start": start, "stop": stop}
        rows = self.rows(texts, truncate=truncate)
        found: list[str] = [""] * len(rows)
        with torch.inference_mode():
            for some, read in self._batches(rows, batch, truncate):
                lengths = read.mask.sum(1).long()
                for k, row in zip(
                    some, self.module.translate(read.numbers, lengths, **how), strict=True
                ):
                    ids = row.tolist()
                    ids = ids[: ids.index(stop)] if stop in ids else ids
                    found[k] = str(self.tokenizer.decode(ids if most is None else ids[:most]))
        return found

    def classify(
        self, texts: Sequence[Text], *, batch: int = 32, truncate: bool = False
    ) -> list[dict[str, float]]:
        """The probability of each class by its label, the most likely first, for each text.

        A text is a pair of texts if the model was trained on pairs.
        """
        self._check_task("classify")
        rows = self.rows(texts, truncate=truncate)
        found: list[dict[str, float]] = [{}] * len(rows)
        with torch.inference_mode():
            for some, read in self._batches(rows, batch, truncate):
                scores = self.module(read.numbers, read.mask.sum(1).long())
                for k, row in zip(some, scores, strict=True):
                    found[k] = shares_of(self.labels, row)
        return found

    def parse(
        self, sentences: Sequence[str | Sequence[str] | DependencyTree], *, batch: int = 32
    ) -> list[DependencyTree]:
        """The dependency tree of each sentence: the maximum spanning tree of the scored arcs.

        A sentence is an English text, a list of words, or a tree, whose words are read. The heads
        of a tree count words from 1, 0 is the root; its `syntax()`, `arcs()` and `networkx()` are
        graphs for the next model.
        """
        self._check_task("parse")
        found: list[DependencyTree] = import_module("edgewise.training.parsing").parse(
            self, sentences, batch=batch
        )
        return found

    def embed(self, texts: Sequence[str], *, batch: int = 32, truncate: bool = False) -> Tensor:
        """The mean of the last states of each text, of unit length."""
        relation = getattr(self.config.model, "states", None)
        if relation is None:
            raise self._wrong("embed")
        model, rows = self.compile(relation), self.rows(texts, truncate=truncate)
        found: list[Tensor] = [torch.empty(0)] * len(rows)
        with torch.inference_mode():
            for some, read in self._batches(
                rows, batch, truncate, exact="mask" not in model.inputs
            ):
                mask = mask_of(read.numbers, read.mask.sum(1), self.dtype)
                known = dict.fromkeys(("token", "source"), numbers(read.numbers)) | {"mask": mask}
                known["segment"] = numbers(torch.zeros_like(read.numbers))
                states: Any = model(**{name: known[name] for name in model.inputs})
                means = (states * mask).sum(1) / mask.sum(1)
                for k, row in zip(some, normalize(means, dim=-1), strict=True):
                    found[k] = row.cpu()
        return torch.stack(found) if found else torch.zeros(0, self.config.size)

    def save_pretrained(self, path: str | Path) -> None:
        """Write it as Hugging Face does, if the model has such a layout."""
        import_module("edgewise.training.runs.exporting").save_run(self, Path(path))

    def _batches(
        self, rows: list[list[int]], batch: int, truncate: bool, *, exact: bool = False
    ) -> Iterator[tuple[list[int], Tokens]]:
        """Rows of similar lengths together, or with `exact` of equal lengths."""
        batch, longest = integer(batch, "batch", 1), self.config.length
        order = sorted(range(len(rows)), key=lambda k: len(rows[k]))
        while order:
            count = batch
            if exact:
                first = min(len(rows[order[0]]), longest)
                count = min(batch, sum(min(len(rows[k]), longest) == first for k in order))
            some, order = order[:count], order[count:]
            how: Any = {"truncate": truncate, "which": some}
            read = padded([rows[k] for k in some], longest=longest, **how)
            yield some, read.to(self.device)

    def _check_task(self, verb: str) -> None:
        if verb != self.task:
            raise self._wrong(verb)

    def _wrong(self, verb: str) -> WrongTask:
        what = f"the model {DOES[self.task]}, it does not {verb}"
        return WrongTask(what, caller(), f"use `{self.task}`")


class WindowDecoder:
    """Next-token scores from the last `length` tokens, which are recomputed for each.

    A causal model: tokens after the last one, which pad a short text, change nothing before them.
    """

    def __init__(self, model: Model, length: int) -> None:
        self.model, self.length = model, length
        self.tokens: Tensor | None = None

    def __call__(self, tokens: Tensor) -> Tensor:
        tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens], 1)
        self.tokens = tokens[:, -self.length :]
        last = self.tokens.shape[1] - 1
        wide = self.tokens.new_zeros((len(tokens), self.length))
        wide[:, : last + 1] = self.tokens
        with torch.inference_mode():
            scores: Any = self.model(token=numbers(wide))
        out: Tensor = scores[:, last]
        return out

    def take(self, samples: Tensor) -> None:
        assert self.tokens is not None
        self.tokens = self.tokens.index_select(0, samples)

    @property
    def remaining(self) -> int:
        return UNLIMITED


def _mismatch(config: Mapping[str, Any], task: str) -> str | None:
    """What of the task, special tokens or labels does not fit the model, if anything."""
    tokens, labels, sizes = config["tokens"], config["labels"], config["sizes"]
    if config["task"] != task:
        return f"`task` is {config['task']!r:.60}, the objective is to {task}"
    for name in ("start", "end") if task in ("translate", "parse") else ():
        if name not in tokens:
            return f"`tokens` lacks `{name}`"
    for name, number in tokens.items():
        if number >= sizes["words"]:
            return f"the token `{name}` is {number}, the model has a vocabulary of {sizes['words']}"
    if task in ("classify", "parse") and len(labels) != sizes.get("classes"):
        return f"there are {len(labels)} labels, {sizes.get('classes')} classes"
    return None


def read_run(path: Path, dtype: torch.dtype = torch.float32) -> Run:
    """The model of a run's folder."""
    files = model_files.read(path)
    config, sizes = files.config, SimpleNamespace(**files.config["sizes"])
    try:
        model = section("model", config["model"], path / model_files.CONFIG)
        task = section("objective", config["objective"], path / model_files.CONFIG).task
        module = model.module(files.model.to(dtype), sizes.words, sizes)
    except (EdgewiseError, AttributeError) as problem:
        missing = f"`sizes` lacks `{getattr(problem, 'name', '')}`"
        what = problem.message if isinstance(problem, EdgewiseError) else missing
        raise model_files.bad(path, f"`{model_files.CONFIG}`: {what}", model_files.AGAIN) from None
    if (mismatch := _mismatch(config, task)) is not None:
        raise model_files.bad(path, f"`{model_files.CONFIG}`: {mismatch}", model_files.AGAIN)
    length = getattr(module, "context", getattr(module, "longest", getattr(sizes, "longest", 0)))
    return Run(
        spec=sys.modules[type(model).__module__],
        architecture=config["model"]["kind"],
        config=SimpleNamespace(
            model=model,
            vocabulary=sizes.words,
            length=length or UNLIMITED,
            size=getattr(model, "size", 0),
        ),
        program=files.model.program,
        weights={n: p.detach() for n, p in files.model.named_parameters()},
        tokenizer=files.tokenizer,
        table=config
        | ({"eos_token_id": config["tokens"]["end"]} if "end" in config["tokens"] else {}),
        dtype=dtype,
        task=task,
        module=module.eval(),
        step=files.step,
        labels=[str(label) for label in config["labels"]],
    )

"""A model with the weights of a checkpoint: its program, its configuration, its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.checks import integer
from edgewise.inputs.kinds import InputLike, numbers
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.module import Model
from edgewise.pruning.layers import checked_layers
from edgewise.pruning.smaller_models import pruned_rules
from edgewise.zoo.pretrained.constraints import NAMES
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.pooling import FIRST, MEAN
from edgewise.zoo.pretrained.pruned import PrunedHeads, left_of, with_pruned
from edgewise.zoo.pretrained.saving import save_pretrained
from edgewise.zoo.pretrained.schema import TOKENS, CheckpointSpec
from edgewise.zoo.pretrained.texts import (
    Text,
    Tokens,
    cached_decoder,
    generate,
    listed_pairs,
    padded,
    respond,
    translate,
)

if TYPE_CHECKING:
    from edgewise.decode.decoder import Decoder

CPU = torch.device("cpu")
PROBLEMS = SINGLE, SEVERAL, REGRESSION = (
    "single_label_classification",
    "multi_label_classification",
    "regression",
)
UNLIMITED = 1 << 30  # positions of a model with relative positions only
ENCODED = "encoder.out"  # the rows of an encoder, in every encoder–decoder of the zoo
WIDTH_MULTIPLE = 16  # a model is grounded once per width: round widths up to reuse it


@dataclass(eq=False, repr=False)
class Pretrained:
    """A checkpoint as rules, with its weights and its tokenizer: what `from_pretrained` returns.

    `program` are the rules, `weights` all weights by name, `spec` is the module of `architectures/`
    that describes the checkpoint, and `model` the program compiled for `output`; `pruned` are the
    heads of its layers that were taken away, counted as they were in the checkpoint; `pooling` is
    how `embed` makes one vector of a text.

    >>> import tempfile
    >>> import torch
    >>> from edgewise import numbers, zoo
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=16)
    >>> folder = tempfile.mkdtemp() + "/tiny"
    >>> zoo.save_pretrained(folder, zoo.gpt2, config, zoo.gpt2.program(config).weights(seed=0))
    >>> tiny = zoo.from_pretrained(folder)
    >>> tiny.output, tiny.model(token=numbers(torch.tensor([1, 2, 3]))).shape
    ('logits', torch.Size([3, 9]))
    >>> tiny.to("cpu").compile("out")(token=numbers(torch.tensor([1, 2, 3]))).shape
    torch.Size([3, 8])
    >>> tiny.save_pretrained(folder + "/copy")
    """

    spec: CheckpointSpec
    architecture: str
    config: Any
    program: Program
    weights: dict[str, Tensor]
    tokenizer: Any = None
    table: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    compiled: dict[str, Model] = field(default_factory=dict)
    device: torch.device = CPU
    pruned: PrunedHeads = field(default_factory=dict)
    pooling: str = MEAN

    def __repr__(self) -> str:
        size = sum(weight.numel() for weight in self.weights.values())
        return f"Pretrained({self.architecture}, {self.output}, {size:,} weights)"

    @property
    def output(self) -> str:
        """The relation that the model is for: `embedding` of a text, `logits` of tokens."""
        return self.spec.ARCHITECTURES[self.architecture].output or self.spec.OUTPUT

    @property
    def model(self) -> Model:
        """The program compiled for `output`, with the weights of the checkpoint."""
        return self.compile(self.output)

    def to(self, device: str | torch.device) -> Self:
        """The same, computed on a device."""
        self.device = torch.device(device)
        for model in self.compiled.values():
            model.to(self.device)
        return self

    def compile(self, relation: str) -> Model:
        """A module that computes a relation of the program, with the weights of the checkpoint."""
        if relation not in self.compiled:
            model = self.program.compile(nodes.Atom(relation), seed=0, dtype=self.dtype)
            absent = [n for n in learnable(model) if n not in self.weights]
            if absent:
                raise BadPretrained(
                    f"the checkpoint lacks `{absent[0]}`, needed by `{relation}`",
                    caller(),
                    f"it was saved as `{self.architecture}`; compute another relation",
                )
            with torch.no_grad():
                for name in learnable(model):
                    model.weight(name).copy_(self.weights[name])
            self.compiled[relation] = model.eval().to(self.device)
        return self.compiled[relation]

    def prune(self, heads: Mapping[int, Sequence[int]]) -> Self:
        """The same without some heads; see `edgewise.pruning.prune`.

        >>> import tempfile
        >>> from edgewise import zoo
        >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=2, length=16)
        >>> folder = tempfile.mkdtemp() + "/tiny"
        >>> zoo.save_pretrained(folder, zoo.gpt2, config, zoo.gpt2.program(config).weights(seed=0))
        >>> zoo.from_pretrained(folder).prune({0: [1]}).pruned
        {0: (1,)}
        """
        program = self.spec.MODEL.program(self.config)
        every = with_pruned(self.pruned, heads, checked_layers(program))
        made = pruned_rules(program, every, [self.output])
        left = left_of(self._weights(), pruned_rules(program, self.pruned), made)
        return replace(self, program=made.program, weights=left, compiled={}, pruned=every)

    def _weights(self) -> dict[str, Tensor]:
        """All weights, as they are now in the compiled models."""
        now = dict(self.weights)
        for model in self.compiled.values():
            now |= {name: model.weight(name).detach().cpu() for name in learnable(model)}
        return now

    def tokens(
        self,
        texts: Sequence[Text],
        *,
        truncate: bool = False,
        multiple: int = 1,
        which: Sequence[int] | None = None,
    ) -> Tokens:
        """Token ids of texts or of pairs of texts, padded to the longest or a multiple above it."""
        if self.tokenizer is None:
            raise BadPretrained(
                "the checkpoint has no `tokenizer.json`", caller(), "give numbers to `model`"
            )
        first = getattr(self.config, "first", 0)
        longest = getattr(self.config, "length", UNLIMITED) - first
        texts = listed_pairs(texts)
        if truncate and longest < UNLIMITED // 2:
            self.tokenizer.enable_truncation(longest)  # a last special token stays
        found = self.tokenizer.encode_batch(texts)
        self.tokenizer.no_truncation()
        how: Any = {"truncate": truncate, "multiple": multiple, "which": which, "longest": longest}
        made = padded([one.ids for one in found], pad=max(first - 1, 0), **how)
        segments = padded([one.type_ids for one in found], **how).numbers
        return Tokens(made.numbers, made.mask, segments).to(self.device)

    @property
    def read_by_text(self) -> str:
        """The relation that a text alone determines: the output, or the rows of an encoder whose
        decoder reads a text of its own.

        >>> import tempfile
        >>> from edgewise import zoo
        >>> config = zoo.t5.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1)
        >>> folder = tempfile.mkdtemp() + "/tiny"
        >>> zoo.save_pretrained(folder, zoo.t5, config, zoo.t5.program(config).weights(seed=0))
        >>> zoo.from_pretrained(folder).read_by_text
        'encoder.out'
        """
        derived = {rule.head.relation for rule in self.program.rules}
        target = ENCODED in derived and "target" in self.model.inputs
        return ENCODED if target else self.output

    def inputs(self, tokens: Tokens, relation: str | None = None) -> dict[str, InputLike]:
        """What `model` reads for a batch of texts."""
        segments = torch.zeros_like(tokens.numbers) if tokens.segments is None else tokens.segments
        known: dict[str, InputLike] = {
            "token": numbers(tokens.numbers),
            "mask": tokens.mask.to(self.dtype).unsqueeze(-1),
            "segment": numbers(segments),
            "source": numbers(tokens.numbers),
        }
        real = tokens.mask.to(self.dtype)
        known["share"] = (real / real.sum(1, keepdim=True).clamp_min(1)).unsqueeze(-1)  # of a mean
        read = self.compile(relation or self.output).inputs
        if other := [name for name in read if name not in known]:
            raise BadPretrained(
                f"`{self.architecture}` reads `{other[0]}`, which a text does not determine",
                caller(),
                f"give the model its inputs by name: {', '.join(f'`{name}`' for name in read)}",
            )
        return {name: known[name] for name in read}

    def embed(self, texts: Sequence[str], *, batch: int = 32, truncate: bool = False) -> Tensor:
        """A unit-length embedding of each text: the mean of the rows of its tokens, or the first
        where a folder of sentence-transformers says so.

        >>> from edgewise import zoo
        >>> model = zoo.from_pretrained(zoo.fetch("all-minilm-l6-v2"))  # doctest: +SKIP
        >>> model.embed(["a text", "another"]).shape  # doctest: +SKIP
        """
        if self.output != "embedding":
            raise BadPretrained(
                f"`{self.architecture}` gives no text embedding", caller(), "use an encoder"
            )
        if self.pooling not in (MEAN, FIRST):
            raise BadPretrained(
                f"the folder makes a vector of a text by {self.pooling}",
                caller(),
                f"`embed` supports {MEAN} and {FIRST}; `compile('out')` gives the rows of tokens",
            )
        found = self._rows(texts, self.config.size, batch, truncate)
        return found if self.pooling == MEAN else torch.nn.functional.normalize(found, dim=-1)

    def classify(
        self, texts: Sequence[Text], *, batch: int = 32, truncate: bool = False
    ) -> list[dict[str, float]]:
        """The probability of each class by its label, the most likely first, for each text.

        A text may be a pair of texts, `("a premise", "a conclusion")`.

        They are 1 together, or each is one of its own where a text may have several classes
        (`problem_type` in `config.json`, or a single class); of a regression, its numbers.

        >>> from edgewise import zoo
        >>> model = zoo.from_pretrained(
        ...     "distilbert-base-uncased-finetuned-sst-2-english"
        ... )  # doctest: +SKIP
        >>> model.classify(["a delight"])  # doctest: +SKIP
        """
        if self.output != "classes":
            raise BadPretrained(
                f"`{self.architecture}` does not classify texts",
                caller(),
                "use a checkpoint with a classifier, such as `BertForSequenceClassification`",
            )
        scores = self._rows(texts, self.config.labels, batch, truncate)
        return [shares_of(self.class_names, row, self.problem) for row in scores]

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, in the order of their scores."""
        names = self.table.get("id2label") or {}
        return [str(names.get(str(k), f"LABEL_{k}")) for k in range(self.config.labels)]

    @property
    def problem(self) -> str:
        """What the scores of a classifier are for: one class of a text, several, or a number."""
        said = self.table.get("problem_type")
        if said is not None and said not in PROBLEMS:
            raise BadPretrained(
                f"the configuration has `problem_type` = {said!r:.60}",
                caller(),
                f"it is one of {', '.join(PROBLEMS)}",
            )
        alone = self.config.labels == 1 and said != REGRESSION  # one class: is it so or not?
        return SEVERAL if alone else said or SINGLE

    def _rows(self, texts: Sequence[Text], size: int, batch: int, truncate: bool) -> Tensor:
        """What the model gives for each text, one row (texts, size)."""
        texts, batch = listed_pairs(texts), integer(batch, "batch", 1)
        order = sorted(
            range(len(texts)), key=lambda k: len("".join(texts[k]))
        )  # texts of similar length together: little padding
        found = torch.zeros(len(texts), size, dtype=self.dtype)
        first = self.output == "embedding" and self.pooling == FIRST
        relation = "out" if first else self.output
        model = self.compile(relation)
        with torch.inference_mode():
            for start in range(0, len(order), batch):
                some = order[start : start + batch]
                batch_texts = [texts[k] for k in some]
                tokens = self.tokens(
                    batch_texts, truncate=truncate, multiple=WIDTH_MULTIPLE, which=some
                )
                empty = (tokens.mask.sum(1) == 0).nonzero()
                if len(empty):
                    raise BadPretrained(
                        f"text {some[int(empty[0])]} has no tokens", caller(), "leave it out"
                    )
                rows = model(**self.inputs(tokens, relation)).to("cpu")
                rows = rows[:, 0] if first else rows
                found[some] = rows.reshape(len(some), size)  # a vector of one number is a number
        return found

    def decoder(self, read: int, most: int) -> tuple[Decoder, int]:
        """Scores of the next token after a prompt of `read` tokens, and how many can follow."""
        return cached_decoder(self, read, most)

    def check_prompt(self, prompt: str) -> None:
        """Refuse a prompt that the model cannot continue."""

    def generate(
        self,
        prompt: str,
        *,
        most: int = 100,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        each: Callable[[str], None] | None = None,
    ) -> str:
        """The continuation of a prompt, at most `most` tokens; `each` is called with new text.

        Greedy decoding, or sampling if a temperature above 0 is given.

        >>> from edgewise import zoo
        >>> model = zoo.from_pretrained("openai-community/gpt2")  # doctest: +SKIP
        >>> model.generate("Once upon a time", most=20, seed=0)  # doctest: +SKIP
        """
        self.check_prompt(prompt)
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        return generate(self, prompt, most, seed, each, **sampling)

    def translate(
        self, texts: Sequence[str], *, most: int = 128, beams: int = 4, truncate: bool = False
    ) -> list[str]:
        """The output of an encoder–decoder for each text, by beam search.

        >>> from edgewise import zoo
        >>> model = zoo.from_pretrained("Helsinki-NLP/opus-mt-en-de")  # doctest: +SKIP
        >>> model.translate(["Good morning."])  # doctest: +SKIP
        """
        return translate(self, texts, most, beams, truncate)

    def respond(
        self,
        *,
        prompt: Sequence[int] | None = None,
        most: int = 128,
        beams: int = 1,
        **inputs: InputLike,
    ) -> list[list[int]]:
        """The token ids that an encoder–decoder gives for its inputs by name, by beam search.

        Whisper's is `feature`, (batch, frames, numbers). `prompt` are the tokens to begin with, by
        default the start token of the checkpoint.
        """
        return respond(self, prompt, most, beams, inputs)

    def save_pretrained(self, path: str | Path) -> None:
        """Write it as Hugging Face does, with the weights that the compiled models have now."""
        save_pretrained(
            path,
            self.spec.MODEL,
            self.config,
            self._weights(),
            pruned=self.pruned,
            spec=self.spec,
            architecture=self.architecture,
            tokenizer=self.tokenizer,
            # a null is said too: without it transformers takes the default of the model type
            tokens={name: self.table[name] for name in TOKENS if name in self.table}
            | self._said("id2label", "label2id", "problem_type"),
            generation=self._said(*NAMES),
            pooling=self.pooling,
        )

    def _said(self, *names: str) -> dict[str, Any]:
        """Fields of the configuration that are there."""
        return {name: self.table[name] for name in names if self.table.get(name) is not None}


def shares_of(labels: Sequence[str], scores: Tensor, problem: str = SINGLE) -> dict[str, float]:
    """The probabilities of classes by their labels, the most likely first.

    >>> shares_of(["no", "yes"], torch.tensor([0.0, 0.0]))
    {'no': 0.5, 'yes': 0.5}
    """
    scores = scores.double()
    if problem != REGRESSION:
        scores = scores.softmax(-1) if problem == SINGLE else scores.sigmoid()
    pairs = zip(labels, scores.tolist(), strict=True)
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def learnable(model: Model) -> list[str]:
    """The names of the learnable weights, which a checkpoint holds."""
    return [n for n in model._paths if isinstance(model.weight(n), torch.nn.Parameter)]

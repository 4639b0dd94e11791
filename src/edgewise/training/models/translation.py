"""Models of translation: the Transformer, and a recurrent encoder–decoder.

Both languages have one vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgewise.decode import beam, decoder_of
from edgewise.inputs.kinds import numbers
from edgewise.language import R
from edgewise.language.nodes import Atom
from edgewise.language.program import Program
from edgewise.module import Model
from edgewise.training.models.classifier import mask_of
from edgewise.training.models.transformer import Transformer, stack_sizes
from edgewise.training.schema import number, one_of
from edgewise.zoo import rnn, transformer
from edgewise.zoo.block import POSITIONS
from edgewise.zoo.parts import Statements

LENGTH_FACTOR = 2  # translations may be this much longer than the longest training sentence


@dataclass(frozen=True, kw_only=True)
class Translator(Transformer):
    """`tied`: input embeddings and output projection share one table."""

    hidden: int = number(least=1)
    positions: str = one_of("sinusoidal", *POSITIONS)
    tied: bool = False

    states: ClassVar = "encoder.out"  # what `embed` takes the mean of

    def sizes(self, words: int, length: int) -> transformer.Config:
        return stack_sizes(self, words, length, tied=self.tied)

    def build(self, words: int, corpus: Any, seed: int) -> TranslatorModel:
        rules = transformer.program(self.sizes(words, LENGTH_FACTOR * corpus.longest))
        compiled = rules.compile(R.logits, seed=seed)
        _xavier(compiled, seed)
        return self.module(compiled, words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> TranslatorModel:
        """The module around a compiled program."""
        return TranslatorModel(program, words, LENGTH_FACTOR * corpus.longest)


class TranslatorModel(nn.Module):
    """The compiled program: source and target so far → logits of the next token."""

    def __init__(self, program: Model, words: int, longest: int) -> None:
        super().__init__()
        self.words, self.longest = words, longest
        self.program = program

    def forward(self, source: Tensor, lengths: Tensor, token: Tensor) -> Tensor:
        mask = mask_of(source, lengths, self.program.weight("word").dtype)
        inputs = {"source": numbers(source), "target": numbers(token), "mask": mask}
        out: Tensor = self.program(**inputs)
        return out

    def translate(
        self, source: Tensor, lengths: Tensor, *, start: int, stop: int, beams: int, alpha: float
    ) -> Tensor:
        """The best translations (batch, n), found by beam search."""
        mask = mask_of(source, lengths, self.program.weight("word").dtype)
        read: dict[str, Any] = {"source": numbers(source), "mask": mask}
        first = torch.full((len(source), 1), start, device=source.device)
        decoder = decoder_of(self.program, "target", self.longest, **read)
        most = self.longest - 1
        return beam(decoder, first, beams=beams, most=most, stop=stop, alpha=alpha)[0]


@torch.no_grad()
def _xavier(model: nn.Module, seed: int) -> None:
    """Xavier's uniform for matrices, a normal of 1/√d for the table; biases 0, gains 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.zero_()
        elif name == "word":
            weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[1] ** 0.5)
        elif name.endswith("weight"):
            rows, columns = math.prod(weight.shape[:-1]), weight.shape[-1]
            bound = math.sqrt(6 / (rows + columns))
            weight.copy_((torch.rand(weight.shape, generator=generator) * 2 - 1) * bound)


@dataclass(frozen=True)
class Recurrent:
    """`attention` is Luong's score: dot, general or concat; or none."""

    size: int = number(least=1)
    attention: str = one_of("general", *rnn.SCORES)
    dropout: float = number(0.0, least=0.0, below=1.0)

    def build(self, words: int, corpus: Any, seed: int) -> RecurrentModel:
        compiled = rnn.program(self.rules(words)).compile(R.logits, seed=seed)
        _recurrent_scale(compiled, self.size, seed)
        return self.module(compiled, words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> RecurrentModel:
        """The module around a compiled program."""
        return RecurrentModel(program, self.rules(words), LENGTH_FACTOR * corpus.longest)

    def rules(self, words: int) -> rnn.Config:
        return rnn.Config(
            source_words=words,
            target_words=words,
            size=self.size,
            attention=self.attention,
            dropout=self.dropout,
        )


class RecurrentModel(nn.Module):
    """The compiled program: source and target so far → logits of the next token."""

    def __init__(self, program: Model, sizes: rnn.Config, longest: int) -> None:
        super().__init__()
        self.words, self.longest, self.sizes = sizes.source_words, longest, sizes
        self.program = program

    def forward(self, source: Tensor, lengths: Tensor, token: Tensor) -> Tensor:
        """Logits (batch, n, words) of what follows each token."""
        mask = mask_of(source, lengths, self.program.weight("source_word").dtype)
        end = mask - mask_of(source, lengths - 1, mask.dtype)
        inputs = {"source": numbers(source), "mask": mask, "end": end, "target": numbers(token)}
        out: Tensor = self.program(**{n: t for n, t in inputs.items() if n in self.program.inputs})
        return out

    @torch.no_grad()
    def translate(
        self, source: Tensor, lengths: Tensor, *, start: int, stop: int, beams: int, alpha: float
    ) -> Tensor:
        """The best translations (batch, n), found by beam search."""
        following = RecurrentSteps(self, source, lengths)
        first = torch.full((len(source), 1), start, device=source.device)
        most = self.longest - 1
        return beam(following, first, beams=beams, most=most, stop=stop, alpha=alpha)[0]


class RecurrentSteps:
    """Scores of the next token from the last decoder state.

    The rules of the model in three programs: the encoder once, then for each token the next state
    of the decoder and its logits.
    """

    def __init__(self, model: RecurrentModel, source: Tensor, lengths: Tensor) -> None:
        def part(rules: Statements, output: Atom) -> Model:
            model = Program(rules).compile(output).to(source.device, kind).eval()
            model.load_state_dict({name: weights[name] for name in model.state_dict()})
            return model

        config, weights = model.sizes, model.program.state_dict()
        kind = weights["source_word"].dtype
        self.decoder, self.readout = (
            part(rnn.decoder(config), R.s),
            part(rnn.readout(config), R.logits),
        )
        states = part(rnn.encoder(config), R.h)(source=numbers(source))
        assert isinstance(states, Tensor)
        self.last = states[torch.arange(len(states), device=source.device), lengths - 1]
        inputs = {"h": states, "mask": mask_of(source, lengths, kind)}
        self.inputs = {name: inputs[name] for name in inputs if name in self.readout.inputs}
        self.remaining = model.longest

    def __call__(self, tokens: Tensor) -> Tensor:
        """Append tokens (batch, n) and score what follows the last of them."""
        states = self.decoder(target=numbers(tokens), last=self.last)
        assert isinstance(states, Tensor)
        self.last = states[:, -1]
        self.remaining -= tokens.shape[1]
        scores = self.readout(s=states[:, -1:], **self.inputs)
        assert isinstance(scores, Tensor)
        return scores[:, 0]

    def take(self, samples: Tensor) -> None:
        """Select rows of the batch."""
        self.last = self.last.index_select(0, samples)
        self.inputs = {name: item.index_select(0, samples) for name, item in self.inputs.items()}


@torch.no_grad()
def _recurrent_scale(model: nn.Module, size: int, seed: int) -> None:
    """Words normal of variance 1, matrices uniform of variance 1/d; biases 0.

    So words, states and scores begin with about the same size. Within 1/√d all over, as in torch's
    recurrent layers, they shrink from map to map, and attention begins too faint to be learned.
    """
    generator = torch.Generator().manual_seed(seed)
    bound = math.sqrt(3 / size)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.zero_()
        elif name in ("source_word", "target_word"):
            weight.copy_(torch.randn(weight.shape, generator=generator))
        else:
            weight.copy_((torch.rand(weight.shape, generator=generator) * 2 - 1) * bound)

"""Decoders: next-token scores of a model, with cached rows or recomputed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.grow.axes import CannotGrow
from edgewise.grow.growing import Growing, selected
from edgewise.inputs.kinds import InputLike, numbers

if TYPE_CHECKING:
    from edgewise.module import Model

Stop = int | Collection[int] | None  # the token or tokens that end a row


class BadDecoding(EdgewiseError):
    """Decoding starts from an integer tensor (batch, tokens), with parameters in their range."""

    code = "bad-decoding"
    example = """\
from edgewise import decode
model = Program([R.p(V.I) <= F.lookup(W.table[9, 9], R.token(V.I))]).compile(R.p)
decode.greedy(decode.CachedDecoder(model.growing(8), "token"), torch.zeros(1, 0), most=4)"""
    instead = """\
from edgewise import decode
model = Program([R.p(V.I) <= F.lookup(W.table[9, 9], R.token(V.I))]).compile(R.p)
decode.greedy(decode.CachedDecoder(model.growing(8), "token"), torch.tensor([[1]]), most=4)"""


class Decoder(Protocol):
    """Appends tokens (batch, n) and returns the scores (batch, vocabulary) of the next one."""

    def __call__(self, tokens: Tensor, /) -> Tensor: ...

    def take(self, samples: Tensor) -> None:
        """Continue with these rows of the batch."""

    @property
    def remaining(self) -> int:
        """The number of tokens that can still be appended."""
        ...


class CachedDecoder:
    """Next-token scores of a growing model; `token` is its input of token ids.

    >>> import torch
    >>> from edgewise import R, zoo
    >>> from edgewise.decode import greedy
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=16)
    >>> model = zoo.gpt2.program(config).compile(R.logits, seed=0).eval()
    >>> decoder = CachedDecoder(model.growing(16), "token")
    >>> greedy(decoder, torch.tensor([[1, 2]]), most=3).shape
    torch.Size([1, 3])
    """

    def __init__(self, growing: Growing, token: str) -> None:
        if not isinstance(growing, Growing):
            raise BadDecoding(
                f"expected a growing model, got {type(growing).__name__}",
                caller(),
                "write `CachedDecoder(model.growing(capacity), token)`",
            )
        self.growing = growing
        self.token = token

    def __call__(self, tokens: Tensor) -> Tensor:
        inputs: dict[str, Any] = {self.token: numbers(tokens)}
        scores = self.growing(**inputs)
        if not isinstance(scores, Tensor) or scores.ndim != 3:
            raise BadDecoding(
                "the output of the model is not a vector of scores per token",
                caller(),
                "compile the relation of the scores: `compile(R.logits)`",
            )
        return scores[:, -1]

    def take(self, samples: Tensor) -> None:
        self.growing.take(samples)

    @property
    def remaining(self) -> int:
        return self.growing.capacity - self.growing.length


class RecomputingDecoder:
    """Next-token scores by recomputing all tokens, for models that cannot grow.

    For models whose rows depend on each other in other ways than causal attention: a recurrent
    decoder, biases per pair of positions. `fixed` are the other inputs.

    >>> import torch
    >>> from edgewise import R, zoo
    >>> from edgewise.decode import greedy
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=16)
    >>> model = zoo.gpt2.program(config).compile(R.logits, seed=0).eval()
    >>> greedy(RecomputingDecoder(model, "token", 16), torch.tensor([[1, 2]]), most=3).shape
    torch.Size([1, 3])
    """

    def __init__(self, model: Model, token: str, capacity: int, **fixed: InputLike) -> None:
        self.model = model
        self.token = token
        self.capacity = capacity
        self.fixed: dict[str, Any] = fixed
        self.tokens: Tensor | None = None

    def __call__(self, tokens: Tensor) -> Tensor:
        tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens], 1)
        with torch.no_grad():
            scores = self.model(**self.fixed | {self.token: numbers(tokens)})
        self.tokens = tokens
        last: Tensor = scores[:, -1]
        return last

    def take(self, samples: Tensor) -> None:
        assert self.tokens is not None
        self.tokens = self.tokens.index_select(0, samples)
        self.fixed = {name: selected(item, samples) for name, item in self.fixed.items()}

    @property
    def remaining(self) -> int:
        return self.capacity - (0 if self.tokens is None else self.tokens.shape[1])


class FittingDecoder:
    """With a cache where the rules of the model allow one, otherwise as `others` says.

    Which it is shows with the first tokens, as rules are planned for the shapes of inputs.
    """

    def __init__(self, cached: Callable[[], Decoder], others: Callable[[], Decoder]) -> None:
        self._others = others
        self._begun = False
        try:
            self.decoder = cached()
        except CannotGrow:
            self.decoder = others()

    def __call__(self, tokens: Tensor) -> Tensor:
        try:
            scores = self.decoder(tokens)
        except CannotGrow:
            if self._begun:
                raise
            self.decoder = self._others()
            scores = self.decoder(tokens)
        self._begun = True
        return scores

    def take(self, samples: Tensor) -> None:
        self.decoder.take(samples)

    @property
    def remaining(self) -> int:
        return self.decoder.remaining


def decoder_of(model: Model, token: str, capacity: int, **fixed: InputLike) -> Decoder:
    """With a cache where the rules of the model allow one, otherwise by recomputing all tokens.

    >>> import torch
    >>> from edgewise import R, zoo
    >>> from edgewise.decode import greedy
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=16)
    >>> model = zoo.gpt2.program(config).compile(R.logits, seed=0).eval()
    >>> greedy(decoder_of(model, "token", 16), torch.tensor([[1, 2]]), most=3).shape
    torch.Size([1, 3])
    """
    return FittingDecoder(
        lambda: CachedDecoder(model.growing(capacity, **fixed), token),
        lambda: RecomputingDecoder(model, token, capacity, **fixed),
    )


def checked_prompt(decoder: Decoder, prompt: Any, most: int, stop: Stop) -> Tensor:
    """The prompt (batch, n) as int64, if n ≥ 1 and `most` more tokens fit."""
    if not isinstance(prompt, Tensor) or prompt.is_floating_point() or prompt.ndim != 2:
        kind = f"{prompt.dtype} {tuple(prompt.shape)}" if isinstance(prompt, Tensor) else prompt
        raise BadDecoding(
            f"a prompt is an integer tensor (batch, tokens), not {kind!r}",
            caller(),
            "give rows of one length: `torch.tensor([[start]])`",
        )
    if not prompt.numel():
        raise BadDecoding(
            f"the prompt is empty: shape {tuple(prompt.shape)}",
            caller(),
            "begin each row with a token, such as a start token",
        )
    checked_integer(most, "most", 1)
    for token in stop_tokens(stop):
        checked_integer(token, "stop", 0)
    if prompt.shape[1] + most - 1 > decoder.remaining:
        raise BadDecoding(
            f"a prompt of {prompt.shape[1]} tokens and {most} more exceed the remaining capacity "
            f"of {decoder.remaining}",
            caller(),
            "use a larger capacity: `model.growing(capacity)`",
        )
    return prompt.long()


def checked_integer(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadDecoding(
            f"`{name}` must be an integer of at least {least}, got {value!r}",
            caller(),
            f"give {least} or more",
        )
    return value


def stop_tokens(stop: Stop) -> tuple[Any, ...]:
    return () if stop is None else tuple(stop) if isinstance(stop, Collection) else (stop,)

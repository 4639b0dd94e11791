"""Decoding strategies: greedy, sampling, beam search (https://arxiv.org/abs/1609.08144)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from edgewise.decode.decoder import (
    BadDecoding,
    Decoder,
    Stop,
    checked_integer,
    checked_prompt,
    stop_tokens,
)
from edgewise.errors import caller


def greedy(
    decoder: Decoder,
    prompt: Tensor,
    *,
    most: int,
    stop: Stop = None,
    each: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Up to `most` tokens after the prompt (batch, n), each the most likely one.

    `stop` is the token or tokens that end a row, which is then padded with the first of them;
    `each` is called with the tokens (batch,) of every step.

    >>> import torch
    >>> from edgewise import R, zoo
    >>> from edgewise.decode import decoder_of
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=16)
    >>> model = zoo.gpt2.program(config).compile(R.logits, seed=0).eval()
    >>> greedy(decoder_of(model, "token", 16), torch.tensor([[1, 2]]), most=3).shape
    torch.Size([1, 3])
    """
    return _generate(decoder, prompt, lambda scores: scores.argmax(-1), most, stop, each)


def sample(
    decoder: Decoder,
    prompt: Tensor,
    *,
    most: int,
    stop: Stop = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    each: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Up to `most` tokens after the prompt, sampled from softmax(scores / temperature).

    - top_k: sample from the k most likely tokens.
    - top_p: sample from the smallest set of most likely tokens of total probability p.
    - each: called with the tokens (batch,) of every step.

    >>> import torch
    >>> from edgewise import R, zoo
    >>> from edgewise.decode import decoder_of
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=16)
    >>> model = zoo.gpt2.program(config).compile(R.logits, seed=0).eval()
    >>> sample(decoder_of(model, "token", 16), torch.tensor([[1]]), most=3, top_k=5).shape
    torch.Size([1, 3])
    """
    _check_number(temperature, "temperature")
    if top_k is not None:
        checked_integer(top_k, "top_k", 1)
    if top_p is not None:
        _check_number(top_p, "top_p")
        if top_p > 1:
            raise BadDecoding(f"`top_p` is {top_p}", caller(), "give a probability up to 1")

    def choose(scores: Tensor) -> Tensor:
        scores = truncated(scores / temperature, top_k, top_p)
        return torch.multinomial(scores.softmax(-1), 1, generator=generator)[:, 0]

    return _generate(decoder, prompt, choose, most, stop, each)


def _generate(
    decoder: Decoder,
    prompt: Tensor,
    choose: Callable[[Tensor], Tensor],
    most: int,
    stop: Stop,
    each: Callable[[Tensor], None] | None,
) -> Tensor:
    """Choose tokens from the scores until all rows end."""
    tokens, found = checked_prompt(decoder, prompt, most, stop), []
    over = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    for _ in range(most):
        chosen = choose(decoder(tokens))
        found.append(chosen)
        if each is not None:
            each(chosen)
        if stop_tokens(stop):
            over |= _ends(chosen, stop)
            if bool(over.all()):
                break
        tokens = chosen[:, None]
    return _padded(torch.stack(found, 1), stop)


def truncated(scores: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Scores with -∞ for the tokens outside the top k and the top p.

    >>> truncated(torch.tensor([[1.0, 3.0, 2.0]]), 2, None)
    tensor([[-inf, 3., 2.]])
    >>> truncated(torch.tensor([[0.0, 5.0, 0.0]]), None, 0.9)
    tensor([[-inf, 5., -inf]])
    """
    if top_k is not None and top_k < scores.shape[-1]:
        least = scores.topk(top_k, -1).values[..., -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if top_p is not None:
        ordered, order = scores.sort(-1, descending=True)
        shares = ordered.softmax(-1)
        late = shares.cumsum(-1) - shares >= top_p
        scores = scores.masked_fill(late.gather(-1, order.argsort(-1)), -torch.inf)
    return scores


def _ends(tokens: Tensor, stop: Stop) -> Tensor:
    """Which tokens end a row."""
    first, *others = stop_tokens(stop)
    found = tokens == first
    for other in others:
        found |= tokens == other
    return found


def _padded(tokens: Tensor, stop: Stop) -> Tensor:
    """Tokens (batch, n), those after a stop replaced by the first stop token."""
    if not stop_tokens(stop):
        return tokens
    ends = _ends(tokens, stop).long()
    return torch.where(ends.cumsum(1) - ends > 0, stop_tokens(stop)[0], tokens)


def _check_number(value: Any, name: str, *, positive: bool = True) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf or (positive and value == 0):
        wanted = "positive" if positive else "at least 0"
        raise BadDecoding(f"`{name}` must be {wanted}, got {value!r}", caller(), "give 1.0")


@dataclass
class FinishedHypotheses:
    """The best finished hypotheses of one sample."""

    most: int
    rows: list[tuple[float, list[int]]] = field(default_factory=list)

    def add(self, score: float, tokens: list[int]) -> None:
        self.rows.append((score, tokens))
        self.rows.sort(key=lambda row: -row[0])
        del self.rows[self.most :]

    def is_closed(self, best: float) -> bool:
        """True if no open hypothesis can beat those here."""
        return len(self.rows) == self.most and self.rows[-1][0] >= best


def beam(
    decoder: Decoder,
    prompt: Tensor,
    *,
    beams: int,
    most: int,
    stop: int | Collection[int],
    alpha: float = 0.6,
) -> tuple[Tensor, Tensor]:
    """The best continuations (batch, n) of the prompt, and their scores (batch,).

    A score is Σ log p / ((5 + length) / 6)^alpha, the length including the token that ends it
    (https://arxiv.org/abs/1609.08144). A row truncated at `most` tokens counts as finished. `stop`
    is the token or tokens that end a row; rows are padded with the first of them.

    >>> import torch
    >>> from edgewise import R, zoo
    >>> from edgewise.decode import decoder_of
    >>> config = zoo.gpt2.Config(vocabulary=9, size=8, heads=2, hidden=8, layers=1, length=16)
    >>> model = zoo.gpt2.program(config).compile(R.logits, seed=0).eval()
    >>> tokens, scores = beam(
    ...     decoder_of(model, "token", 16), torch.tensor([[1]]), beams=2, most=4, stop=0
    ... )
    >>> scores.shape
    torch.Size([1])
    """
    checked_integer(beams, "beams", 1)
    if not stop_tokens(stop):
        raise BadDecoding("beam search needs a token that ends a row", caller(), "give `stop`")
    _check_number(alpha, "alpha", positive=False)
    tokens = checked_prompt(decoder, prompt, most, stop)
    batch, device = len(tokens), tokens.device
    logp = decoder(tokens).log_softmax(-1)
    words = logp.shape[-1]
    decoder.take(torch.arange(batch, device=device).repeat_interleave(beams))
    total = torch.full((batch, beams), -torch.inf, device=device, dtype=logp.dtype)
    total[:, 0] = 0.0  # all beams are equal at first: only one continues
    logp = logp.repeat_interleave(beams, 0)
    rows = torch.zeros(batch, beams, 0, dtype=torch.long, device=device)
    finished = [FinishedHypotheses(beams) for _ in range(batch)]
    wide = (1 + len(stop_tokens(stop))) * beams
    for length in range(1, most + 1):
        reached = total[:, :, None] + logp.view(batch, beams, words)
        # each beam may end in each way: enough remain
        best, at = reached.flatten(1).topk(min(wide, beams * words), -1)
        rows = torch.cat([rows.gather(1, _wide(at // words, rows)), (at % words)[..., None]], -1)
        ends = _ends(rows[..., -1], stop)
        scale = ((5 + length) / 6) ** alpha
        ended = (ends & (best > -torch.inf))[:, :beams].nonzero()
        scores, found = best[ended[:, 0], ended[:, 1]].tolist(), rows[ended[:, 0], ended[:, 1]]
        for (sample, _), score, row in zip(ended.tolist(), scores, found.tolist(), strict=True):
            finished[sample].add(score / scale, row)
        total, chosen = best.masked_fill(ends, -torch.inf).topk(beams, -1)
        rows = rows.gather(1, _wide(chosen, rows))
        if length == most:
            _add_truncated(finished, rows, total / scale)
            break
        bound = total[:, 0] / ((5 + (most if alpha > 0 else length)) / 6) ** alpha
        if all(done.is_closed(b) for done, b in zip(finished, bound.tolist(), strict=True)):
            break
        from_beam = (at // words).gather(1, chosen)
        first = torch.arange(batch, device=device)[:, None] * beams
        decoder.take((first + from_beam).flatten())
        logp = decoder(rows[..., -1].reshape(-1, 1)).log_softmax(-1)
    absent = next((k for k, done in enumerate(finished) if not done.rows), None)
    if absent is not None:
        raise BadDecoding(
            f"no token can follow in row {absent}: all scores are -∞ or NaN",
            caller(),
            "allow more tokens, or check the weights",
        )
    return _best_rows([done.rows[0] for done in finished], stop_tokens(stop)[0], device)


def _add_truncated(finished: list[FinishedHypotheses], rows: Tensor, scores: Tensor) -> None:
    """Add the rows truncated at the maximal length."""
    for done, best, found in zip(finished, scores.tolist(), rows.tolist(), strict=True):
        for score, row in zip(best, found, strict=True):
            if score > -math.inf:
                done.add(score, row)


def _wide(places: Tensor, rows: Tensor) -> Tensor:
    return places[..., None].expand(*places.shape, rows.shape[-1])


def _best_rows(
    best: list[tuple[float, list[int]]], stop: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    longest = max(len(row) for _, row in best)
    rows = [row + [stop] * (longest - len(row)) for _, row in best]
    scores = torch.tensor([score for score, _ in best], dtype=torch.float64, device=device)
    return torch.tensor(rows, device=device), scores

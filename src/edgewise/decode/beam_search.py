"""Beam search."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from edgewise.decode.decoder import BadDecoding, Decoder, checked_integer, checked_prompt
from edgewise.errors import caller


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
    decoder: Decoder, prompt: Tensor, *, beams: int, most: int, stop: int, alpha: float = 0.6
) -> tuple[Tensor, Tensor]:
    """The best continuations (batch, n) of the prompt, and their scores (batch,).

    A score is Σ log p / ((5 + length) / 6)^alpha, the length including `stop`
    (https://arxiv.org/abs/1609.08144). A row truncated at `most` tokens counts as finished. Rows
    are padded with `stop`.
    """
    checked_integer(beams, "beams", 1)
    checked_integer(stop, "stop", 0)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha < math.inf:
        raise BadDecoding(
            f"`alpha` must be at least 0, got {alpha!r}", caller(), "give, for example, 0.6"
        )
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
    for length in range(1, most + 1):
        reached = total[:, :, None] + logp.view(batch, beams, words)
        # twice as many as beams: if half of them end, enough remain
        best, at = reached.flatten(1).topk(min(2 * beams, beams * words), -1)
        rows = torch.cat([rows.gather(1, _wide(at // words, rows)), (at % words)[..., None]], -1)
        ends = rows[..., -1] == stop
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
    return _padded([done.rows[0] for done in finished], stop, device)


def _add_truncated(finished: list[FinishedHypotheses], rows: Tensor, scores: Tensor) -> None:
    """Add the rows truncated at the maximal length."""
    for done, best, found in zip(finished, scores.tolist(), rows.tolist(), strict=True):
        for score, row in zip(best, found, strict=True):
            if score > -math.inf:
                done.add(score, row)


def _wide(places: Tensor, rows: Tensor) -> Tensor:
    return places[..., None].expand(*places.shape, rows.shape[-1])


def _padded(
    best: list[tuple[float, list[int]]], stop: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    longest = max(len(row) for _, row in best)
    rows = [row + [stop] * (longest - len(row)) for _, row in best]
    scores = torch.tensor([score for score, _ in best], dtype=torch.float64, device=device)
    return torch.tensor(rows, device=device), scores

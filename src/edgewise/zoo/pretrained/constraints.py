"""A checkpoint's constraints on the next token: forced, suppressed and repeated ones.

The names are those of `generation_config.json`. How tokens are chosen (sampling, beams, lengths) is
said by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.zoo.pretrained.fields import BadPretrained

if TYPE_CHECKING:
    from edgewise.decode.decoder import Decoder

LISTS = ("suppress_tokens", "begin_suppress_tokens")
FORCED = ("forced_bos_token_id", "forced_eos_token_id")
COUNTS = ("min_length", "min_new_tokens", "no_repeat_ngram_size")
NAMES = (*LISTS, *FORCED, *COUNTS, "bad_words_ids", "repetition_penalty")
UNSUPPORTED = {  # name → the values that change nothing
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1.0),
    "exponential_decay_length_penalty": (None,),
    "sequence_bias": (None,),
    "guidance_scale": (None, 1.0),
    "diversity_penalty": (None, 0.0),
}


@dataclass(frozen=True)
class Constraints:
    """Which tokens may follow; `ends` are those that end a text."""

    banned: tuple[int, ...] = ()
    banned_first: tuple[int, ...] = ()
    banned_rows: tuple[tuple[int, ...], ...] = ()
    first: int | None = None
    last: int | None = None
    least: int = 0  # of all tokens
    least_new: int = 0
    ngram: int = 0
    penalty: float = 1.0
    ends: tuple[int, ...] = ()

    def __call__(self, scores: Tensor, history: Tensor, step: int, most: int) -> Tensor:
        """The scores of token `step` of `most`, from 0, after the tokens of `history`."""
        forced = self.last if step == most - 1 else None
        if forced is None and history.shape[1] == 1:  # after the start token alone
            forced = self.first
        if forced is not None:
            return torch.full_like(scores, -torch.inf).index_fill(1, _index(scores, [forced]), 0.0)
        if self.penalty != 1:
            seen = scores.gather(1, history)
            lower = torch.where(seen < 0, seen * self.penalty, seen / self.penalty)
            scores = scores.scatter(1, history, lower)
        free = int(self.first is not None and history.shape[1] - step == 1)  # after a forced one
        banned = [*self.banned, *(self.banned_first if step == free else ())]
        if history.shape[1] < self.least or step < self.least_new:
            banned += self.ends
        scores = scores.index_fill(1, _index(scores, banned), -torch.inf) if banned else scores
        if self.banned_rows or self.ngram:
            scores = scores.clone()
            for row, known in zip(scores, history.tolist(), strict=True):
                row[_index(scores, self._not_after(known))] = -torch.inf
        return scores

    def _not_after(self, known: list[int]) -> list[int]:
        """The tokens that would complete a banned row, or an n-gram that was there before."""
        found = [r[-1] for r in self.banned_rows if known[len(known) - len(r) + 1 :] == [*r[:-1]]]
        n = self.ngram
        if n and len(known) >= n:
            end = known[len(known) - n + 1 :]
            starts = range(len(known) - n + 1)
            found += [known[s + n - 1] for s in starts if known[s : s + n - 1] == end]
        return found


def _index(like: Tensor, tokens: list[int]) -> Tensor:
    return torch.tensor(tokens, dtype=torch.int64, device=like.device)


def read_constraints(
    table: Mapping[str, Any], ends: tuple[int, ...], vocabulary: int
) -> Constraints:
    """The constraints of a configuration; refuses those that are not supported."""
    for name, idle in UNSUPPORTED.items():
        if table.get(name) not in idle:
            raise _bad(name, table[name], "unset: it is not supported")
    rows = _rows(table.get("bad_words_ids"), vocabulary)
    alone = tuple(row[0] for row in rows if len(row) == 1 and row[0] not in ends)
    banned, banned_first = (_tokens(name, table.get(name), vocabulary) for name in LISTS)
    first, last = (_tokens(name, table.get(name), vocabulary) for name in FORCED)
    least, least_new, ngram = (_count(name, table.get(name)) for name in COUNTS)
    penalty = table.get("repetition_penalty")
    penalty = 1.0 if penalty is None else penalty
    if isinstance(penalty, bool) or not isinstance(penalty, int | float) or not 0 < penalty < 1e6:
        raise _bad("repetition_penalty", penalty, "a number > 0")
    longer = tuple(row for row in rows if len(row) > 1)
    return Constraints(
        banned + alone, banned_first, longer, next(iter(first), None), next(iter(last), None),
        least, least_new, ngram, float(penalty), ends,
    )  # fmt: skip


def _tokens(name: str, value: Any, vocabulary: int) -> tuple[int, ...]:
    found = list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
    for token in found:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocabulary:
            raise _bad(name, value, f"token ids below {vocabulary:,}")
    return tuple(found)


def _rows(value: Any, vocabulary: int) -> list[tuple[int, ...]]:
    if value is not None and not (isinstance(value, list) and all(value)):
        raise _bad("bad_words_ids", value, "a list of lists of token ids")
    return [_tokens("bad_words_ids", row, vocabulary) for row in value or ()]


def _count(name: str, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _bad(name, value, "an integer of at least 0")
    return value


def _bad(name: str, value: Any, wanted: str) -> BadPretrained:
    return BadPretrained(
        f"the generation configuration has `{name}` = {value!r:.60}",
        caller(),
        f"it must be {wanted}",
    )


class ConstrainedDecoder:
    """The scores of a decoder for `most` tokens, under constraints."""

    def __init__(self, decoder: Decoder, constraints: Constraints, most: int) -> None:
        self.decoder, self.constraints, self.most = decoder, constraints, most
        self.history: Tensor | None = None
        self.step = 0

    def __call__(self, tokens: Tensor) -> Tensor:
        scores = self.decoder(tokens)
        before = [] if self.history is None else [self.history]
        self.history = torch.cat([*before, tokens], 1)
        found = self.constraints(scores, self.history, self.step, self.most)
        self.step += 1
        return found

    def take(self, samples: Tensor) -> None:
        assert self.history is not None
        self.decoder.take(samples)
        self.history = self.history.index_select(0, samples)

    @property
    def remaining(self) -> int:
        return self.decoder.remaining

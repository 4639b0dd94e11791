"""Decoding with rotary positions that depend on how long a text is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.decode.decoder import CachedDecoder, Decoder
from edgewise.zoo.rope_scaling import Dynamic, LongRope, Scaling

if TYPE_CHECKING:
    from edgewise.zoo.pretrained.model import Pretrained


class LengthDecoder:
    """Scores with a cache for as long as positions are scaled in one way; then all tokens are read
    again, as in transformers.
    """

    def __init__(self, pretrained: Pretrained, scaling: Dynamic | LongRope, capacity: int) -> None:
        self.pretrained, self.scaling, self.capacity = pretrained, scaling, capacity
        self.tokens: Tensor | None = None
        self.decoder: tuple[Scaling | None, Decoder] | None = None

    def __call__(self, tokens: Tensor) -> Tensor:
        every = tokens if self.tokens is None else torch.cat([self.tokens, tokens], 1)
        scaling = self.scaling.up_to(every.shape[1])
        if self.decoder is None or self.decoder[0] != scaling:
            self.decoder, tokens = (scaling, self._decoder(scaling)), every
        scores = self.decoder[1](tokens)
        self.tokens = every
        return scores

    def _decoder(self, scaling: Scaling | None) -> Decoder:
        config = replace(self.pretrained.config, scaling=scaling)
        program = self.pretrained.spec.MODEL.program(config)
        model = replace(self.pretrained, config=config, program=program, compiled={}).model
        return CachedDecoder(model.growing(self.capacity), "token")

    def take(self, samples: Tensor) -> None:
        assert self.tokens is not None
        assert self.decoder is not None
        self.tokens = self.tokens.index_select(0, samples)
        self.decoder[1].take(samples)

    @property
    def remaining(self) -> int:
        return self.capacity - (0 if self.tokens is None else self.tokens.shape[1])

"""Autoregressive decoding: greedy, sampling and beam search."""

from edgewise.decode.decoder import CachedDecoder, RecomputingDecoder
from edgewise.decode.strategies import beam, greedy, sample

__all__ = ["CachedDecoder", "RecomputingDecoder", "beam", "greedy", "sample"]

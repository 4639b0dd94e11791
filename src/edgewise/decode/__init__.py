"""Autoregressive decoding: greedy, sampling and beam search."""

from edgewise.decode.beam_search import beam
from edgewise.decode.decoder import CachedDecoder, RecomputingDecoder
from edgewise.decode.sampling import greedy, sample

__all__ = ["CachedDecoder", "RecomputingDecoder", "beam", "greedy", "sample"]

"""Autoregressive decoding: greedy, sampling and beam search."""

from edgewise.decode.decoder import CachedDecoder, RecomputingDecoder, decoder_of
from edgewise.decode.strategies import beam, greedy, sample

__all__ = ["CachedDecoder", "RecomputingDecoder", "beam", "decoder_of", "greedy", "sample"]

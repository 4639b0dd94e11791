"""Decoding: greedy, sampling and beam search, token by token; trees, of scored arcs."""

from edgewise.decode.decoder import CachedDecoder, RecomputingDecoder, decoder_of
from edgewise.decode.spanning import spanning_tree
from edgewise.decode.strategies import beam, greedy, sample

__all__ = [
    "CachedDecoder",
    "RecomputingDecoder",
    "beam",
    "decoder_of",
    "greedy",
    "sample",
    "spanning_tree",
]

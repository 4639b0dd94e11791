"""Token after token: greedy, sampled and beam search over a model that grows."""

from edgewise.decode.again import Again
from edgewise.decode.beam import beam
from edgewise.decode.following import Following
from edgewise.decode.greedy import greedy
from edgewise.decode.sample import sample

__all__ = ["Again", "Following", "beam", "greedy", "sample"]

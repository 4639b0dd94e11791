"""The same rules on many ranks: what each must receive is read off the graph."""

from edgewise.distributed.shards import Shards
from edgewise.distributed.simulate import Communication, best_shards, communication
from edgewise.distributed.traffic import RowSizes

__all__ = ["Communication", "RowSizes", "Shards", "best_shards", "communication"]

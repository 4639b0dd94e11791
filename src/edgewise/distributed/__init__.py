"""The same rules on many ranks: what each must receive is read off the graph."""

from edgewise.distributed.collectives import counting
from edgewise.distributed.model_scale import ModelScale, scale
from edgewise.distributed.partition import PartitionQuality, partition_of, quality
from edgewise.distributed.partitioned_data import PartitionedData
from edgewise.distributed.placement import best_shards
from edgewise.distributed.rank_model import RankModel, on_mesh
from edgewise.distributed.scalars import replicated_scalars
from edgewise.distributed.shards import Shards
from edgewise.distributed.simulate import Communication, communication
from edgewise.distributed.traffic import RowSizes

__all__ = [
    "Communication",
    "ModelScale",
    "PartitionQuality",
    "PartitionedData",
    "RankModel",
    "RowSizes",
    "Shards",
    "best_shards",
    "communication",
    "counting",
    "on_mesh",
    "partition_of",
    "quality",
    "replicated_scalars",
    "scale",
]

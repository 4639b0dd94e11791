"""Data relations, one file for each way in which they are given."""

from edgewise.ground.sources.dense import dense_source as dense_source
from edgewise.ground.sources.dense import in_samples as in_samples
from edgewise.ground.sources.facts import fact_source as fact_source
from edgewise.ground.sources.facts import table_source as table_source
from edgewise.ground.sources.keyed import rows_source as rows_source
from edgewise.ground.sources.ragged import ragged_source as ragged_source
from edgewise.ground.sources.source import Live as Live
from edgewise.ground.sources.source import Source as Source
from edgewise.ground.sources.source import has_negative_keys as has_negative_keys
from edgewise.ground.sources.source import refuse_mixed as refuse_mixed

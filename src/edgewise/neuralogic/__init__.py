"""PyNeuraLogic's interface: its templates, datasets, modules and training, on this compiler."""

import sys
from typing import Any

from edgewise.neuralogic import core, dataset, inference, nn
from edgewise.neuralogic.core import (
    C,
    Const,
    F,
    Metadata,
    Model,
    R,
    Relation,
    Settings,
    Template,
    V,
    Var,
)
from edgewise.neuralogic.dataset import Dataset, FileDataset, Sample
from edgewise.neuralogic.exceptions import (
    ConfigurationError,
    DatasetError,
    ModelError,
    NeuraLogicError,
)
from edgewise.neuralogic.seeds import (
    initial_seed,
    initialize,
    is_initialized,
    manual_seed,
    seed,
    set_max_memory_size,
    shutdown,
)

OLDER: dict[str, Any] = {  # where its documentation still finds them, as before 0.8
    "optim": nn.optim,
    "nn.functional": F,
    "inference.inference_engine": inference,
}
sys.modules |= {f"{__name__}.{path}": found for path, found in OLDER.items()}

__all__ = [
    "C",
    "ConfigurationError",
    "Const",
    "Dataset",
    "DatasetError",
    "F",
    "FileDataset",
    "Metadata",
    "Model",
    "ModelError",
    "NeuraLogicError",
    "R",
    "Relation",
    "Sample",
    "Settings",
    "Template",
    "V",
    "Var",
    "core",
    "dataset",
    "initial_seed",
    "initialize",
    "is_initialized",
    "manual_seed",
    "nn",
    "seed",
    "set_max_memory_size",
    "shutdown",
]

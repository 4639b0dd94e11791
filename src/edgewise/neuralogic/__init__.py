"""PyNeuraLogic's interface: its templates, datasets, modules and training, on this compiler."""

import sys
from typing import Any

from edgewise.errors import caller
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
from edgewise.neuralogic.errors import NotThere
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

_MACHINE = "leave it out: there is no virtual machine"
_PICTURES = "leave it out: `model.draw()` and `sample.draw()` need no Graphviz"
ABSENT = {
    "BackendError": _MACHINE,
    "set_jvm_path": _MACHINE,
    "set_jvm_options": _MACHINE,
    "set_graphviz_path": _PICTURES,
    "get_default_graphviz_path": _PICTURES,
    "LogHandler": "print what `model.train` returns, or write a `TrainerCallback`",
    "add_log_handler": "print what `model.train` returns, or write a `TrainerCallback`",
}


def __getattr__(name: str) -> object:
    """What PyNeuraLogic has beside: an error that `from edgewise.neuralogic import name` shows."""
    if name in ABSENT:
        raise NotThere(f"`{name}` of PyNeuraLogic is not here", caller(), ABSENT[name])
    raise AttributeError(f"module 'edgewise.neuralogic' has no attribute '{name}'")

"""Checkpoints by their names on the Hugging Face hub: from its cache, or downloaded into it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from edgewise.errors import caller
from edgewise.zoo.pretrained.fetch import CannotFetch

NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]  # nothing that runs code when it is read


def is_hub_name(path: str | Path) -> bool:
    """Whether it is written as a name of the hub, `owner/model`, and no file has it.

    >>> is_hub_name("openai-community/gpt2"), is_hub_name("./runs/a"), is_hub_name("runs/a/b")
    (True, False, False)
    """
    return NAME.fullmatch(str(path)) is not None and not Path(path).exists()


def hub_folder(name: str) -> Path:
    """The folder of a model of the hub; without a connection, the one in the cache."""
    if find_spec("huggingface_hub") is None:
        raise CannotFetch(
            f"there is no folder `{name}`, and names of the hub need huggingface_hub",
            caller(),
            "pip install 'edgewise[models]'",
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=FILES))
    except LocalEntryNotFoundError:
        raise CannotFetch(
            f"there is no folder `{name}`, no model of this name in the cache of the hub, and the "
            "hub cannot be reached",
            caller(),
            "give the path of a folder, or copy the model into the cache: HF_HUB_CACHE=...",
        ) from None
    except (HfHubHTTPError, HFValidationError) as problem:
        reason = str(problem).strip().partition("\n")[0]
        raise CannotFetch(
            f"there is no folder `{name}`, and no such model on the hub: {reason}",
            caller(),
            "look at the name; of a model with conditions, accept them and log in: `hf auth login`",
        ) from None

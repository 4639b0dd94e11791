"""Whether torch converts the precision of operations by itself."""

from __future__ import annotations

import torch


def autocasts(device: torch.device) -> bool:
    """Whether autocast is on for a device; shapes alone have none."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)

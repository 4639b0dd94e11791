"""Incremental evaluation: facts are added, changed and removed; what they reach is recomputed."""

from edgewise.update.updating import Updating

__all__ = ["Updating"]

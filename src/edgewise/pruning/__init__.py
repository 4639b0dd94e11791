"""Heads that a model does not need: how important each one is, and the model without some."""

from edgewise.pruning.head_importance import HeadImportance, importance
from edgewise.pruning.smaller_models import prune

__all__ = ["HeadImportance", "importance", "prune"]

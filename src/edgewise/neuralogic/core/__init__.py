"""Templates and their settings."""

from edgewise.neuralogic.core.constructs.factories import C, Const, R, Relation, V, Var
from edgewise.neuralogic.core.constructs.function import (
    Aggregation,
    Combination,
    F,
    Transformation,
)
from edgewise.neuralogic.core.constructs.metadata import Metadata
from edgewise.neuralogic.core.constructs.rule import Rule, RuleBody
from edgewise.neuralogic.core.model import BuiltDataset, Model
from edgewise.neuralogic.core.settings import Grounder, Settings, SettingsProxy

Template = Model  # its name before 0.8

__all__ = [
    "Aggregation",
    "BuiltDataset",
    "C",
    "Combination",
    "Const",
    "F",
    "Grounder",
    "Metadata",
    "Model",
    "R",
    "Relation",
    "Rule",
    "RuleBody",
    "Settings",
    "SettingsProxy",
    "Template",
    "Transformation",
    "V",
    "Var",
]

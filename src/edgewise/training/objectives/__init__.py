"""What a run makes small, and what it is measured by: one file for each."""

from edgewise.training.objectives.causal import Causal
from edgewise.training.objectives.classification import Classification
from edgewise.training.objectives.masked import Masked

OBJECTIVES = {
    "causal": Causal,
    "masked": Masked,
    "classification": Classification,
}

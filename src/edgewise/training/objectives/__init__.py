"""What a run makes small, and what it is measured by: one file for each."""

from edgewise.training.objectives.causal import Causal
from edgewise.training.objectives.classification import Classification
from edgewise.training.objectives.masked import Masked
from edgewise.training.objectives.translation import Translation

OBJECTIVES = {
    "causal": Causal,
    "masked": Masked,
    "classification": Classification,
    "translation": Translation,
}

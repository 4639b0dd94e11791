"""The models of recipes: sections that build a module out of rules of the zoo, one file each."""

from edgewise.training.models.classifier import Classifier
from edgewise.training.models.encoder import Encoder
from edgewise.training.models.gpt import Gpt
from edgewise.training.models.recurrent import Recurrent
from edgewise.training.models.translator import Translator

MODELS = {
    "gpt": Gpt,
    "encoder": Encoder,
    "classifier": Classifier,
    "recurrent": Recurrent,
    "translator": Translator,
}

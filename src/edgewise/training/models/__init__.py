"""The models of recipes: sections that build a module out of rules of the zoo."""

from edgewise.training.models.algorithms import AlgorithmStep
from edgewise.training.models.classifier import Classifier
from edgewise.training.models.graph import GraphNetwork
from edgewise.training.models.language import Encoder, Gpt
from edgewise.training.models.parser import Parser
from edgewise.training.models.paths import BellmanFord, SoftRules
from edgewise.training.models.pretrained import FineTuned
from edgewise.training.models.translation import Recurrent, Translator
from edgewise.training.models.triples import TripleEmbeddings

MODELS = {
    "gpt": Gpt,
    "encoder": Encoder,
    "classifier": Classifier,
    "recurrent": Recurrent,
    "translator": Translator,
    "pretrained": FineTuned,
    "parser": Parser,
    "graph": GraphNetwork,
    "embeddings": TripleEmbeddings,
    "nbfnet": BellmanFord,
    "soft_rules": SoftRules,
    "algorithm": AlgorithmStep,
}

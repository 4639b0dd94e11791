"""Modules, losses, initializers, optimisers and training."""

from edgewise.neuralogic.nn import module
from edgewise.neuralogic.nn.evaluator import Evaluator, get_evaluator
from edgewise.neuralogic.nn.init import (
    Constant,
    Glorot,
    He,
    Initializer,
    Longtail,
    Normal,
    Torch,
    Uniform,
)
from edgewise.neuralogic.nn.loss import MSE, CrossEntropy, ErrorFunction, SoftEntropy
from edgewise.neuralogic.nn.module import *  # noqa: F403
from edgewise.neuralogic.nn.optim import SGD, Adam, Optimizer
from edgewise.neuralogic.nn.trainer import (
    CheckpointCallback,
    EarlyStoppingCallback,
    Metric,
    Trainer,
    TrainerCallback,
    TrainerHistory,
    compute_metrics,
)

__all__ = [
    *module.__all__,
    "MSE",
    "SGD",
    "Adam",
    "CheckpointCallback",
    "Constant",
    "CrossEntropy",
    "EarlyStoppingCallback",
    "ErrorFunction",
    "Evaluator",
    "Glorot",
    "He",
    "Initializer",
    "Longtail",
    "Metric",
    "Normal",
    "Optimizer",
    "SoftEntropy",
    "Torch",
    "Trainer",
    "TrainerCallback",
    "TrainerHistory",
    "Uniform",
    "compute_metrics",
    "get_evaluator",
]

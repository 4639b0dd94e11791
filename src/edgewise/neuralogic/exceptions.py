"""PyNeuraLogic's names of errors: `except DatasetError` catches here what it does there."""

from edgewise.errors import EdgewiseError as NeuraLogicError
from edgewise.neuralogic.errors import BadSample as DatasetError
from edgewise.neuralogic.errors import BadSetting as ConfigurationError
from edgewise.neuralogic.errors import BadTemplate as ModelError

__all__ = ["ConfigurationError", "DatasetError", "ModelError", "NeuraLogicError"]

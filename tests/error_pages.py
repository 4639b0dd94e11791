"""docs/errors.py, which runs the examples of errors, as a module for tests."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]

spec = importlib.util.spec_from_file_location("errors", ROOT / "docs" / "errors.py")
errors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(errors)

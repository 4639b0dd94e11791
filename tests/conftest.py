"""Settings of all tests: golden files, and how hypothesis looks for examples."""

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(Path(__file__).parent))  # helpers of tests are imported by name

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-update", action="store_true", help="write the golden files instead of comparing"
    )
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")
    parser.addoption("--reverse", action="store_true", help="run the tests from last to first")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In reverse, or a random order of files and of the tests of each: they share fixtures."""
    if config.getoption("--reverse"):
        items.reverse()
    seed = config.getoption("--shuffle")
    if seed is not None:
        draw = random.Random(seed)
        draw.shuffle(items)
        files = {item.path: draw.random() for item in items}
        items.sort(key=lambda item: files[item.path])


@pytest.fixture(autouse=True)
def draws_the_same() -> None:
    """A test that fails, fails again: what it draws does not depend on the tests before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def compiles_anew() -> None:
    """Dynamo counts what it compiled of a function in a process, and stops at a limit."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()


@pytest.fixture
def assert_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of that name in tests/golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--golden-update"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {name}; run `make golden` and read it"
        assert text == path.read_text(encoding="utf-8")

    return compare

"""The same numbers as PyNeuraLogic 0.9.2 with the same weights: outputs, errors, updates."""

import json
from pathlib import Path

import pytest

import edgewise.neuralogic
import edgewise.neuralogic.nn.optim.lr_scheduler
from tests.neuralogic.cases import CASES, computed

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "neuralogic.json").read_text())


def assert_close(ours, theirs, where):
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        for key, value in theirs.items():
            assert_close(ours[key], value, f"{where}, {key}")
    elif isinstance(theirs, list):
        assert isinstance(ours, list), where
        assert len(ours) == len(theirs), where
        for at, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_close(a, b, f"{where}[{at}]")
    else:
        assert ours == pytest.approx(theirs, abs=1e-9, rel=1e-9), where


def test_every_case_was_recorded():
    assert GOLDEN["cases"].keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_same_numbers(name):
    theirs = GOLDEN["cases"][name]
    ours = computed(edgewise.neuralogic, CASES[name])
    if "untrained" in theirs:  # their gradient fails
        assert "results" in ours
        assert_close(ours["outputs"], theirs["outputs"], name)
        return
    assert_close(ours, theirs, name)

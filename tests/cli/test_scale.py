"""`edgewise scale`, as a user types it."""

import json

import pytest

from edgewise.cli import main


def test_a_pattern_is_scaled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "window(256)", "--ranks", "64"]) == 0
    out = capsys.readouterr().out
    assert "window(256), 1,048,576 tokens on 64 ranks, 8 heads of 64" in out
    assert "0.050%" in out
    assert "computed, not measured" in out


def test_json_has_the_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--ranks", "8", "--tokens", "4096", "--json", "--by-residue"]
    assert main(["scale", "causal() & strided(64)", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["worst"] == 0
    assert found["all_gather"] > 0


def test_a_model_is_scaled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "gpt2", "--graph", "window(256)", "--ranks", "8"]) == 0
    assert "layer.0.context and 11 more like it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gcn"], "`gcn` is not a model of tokens"),
        (["gcn", "--graph", "window(3)"], "`gcn` has no graph to choose"),
        (["lrnn"], "`lrnn` is not a model of tokens"),
        (["gpt3"], "did you mean"),
        (["windw(3)"], "there is no pattern `windw`"),
        (["window(3)", "--ranks", "0"], "`ranks` must be at least 1"),
        (["deberta"], "tokens of different ranks meet outside of attention"),
    ],
)
def test_what_cannot_be_scaled_says_why(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale", *arguments]) == 2
    assert says in capsys.readouterr().err

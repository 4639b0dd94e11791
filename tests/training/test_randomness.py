"""One order of sums while a step runs, and the user's own choice again after it."""

import pytest
import torch
from tiny_recipe import RECIPE, loaded

from edgewise import training
from edgewise.training.errors import NotRepeatable
from edgewise.training.models.language import LanguageModel
from edgewise.training.randomness import deterministic


@pytest.mark.parametrize("before", [False, True])
def test_what_was_chosen_before_is_back_after(before):
    torch.use_deterministic_algorithms(before)
    try:
        with deterministic(True):
            assert torch.are_deterministic_algorithms_enabled()
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.are_deterministic_algorithms_enabled() is before
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_has_no_one_order_is_an_error_of_ours_and_other_errors_are_as_they_are():
    with pytest.raises(NotRepeatable, match="put_"), deterministic(True):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    with pytest.raises(RuntimeError, match="shape"), deterministic(True):
        torch.zeros(3).reshape(2)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("asked", ["true", "false"])
def test_a_recipe_asks_for_it(asked, tmp_path, monkeypatch):
    seen, forward = [], LanguageModel.forward

    def watched(self, token):
        if self.training:
            seen.append(torch.are_deterministic_algorithms_enabled())
        return forward(self, token)

    monkeypatch.setattr(LanguageModel, "forward", watched)
    recipe = loaded(tmp_path, RECIPE + f"deterministic = {asked}\n")
    for _ in training.train(recipe, tmp_path / "out"):
        assert not torch.are_deterministic_algorithms_enabled()
    assert seen == [asked == "true"] * 12

"""Outputs of a model and of equations in plain torch on its weights: values and gradients."""

import torch


def assert_equal_with_gradients(model, ours, theirs):
    """Values, and the gradients of all weights in a random direction."""
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    leaves = [p for p in model.parameters() if p.requires_grad]
    direction = torch.randn_like(theirs)
    found = torch.autograd.grad((ours * direction).sum(), leaves, allow_unused=True)
    expected = torch.autograd.grad((theirs * direction).sum(), leaves, allow_unused=True)
    for leaf, a, b in zip(leaves, found, expected, strict=True):
        a, b = (torch.zeros_like(leaf) if g is None else g for g in (a, b))
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)

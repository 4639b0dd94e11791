"""What rules say of the shapes of results is what torch gives."""

import pytest
import torch
from torch import Tensor

from edgewise.physical.result_shapes import like_result

X, COUNTS = torch.randn(2, 5, 3, dtype=torch.float64), torch.arange(5)[:, None]
CALLS = {
    "by integers": (Tensor.div, (X, COUNTS)),
    "by integers of 32 bits": (Tensor.true_divide, (X.float(), COUNTS.int())),
    "times booleans": (Tensor.mul, (X.bfloat16(), COUNTS > 2)),
    "integers by integers": (Tensor.div, (COUNTS, COUNTS)),
    "two precisions": (Tensor.add, (X.float(), X)),
    "a maximum": (torch.maximum, (X, COUNTS)),
    "full": (Tensor.new_full, (X, (4, 1), 0.0)),
    "full of integers": (Tensor.new_full, (X, (4, 1), 7)),
    "full by a list": (Tensor.new_full, (X, [4, 1], 7)),
    "an axis moved": (Tensor.movedim, (X, -2, 1)),
    "an axis moved to the end": (Tensor.movedim, (X, 0, -1)),
    "axes moved": (Tensor.movedim, (X, (0, 1), (1, 2))),
}


def meta(item):
    match item:
        case Tensor():
            return item.to("meta")
        case tuple():
            return tuple(map(meta, item))
    return item


@pytest.mark.parametrize(("function", "args"), CALLS.values(), ids=CALLS)
def test_results_are_like_those_of_torch(function, args):
    found, wanted = like_result(function, args, {}, meta), function(*args)
    assert (found.shape, found.dtype, found.device.type) == (wanted.shape, wanted.dtype, "meta")

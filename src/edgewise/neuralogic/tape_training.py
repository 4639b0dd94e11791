"""Training as one loop: the batches of a dataset on a tape, once they were seen a few times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.tape import NotRecordedError, TapeTraining, optimiser_options
from edgewise.neuralogic.engine import NeuralSample, Programs, SampleBatch, descended, result

PLAIN_EPOCHS = 3  # recording takes about as long as some epochs


class TapedBatches:
    """Epochs of updates, one for each batch."""

    def __init__(
        self, programs: Programs, batches: Sequence[Sequence[NeuralSample]], function: Any
    ) -> None:
        self.function = function
        self.batches = [SampleBatch(programs, samples, taped=True) for samples in batches]
        self.derived: list[list[NeuralSample]] = []
        for batch in self.batches:
            self.derived.append([sample for sample, _, _ in descended(batch, function)[1]])
        samples = [self._sample(batch) for batch in self.batches]
        self.training = TapeTraining(list(programs.weights.values()), samples)

    def _sample(self, batch: SampleBatch) -> Any:
        def sample() -> tuple[Tensor, list[Tensor]]:
            total, found = descended(batch, self.function)
            return total, [tensor for _, output, error in found for tensor in (output, error)]

        return sample

    def epochs(
        self, optimiser: torch.optim.Optimizer | None, rates: list[float], *bounds: Any
    ) -> list[Any]:
        """Update for each batch in order, an epoch for each rate; results of the last one."""
        self.training.updates(optimiser, rates, *bounds)
        found = []
        for at, samples in enumerate(self.derived):
            values = iter(self.training.values(at))
            found += [result(sample, next(values), next(values)) for sample in samples]
        return found


def taped(
    programs: Programs,
    batches: Sequence[Sequence[NeuralSample]],
    function: Any,
    optimiser: torch.optim.Optimizer | None,
) -> TapedBatches | str:
    """The batches on a tape, or why not."""
    try:
        optimiser_options(optimiser, list(programs.weights.values()))
        return TapedBatches(programs, batches, function)
    except NotRecordedError as reason:
        return str(reason)
    except Exception as problem:  # of an operator whose arguments are new; plain epochs had none
        return f"{type(problem).__name__}: {problem}"

"""`get_evaluator(template, settings)`: training as PyNeuraLogic had it before 0.8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgewise.neuralogic.core.model import BuiltDataset, TemplateModel
    from edgewise.neuralogic.core.settings import Settings


class TemplateEvaluator:
    """A built template, which trains for `settings.epochs` epochs.

    >>> from edgewise.neuralogic import Dataset, Model, R, Sample, Settings, V, manual_seed
    >>> manual_seed(0)
    >>> model = Model()
    >>> model += R.h(V.X)[1, 1] <= R.x(V.X)
    >>> data = Dataset([Sample(R.h(1)[1.0], [R.x(1)[0.5]])])
    >>> trained = TemplateEvaluator(model, Settings(epochs=2))
    >>> [count for _, count in trained.train(data)], len(list(trained.test(data)))
    ([1, 1], 1)
    """

    def __init__(self, template: TemplateModel, settings: Settings | None = None) -> None:
        self.neuralogic_model = template.clone().build(settings)
        self.settings = self.neuralogic_model.settings

    @property
    def model(self) -> TemplateModel:
        return self.neuralogic_model

    def build_dataset(self, dataset: Any, **options: Any) -> BuiltDataset:
        return self.model.build_dataset(dataset, **options)

    def train(self, dataset: Any, *, generator: bool = True) -> Any:
        """The sum of errors and the number of samples, epoch by epoch, or after the last one."""
        found = self._epochs(self.build_dataset(dataset))
        return found if generator else list(found)[-1]

    def _epochs(self, built: BuiltDataset) -> Iterator[tuple[float, int]]:
        for _ in range(int(self.settings.params["epochs"] or 1)):
            results = self.model.train(built)
            yield sum(error for _, _, error in results), len(results)

    def test(self, dataset: Any, *, generator: bool = True) -> Any:
        """The outputs, one by one or as a list."""
        outputs = self.model.test(self.build_dataset(dataset))
        return iter(outputs) if generator else outputs

    def state_dict(self) -> dict[str, Any]:
        return self.model.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.model.load_state_dict(state_dict)

    def parameters(self) -> dict[str, Any]:
        return self.model.parameters()

    def reset_parameters(self) -> None:
        self.model.reset_parameters()


def get_evaluator(template: TemplateModel, settings: Settings | None = None) -> TemplateEvaluator:
    """An evaluator of a copy of the template.

    >>> from edgewise.neuralogic import Model, R, V
    >>> model = Model()
    >>> model += R.h(V.X)[1, 1] <= R.x(V.X)
    >>> sorted(get_evaluator(model).state_dict())
    ['weight_names', 'weights']
    """
    return TemplateEvaluator(template, settings)


Evaluator = TemplateEvaluator

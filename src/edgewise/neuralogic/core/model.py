"""`Model`: rules, and after `build` weights, outputs and training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgewise.errors import caller, safe_repr
from edgewise.language import Program, nodes
from edgewise.neuralogic import seeds
from edgewise.neuralogic.core.constructs.relation import BaseRelation
from edgewise.neuralogic.core.constructs.rule import TemplateRule
from edgewise.neuralogic.core.settings import Settings
from edgewise.neuralogic.engine import (
    NeuralSample,
    Programs,
    SampleBatch,
    descended,
    errors,
    result,
    saved_picture,
    shown_outputs,
)
from edgewise.neuralogic.errors import BadSample, BadTemplate
from edgewise.neuralogic.inference import LogicInference
from edgewise.neuralogic.learned_facts import IncompatibleKeys, LearnedFacts
from edgewise.neuralogic.nn.module.module import TemplateModule
from edgewise.neuralogic.sample_reader import SampleReader
from edgewise.neuralogic.tape_training import PLAIN_EPOCHS, TapedBatches, taped
from edgewise.neuralogic.text import TextTemplate
from edgewise.neuralogic.translate import TemplateTranslator, TemplateWeight
from edgewise.neuralogic.values import plain, tensor
from edgewise.viz.svg import Picture


class BuiltDataset:
    """Samples of a model, with the number of them that an update takes.

    >>> from edgewise.neuralogic import Dataset, Model, R, Sample, V
    >>> model = Model()
    >>> model += R.h(V.X)[1, 1] <= R.x(V.X)
    >>> data = Dataset([Sample(R.h(1)[1.0], [R.x(1)[0.5]])])
    >>> len(model.build().build_dataset(data))
    1
    """

    def __init__(
        self,
        samples: list[NeuralSample],
        batch_size: int,
        owner: Any = None,
        learned: LearnedFacts | None = None,
    ) -> None:
        self.samples = samples
        self.learned = learned
        self.owner = owner  # the model that the samples were read for
        self.batch_size = batch_size
        self.batches: list[SampleBatch] | None = None  # for training
        self.together: SampleBatch | None = None
        self.epochs = 0  # that were trained
        self.tape: TapedBatches | str | None = None  # or why there is none

    def state_dict(self) -> dict[str, Any]:
        """The values of facts that are learned, by fact: `{"weights": {"x(1)": 0.5}}`."""
        return {"weights": {}} if self.learned is None else self.learned.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Set values of facts; without `strict`, those of facts that both have."""
        return (self.learned or LearnedFacts()).load_state_dict(state_dict, strict)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, item: int) -> NeuralSample:
        return self.samples[item]

    def __iter__(self) -> Iterator[NeuralSample]:
        return iter(self.samples)


class TemplateModel:
    """A template: `model += rule`, `model.build(settings)`, `model.train(dataset)`.

    >>> from edgewise.neuralogic import Dataset, Model, R, Sample, Settings, V, manual_seed
    >>> manual_seed(0)
    >>> model = Model()
    >>> model += R.h(V.X)[1, 1] <= R.x(V.X)
    >>> model = model.build(Settings())
    >>> data = Dataset([Sample(R.h(1)[1.0], [R.x(1)[0.5]])])
    >>> before, _ = model.loss(data), model.train(data, epochs=20)
    >>> model.loss(data) < before
    True
    >>> model.test(data)[0] == model.validate(data)[0][1]
    True
    >>> list(model.state_dict()["weight_names"].values())
    ['w0']

    A copy is not built; weights go from one model to another, also by a file:

    >>> other = model.clone().build(Settings())
    >>> other.load_state_dict(model.state_dict())
    >>> other.test(data) == model.test(data)
    True

    Without values, it says what holds:

    >>> model.query(R.h(V.X), [R.x(1), R.x(2)])
    [{'X': '1'}, {'X': '2'}]
    >>> len(model.to_program().rules)
    1
    """

    def __init__(self, *, model_file: str | Path | None = None) -> None:
        self._entries: list[Any] = []
        self._file = model_file
        self._programs: Programs | None = None
        self._settings: Any = None
        self._weights: dict[str, TemplateWeight] = {}
        self._values: dict[str, Tensor] = {}
        self._optimiser: torch.optim.Optimizer | None = None
        self._epoch = 0
        self._gives_tensors = False

    def add_rule(self, rule: Any) -> None:
        self.add_rules([rule])

    def add_rules(self, rules: Iterable[Any]) -> None:
        """Rules, facts, relation lines and modules, and lists of them."""
        self._refuse_built()
        if not isinstance(rules, Iterable):
            raise BadTemplate(
                f"`{safe_repr(rules)}` is not a list of rules", caller(), "write `add_rules([...])`"
            )
        for rule in rules:
            if isinstance(rule, TemplateModule):
                self._entries += rule()
            elif isinstance(rule, Iterable) and not isinstance(rule, str):
                self.add_rules(rule)
            else:
                self._entries.append(rule)

    def add_module(self, module: TemplateModule) -> None:
        self.add_rules([module])

    def __iadd__(self, other: Any) -> TemplateModel:
        self.add_rules([other])
        return self

    def _refuse_built(self) -> None:
        if self._programs is not None:
            raise BadTemplate(
                "the model is built, and its rules are fixed", caller(), "change `model.clone()`"
            )

    def build(self, settings: Settings | None = None, torch: bool = False) -> TemplateModel:
        """Translate the rules and draw the weights; with `torch`, outputs are tensors."""
        self._gives_tensors = torch
        if settings is not None and not isinstance(settings, Settings):
            raise BadTemplate(
                f"settings are not {safe_repr(settings)}", caller(), "write `build(Settings())`"
            )
        self.settings = Settings() if settings is None else settings
        self._settings = self.settings.create_proxy()
        template = self._template()
        self._weights = template.weights
        self.reset_parameters()
        self._programs = Programs(template, self._settings, self._values)
        self._programs.program()  # the errors of the rules are those of `build`
        return self

    def _template(self) -> TemplateTranslator | TextTemplate:
        settings = self._settings or Settings().create_disconnected_proxy()
        if self._file is not None:
            return TextTemplate(self._file)
        return TemplateTranslator(self._entries, settings)

    def to_program(self) -> Program:
        """The template as a `Program`, which explains, draws and compiles."""
        if self._programs is not None:
            return self._programs.program()
        settings = Settings().create_disconnected_proxy()
        return Programs(self._template(), settings, {}).program()

    def draw(self, filename: str | Path | None = None) -> Picture:
        """The rules as an SVG picture; with a name, it is saved too."""
        return saved_picture(self.to_program().draw(), filename)

    def reset_parameters(self) -> None:
        """Draw the weights anew, and forget the moments of the optimiser."""
        for weight in self._weights.values():
            value = weight.form.value
            drawn = self._settings.initializer.draw(weight.form.shape, seeds.generator())
            value = drawn if value is None else value.clone()
            if weight.name in self._values:
                self._values[weight.name].data.copy_(value)
            else:
                found = torch.nn.Parameter(value.detach(), requires_grad=not weight.is_fixed)
                self._values[weight.name] = found
        self._optimiser, self._epoch = None, 0

    def _built(self) -> Programs:
        if self._programs is None:
            raise BadTemplate("the model is not built", caller(), "call `model.build(settings)`")
        return self._programs

    def build_dataset(
        self,
        dataset: Any,
        *,
        batch_size: int = 1,
        learnable_facts: bool = False,
        progress: bool = False,
    ) -> BuiltDataset:
        """The samples of a dataset; `batch_size` of them make an update."""
        programs = self._built()
        if isinstance(dataset, BuiltDataset):
            return self._own(dataset)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise BadSample(f"batch_size is {batch_size!r}", caller(), "write a positive integer")
        learned = LearnedFacts() if learnable_facts else None
        read = SampleReader(programs.template, learned).samples(dataset)
        if learned is not None:
            programs = programs.learning(learned)
        samples = list(self._expanded(read, programs))
        for sample in samples:
            sample.programs = programs
        return BuiltDataset(samples, batch_size, self, learned)

    def _programs_of(self, samples: list[NeuralSample]) -> Programs:
        """Those that the samples were read for: they have the learned facts."""
        return (samples[0].programs if samples else None) or self._built()

    def _own(self, dataset: BuiltDataset) -> BuiltDataset:
        if dataset.owner not in (None, self):
            raise BadSample(
                "the dataset was built for another model", caller(), "build it with this one"
            )
        return dataset

    def ground(self, dataset: Any, **options: Any) -> BuiltDataset:
        """The samples of a dataset, grounded."""
        found = self.build_dataset(dataset, **options)
        self._together(found)
        return found

    def _expanded(self, samples: list[NeuralSample], programs: Programs) -> Iterator[NeuralSample]:
        """A query with variables is one for each atom that it stands for."""
        for sample in samples:
            query = sample.query
            if query is None or not any(isinstance(t, nodes.Variable) for t in query.terms):
                yield sample
                continue
            batch = SampleBatch(programs, [sample])
            for atom in batch.matches(query, sample.example):
                yield NeuralSample(sample.example, atom, sample.target)

    def _samples(self, dataset: Any) -> BuiltDataset:
        if dataset is None:
            raise BadSample(
                "there is no dataset",
                caller(),
                "write `model.train(dataset)`, `model.test(dataset)`",
            )
        if isinstance(dataset, BuiltDataset):
            return self._own(dataset)
        if isinstance(dataset, NeuralSample):
            return BuiltDataset([dataset], 1)
        if isinstance(dataset, list) and all(isinstance(s, NeuralSample) for s in dataset):
            return BuiltDataset(dataset, 1)
        return self.build_dataset(dataset)

    def _together(self, found: BuiltDataset) -> SampleBatch:
        if found.together is None:
            found.together = SampleBatch(self._programs_of(found.samples), found.samples)
        return found.together

    def _batches(self, found: BuiltDataset) -> list[SampleBatch]:
        if found.batches is None:
            size, samples = found.batch_size, found.samples
            starts = range(0, len(samples), size)
            programs = self._programs_of(samples)
            found.batches = [SampleBatch(programs, samples[i : i + size]) for i in starts]
        return found.batches

    def __call__(self, dataset: Any = None, train: bool | None = None) -> Any:
        if train:
            results = self.train(dataset)
            return results, len(results)
        if not self._gives_tensors:
            return self.test(dataset)
        for weight in self._values.values():  # gradients are those of the last outputs
            weight.grad = None
        return self._together(self._samples(dataset)).outputs()

    def tensor_parameters(self) -> list[Tensor]:
        """The learnable weights, for an optimiser of torch."""
        self._built()
        return [value for value in self._values.values() if value.requires_grad]

    forward = __call__

    def test(self, dataset: Any = None) -> Any:
        """The output of every query; of one sample, its output."""
        found, function = self._samples(dataset), self._settings_of().error_function
        with torch.no_grad():
            outputs = shown_outputs(self._together(found), function)
        return outputs[0] if isinstance(dataset, NeuralSample) else outputs

    def validate(self, dataset: Any) -> Any:
        """Target, output and error of every query."""
        found = self._samples(dataset)
        with torch.no_grad():
            results = errors(self._together(found), self._settings_of().error_function)
        return results[0] if isinstance(dataset, NeuralSample) else results

    def loss(self, dataset: Any) -> float:
        """The mean error of all elements, or the sum of the errors if that is descended."""
        found, function = self._samples(dataset), self._settings_of().error_function
        results = errors(self._together(found), function)
        total = sum(error for _, _, error in results)
        count = sum(tensor(output).numel() for _, output, _ in results)
        return total / count if function.reduction == "mean" and count else total

    def train(self, dataset: Any = None, epochs: int = 1) -> Any:
        """Update the weights; target, output and error of every query in the last epoch."""
        if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
            raise BadSample(f"epochs is {epochs!r}", caller(), "write a positive integer")
        found = self._samples(dataset)
        settings, results = self._settings_of(), []
        self._add_weights(self._learned(found.samples))
        while epochs and (found.epochs < PLAIN_EPOCHS or not self._is_taped(found)):
            self._rate()
            results = [one for batch in self._batches(found) for one in self._update(batch)]
            found.epochs, epochs = found.epochs + 1, epochs - 1
        if epochs:
            assert isinstance(found.tape, TapedBatches)
            rates = self._rates(epochs)
            bounds = settings.clip_grad_value, settings.clip_grad_norm
            results = found.tape.epochs(self._optimiser, rates, *bounds)
        return results[0] if isinstance(dataset, NeuralSample) else results

    def _learned(self, samples: list[NeuralSample]) -> list[Tensor]:
        """The weights that updates for some samples change."""
        return [v for v in self._programs_of(samples).weights.values() if v.requires_grad]

    def _add_weights(self, learned: list[Any]) -> None:
        """Let the optimiser update these weights, too."""
        if self._optimiser is None:
            self._optimiser = self._settings_of().optimizer.torch_optimiser(learned)
            return
        known = {id(w) for group in self._optimiser.param_groups for w in group["params"]}
        if more := [weight for weight in learned if id(weight) not in known]:
            self._optimiser.add_param_group({"params": more})

    def _rate(self) -> float:
        """The learning rate of the next epoch."""
        optimizer = self._settings_of().optimizer
        self._epoch += 1
        decay = optimizer.get_lr_decay()
        if decay is not None:
            decay.decay(self._epoch)
        return float(optimizer.lr)

    def _rates(self, epochs: int) -> list[float]:
        """Those of the next epochs."""
        optimizer = self._settings_of().optimizer
        if optimizer.get_lr_decay() is not None:
            return [self._rate() for _ in range(epochs)]
        self._epoch += epochs
        return [float(optimizer.lr)] * epochs

    def _is_taped(self, found: BuiltDataset) -> bool:
        """Whether the samples are on a tape for the error that is descended now."""
        function = self._settings_of().error_function
        if isinstance(found.tape, TapedBatches) and found.tape.function is not function:
            found.tape = None
        if found.tape is None:
            batches = [batch.samples for batch in self._batches(found)]
            programs = self._programs_of(found.samples)
            found.tape = taped(programs, batches, function, self._optimiser)
        return isinstance(found.tape, TapedBatches)

    def _update(self, batch: SampleBatch) -> list[Any]:
        settings = self._settings_of()
        learned = self._learned(batch.samples)
        value, found = descended(batch, settings.error_function)
        results = [result(*one) for one in found]
        if self._optimiser is None or not value.requires_grad:
            return results
        self._optimiser.zero_grad()
        value.backward()
        if settings.clip_grad_value is not None:
            torch.nn.utils.clip_grad_value_(learned, settings.clip_grad_value)
        if settings.clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(learned, settings.clip_grad_norm)
        for group in self._optimiser.param_groups:
            group["lr"] = settings.optimizer.lr
        self._optimiser.step()
        return results

    def _settings_of(self) -> Any:
        self._built()
        return self._settings

    def parameters(self) -> dict[str, Any]:
        return self.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """The learnable weights by their number in the template, and their names."""
        return self._state(fixed=False)

    def fixed_state_dict(self) -> dict[str, Any]:
        """The fixed weights."""
        return self._state(fixed=True)

    def _state(self, fixed: bool) -> dict[str, Any]:
        self._built()
        found = [w for w in self._weights.values() if w.is_fixed == fixed]
        values = {w.index: plain(self._values[w.name].detach()) for w in found}
        return {"weights": values, "weight_names": {w.index: w.label for w in found}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set weights by their number; those that are not in it stay."""
        self._built()
        known = {w.index: w for w in self._weights.values()}
        found = state_dict.get("weights") if isinstance(state_dict, dict) else None
        if not isinstance(found, dict):
            raise BadTemplate(
                "a state has no `weights` by number", caller(), "give what `state_dict()` returns"
            )
        for index, value in found.items():
            if index not in known:
                raise BadTemplate(
                    f"there is no weight {index}", caller(), f"weights are {sorted(known)}"
                )
            weight = self._values[known[index].name]
            new = tensor(value)
            if new.numel() != weight.numel():
                raise BadTemplate(
                    f"the weight {index} has {weight.numel()} elements, got {new.numel()}",
                    caller(),
                    f"give a value of the shape {tuple(weight.shape)}",
                )
            weight.data.copy_(new.reshape(weight.shape))

    load_fixed_state_dict = load_state_dict

    def save(self, path: str | Path) -> None:
        """Write the weights to a file of safetensors, by number."""
        found = self.state_dict()["weights"]
        values = {str(index): tensor(value).contiguous() for index, value in found.items()}
        save_file(values, Path(path))

    def load(self, path: str | Path) -> None:
        """Read the weights that `save` wrote."""
        self._built()
        try:
            found = load_file(Path(path))
            weights = {int(name): value for name, value in found.items()}
        except (OSError, ValueError, SafetensorError) as problem:
            raise BadTemplate(
                f"cannot read weights from `{path}`: {type(problem).__name__}",
                caller(),
                "give a file that `model.save` wrote",
            ) from None
        self.load_state_dict({"weights": weights})

    def query(self, query: BaseRelation, examples: Any = None) -> Any:
        """The values of the variables for which a query holds; `{}` if there are none."""
        return LogicInference(self._template()).query(query, examples)

    q = query

    def derivable_queries(self, example: Any = None) -> list[BaseRelation]:
        """All atoms that hold."""
        return LogicInference(self._template()).derived(example)

    def remove_duplicates(self) -> None:
        self._refuse_built()
        self._entries = list({str(entry): entry for entry in reversed(self._entries)}.values())[
            ::-1
        ]

    def clone(self) -> TemplateModel:
        """The same rules, not built."""
        found = type(self)(model_file=self._file)
        found._entries = list(self._entries)
        return found

    __copy__ = clone

    def __getitem__(self, item: int) -> Any:
        return self._entries[item]

    def __setitem__(self, key: int, value: Any) -> None:
        self._refuse_built()
        self._entries[key] = value

    def __delitem__(self, key: int) -> None:
        self._refuse_built()
        del self._entries[key]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __str__(self) -> str:
        return "\n".join(map(str, self._entries))

    def __repr__(self) -> str:
        return str(self)


Model = TemplateModel
__all__ = ["BuiltDataset", "Model", "TemplateRule"]

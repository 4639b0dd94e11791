"""Samples: a query and an example each; or examples and queries side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgewise.errors import caller, safe_repr
from edgewise.neuralogic.core.constructs.relation import BaseRelation
from edgewise.neuralogic.core.constructs.rule import TemplateRule
from edgewise.neuralogic.dataset.base import BaseDataset
from edgewise.neuralogic.errors import BadSample


class Sample:
    """A query, or several, and the facts that they are about.

    >>> from edgewise.neuralogic import R
    >>> sample = Sample(R.y(1)[1.0], [R.x(1)[0.5], R.edge(1, 2)])
    >>> print(sample, len(sample))
    1.0 y(1). 2
    """

    __slots__ = ("example", "query")

    def __init__(self, query: Any, example: Any) -> None:
        self.query = query
        facts = [] if example is None else example
        self.example = facts if isinstance(facts, Sequence) else [facts]

    def __str__(self) -> str:
        return ", ".join(map(str, self.query)) if isinstance(self.query, list) else str(self.query)

    def __len__(self) -> int:
        return len(self.example)


class LogicDataset(BaseDataset):
    """A list of samples.

    >>> from edgewise.neuralogic import R
    >>> data = LogicDataset().add(R.y(1)[1.0], [R.x(1)[0.5]])
    >>> len(data), len(data.pairs())
    (1, 1)
    """

    def __init__(self, samples: Any = None, queries: Any = None) -> None:
        self.samples: list[Sample] = []
        self._examples: list[Any] = []
        self._queries: list[Any] = []
        listed = [] if samples is None else samples if isinstance(samples, list) else [samples]
        if queries is not None:  # examples and queries, as earlier versions took them
            self.add_examples(listed)
            self.add_queries(queries)
            return
        for sample in listed:
            if not isinstance(sample, Sample):
                raise BadSample(
                    f"`{safe_repr(sample)}` is not a sample",
                    caller(),
                    "write `Dataset([Sample(query, example)])`",
                )
        self.samples = listed

    def set_samples(self, samples: list[Sample]) -> None:
        self.samples = samples

    def add_samples(self, samples: Iterable[Sample]) -> LogicDataset:
        self.samples.extend(samples)
        return self

    def add_sample(self, sample: Sample) -> LogicDataset:
        return self.add_samples([sample])

    def add(self, query: Any, example: Any) -> LogicDataset:
        return self.add_samples([Sample(query, example)])

    def add_example(self, example: Any) -> None:
        self.add_examples([example])

    def add_examples(self, examples: Iterable[Any]) -> None:
        self._examples.extend(examples)

    def add_query(self, query: Any) -> None:
        self.add_queries([query])

    def add_queries(self, queries: Iterable[Any]) -> None:
        self._queries.extend(queries)

    def set_examples(self, examples: list[Any]) -> None:
        self._examples = examples

    def set_queries(self, queries: list[Any]) -> None:
        self._queries = queries

    def __getitem__(self, item: int) -> Sample:
        return self.samples[item]

    def __setitem__(self, key: int, value: Sample) -> None:
        self.samples[key] = value

    def __delitem__(self, key: int) -> None:
        del self.samples[key]

    def __len__(self) -> int:
        return len(self.samples)

    def __str__(self) -> str:
        return ". ".join(map(str, self.samples))

    def pairs(self) -> list[tuple[Any, Any]]:
        """Every query with its example, in order; queries of one example are side by side."""
        if not self.samples:
            return _pairs(self._examples, self._queries)
        if self._examples or self._queries:
            raise BadSample(
                "the dataset has samples, and examples or queries beside them",
                caller(),
                "use samples only",
            )
        examples = {id(s.example): s.example for s in self.samples}
        queries: dict[int, list[Any]] = {at: [] for at in examples}
        for sample in self.samples:
            queries[id(sample.example)] += _several(sample.query)
        return [(query, examples[at]) for at, found in queries.items() for query in found]


def _several(query: Any) -> list[Any]:
    if isinstance(query, TemplateRule):
        return list(query.body)
    if isinstance(query, list | tuple):
        return [one for each in query for one in _several(each)]
    if query is None or isinstance(query, BaseRelation):
        return [query]
    raise BadSample(
        f"`{safe_repr(query)}` is not a query", caller(), "a query is a relation, `R.h(1)[0.5]`"
    )


def _pairs(examples: list[Any], queries: list[Any]) -> list[tuple[Any, Any]]:
    labelled = [e for e in examples if isinstance(e, TemplateRule)]
    if labelled and (queries or len(labelled) != len(examples)):
        raise BadSample(
            "some examples have queries of their own and others do not",
            caller(),
            "write all of them as `query <= example`, or none",
        )
    if labelled:
        return [(example.head, list(example.body)) for example in labelled]
    examples = [e if isinstance(e, list | tuple) else [e] for e in examples]
    if examples and not queries:
        raise BadSample("there are no queries", caller(), "add some: `dataset.add_queries([...])`")
    if len(examples) <= 1:
        shared = examples[0] if examples else []
        return [(one, shared) for query in queries for one in _several(query)]
    if len(examples) != len(queries):
        raise BadSample(
            f"there are {len(examples)} examples and {len(queries)} queries",
            caller(),
            "write a query, or a list of them, for each example",
        )
    both = zip(queries, examples, strict=True)
    return [(one, example) for query, example in both for one in _several(query)]


Dataset = LogicDataset

"""Samples and queries in NeuraLogic's text format: one sample a line, one query a line.

bond(a, b, 1), c(a), o(b).                 a sample
1.0 predict :- bond(a, b, 1), c(a), o(b).  a sample with its query
1.0 predict.                               the query of the sample on that line of the other file
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from edgewise.data.dataset import Dataset, Labels, as_numbers
from edgewise.data.lines import bad_line, lines_of
from edgewise.errors import EdgewiseError
from edgewise.inputs.kinds import ragged
from edgewise.language import Program, nodes

Query = tuple[int, nodes.Atom]  # the sample, and the atom with its target as value


def neuralogic(examples: str | Path, queries: str | Path | None = None) -> Dataset:
    """Samples as facts, for `model.ground(**dataset.inputs)`; targets of queries as labels.

    Labels have the number of the sample as first key, then those of the query's terms in
    `names["constant"]`.
    """
    samples: list[list[nodes.Atom]] = []
    targets: list[Query] = []
    for number, line in _lines(examples):
        program = _parsed(examples, number, line)
        if len(program.rules) > 1 or (program.rules and program.facts):
            what = "several statements, some of them rules"
            raise bad_line(examples, number, line, what, "write one sample on a line")
        facts = [fact.atom for fact in program.facts]
        for rule in program.rules:
            targets.append((len(samples), rule.head))
            facts = [_fact(examples, number, line, item) for item in rule.body]
        samples.append(facts)
    if queries is not None:
        targets += _queries(queries, len(samples))
    return Dataset({"facts": ragged(samples)}, *_labels(targets))


def _lines(path: str | Path) -> list[tuple[int, str]]:
    return [(n, line) for n, line in lines_of(path) if line.strip() and line.strip()[0] not in "%#"]


def _parsed(path: str | Path, number: int, line: str) -> Program:
    text = line.strip()
    try:
        return Program.parse(text if text.endswith(".") else f"{text}.", file=str(path))
    except EdgewiseError as problem:
        found = problem.errors[0]
        raise bad_line(path, number, line, found.message, found.help) from None


def _fact(path: str | Path, number: int, line: str, item: Any) -> nodes.Atom:
    if isinstance(item, nodes.Atom) and not any(isinstance(t, nodes.Variable) for t in item.terms):
        return item
    what = f"`{item!r}` is not a fact"
    raise bad_line(path, number, line, what, "a sample is atoms without variables")


def _queries(path: str | Path, count: int) -> Iterable[Query]:
    lines = _lines(path)
    if len(lines) != count:
        number, line = lines[min(len(lines), count) - 1] if lines else (1, "")
        what = f"{len(lines)} lines of queries for {count} samples"
        raise bad_line(path, number, line, what, "write the queries of a sample on its line")
    for sample, (number, line) in enumerate(lines):
        program = _parsed(path, number, line)
        if program.rules:
            raise bad_line(path, number, line, "a rule is not a query", "write `1.0 predict.`")
        for fact in program.facts:
            yield sample, fact.atom


def _labels(targets: list[Query]) -> tuple[dict[str, tuple[Any, ...]], dict[str, Labels]]:
    constants = as_numbers([str(term) for _, atom in targets for term in atom.terms])
    found: dict[str, Labels] = {}
    for relation in dict.fromkeys(atom.relation for _, atom in targets):
        here = [(sample, atom) for sample, atom in targets if atom.relation == relation]
        keys = [[sample, *(constants[str(term)] for term in atom.terms)] for sample, atom in here]
        values = [_target(atom) for _, atom in here]
        found[relation] = Labels(torch.tensor(keys).T, torch.tensor(values))
    return ({"constant": tuple(constants)} if constants else {}), found


def _target(atom: nodes.Atom) -> Any:
    """The value of a query; 1 if none is written."""
    value = None if atom.weight is None else atom.weight.value
    value = value.thing if isinstance(value, nodes.Opaque) else value
    return 1.0 if value is None else value

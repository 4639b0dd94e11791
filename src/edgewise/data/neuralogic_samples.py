"""Samples and queries in NeuraLogic's text format: one sample a line, one query a line.

bond(a, b, 1), c(a), o(b).                 a sample
1.0 predict :- bond(a, b, 1), c(a), o(b).  a sample with its query
1.0 predict.                               the query of the sample on that line of the other file
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from edgewise.data.dataset import Dataset, Labels, as_numbers
from edgewise.data.errors import BadLine
from edgewise.data.lines import bad_line, lines_of
from edgewise.errors import EdgewiseError, caller, named
from edgewise.inputs.kinds import ragged
from edgewise.language import Program, nodes

Query = tuple[int, nodes.Atom]  # the sample, and the atom with its target as value


def neuralogic(examples: str | Path, queries: str | Path | None = None) -> Dataset:
    """Samples as facts, for `model.ground(**dataset.inputs)`; targets of queries as labels.

    Labels have the number of the sample as first key, then those of the query's terms in
    `names["constant"]`. Those of one name with several numbers of terms are `labels["q/1"]`, ...

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "examples.txt").write_text("a(1), b(1).\\na(2).\\n")
    >>> _ = (folder / "queries.txt").write_text("1.0 q.\\n0.0 q.\\n")
    >>> neuralogic(folder / "examples.txt", folder / "queries.txt").labels["q"].values.tolist()
    [1.0, 0.0]
    """
    samples, targets = read_samples(examples, queries)
    return Dataset({"facts": ragged(samples)}, *_labels(examples, targets))


def read_samples(
    examples: str | Path, queries: str | Path | None = None, *, shares: bool = False
) -> tuple[list[list[nodes.Atom]], list[Query]]:
    """The atoms of each sample, and the queries with the numbers of their samples.

    With a file of queries, what stands before `:-` links a query to the sample that has the same.
    With `shares`, all queries are about one sample if there is only one.
    """
    samples: list[list[nodes.Atom]] = []
    targets: list[Query] = []
    links: dict[nodes.Atom, int] = {}
    for number, line in _statements(examples):
        program = _parsed(examples, number, line)
        if len(program.rules) > 1 or (program.rules and program.facts):
            what = "several statements, some of them rules"
            raise bad_line(examples, number, line, what, "write one sample on a line")
        facts = [fact.atom for fact in program.facts]
        for rule in program.rules:
            links[rule.head] = len(samples)
            targets.append((len(samples), rule.head))
            facts = [_fact(examples, number, line, item) for item in rule.body]
        samples.append(facts)
    if queries is not None:
        own = [at for at, atom in targets if atom.weight is not None]
        targets = [query for query in targets if query[0] in own] if own else []
        targets += _queries(queries, len(samples), links, shares)
    return samples, targets


def _statements(path: str | Path) -> list[tuple[int, str]]:
    """Statements with the numbers of their first lines; each is a line if none has its dot."""
    lines = [(n, s) for n, s in lines_of(path) if s.strip() and s.strip()[0] not in "%#"]
    ended = [_uncommented(line).endswith(".") for _, line in lines]
    if all(ended) or not any(ended):
        return lines
    found: list[tuple[int, str]] = []
    is_open = False
    for (number, line), is_end in zip(lines, ended, strict=True):
        if is_open:
            first, before = found.pop()
            found.append((first, f"{_uncommented(before)} {line.strip()}"))
        else:
            found.append((number, line))
        is_open = not is_end
    return found


def _uncommented(line: str) -> str:
    """A line without its comment; with strings in it, as it is."""
    return line.strip() if set(line) & set("\"'") else line.split("%")[0].strip()


def _parsed(path: str | Path, number: int, line: str) -> Program:
    text = _uncommented(line)
    try:
        return Program.parse(text if text.endswith(".") else f"{text}.", file=str(path))
    except EdgewiseError as problem:
        found = problem.errors[0]
        raise bad_line(path, number, line, found.message, found.help) from None


def _fact(path: str | Path, number: int, line: str, item: Any) -> nodes.Atom:
    if isinstance(item, nodes.Atom) and not any(isinstance(t, nodes.Variable) for t in item.terms):
        return replace(item, hidden=False)
    what = f"`{item!r}` is not a fact"
    raise bad_line(path, number, line, what, "a sample is atoms without variables")


def _queries(
    path: str | Path, count: int, links: dict[nodes.Atom, int], shares: bool
) -> Iterable[Query]:
    lines = _statements(path)
    parsed = [(number, line, _parsed(path, number, line)) for number, line in lines]
    if parsed and all(program.rules and not program.facts for _, _, program in parsed):
        for number, line, program in parsed:
            for rule in program.rules:
                if rule.head not in links:
                    what = f"no sample has `{rule.head!r}` before its `:-`"
                    raise bad_line(path, number, line, what, "write it so in both files")
                for item in rule.body:
                    yield links[rule.head], _fact(path, number, line, item)
        return
    if len(lines) != count and not (shares and count == 1):
        number, line = lines[min(len(lines), count) - 1] if lines else (1, "")
        what = f"{len(lines)} lines of queries for {count} samples"
        raise bad_line(path, number, line, what, "write the queries of a sample on its line")
    for sample, (number, line, program) in enumerate(parsed):
        if program.rules:
            raise bad_line(path, number, line, "a rule is not a query", "write `1.0 predict.`")
        for fact in program.facts:
            yield min(sample, count - 1), fact.atom


def _labels(
    path: str | Path, targets: list[Query]
) -> tuple[dict[str, tuple[Any, ...]], dict[str, Labels]]:
    constants = as_numbers([str(term) for _, atom in targets for term in atom.terms])
    found: dict[str, Labels] = {}
    kinds = dict.fromkeys((atom.relation, len(atom.terms)) for _, atom in targets)
    for kind in kinds:
        here = [(s, atom) for s, atom in targets if (atom.relation, len(atom.terms)) == kind]
        several = sum(name == kind[0] for name, _ in kinds) > 1
        relation = f"{kind[0]}/{kind[1]}" if several else kind[0]
        keys = [[sample, *(constants[str(term)] for term in atom.terms)] for sample, atom in here]
        values = [torch.as_tensor(_target(atom)) for _, atom in here]
        other = next((at for at, v in enumerate(values) if v.shape != values[0].shape), None)
        if other is not None:
            shapes = [tuple(values[at].shape) for at in (0, other)]
            raise BadLine(
                f"the targets of `{relation}` in `{named(path)}` have the shapes {shapes[0]} and, "
                f"of sample {here[other][0] + 1}, {shapes[1]}",
                caller(),
                "give every query of a relation a target of one shape",
            )
        found[relation] = Labels(torch.tensor(keys).T, torch.stack(values))
    return ({"constant": tuple(constants)} if constants else {}), found


def _target(atom: nodes.Atom) -> Any:
    """The value of a query; 1 if none is written."""
    value = None if atom.weight is None else atom.weight.value
    value = value.thing if isinstance(value, nodes.Opaque) else value
    return 1.0 if value is None else value

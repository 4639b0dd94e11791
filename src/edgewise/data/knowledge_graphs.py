"""Knowledge graphs as triples: `triple(H, R, T)`, in tab-separated files or N-Triples."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import torch

from edgewise.data.dataset import Dataset, as_numbers
from edgewise.data.errors import BadSchema
from edgewise.data.lines import bad_line, lines_of
from edgewise.errors import caller, counted
from edgewise.inputs.kinds import rows

Triple = tuple[str, str, str]
TERM = r'(<[^<>"{}|^`\\\s]*>|_:[^\s<>"]+|"(?:[^"\\\n\r]|\\.)*"(?:\^\^<[^<>\s]*>|@[A-Za-z0-9-]+)?)'
N_TRIPLE = re.compile(rf"\s*{TERM}\s+{TERM}\s+{TERM}\s*\.\s*(?:#.*)?$")
ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


def triples(path: str | Path | None = None, **paths: str | Path) -> Dataset:
    """The triples of a file as the relation `triple`, or of several, by the names they have here.

    `triples(train="train.txt", test="test.txt")` has the inputs `train` and `test`, whose entities
    and relations are numbered together. A file `.nt` is N-Triples, others are tab-separated.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "family.txt"
    >>> _ = path.write_text("ann\\tparent\\tbob\\nbob\\tparent\\teve\\n")
    >>> found = triples(path)
    >>> found.inputs["triple"].keys.tolist(), found.names["entity"]
    ([[0, 1], [0, 0], [1, 2]], ('ann', 'bob', 'eve'))
    """
    files = paths if path is None else {"triple": path}
    if not files or (path is not None and paths):
        raise BadSchema(
            "`triples` takes one file, or several with names",
            caller(),
            'write `triples("facts.txt")` or `triples(train="train.txt", test="test.txt")`',
        )
    found = {name: parsed(file, lines_of(file)) for name, file in files.items()}
    every = [triple for rows in found.values() for triple in rows]
    entities = as_numbers([end for head, _, tail in every for end in (head, tail)])
    relations = as_numbers([relation for _, relation, _ in every])
    inputs = {}
    for name, listed in found.items():
        distinct = dict.fromkeys(listed)
        numbers = [(entities[h], relations[r], entities[t]) for h, r, t in distinct]
        inputs[name] = rows(torch.tensor(numbers, dtype=torch.int64).reshape(-1, 3).T)
    return Dataset(inputs, {"entity": tuple(entities), "relation": tuple(relations)})


def parsed(path: str | Path, lines: Iterable[tuple[int, str]]) -> list[Triple]:
    """The triples of numbered lines; `path` names them in errors, and `.nt` is N-Triples.

    >>> parsed("facts.txt", [(1, "ada\\tmother\\tben"), (2, "")])
    [('ada', 'mother', 'ben')]
    """
    standard = str(path).removesuffix(".gz").endswith(".nt")
    found: list[Triple] = []
    for number, line in lines:
        if not line.strip() or (standard and line.lstrip().startswith("#")):
            continue
        if standard:
            match = N_TRIPLE.match(line)
            if match is None or match[1].startswith('"') or not match[2].startswith("<"):
                help = "a line is `<subject> <predicate> <object> .`"
                raise bad_line(path, number, line, "not a triple", help)
            found.append((_plain(match[1]), _plain(match[2]), _plain(match[3])))
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 3 or not all(fields):
            what = f"{len(fields)} fields, some of them empty" if len(fields) == 3 else None
            what = what or f"{counted(len(fields), 'field')}, not 3"
            help = "a line is head, relation and tail, separated by tabs"
            raise bad_line(path, number, line, what, help)
        found.append((fields[0], fields[1], fields[2]))
    return found


def _plain(term: str) -> str:
    """An address without its brackets, the rest as it is; escapes are read.

    >>> _plain("<http://a/b>"), _plain('"caf\\\\u00e9"@fr')
    ('http://a/b', '"café"@fr')
    """
    text = term[1:-1] if term.startswith("<") else term

    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else ESCAPES.get(code, code)

    return ESCAPE.sub(character, text)

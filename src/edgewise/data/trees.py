"""Sentences with dependency trees, in CoNLL-U: each a sample.

    word(I, W)      word I of the sentence is W, a number of `names["word"]`; so upos(I, P)
    arc(I, J)       word I depends on word J; the root depends on none
    relation(I, T)  by which relation, a number of `names["relation"]`

Ranges of words (`1-2`) and empty nodes (`1.1`) are left out, as parsers do; what is read is written
with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from edgewise.data.dataset import Dataset, as_numbers
from edgewise.data.lines import bad_line, lines_of
from edgewise.errors import counted
from edgewise.graphs import syntax
from edgewise.graphs.drawing import require_package
from edgewise.inputs.kinds import ragged, rows

if TYPE_CHECKING:
    from networkx import DiGraph

FIELDS = 10
HEAD, RELATION, ENHANCED = 6, 7, 8
OTHER = re.compile(r"\d+(-\d+|\.\d+)")  # a range of words, or an empty node


@dataclass(frozen=True)
class DependencyTree:
    """Words, their parts of speech, heads (0 is the root, else the place from 1), and relations.

    `lines` are those of the file, which `to_conllu` writes with these heads and relations.

    >>> tree = DependencyTree(["she", "reads"], ["PRON", "VERB"], [2, 0], ["nsubj", "root"])
    >>> list(zip(tree.words, tree.heads, strict=True))
    [('she', 2), ('reads', 0)]
    """

    words: list[str] = field(default_factory=list)
    upos: list[str] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list, compare=False, repr=False)

    def arcs(self) -> torch.Tensor:
        """The keys of a relation `arc(I, J)`: word I, from 0, depends on word J.

        >>> DependencyTree(["she", "reads"], ["_", "_"], [2, 0], ["nsubj", "root"]).arcs().tolist()
        [[0], [1]]
        """
        pairs = [(at, head - 1) for at, head in enumerate(self.heads) if head]
        return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T

    def syntax(self, steps: int = 1) -> syntax:
        """The graph in which words at most `steps` arcs apart attend to each other.

        >>> tree = DependencyTree(["she", "reads"], ["_", "_"], [2, 0], ["nsubj", "root"])
        >>> tree.syntax().edges(2).T.tolist()
        [[0, 0], [0, 1], [1, 0], [1, 1]]
        """
        return syntax([head - 1 for head in self.heads], steps)

    def networkx(self) -> DiGraph:
        """A graph of words, from 0, each with an edge to its head; both have attributes.

        >>> tree = DependencyTree(["she", "reads"], ["_", "_"], [2, 0], ["nsubj", "root"])
        >>> list(tree.networkx().edges(data="relation"))
        [(0, 1, 'nsubj')]
        """
        require_package("networkx")
        from networkx import DiGraph

        graph: Any = DiGraph()
        for at, word in enumerate(self.words):
            graph.add_node(at, word=word, upos=self.upos[at])
        for at, head in enumerate(self.heads):
            if head:
                graph.add_edge(at, head - 1, relation=self.relations[at])
        return graph

    def parsed(self, heads: Sequence[int], relations: Sequence[str]) -> DependencyTree:
        """The same words with another tree.

        >>> DependencyTree(["go", "!"], ["_", "_"]).parsed([0, 1], ["root", "punct"]).heads
        [0, 1]
        """
        return replace(self, heads=list(heads), relations=list(relations))


def sentences(path: str | Path, *, heads: bool = True) -> list[DependencyTree]:
    """The sentences of a file, checked: places count from 1, heads are words, there is one root.

    With `heads=False` heads and relations are not read: the file may have none.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "one.conllu"
    >>> tree = DependencyTree(["she", "reads"], ["PRON", "VERB"], [2, 0], ["nsubj", "root"])
    >>> _ = path.write_text(to_conllu([tree]))
    >>> sentences(path) == [tree]
    True
    """
    return list(_sentences(path, heads))


def _sentences(path: str | Path, heads: bool) -> Iterator[DependencyTree]:
    current, numbers = DependencyTree(), list[int]()
    for number, line in [*lines_of(path), (0, "")]:
        if line.strip():
            current.lines.append(line)
            if not line.startswith("#") and _add(current, path, number, line, heads):
                numbers.append(number)
            continue
        if current.words:
            if heads:
                _check(current, path, numbers)
            yield current
        current, numbers = DependencyTree(), []


def _add(sentence: DependencyTree, path: str | Path, number: int, line: str, heads: bool) -> bool:
    """Add the word of a line; whether it has one."""
    fields = line.split("\t")
    if len(fields) != FIELDS:
        what = f"{counted(len(fields), 'field')}, not {FIELDS}"
        raise bad_line(path, number, line, what, "fields are separated by tabs")
    if OTHER.fullmatch(fields[0]):
        return False
    if fields[0] != str(len(sentence.words) + 1):
        what = f"word `{fields[0]}` where {len(sentence.words) + 1} comes next"
        raise bad_line(path, number, line, what, "number the words of a sentence from 1")
    if not fields[1].strip():
        raise bad_line(
            path, number, line, "the word is empty", "write `_` for a word that is not known"
        )
    head = fields[HEAD] if heads else "0"
    if not head.isascii() or not head.isdigit():
        what = f"the head `{head}` is not a number"
        raise bad_line(path, number, line, what, "give the place of a word, or 0 for the root")
    sentence.words.append(fields[1])
    sentence.upos.append(fields[3])
    sentence.heads.append(int(head))
    sentence.relations.append(fields[RELATION] if heads else "_")
    return True


def _check(sentence: DependencyTree, path: str | Path, numbers: Sequence[int]) -> None:
    heads, count = sentence.heads, len(sentence.words)

    def refused(at: int, what: str) -> Exception:
        help = "every word but the root has a head in its sentence, and no word is below itself"
        return bad_line(path, numbers[at], " ".join(sentence.words), what, help)

    far = next((at for at, head in enumerate(heads) if head > count), None)
    if far is not None:
        raise refused(far, f"a head is {heads[far]}, of {count} words")
    if heads.count(0) != 1:
        raise refused(0, f"{heads.count(0)} words have no head")
    for start in range(count):
        at, steps = start + 1, 0
        while at and steps <= count:
            at, steps = heads[at - 1], steps + 1
        if at:
            raise refused(start, f"word {start + 1} is below itself, or below a word that is")


def conllu(path: str | Path) -> Dataset:
    """All sentences of a file as a batch.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "two.conllu"
    >>> trees = [DependencyTree(["she", "reads"], ["PRON", "VERB"], [2, 0], ["nsubj", "root"])]
    >>> _ = path.write_text(to_conllu(trees * 2))
    >>> sorted(conllu(path).inputs)
    ['arc', 'relation', 'upos', 'word']
    """
    found = sentences(path)
    columns = {
        "word": [sentence.words for sentence in found],
        "upos": [sentence.upos for sentence in found],
        "relation": [sentence.relations for sentence in found],
    }
    inputs = {"arc": ragged([rows(sentence.arcs()) for sentence in found])}
    names = {}
    for name, column in columns.items():
        numbers = as_numbers([value for values in column for value in values])
        names[name] = tuple(numbers)
        inputs[name] = ragged([rows(_numbered(values, numbers)) for values in column])
    return Dataset(inputs, names)


def _numbered(values: Sequence[str], numbers: dict[str, int]) -> torch.Tensor:
    return torch.tensor([[*range(len(values))], [numbers[value] for value in values]])


def to_conllu(found: Sequence[DependencyTree]) -> str:
    """Sentences as text; fields that are not known are `_`.

    Of a sentence that was read, every other line and field is kept, but for enhanced dependencies
    where the tree differs.

    >>> tree = DependencyTree(["she", "reads"], ["PRON", "VERB"], [2, 0], ["nsubj", "root"])
    >>> to_conllu([tree]).splitlines()[1].split("\\t")[:4]
    ['2', 'reads', '_', 'VERB']
    """
    return "".join("\n".join([*_lines(one), "", ""]) for one in found)


def _lines(tree: DependencyTree) -> Iterator[str]:
    plain = [
        "\t".join([str(at), word, "_", upos, "_", "_", "0", "_", "_", "_"])
        for at, (word, upos) in enumerate(zip(tree.words, tree.upos, strict=True), start=1)
    ]
    at = 0
    for line in tree.lines or plain:
        fields = line.split("\t")
        if line.startswith("#") or OTHER.fullmatch(fields[0]):
            yield line
            continue
        now = [str(tree.heads[at]), tree.relations[at]]
        if fields[HEAD : RELATION + 1] != now:
            fields[HEAD : ENHANCED + 1] = [*now, "_"]
        at += 1
        yield "\t".join(fields)

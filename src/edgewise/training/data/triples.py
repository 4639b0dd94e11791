"""Knowledge graphs as a corpus: queries (h, r, ?) whose answers are ranked among all entities.

A triple (h, r, t) is two examples: (h, r, ?) with the answer t, and (t, r⁻¹, ?) with the answer h.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgewise.data.dataset import as_numbers
from edgewise.data.knowledge_graphs import Triple, parsed
from edgewise.training.data.batches import Batch, digest, examples
from edgewise.training.data.files import bad, lines_of
from edgewise.training.data.splits import NAMES
from edgewise.training.randomness import generator
from edgewise.training.schema import Mistakes, number, one_of

SUFFIXES = ("", ".txt", ".tsv", ".nt")  # of the file of a part, also with .gz
ARCHIVES = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, kw_only=True)
class TripleData:
    """`path` is a folder or a tar archive with a file of triples for each part.

    A line is head, relation and tail with tabs between, or N-Triples in `.nt` files.

    - train, validation, test: names of the files, if they are not those words or `valid`
    - facts: a file of triples that are never queries, the graph that models with paths read;
      without it the graph is the training part
    - held_out: the share of the training part for validation, where there is no such file
    - unseen: what becomes of entities and relations that only other parts than the training part
      have: an error, or vectors that are never trained
    """

    path: str = "."
    train: str = ""
    validation: str = ""
    test: str = ""
    facts: str = ""
    held_out: float = number(0.1, least=0.0, below=1.0)
    unseen: str = one_of("refuse", "refuse", "untrained")

    def check(self) -> Mistakes:
        named = [getattr(self, part) for part in ("train", "validation", "test", "facts")]
        for part, name in zip(("train", "validation", "test", "facts"), named, strict=True):
            if name and named.count(name) > 1:
                yield part, f"`{name}` is two parts", "give each part a file of its own"

    def read(self, folder: Path, tokenizer: Any = None) -> TripleCorpus:
        base = folder / self.path
        texts = _members(base) if base.name.endswith(ARCHIVES) else None
        found: dict[str, list[Triple]] = {}
        for part in (*NAMES, "facts"):
            name = getattr(self, part)
            listed = self._triples(base, part, name, texts)
            if listed is None and (name or part == "train"):
                what = f"there is no file `{name or part}` of triples"
                raise bad(what, base, f"name it in `[data]`: `{part} = ...`, or give `--data`")
            if listed is not None:
                found[part] = listed
        if self.unseen == "refuse":
            _check_seen(found, base)
        return self._corpus(found, base)

    def _triples(
        self, base: Path, part: str, name: str, texts: Mapping[str, str] | None
    ) -> list[Triple] | None:
        """The distinct triples of a part, in order; None where there is no such file."""
        stems = (name,) if name else NAMES.get(part, ())
        for stem in stems:
            for suffix in SUFFIXES:
                lines = _lines(base / (stem + suffix), texts)
                if lines is not None:
                    path = base / (stem + suffix)
                    triples = parsed(path, enumerate(lines, start=1))
                    if not triples:
                        raise bad("the file has no triples", path, "give a file with data")
                    return list(dict.fromkeys(triples))
        return None

    def _corpus(self, found: dict[str, list[Triple]], base: Path) -> TripleCorpus:
        every = [triple for listed in found.values() for triple in listed]
        entities = as_numbers([end for head, _, tail in every for end in (head, tail)])
        relations = as_numbers([relation for _, relation, _ in every])
        if len(entities) < 2:
            raise bad("there is one entity only", base, "a query ranks several")
        tables = {
            part: torch.tensor([(entities[h], relations[r], entities[t]) for h, r, t in listed])
            for part, listed in found.items()
        }
        if "validation" not in tables:
            train = tables["train"]
            count = int(len(train) * self.held_out)
            if not 0 < count < len(train):
                what = f"there is no validation part, and {self.held_out:g} of {len(train)} is none"
                raise bad(what, base, "give a file `validation`, or raise `held_out`")
            order = torch.randperm(len(train), generator=generator(0, "held out"))
            tables["validation"], tables["train"] = train[order[:count]], train[order[count:]]
        return corpus_of(tables, tuple(entities), tuple(relations))


def _members(path: Path) -> dict[str, str]:
    """The texts of the files of an archive, by their names without folders."""
    try:
        with tarfile.open(path) as archive:
            files = [member for member in archive.getmembers() if member.isfile()]
            read = {Path(f.name).name: archive.extractfile(f) for f in files}
            return {name: file.read().decode("utf-8-sig") for name, file in read.items() if file}
    except OSError as problem:
        what = f"cannot read the archive: {problem.strerror or problem}"
        raise bad(what, path, "check `path`, or give `--data`") from None
    except (tarfile.TarError, EOFError, zlib.error):
        raise bad("truncated or corrupt archive", path, "download it again") from None
    except UnicodeDecodeError:
        raise bad("a file of the archive is not UTF-8 text", path, "convert it") from None


def _lines(path: Path, texts: Mapping[str, str] | None) -> list[str] | None:
    if texts is not None:
        text = texts.get(path.name)
        return None if text is None else text.splitlines()
    packed = path.with_name(path.name + ".gz")
    return lines_of(path) if path.is_file() or packed.is_file() else None


def _check_seen(found: Mapping[str, list[Triple]], base: Path) -> None:
    """Entities and relations of every part are those of the training part and the facts."""
    trained = [*found["train"], *found.get("facts", ())]
    entities = {end for head, _, tail in trained for end in (head, tail)}
    relations = {relation for _, relation, _ in trained}
    for part in ("validation", "test"):
        for head, relation, tail in found.get(part, ()):
            missing = [f"the entity `{end}`" for end in (head, tail) if end not in entities]
            missing += [] if relation in relations else [f"the relation `{relation}`"]
            if missing:
                what = f"{missing[0]:.120} of the {part} part is in no triple of the training part"
                raise bad(what, base, 'remove the triple, or write `unseen = "untrained"`')


def corpus_of(
    tables: Mapping[str, Tensor], entities: Sequence[str], relations: Sequence[str]
) -> TripleCorpus:
    """The corpus of triples (m, 3) by parts; inverse relations follow the others."""
    both = {part: both_ways(table, len(relations)) for part, table in tables.items()}
    parts, first = {}, 0
    for part in [name for name in NAMES if name in both]:
        parts[part] = torch.arange(first, first + len(both[part]))
        first += len(both[part])
    graph = both.get("facts", both["train"])
    queries = torch.cat([both[part] for part in parts])
    return TripleCorpus(
        queries, parts, graph.T.contiguous(), list(entities), list(relations), "facts" in both
    )


def both_ways(table: Tensor, relations: int) -> Tensor:
    """Triples, then their inverses.

    >>> both_ways(torch.tensor([[0, 1, 2]]), 5).tolist()
    [[0, 1, 2], [2, 6, 0]]
    """
    head, relation, tail = table.T
    return torch.cat([table, torch.stack([tail, relation + relations, head], 1)])


@dataclass(eq=False)
class TripleCorpus:
    """Queries (n, 3): head, relation and answer; and the graph (3, e) that paths go along.

    Without `facts` of its own the graph has the answers of the training part, which models hide
    from their own queries.
    """

    queries: Tensor
    parts: Mapping[str, Tensor]
    graph: Tensor
    labels: list[str]
    relation_names: list[str]
    has_facts: bool = False
    tokenizer: Any = None
    tokens: dict[str, int] = field(default_factory=dict)
    words: int = 0
    moved: ClassVar = ("head", "relation", "tail", "known", "negatives")

    @property
    def fingerprint(self) -> str:
        tensors = (self.queries, self.graph, *self.parts.values())
        return digest(tensors, *self.labels, "", *self.relation_names)

    @property
    def entities(self) -> int:
        return len(self.labels)

    @property
    def examples(self) -> int:
        return len(self.queries)

    @property
    def relations(self) -> int:
        """Inverse ones too."""
        return 2 * len(self.relation_names)

    @property
    def sizes(self) -> dict[str, int]:
        return {"words": 0, "entities": self.entities, "relations": self.relations}

    def relation_name(self, number: int) -> str:
        """The name of a relation; an inverse one ends in `⁻¹`."""
        own = self.relation_names[number % len(self.relation_names)]
        return own if number < len(self.relation_names) else f"{own}⁻¹"

    @cached_property
    def _answers(self) -> tuple[Tensor, Tensor]:
        return self._sorted(self.queries)

    @cached_property
    def _trained_answers(self) -> tuple[Tensor, Tensor]:
        return self._sorted(self.queries[self.parts["train"]])

    def _sorted(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Every (head, relation) with an answer as one number, sorted, and the answers."""
        every = torch.cat([queries, self.graph.T]).unique(dim=0)
        return every[:, 0] * self.relations + every[:, 1], every[:, 2]

    def known(self, queries: Tensor, *, trained: bool = False) -> Tensor:
        """The pairs (q, t) for which t answers query q in any part, or in training: (2, m)."""
        keys, tails = self._trained_answers if trained else self._answers
        wanted = (queries[:, 0] * self.relations + queries[:, 1]).contiguous()
        first, last = (torch.searchsorted(keys, wanted, right=side) for side in (False, True))
        count = last - first
        row = torch.arange(len(queries)).repeat_interleave(count)
        offset = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
        return torch.stack([row, tails[first[row] + offset]])

    def batch(self, size: int, seed: int, step: int) -> Batch:
        rows = self.parts["train"]
        size = min(size, len(rows))
        return self._to_train(rows[examples(len(rows), size, seed, step)])

    def _to_train(self, chosen: Tensor) -> Batch:
        """Queries that are edges of the graph too are hidden, in both directions."""
        queries = self.queries[chosen]
        found = self._of(chosen) | {"known": self.known(queries, trained=True)}
        if self.has_facts:
            return found
        half, (head, relation, tail) = len(self.relation_names), queries.T
        inverse = torch.stack([tail, (relation + half) % (2 * half), head])
        return found | {"hide": torch.cat([queries.T, inverse], 1).unique(dim=1)}

    def validation(self, size: int, part: str = "validation") -> Iterator[Batch]:
        for chosen in self.parts[part].split(size):
            yield self.of_examples(chosen)

    def first(self, batch: Batch) -> Batch:
        return self.part(batch, 0, 2)

    def count(self, batch: Batch) -> int:
        """How many queries a batch has."""
        return len(batch["example"])

    def part(self, batch: Batch, first: int, last: int) -> Batch:
        """Some queries of a batch, one after another; all of it stays hidden."""
        found = self._to_train(batch["example"][first:last])
        found |= {name: batch[name] for name in ("hide",) if name in batch}
        return found | {n: batch[n][first:last] for n in ("negatives",) if n in batch}

    def of_examples(self, chosen: Tensor) -> Batch:
        """Queries with all their known answers, for filtered ranks."""
        return self._of(chosen) | {"known": self.known(self.queries[chosen])}

    def _of(self, chosen: Tensor) -> Batch:
        head, relation, tail = self.queries[chosen].T
        found = {"example": chosen, "head": head, "relation": relation, "tail": tail}
        return found | {"graph": self.graph}

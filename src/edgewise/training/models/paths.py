"""Models of knowledge graphs in recipes that follow paths: NBFNet, and rules that are learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from edgewise.inputs.kinds import numbers, rows
from edgewise.language import Program, R
from edgewise.language.nodes import Atom, Rule
from edgewise.module import Data, Model
from edgewise.training.data.batches import Batch
from edgewise.training.schema import number
from edgewise.zoo import nbfnet, soft_rules

if TYPE_CHECKING:
    from edgewise.training.data.triples import TripleCorpus

MOST_CHAINS = 5
LEAST_CONFIDENCE = 0.5
BACKWARDS = "⁻¹"


@dataclass(frozen=True, kw_only=True)
class BellmanFord:
    """`zoo.nbfnet`: a vector for every entity that a query reaches, after `layers` steps."""

    size: int = number(32, least=1)
    layers: int = number(4, least=1)

    def build(self, words: int, corpus: Any, seed: int) -> PathModel:
        config = nbfnet.Config(corpus.relations, self.size, self.layers)
        return self.module(nbfnet.program(config).compile(R.score, seed=seed), words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> PathModel:
        """The module around a compiled program."""
        return PathModel(program, corpus.entities)


@dataclass(frozen=True, kw_only=True)
class SoftRules:
    """`zoo.soft_rules`: chains of at most `length` relations, in `rank` mixtures."""

    length: int = number(2, least=1, below=9)
    rank: int = number(3, least=1)

    def config(self, relations: int) -> soft_rules.Config:
        """The configuration of its program."""
        return soft_rules.Config(relations, self.length, self.rank)

    def build(self, words: int, corpus: Any, seed: int) -> RuleModel:
        program = soft_rules.program(self.config(corpus.relations))
        return self.module(program.compile(R.score, seed=seed), words, corpus)

    def module(self, program: Model, words: int, corpus: Any) -> RuleModel:
        """The module around a compiled program."""
        return RuleModel(program, corpus.entities, self.config(corpus.relations))


class PathModel(nn.Module):
    """Queries as samples of one graph, which is grounded once: scores (queries, entities)."""

    def __init__(self, program: Model, entities: int) -> None:
        super().__init__()
        self.program, self.entities = program, entities
        self._grounded: tuple[Tensor, Data, Data] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_grounded": None}

    def forward(self, batch: Batch) -> Tensor:
        found: Any = self.program(self.grounded(batch), **self.inputs(batch))
        out: Tensor = found
        return out

    def grounded(self, batch: Batch) -> Data:
        """The graph; where queries are hidden in it, `hide` comes with the batch."""
        graph = batch["graph"]
        if self._grounded is None or self._grounded[0] is not graph:
            edge = rows(graph)
            plain = self.program.ground(edge=edge, hide=rows(graph[:, :0]))
            self._grounded = graph, plain, self.program.ground(edge=edge)
        _, plain, hiding = self._grounded
        return hiding if "hide" in batch else plain

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """What changes from batch to batch."""
        head = batch["head"]
        dtype = next(self.program.parameters()).dtype
        start = torch.zeros(len(head), self.entities, 1, dtype=dtype, device=head.device)
        start[torch.arange(len(head)), head] = 1
        found: dict[str, Any] = {"start": start, "relation": numbers(batch["relation"])}
        if "hide" in batch:
            found["hide"] = rows(batch["hide"])
        return found


class RuleModel(PathModel):
    """Chains of relations, which read as rules."""

    def __init__(self, program: Model, entities: int, config: soft_rules.Config) -> None:
        super().__init__(program, entities)
        self.config = config

    def rules(self, corpus: TripleCorpus) -> Iterator[tuple[Rule, float, float]]:
        """The rules of every relation, with their weight and their confidence on the graph.

        Confidence is the share of derived pairs that are known; rules are in order of weight times
        the number of answers that they derive. Those below a confidence of one half are left out.
        """
        weights = dict(self.program.named_parameters())
        facts = facts_by_name(corpus)
        for relation, name in enumerate(corpus.relation_names):
            found = []
            known = set(map(tuple, facts[name].T.tolist()))
            for chain, weight in soft_rules.chains(
                self.config, weights, relation, most=4 * MOST_CHAINS
            ):
                own = [corpus.relation_name(k) for k in chain]
                steps = [(k.removesuffix(BACKWARDS), k.endswith(BACKWARDS)) for k in own]
                rule = soft_rules.as_rule(name, steps)
                if not chain or rule.body == soft_rules.as_rule(name, [(name, False)]).body:
                    continue
                derived = pairs(rule, facts)
                right = len(derived & known)
                if derived and right / len(derived) >= LEAST_CONFIDENCE:
                    found.append((right * weight, rule, weight, right / len(derived)))
            found.sort(key=lambda item: -item[0])
            yield from ((rule, weight, sure) for _, rule, weight, sure in found[:MOST_CHAINS])


def facts_by_name(corpus: TripleCorpus) -> dict[str, Tensor]:
    """The pairs (2, m) of each relation in the graph and the training part."""
    every = torch.cat([corpus.graph, corpus.queries[corpus.parts["train"]].T], 1).unique(dim=1)
    head, relation, tail = every
    return {
        name: torch.stack([head, tail])[:, relation == at]
        for at, name in enumerate(corpus.relation_names)
    }


def pairs(rule: Rule, facts: dict[str, Tensor]) -> set[tuple[int, int]]:
    """The pairs that a rule derives from pairs of its relations."""
    body = {atom.relation for atom in rule.body if isinstance(atom, Atom)}
    renamed = {name: f"r{at}" for at, name in enumerate(sorted(body))}
    atoms = [R.hidden[renamed[a.relation]](*a.terms) for a in rule.body if isinstance(a, Atom)]
    model = Program([R.derived(*rule.head.terms) <= tuple(atoms)]).compile(R.derived)
    read: dict[str, Any] = {renamed[name]: rows(facts[name]) for name in body}
    found: Any = model(model.ground(**read))
    return set(map(tuple, found.index.T.tolist()))

"""The published vectors, compiled: the same values, gradients and errors as the reference."""

import pytest
import torch

from edgewise import EdgewiseError, Program
from edgewise.language import nodes
from tests.reference.test_conformance import (
    VECTORS,
    assert_value,
    gradient,
    read,
    with_gradient,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*idle-combination")


class Answers:
    """One compiled model for each relation that is asked, on the same leaves."""

    def __init__(self, vector):
        self.program = Program(
            [read(rule) for rule in vector["rules"]],
            aggregation=read(vector.get("aggregation", "F.avg_agg")),
        )
        pairs = [with_gradient(read(fact)) for fact in vector["facts"]]
        self.facts = [atom for atom, _ in pairs]
        self.leaves = {t: leaf for t, (_, leaf) in zip(vector["facts"], pairs, strict=True)}
        self.models = {}
        self.answers = {}

    def __getitem__(self, relation):
        if relation not in self.answers:
            model = self.program.compile(nodes.Atom(relation), seed=0, dtype=torch.float64)
            for other in self.models.values():  # one set of weights for all
                for name, path in model._paths.items():
                    if name in other._paths:
                        share(model, path, other.weight(name))
            self.models[relation] = model
            self.answers[relation] = dict(model.rows(model.ground(facts=self.facts)))
        return self.answers[relation]

    @property
    def weights(self):
        return {n: m.weight(n) for m in self.models.values() for n in m._paths}


def share(model, path, weight):
    for part in path[:-1]:
        model = getattr(model, part)
    if isinstance(weight, torch.nn.Parameter):
        setattr(model, path[-1], weight)


@pytest.mark.parametrize("vector", VECTORS or [None], ids=lambda v: v["id"] if v else "none")
def test_vector(vector):
    if vector is None:
        pytest.skip("the vectors are not beside this checkout")
    queries = [read(query) for query in vector["queries"]]
    total = torch.zeros((), dtype=torch.float64)
    answers = Answers(vector)
    if len(queries) == 1 and any(isinstance(t, nodes.Variable) for t in queries[0].terms):
        found = [v for a, v in answers[queries[0].relation].items() if matches(queries[0], a)]
        assert len(found) == len(vector["expected"])
        pairs = list(zip(found, vector["expected"], strict=True))
    else:
        pairs = []
        for query, want in zip(queries, vector["expected"], strict=True):
            if isinstance(want, dict):
                assert_error(answers, query, want["error"])
            else:
                atom = nodes.Atom(query.relation, query.terms)
                pairs.append((answers[query.relation][atom], want))
    for value, want in pairs:
        assert_value(value, want)
        total = total + value.sum()
    if "gradient" in vector:
        total.backward()
        for source, want in vector["gradient"].items():
            assert_value(gradient(answers, answers.leaves, source), want)


def matches(query, atom):
    return all(
        isinstance(q, nodes.Variable) or q == a
        for q, a in zip(query.terms, atom.terms, strict=True)
    )


def assert_error(answers, query, code):
    if code == "not-derivable":
        assert nodes.Atom(query.relation, query.terms) not in answers[query.relation]
        return
    with pytest.raises(EdgewiseError) as caught:
        answers[query.relation]
    assert caught.value.code == code

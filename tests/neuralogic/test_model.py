"""Templates, datasets and training through PyNeuraLogic's interface."""

import itertools
import math

import numpy as np
import pytest
import torch

from edgewise import EdgewiseError
from edgewise.neuralogic import (
    Dataset,
    FileDataset,
    Sample,
    Settings,
    initialize,
    manual_seed,
    set_max_memory_size,
)
from edgewise.neuralogic.core import C, F, Metadata, Model, R, Rule, Template, V
from edgewise.neuralogic.dataset import Data, TensorDataset
from edgewise.neuralogic.inference import InferenceEngine
from edgewise.neuralogic.nn import (
    GRU,
    MSE,
    SGD,
    Adam,
    GCNConv,
    MAGNNMean,
    Trainer,
    Uniform,
    compute_metrics,
    get_evaluator,
)
from edgewise.neuralogic.nn.optim.lr_scheduler import ArithmeticLR, GeometricLR

PAIRS = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]


def xor():
    template = Template()
    template += [(R.xor[1, 8] <= R.xy[8, 2]) | [F.tanh], R.xor / 0 | [F.tanh]]
    return template, Dataset([Sample(R.xor[float(a != b)], [R.xy[[a, b]]]) for a, b in PAIRS])


def test_text_of_constructs():
    assert str(R.a(V.X) <= R.b(V.Y) & R.c(V.Z) & R.d | [F.sigmoid]) == (
        "a(X) :- b(Y), c(Z), d. [transformation=sigmoid]"
    )
    assert str(R.head(V.get("abc", "type")[1:3], V.X)) == "head(type:Abc1, type:Abc2, X)."
    assert str(R.h["w":1, 2].fixed()) == "<$w={1, 2}> h."
    assert str(R.h <= F.slice(R.a, rows=(1, 3)) + R.b * R.c) == (
        "h :- slice(a, rows=[1, 3], cols=...) + (b * c)."
    )
    assert V.get("abc") == "Abc"
    assert C.get("Abc", "type") == "type:abc"
    assert isinstance(R.a <= (R.b(i) for i in range(3)), Rule)
    assert len((R.a <= (R.b(i) for i in range(3))).body) == 3


def test_it_learns_xor_and_keeps_its_weights(tmp_path):
    manual_seed(1)
    template, dataset = xor()
    model = template.build(Settings(optimizer=SGD(0.3), initializer=Uniform(2.0)))
    data = model.build_dataset(dataset)
    before = model.loss(data)
    results = model.train(data, epochs=60)
    assert [target for target, _, _ in results] == [0.0, 1.0, 1.0, 0.0]
    assert model.loss(data) < before
    model.save(tmp_path / "weights.safetensors")
    other = template.clone().build()
    other.load(tmp_path / "weights.safetensors")
    assert other.test(dataset) == pytest.approx(model.test(data))
    other.reset_parameters()
    assert other.test(dataset) != pytest.approx(model.test(data))
    (tmp_path / "damaged").write_bytes(b"not weights")
    with pytest.raises(EdgewiseError, match="cannot read weights"):
        other.load(tmp_path / "damaged")


def test_a_batch_is_one_update():
    template, dataset = xor()
    model = template.build(Settings(optimizer=SGD(0.1)))
    state = model.state_dict()
    model.train(model.build_dataset(dataset, batch_size=4))
    outer, inner = (torch.tensor(state["weights"][i], requires_grad=True) for i in (0, 1))
    x, y = torch.tensor(PAIRS), torch.tensor([0.0, 1.0, 1.0, 0.0])
    out = torch.tanh(torch.tanh(x @ inner.T) @ outer.T).squeeze(1)
    (out - y).square().mean().backward()
    after = model.state_dict()["weights"]
    assert torch.allclose(torch.tensor(after[1]), inner - 0.1 * inner.grad, atol=1e-6)
    assert torch.allclose(torch.tensor(after[0]), outer - 0.1 * outer.grad, atol=1e-6)


def test_queries_with_variables_and_without_derivation():
    model = Model()
    model += R.h(V.X) <= R.a(V.X)
    model.build()
    facts = [R.a(1)[2.0], R.a("b")[3.0]]
    assert model.test(Dataset([Sample(R.h(V.X), facts)])) == [2.0, 3.0]
    assert model.test(Dataset([Sample([R.h(9), R.h(1)], facts)])) == [0.0, 2.0]
    assert model.test(Dataset([Sample(None, facts)])) == [0.0]


def test_examples_and_queries_side_by_side():
    model = Model()
    model += R.h(V.X) <= R.a(V.X)
    model.build()
    dataset = Dataset([[R.a(1)[2.0]], [R.a(2)[3.0]]], [R.h(1)[1.0], R.h(2)[0.0]])
    assert model.validate(dataset) == [(1.0, 2.0, 1.0), (0.0, 3.0, 9.0)]
    labelled = Dataset()
    labelled.add_examples([R.h(1)[1.0] <= R.a(1)[2.0], R.h(2)[0.0] <= R.a(2)[3.0]])
    assert model.validate(labelled) == model.validate(dataset)


def test_queries_without_values():
    model = Model()
    model += [R.road("a", "b"), R.road("b", "c"), R.road("c", "a"), R.road("d", "a")]
    model += R.way(V.X, V.Y) <= R.road(V.X, V.Y)
    model += R.way(V.X, V.Y) <= (R.road(V.X, V.Z), R.way(V.Z, V.Y))
    assert model.query(R.way("d", V.Y)) == [{"Y": "a"}, {"Y": "b"}, {"Y": "c"}]
    assert model.q(R.way("a", "d")) == {}
    assert InferenceEngine(model).query(R.way("a", "a")) == [{}]
    assert model.query(R.way("d", "e"), [R.road("a", "e")]) == [{}]
    assert "way(d, c)." in map(str, model.derivable_queries())


def test_files(tmp_path):
    (tmp_path / "embed.txt").write_text("{3} embed(X) :- a(X).\n")
    (tmp_path / "template.txt").write_text(
        "import ./embed.txt\n<2.0> e(X, X).\n"
        "{1,3} h(X) <= embed(X), {3,3} embed(Y), e(X, Y). [tanh]\n"
    )
    (tmp_path / "examples.txt").write_text("<1.0> a(1), a(2),\n  e(1, 2).\n<3.0> a(1).\n")
    (tmp_path / "queries.txt").write_text("1.0 h(1).\n0.5 h(1).\n")
    model = Model(model_file=tmp_path / "template.txt").build(Settings(optimizer=Adam(0.01)))
    data = model.build_dataset(FileDataset(tmp_path / "examples.txt", tmp_path / "queries.txt"))
    assert [target for target, _, _ in model.validate(data)] == [1.0, 0.5]
    before = model.loss(data)
    model.train(data, epochs=40)
    assert model.loss(data) < before


def test_old_names():
    template, dataset = xor()
    settings = Settings(optimizer=SGD(0.1), epochs=3, rule_transformation=F.tanh)
    evaluator = get_evaluator(template, settings)
    built = evaluator.build_dataset(dataset)
    losses = [total / count for total, count in evaluator.train(built)]
    assert len(losses) == 3
    assert len(list(evaluator.test(built))) == 4
    (results, count) = evaluator.model(built, train=True)
    assert (len(results), count) == (4, 4)


def test_a_trainer_stops_early_and_writes_the_best_weights(tmp_path):
    template, dataset = xor()
    model = template.build(Settings(optimizer=SGD(0.0)))
    history = Trainer(model).fit(
        dataset,
        dataset,
        epochs=9,
        metrics=["mae", "accuracy"],
        early_stopping_patience=2,
        checkpoint_dir=tmp_path,
    )
    assert history.stopped_early
    assert len(history.train_losses) == 3
    assert len(history.val_metrics["accuracy"]) == 3
    assert (tmp_path / "best.pkl").exists()
    assert (
        compute_metrics([0.0, 1.0], [0.1, 0.4], ["accuracy", "f1_macro", "r2"])["accuracy"] == 0.5
    )


def test_graphs_as_tensors():
    graph = Data(
        x=[[0], [1], [-1]],
        edge_index=[[0, 1, 1, 2], [1, 0, 2, 1]],
        y=[[1], [0], [1]],
        y_mask=[0, 2],
    )
    dataset = TensorDataset([graph])
    assert [str(s.query) for s in dataset.to_dataset().samples] == [
        "1.0 predict(0).",
        "1.0 predict(2).",
    ]
    model = Model()
    model += GCNConv(1, 1, "predict", "node_feature", "edge")
    assert len(model.build().train(dataset, epochs=2)) == 2


def test_learning_rates_decay():
    rates = [SGD(100, lr_decay=d) for d in (ArithmeticLR(10), GeometricLR(0.9, 2))]
    for epoch, expected in enumerate([(90, 100), (80, 90), (70, 90), (60, 81)], 1):
        for optimizer, rate in zip(rates, expected, strict=True):
            optimizer.get_lr_decay().decay(epoch)
            assert optimizer.lr == pytest.approx(rate)


MISTAKES = [
    (lambda: R.h(V.X)(V.Y), "bad-template", "already"),
    (lambda: R._h(V.X)[1, 2], "bad-template", "no value"),
    (lambda: R.h[1, 2][2], "bad-template", "cannot have two"),
    (lambda: ~R.h[1.0], "bad-template", "negated"),
    (lambda: R.h / -1, "bad-template", "arity"),
    (lambda: R.h <= "a", "bad-template", "is not a relation"),
    (lambda: R.h <= [R.a, None], "bad-template", "is not a relation"),
    (lambda: (R.h <= R.a) | [sum], "bad-template", "is not a function"),
    (lambda: (R.h <= R.a) | 3, "bad-template", "list of functions"),
    (lambda: R.h / 1 | [F.sum_agg], "bad-template", "belongs to a rule"),
    (
        lambda: (R.h(V.X) <= R.a(V.X)) | [F.softmax_agg(agg_terms=["Y"])],
        "bad-template",
        "rule head",
    ),
    (lambda: F.softmax_agg(agg_terms=["y"]), "bad-template", "over variables"),
    (lambda: F.tanh(3), "bad-template", "applies to a relation"),
    (lambda: F.slice(rows=3), "bad-template", "two integers"),
    (lambda: V.X["a":"b"], "bad-template", "numbered by a slice"),
    (lambda: R.special(1), "bad-template", "not names"),
    (lambda: R.get(""), "bad-template", "name of a relation"),
    (lambda: R.get("any.name"), "bad-template", "name of a relation"),
    (lambda: R.get("h/1"), "bad-template", "name of a relation"),
    (lambda: built(R.h <= nested(2000)), "bad-template", "nested too deep"),
    (lambda: built(R.h <= R.a).load_state_dict({}), "bad-template", "by number"),
    (lambda: built(R.h <= R.a).load_state_dict([1]), "bad-template", "by number"),
    (lambda: built().test(built().build_dataset(Dataset())), "bad-sample", "another"),
    (lambda: outputs_next([R.a(-1)]), "bad-sample", "negative"),
    (lambda: Model().add_rules(None), "bad-template", "list of rules"),
    (lambda: manual_seed("x"), "bad-setting", "integer"),
    (lambda: built().test(TensorDataset([Data([[1]], [[0]])])), "bad-sample", "edge_index"),
    (lambda: Trainer(built()).fit(Dataset(), epochs="x"), "bad-setting", "epochs"),
    (lambda: shaped([R.a[[1.0, 2.0]]]), "shape-mismatch", "column of 2"),
    (lambda: built(R.h(object()) <= R.a), "bad-template", "is not a term"),
    (lambda: built(R.h("") <= R.a), "bad-template", "is not a term"),
    (lambda: built(R.h[0, 2] <= R.a), "bad-template", "is not a shape"),
    (lambda: built(R.h[[]] <= R.a), "bad-template", "is not a value"),
    (lambda: built(R.h[[[1], [1, 2]]] <= R.a), "bad-template", "is not a value"),
    (lambda: built(R.h["w":1, 2] <= R.a["w":2, 2]), "bad-template", "has the shapes"),
    (lambda: built(R.h <= (R.a, R.special.nothing(1))), "bad-template", "no special"),
    (lambda: built(3), "bad-template", "is not a rule"),
    (lambda: Model(model_file="/nowhere.txt").build(), "bad-template", "cannot read"),
    (lambda: Model().train(Dataset()), "bad-template", "not built"),
    (lambda: Trainer(Model()), "bad-template", "not built"),
    (lambda: built(R.h <= R.a).add_rule(R.a), "bad-template", "built"),
    (lambda: Model().build("settings"), "bad-template", "settings are not"),
    (
        lambda: built(R.h[2, 2] <= R.a).load_state_dict({"weights": {0: [1.0]}}),
        "bad-template",
        "elements",
    ),
    (
        lambda: built(R.h <= R.a).load_state_dict({"weights": {7: 1.0}}),
        "bad-template",
        "no weight 7",
    ),
    (lambda: built(R.h <= R.a).load("/nowhere"), "bad-template", "cannot read weights"),
    (lambda: Settings(optimiser=SGD()), "bad-setting", "no setting"),
    (lambda: Settings(optimizer="sgd"), "bad-setting", "is not"),
    (lambda: Settings(rule_aggregation=F.sum), "bad-setting", "aggregation"),
    (lambda: Settings(epochs=-1), "bad-setting", "positive"),
    (lambda: SGD(-1), "bad-setting", "at least 0"),
    (lambda: initialize(max_memory_size=4), "bad-setting", "`max_memory_size`"),
    (lambda: initialize(debug_mode=True), "bad-setting", "`debug_mode`"),
    (lambda: set_max_memory_size(4), "bad-setting", "virtual machine"),
    (lambda: GRU(2, 2, "h", "x", "h0", next_name="after"), "bad-setting", "next_name"),
    (
        lambda: MAGNNMean("h", "x", "edge", None, ["a"], aggregation=F.avg_agg),
        "bad-setting",
        "aggregation",
    ),
    (lambda: MSE("max"), "bad-setting", "mean"),
    (lambda: Uniform(0), "bad-setting", "positive"),
    (lambda: GeometricLR(0.5, 1).decay(1), "bad-setting", "no optimiser"),
    (lambda: compute_metrics([1.0], [1.0], ["auc"]), "bad-setting", "no metric"),
    (lambda: Dataset([R.a]), "bad-sample", "is not a sample"),
    (lambda: outputs_of([R.a(V.X)]), "bad-sample", "has the variable"),
    (lambda: built().build_dataset(Dataset([Sample(R.h[math.nan], [])])), "bad-sample", "target"),
    (lambda: outputs_of([R.a <= R.b]), "bad-sample", "is a rule"),
    (lambda: outputs_of(["a"]), "bad-sample", "is not a fact"),
    (lambda: outputs_of([R.a], "h"), "bad-sample", "is not a query"),
    (
        lambda: built(R.h <= R.a).train(Dataset([Sample(R.h[[1.0, 2.0]], [R.a])])),
        "bad-sample",
        "elements",
    ),
    (lambda: built(R.h <= R.a).train(Dataset(), epochs=0), "bad-sample", "epochs"),
    (lambda: built(R.h <= R.a).build_dataset(Dataset(), batch_size=0), "bad-sample", "batch_size"),
    (lambda: built(R.h <= R.a).test(Dataset([[R.a]], [])), "bad-sample", "no queries"),
    (lambda: built(R.h <= R.a).test(Dataset([[R.a], [R.b]], [R.h])), "bad-sample", "2 examples"),
    (
        lambda: built(R.h(V.X) <= (R.a(V.X), R.special.leq(V.X, 2))).test(
            Dataset(Sample(R.h(1), [R.a(1.5)]))
        ),
        "bad-sample",
        "not an integer",
    ),
]


def nested(depth):
    found = R.a
    for _ in range(depth):
        found = (found + R.b) * R.c
    return found


def shaped(facts):
    return built(R.h <= R.a[2, 3]).test(Dataset([Sample(R.h, facts)]))


def outputs_next(facts):
    rule = R.h(V.X) <= (R.a(V.X), R.special.next(V.X, V.Y))
    return built(rule).test(Dataset([Sample(R.h(0), facts)]))


def built(*rules):
    model = Model()
    model.add_rules(rules)
    return model.build()


def outputs_of(facts, query=R.h):
    return built(R.h <= R.a).test(Dataset([Sample(query, facts)]))


@pytest.mark.parametrize(("mistake", "code", "message"), MISTAKES)
def test_mistakes_have_a_code_and_a_place(mistake, code, message):
    with pytest.raises(EdgewiseError, match=message) as caught:
        mistake()
    error = caught.value.errors[0]
    assert error.code == code
    assert error.help
    assert error.span.file.endswith("test_model.py")


def test_values_of_every_kind():
    model = built(R.h <= R.a)
    values = [[1.0, 2.0], np.array([1.0, 2.0]), torch.tensor([1.0, 2.0]), (np.float64(1.0), 2)]
    for value in values[:3]:
        assert model.test(Dataset([Sample(R.h, [R.a[value]])])) == [[1.0, 2.0]]
    assert model.test(Dataset([Sample(R.h, [R.a[np.float32(0.5)]])])) == [0.5]


def test_equal_groundings_count_again_if_told():
    facts = [R.a(1)[2.0], R.e(1, 2), R.e(1, 3)]
    body = (R.a(V.X), R.hidden.e(V.X, V.Y))
    for is_again, expected in itertools.product((True,), (4.0,)):
        metadata = Metadata(aggregation=F.sum_agg, duplicate_grounding=is_again)
        model = built((R.h <= body) | metadata)
        assert model.test(Dataset([Sample(R.h, facts)])) == [expected]
    assert built((R.h <= body) | [F.sum_agg]).test(Dataset([Sample(R.h, facts)])) == [2.0]


def test_weights_are_learned_by_an_optimiser_of_torch():
    template, dataset = xor()
    model = template.build(Settings(), torch=True)
    data = model.build_dataset(dataset)
    optimiser = torch.optim.SGD(model.tensor_parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        values = torch.stack(model(data))
        value = (values - torch.tensor([0.0, 1.0, 1.0, 0.0])).square().mean()
        value.backward()
        optimiser.step()
        losses.append(value.item())
    assert losses[-1] < losses[0]


def test_facts_may_follow_rules():
    model = Model()
    model += R.h(V.X) <= R.edge(V.Y, V.X)
    model += R.edge(1, 2)
    model += R.q <= R.h(V.X)
    model += [R.edge(2, 3), R.edge(3, 1)]
    assert sorted(map(str, model.derivable_queries([R.edge(1, 4)])))[-2:] == ["h(4).", "q."]
    assert model.build().test(Dataset([Sample(R.q, [])])) == [1.0]


def test_a_template_and_its_samples_draw_and_explain_themselves(tmp_path):
    model = Model()
    model += (R.h(V.X)["w":1, 2] <= (R.a(V.Y)["u":2, 1], R.edge(V.X, V.Y))) | [F.sum_agg]
    assert "edge" in model.draw().svg
    assert model.to_program().rules
    model.build(Settings())
    facts = [R.edge(0, 1), R.edge(0, 2), R.a(1)[1.0], R.a(2)[2.0]]
    data = model.build_dataset(Dataset([Sample(R.h(0)[1.0], facts), Sample(R.none, facts)]))
    found = str(data[0].why())
    (output,) = model.test(data)[:1]
    assert "2 groundings" in found
    assert f"R.h(0) = {output:.4g}" in found
    assert data[0].draw(tmp_path / "h.svg").svg == (tmp_path / "h.svg").read_text()
    with pytest.raises(EdgewiseError, match="nothing derives"):
        data[1].draw()
    with pytest.raises(EdgewiseError, match="there is no dataset"):
        model.train()


def test_modules_are_where_older_documentation_has_them():
    import edgewise.neuralogic.nn.functional as functional
    from edgewise.neuralogic.inference.inference_engine import InferenceEngine
    from edgewise.neuralogic.optim import SGD as older

    assert functional.identity is F.identity
    assert older is SGD
    template = Model()
    template += [R.road("a", "b"), R.far(V.X) <= R.road("a", V.X)]
    assert InferenceEngine(template).q(R.far(V.X)) == [{"X": "b"}]


def test_errors_have_the_names_that_they_have_there():
    from edgewise.neuralogic import DatasetError, ModelError, NeuraLogicError

    with pytest.raises(DatasetError) as found:
        built(R.h <= R.a).train(None)
    assert isinstance(found.value, NeuraLogicError)
    with pytest.raises(ModelError):
        Model().build_dataset(Dataset())


@pytest.mark.parametrize(
    ("name", "help"),
    [
        ("set_jvm_path", "there is no virtual machine"),
        ("BackendError", "there is no virtual machine"),
        ("set_graphviz_path", "`model.draw()`"),
        ("add_log_handler", "`TrainerCallback`"),
    ],
)
def test_names_that_are_not_here_say_what_is_instead(name, help):
    with pytest.raises(EdgewiseError) as caught:
        exec(f"from edgewise.neuralogic import {name}", {})
    assert caught.value.code == "not-there"
    assert help in caught.value.help
    with pytest.raises(ImportError):
        exec("from edgewise.neuralogic import misspelt", {})


# the value of `h` where one weight is 5 and all others are 1, weight by weight: PyNeuraLogic 0.9.2
# with `Settings(chain_pruning=False, iso_value_compression=False)`
NUMBERED = {
    "{1} g :- c.\n{1} d.\n{1} h :- {1} g, {1} d.\n{1} c.": [6, 10, 6, 6, 6, 6],
    "{1} d.\n{1} c.\nh :- {1} c, g.\ng :- c, a.\nh :- d.": [12, 12, 16],
    "{1} h :- {1} a, {1} b, {1}.\n{1} g :- {1} a, {1}.\n{1} h :- {1} g.": [
        *(33, 17, 21, 13, 21, 17, 13, 21, 21),
    ],
    "{1} g :- {1} a.\n{1} h :- {1} g.\nh/0 {1}\ng/0 {1}": [12, 12, 16, 16, 8, 8],
    "{1} h :- {1} a.\n{1} h :- {1} b, {1}.\nh/0 {1}": [15, 15, 23, 19, 11, 11],
}


@pytest.mark.parametrize("text", NUMBERED)
def test_weights_of_a_text_are_numbered_as_there(text, tmp_path):
    (tmp_path / "template.txt").write_text(text)
    (tmp_path / "examples.txt").write_text(f"1 h :- {5 if 'c' in text else 2} a, 3 b.")
    model = Model(model_file=tmp_path / "template.txt").build(Settings())
    data = model.build_dataset(FileDataset(tmp_path / "examples.txt"))
    found = []
    for number in (weights := model.state_dict()["weights"]):
        model.load_state_dict({"weights": {**dict.fromkeys(weights, 1.0), number: 5.0}})
        found += model.test(data)
    assert found == pytest.approx(NUMBERED[text])

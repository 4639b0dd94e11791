"""Encoders with their task heads against `transformers`, in float64, values and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_parity import batches, few, rows, settings_of, sizes
from theirs import assert_equal, pair, transformers

TASKS = {
    "ForSequenceClassification": ("classes", "logits"),
    "ForTokenClassification": ("tags", "logits"),
    "ForQuestionAnswering": ("span", None),
    "ForMaskedLM": ("logits", "logits"),
    "ForPreTraining": ("replaced", "logits"),
    "ForNextSentencePrediction": ("follows", "logits"),
}
OWN = {
    "Bert": {},
    "Roberta": {},
    "MPNet": {},
    "MegatronBert": {},
    "Electra": {"embedding_size": [3, 8]},
    "Deberta": {"max_relative_positions": [-1, 3]},
    "DebertaV2": {
        "position_buckets": [-1, 4, 8],
        "max_relative_positions": [-1, 7],
        "share_att_key": [True, False],
        "norm_rel_ebd": ["none", "layer_norm"],
        "conv_kernel_size": [0, 3, 5],
        "conv_act": ["tanh", "gelu"],
    },
    "Albert": {"embedding_size": [3, 8], "num_hidden_groups": [1, 2], "inner_group_num": [1, 2]},
}
CASES = [
    *((name, task) for name in OWN for task in list(TASKS)[:3]),
    *(
        ("Electra", "ForMaskedLM"),
        ("Albert", "ForMaskedLM"),
        ("Deberta", "ForMaskedLM"),
        ("Electra", "ForPreTraining"),
    ),
    *(("DebertaV2", "ForMaskedLM"), ("Bert", "ForNextSentencePrediction")),
]


@pytest.mark.parametrize(("name", "task"), CASES)
@few
@given(data=st.data())
def test_task_heads(name, task, data):
    drawn, (token, mask, segment) = data.draw(sizes), data.draw(batches())
    own = {k: data.draw(st.sampled_from(values)) for k, values in OWN[name].items()}
    labels = 2 if task == "ForQuestionAnswering" else data.draw(st.integers(1, 4))
    layers = max(2, drawn["num_hidden_layers"])
    table = settings_of(drawn, **own, num_labels=labels) | {"num_hidden_layers": layers}
    if name.startswith("Deberta"):
        table |= {"relative_attention": True, "position_biased_input": False, "type_vocab_size": 0}
        table |= {"pos_att_type": ["p2c", "c2p"]}
    config = getattr(transformers, f"{name}Config")(**table)
    both = pair(getattr(transformers, f"{name}{task}")(config), 0)
    relation, field = TASKS[task]
    assert (both.ours.output == relation) is (task != "ForMaskedLM")
    typed = "segment" in both.ours.compile(relation).inputs

    def run(model):
        found = model(token, attention_mask=mask, **({"token_type_ids": segment} if typed else {}))
        if field is None:
            return torch.stack([found.start_logits, found.end_logits], -1)
        return found[field]

    real = None if relation in ("classes", "follows") else mask.bool()
    inputs = rows(token, mask, segment if typed else None)
    tolerance = 1e-7 if name.startswith("Deberta") else 1e-9  # their scale of scores is in float32
    assert_equal(both, relation, inputs, run, real, tolerance=tolerance)


@pytest.mark.parametrize("name", ["Bert", "Roberta", "MPNet", "Electra"])
def test_words_are_guessed_by_the_activation_of_the_head(name):
    """In three of these it is GELU, whatever the layers have."""
    config = getattr(transformers, f"{name}Config")(
        vocab_size=20, hidden_size=6, num_attention_heads=2, num_hidden_layers=1, hidden_act="relu",
        intermediate_size=5, max_position_embeddings=12,
    )  # fmt: skip
    both = pair(getattr(transformers, f"{name}ForMaskedLM")(config), 0)
    token, mask = torch.randint(3, 20, (2, 7)), torch.ones(2, 7).long()
    inputs = rows(token, mask, torch.zeros_like(token))
    inputs = {k: v for k, v in inputs.items() if k in both.ours.compile("logits").inputs}
    assert_equal(both, "logits", inputs, lambda model: model(token).logits)


@pytest.mark.parametrize("task", list(TASKS)[:3])
def test_distilbert(task):
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=20, dim=6, n_heads=2, hidden_dim=5, n_layers=2, max_position_embeddings=16,
        num_labels=2 if task == "ForQuestionAnswering" else 3,
    )  # fmt: skip
    both = pair(getattr(transformers, f"DistilBert{task}")(config), 0)
    token, mask = torch.randint(3, 20, (2, 7)), torch.ones(2, 7).long()
    mask[1, 4:] = 0
    relation, field = TASKS[task]

    def run(model):
        found = model(token, attention_mask=mask)
        return found[field] if field else torch.stack([found.start_logits, found.end_logits], -1)

    real = None if relation == "classes" else mask.bool()
    assert_equal(both, relation, rows(token, mask), run, real)


@pytest.mark.parametrize("name", ["Electra", "Albert"])
def test_bodies(name):
    table = {
        "vocab_size": 20, "hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 3,
        "intermediate_size": 5, "max_position_embeddings": 9, "embedding_size": 6,
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(**table)
    both = pair(getattr(transformers, f"{name}Model")(config), 1)
    token, mask = torch.randint(3, 20, (2, 9)), torch.ones(2, 9).long()
    segment = torch.randint(0, 2, token.shape)

    def run(model):
        return model(token, attention_mask=mask, token_type_ids=segment).last_hidden_state

    assert_equal(both, "out", rows(token, mask, segment), run)


def test_what_pretraining_learned_is_read_and_saved():
    """A published BERT holds both heads of its pretraining, and names one of them or both."""
    sizes = {"vocab_size": 20, "hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = transformers.BertConfig(**sizes, intermediate_size=5, max_position_embeddings=9)
    both = pair(transformers.BertForPreTraining(config), 0)
    token, mask, segment = torch.randint(3, 20, (2, 5)), torch.ones(2, 5).long(), torch.ones(2, 5)
    inputs = rows(token, mask, segment.long())

    def run(model, field):
        return model(token, token_type_ids=segment.long())[field]

    assert_equal(both, "follows", inputs, lambda model: run(model, "seq_relationship_logits"))
    both = pair(transformers.BertForPreTraining(config), 0)
    assert_equal(both, "logits", inputs, lambda model: run(model, "prediction_logits"))


@pytest.mark.parametrize(
    ("task", "relation"),
    [("LMHeadModel", "logits"), ("Model", "out"), ("ForTokenClassification", "tags")],
)
@few
@given(data=st.data())
def test_xlnet(task, relation, data):
    token, mask, segment = data.draw(batches())
    heads = data.draw(st.integers(1, 3))
    config = transformers.XLNetConfig(
        vocab_size=data.draw(st.integers(20, 30)),
        d_model=heads * data.draw(st.sampled_from([2, 4])),
        n_head=heads,
        n_layer=2,
        d_inner=data.draw(st.integers(1, 9)),
        ff_activation=data.draw(st.sampled_from(["gelu", "relu"])),
        num_labels=data.draw(st.integers(2, 4)),
    )
    both = pair(getattr(transformers, f"XLNet{task}")(config), 0)
    assert both.ours.output == relation

    def run(model):
        found = model(token, attention_mask=mask.double(), token_type_ids=segment)
        return found.last_hidden_state if relation == "out" else found.logits

    assert_equal(both, relation, rows(token, mask, segment), run, mask.bool())

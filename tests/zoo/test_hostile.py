"""Configurations with anything in any field: a model of rules, or an error of ours."""

from hypothesis import given, settings
from hypothesis import strategies as st
from small import SMALL

from edgewise import EdgewiseError
from edgewise.zoo.pretrained import MODEL_TYPES
from edgewise.zoo.pretrained.loading import spec_for
from edgewise.zoo.pretrained.schema import read_config

DEFAULTS = {
    name: spec.write_config(read_config(spec, SMALL[name])) for name, spec in MODEL_TYPES.items()
}
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
numbers = st.integers(-2, 9) | st.sampled_from([0, 1 << 20, (1 << 20) + 1, 10**30, -1, 0.0, 1.0])
things = plain | numbers | st.lists(plain, max_size=2) | st.dictionaries(st.text(), plain)


def tried(make):
    """What was made, or the error of ours."""
    try:
        return make(), None
    except EdgewiseError as error:
        return None, error


@settings(max_examples=300)
@given(st.sampled_from(sorted(MODEL_TYPES)), st.data())
def test_any_configuration_is_read_or_refused(name, data):
    table = dict(DEFAULTS[name])
    for field in data.draw(st.lists(st.sampled_from(sorted(table)), max_size=3)):
        table[field] = data.draw(things)
    if "rope_parameters" in table and data.draw(st.booleans()):
        words = st.sampled_from(["rope_type", "rope_theta", "factor", "low_freq_factor"])
        table["rope_parameters"] = data.draw(
            st.dictionaries(words, things | st.sampled_from(["llama3", "yarn"]))
        )
    spec = MODEL_TYPES[name]
    config, refusal = tried(lambda: read_config(spec, table))
    if refusal is not None:
        assert refusal.code == "bad-pretrained"
        assert refusal.help
        return
    assert spec.MODEL.program(config).statements  # made without any weight
    assert read_config(spec, spec.write_config(config)) == config


@given(things, things)
def test_any_model_type_and_architecture_is_known_or_refused(kind, named):
    for table in ({"model_type": kind}, {"model_type": "bert", "architectures": named}):
        found, refusal = tried(lambda table=table: spec_for(table))
        if refusal is None:
            assert found[1] in found[0].ARCHITECTURES
        else:
            assert refusal.code == "bad-pretrained"

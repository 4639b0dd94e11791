"""Llama and the decoders of its family as Hugging Face saves them: an entry of FAMILY each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from edgewise.language import F
from edgewise.zoo import llama as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.rope import ORIGINAL, parameters, read_rotary, written_rotary
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, linear

NAMES = {
    **{k: v for k, v in bert.NAMES.items() if k not in ("activation", "attention_dropout")},
    **{"eps": "rms_norm_eps", "dropout": "attention_dropout"},
}
ATTENTION, MLP = ("q", "k", "v", "attended"), ("gate", "up", "out")
KINDS = FULL, LOCAL = "full_attention", "sliding_attention"
LAYER = {
    **{name: f"self_attn.{name}_proj" for name in "qkv"},
    **{"attended": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj"},
    "out": "mlp.down_proj",
}
NORMS = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
GEMMA_NORMS = {
    "norm1": "input_layernorm",
    "attended_norm": "post_attention_layernorm",
    "norm2": "pre_feedforward_layernorm",
    "out_norm": "post_feedforward_layernorm",
}
QK_NORMS = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}


@dataclass(frozen=True)
class LlamaVariant:
    """A decoder of the family: what distinguishes it from Llama.

    - name: its classes are `{name}ForCausalLM` and `{name}Model`.
    - constants: fields of `Config` that `config.json` does not have.
    - biases: a field of `config.json` that is true → the projections that then have a bias.
    - norms: our norms of a layer → theirs. joined: q, k, v are one tensor, gate and up another.
    - window: whether `sliding_window` applies to `no` layer, to `all` or to `some`: to those that
      `layer_types` says or, without it, `is_local` of a layer and the fields. It may be `optional`:
      on with `use_sliding_window`.
    - two_rotaries: layers with and without a window have `rope_parameters` of their own.
    - partial: some features of a head may not be rotated.
    - caps: our caps → theirs, with their defaults. scalar: the default of `query_pre_attn_scalar`,
      where that is a field; head: that of `head_dim`, where it is not size / heads.
    - activation: the name of that field; usual: its default. gelu_is_tanh: by `gelu` the first
      files meant the approximation by tanh.
    - eps, width: the defaults of `rms_norm_eps` and `sliding_window`. groups: whether
      `num_key_value_heads` is by default the number of heads; others have a number of their own.
    - fixed: fields of which one value is supported. original: the default of the length in
      training, where that is a field of its own.
    """

    MODEL_TYPE: str
    name: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    biases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    norms: Mapping[str, str] = field(default_factory=lambda: NORMS)
    joined: bool = False
    eps: float = 1e-6
    groups: bool = False
    window: str = "no"
    width: int | None = None
    is_local: Callable[[int, Fields], bool] = lambda i, fields: True
    optional: bool = False
    two_rotaries: bool = False
    partial: bool = False
    caps: Mapping[str, tuple[str, float | None]] = field(default_factory=dict)
    scalar: int | None = None
    head: int | None = None
    tied: bool = False
    activation: str = "hidden_act"
    usual: str = "silu"
    gelu_is_tanh: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    original: int | None = None

    MODEL: ModuleType = model
    OUTPUT: str = "logits"
    OPTIONAL: tuple[str, ...] = ()

    @property
    def ARCHITECTURES(self) -> dict[str, Architecture]:
        body = self.body or f"{self.name}Model"
        heads = Architecture("model.", ("logits",))
        return {f"{self.name}ForCausalLM": heads, body: Architecture("", (), "out")}

    @property
    def TIED(self) -> dict[str, str]:
        return {"lm_head.weight": "model.embed_tokens.weight"}

    def read_config(self, fields: Fields) -> model.Config:
        self._refuse_others(fields)
        head_size = self.head is not None or fields.table.get("head_dim") is not None
        found = fields.read(NAMES, head_size=head_size, eps=self.eps, dropout=0.0)
        heads, more = found["heads"], dict(self.constants)
        groups = fields.size("num_key_value_heads", default=heads if self.groups else None)
        fields.divided(heads, groups, "num_attention_heads")
        d = fields.size("head_dim", default=self.head or found["size"] // heads, least=2)
        more["activation"] = fields.activation(self.activation, default=self.usual)
        if self.gelu_is_tanh and fields.table.get(self.activation) == "gelu":
            more["activation"] = F.gelu_tanh
        if self.scalar is not None:
            more["scale"] = fields.positive("query_pre_attn_scalar", default=self.scalar) ** -0.5
        more |= {ours: fields.cap(*theirs) for ours, theirs in self.caps.items()}
        biases = (b for n, own in self.biases.items() if fields.flag(n, default=False) for b in own)
        more.setdefault("biases", tuple(biases))
        tied = fields.flag("tie_word_embeddings", default=self.tied)
        window = self._window(fields, found["layers"])
        rotary = self._rotary(fields, d)
        return model.Config(**found, **window, **rotary, **more, groups=groups, d=d, tied=tied)

    def _refuse_others(self, fields: Fields) -> None:
        """Fields that the rules support for other members of the family."""
        none = dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"))
        none |= {"sliding_window": None} if self.window == "no" else {}
        none |= {"layer_types": None} if self.window == "all" else {}
        none |= {} if self.partial else {"partial_rotary_factor": 1.0}
        biases = {"attention_bias": False, "mlp_bias": False}
        known = {*self.biases, *(theirs for theirs, _ in self.caps.values())}
        for name, value in {**none, **biases, **self.fixed}.items():
            if name not in known:
                fields.fixed(name, value, None)

    def _window(self, fields: Fields, layers: int) -> dict[str, Any]:
        table = fields.table
        off = self.optional and not fields.flag("use_sliding_window", default=False)
        kinds = table.get("layer_types") if self.window == "some" else None
        if self.window == "no" or off or table.get("sliding_window", self.width) is None:
            if isinstance(kinds, list) and LOCAL in kinds:
                fields.problem("`layer_types` has windows of no size", "give `sliding_window`")
            return {}
        if kinds is None:
            local = tuple(i for i in range(layers) if self.is_local(i, fields))
        elif isinstance(kinds, list) and len(kinds) == layers and all(k in KINDS for k in kinds):
            local = tuple(i for i, kind in enumerate(kinds) if kind == LOCAL)
        else:
            wanted = f"{layers} times {FULL!r} or {LOCAL!r}"
            return fields.refuse("layer_types", kinds, wanted, {})
        width = fields.size("sliding_window", default=self.width)
        return {"window": width, "local": local} if local else {}

    def _rotary(self, fields: Fields, d: int) -> dict[str, Any]:
        inner = parameters(fields)
        if not self.two_rotaries:
            return read_rotary(fields, inner, d, original=self.original)
        if FULL in inner.table or LOCAL in inner.table:
            found = read_rotary(fields, inner.inside(FULL), d, base=1e6)
            near = read_rotary(fields, inner.inside(LOCAL), d)
        else:
            found = read_rotary(fields, inner, d, base=1e6)
            near = {"base": fields.positive("rope_local_base_freq", default=1e4), "scaling": None}
        if near["scaling"]:
            fields.problem("local layers have scaled rotary positions", "only global ones may")
        return found | {"local_base": near["base"]}

    def write_config(self, config: model.Config) -> dict[str, Any]:
        made = {
            **written(config, NAMES),
            "num_key_value_heads": config.groups,
            "head_dim": config.d,
            "tie_word_embeddings": config.tied,
            "rope_parameters": written_rotary(config),
            **self.fixed,
        }
        made |= written(config, {"activation": self.activation})
        if self.gelu_is_tanh and config.activation == F.gelu:
            made[self.activation] = "gelu_python"
        if self.two_rotaries:
            near = {"rope_type": "default", "rope_theta": config.local_base}
            made["rope_parameters"] = {FULL: written_rotary(config), LOCAL: near}
        if self.original is not None and ORIGINAL in made["rope_parameters"]:
            made[ORIGINAL] = made["rope_parameters"][ORIGINAL]
        if self.scalar is not None:
            made["query_pre_attn_scalar"] = _scalar_of(config.scale)
        made |= {theirs: getattr(config, ours) for ours, (theirs, _) in self.caps.items()}
        made |= {n: set(own) <= set(config.biases) for n, own in self.biases.items()}
        if self.window != "no":
            made["sliding_window"] = config.window
        if self.optional:
            made["use_sliding_window"] = bool(config.window)
        if self.window == "some":
            kinds = (LOCAL if i in config.local else FULL for i in range(config.layers))
            made["layer_types"] = list(kinds)
        return made

    def entries(self, config: model.Config, prefix: str) -> Iterator[TensorEntry]:
        yield TensorEntry("word", f"{prefix}embed_tokens.weight")
        norms = {**self.norms, **(QK_NORMS if config.qk_norm else {})}
        for i in range(config.layers):
            ours, theirs = f"layer.{i}", f"{prefix}layers.{i}"
            for our, their in norms.items():
                yield TensorEntry(f"{ours}.{our}.gain", f"{theirs}.{their}.weight")
            for our, their in LAYER.items():
                if self.joined and our not in ("attended", "out"):
                    continue
                keys = {"q": 3, "k": 2, "v": 2}.get(our, 1)
                at, bias = f"{ours}.{our}", our in config.biases
                yield from linear(at, f"{theirs}.{their}", joined=keys, bias=bias)
            if self.joined:
                yield from joined(config, ours, theirs)
        yield TensorEntry("out.gain", f"{prefix}norm.weight")

    def task_heads(self, config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
        return {"logits": [] if config.tied else [TensorEntry("logits.weight", "lm_head.weight")]}


def joined(config: model.Config, ours: str, theirs: str) -> Iterator[TensorEntry]:
    """Queries, keys and values are the rows of one matrix, gates and values those of another."""
    q, k, hidden = config.heads * config.d, config.groups * config.d, config.hidden
    at, rows = f"{theirs}.self_attn.qkv_proj.weight", q + 2 * k
    for name, keys, start in (("q", 3, 0), ("k", 2, q), ("v", 2, q + k)):
        yield TensorEntry(f"{ours}.{name}.weight", at, keys, (0, start, rows))
    for k, name in enumerate(("gate", "up")):
        part = 0, k * hidden, 2 * hidden
        yield TensorEntry(f"{ours}.{name}.weight", f"{theirs}.mlp.gate_up_proj.weight", part=part)


def _scalar_of(scale: float | str | None) -> float:
    """The number whose inverse root is the scale: an integer where it is very nearly one."""
    found = scale**-2 if isinstance(scale, int | float) and scale else 1.0
    return round(found) if abs(found - round(found)) < 1e-9 * found else found


def _after(i: int, fields: Fields) -> bool:
    return i >= fields.size("max_window_layers", default=28, least=0)


GEMMA = {"shifted": True, "scaled": True}
LOGITS_CAP = "final_logit_softcapping"
CAUSAL = {"use_bidirectional_attention": False}
WIDTH = 4096  # the default of `sliding_window`
LLAMA = LlamaVariant(
    "llama", "Llama", biases={"attention_bias": ATTENTION, "mlp_bias": MLP}, groups=True
)
FAMILY = (
    LLAMA,
    LlamaVariant("mistral", "Mistral", window="all", width=WIDTH),
    LlamaVariant(
        "qwen2", "Qwen2", {"biases": ("q", "k", "v")},
        window="some", is_local=_after, optional=True, width=WIDTH,
    ),
    LlamaVariant(
        "qwen3", "Qwen3", {"qk_norm": True}, {"attention_bias": ATTENTION},
        window="some", is_local=_after, optional=True, width=WIDTH, head=128,
    ),
    LlamaVariant(
        "gemma", "Gemma", GEMMA, {"attention_bias": ATTENTION},
        head=256, tied=True, fixed=CAUSAL, usual="gelu_pytorch_tanh", gelu_is_tanh=True,
    ),
    LlamaVariant(
        "gemma2", "Gemma2", {**GEMMA, "post_norm": True}, {"attention_bias": ATTENTION},
        GEMMA_NORMS, window="some", width=WIDTH, is_local=lambda i, _: i % 2 == 0, scalar=256,
        caps={"cap": ("attn_logit_softcapping", 50.0), "logits_cap": (LOGITS_CAP, 30.0)},
        head=256, tied=True, activation="hidden_activation",
        usual="gelu_pytorch_tanh", fixed=CAUSAL,
    ),
    LlamaVariant(
        "gemma3_text", "Gemma3", {**GEMMA, "post_norm": True, "qk_norm": True},
        {"attention_bias": ATTENTION}, GEMMA_NORMS, window="some", width=WIDTH, scalar=256,
        two_rotaries=True, caps={"logits_cap": (LOGITS_CAP, None)},
        is_local=lambda i, fields: (i + 1) % fields.size("sliding_window_pattern", default=6) > 0,
        head=256, tied=True, activation="hidden_activation",
        usual="gelu_pytorch_tanh", body="Gemma3TextModel", fixed=CAUSAL,
    ),
    LlamaVariant(
        "phi3", "Phi3", window="all", joined=True, partial=True, original=4096, eps=1e-5,
        groups=True,
        fixed={"resid_pdrop": 0.0, "embd_pdrop": 0.0},
    ),
)  # fmt: skip

"""The 12-layer encoder of the zoo against `torch.nn.TransformerEncoder`, eager and compiled.

PYTHONPATH=src:bench python bench/encoder_torch.py
"""

import os

import torch
from measure import cpu_seconds, gpu_ms, write
from torch import nn

from edgewise import R
from edgewise.zoo import encoder

CONFIG = encoder.Config(size=256, heads=4, hidden=1024, layers=12, dropout=0.0)
BATCH, N = 2, 256


def torch_encoder(config):
    layer = nn.TransformerEncoderLayer(
        config.size, config.heads, config.hidden, config.dropout, norm_first=True, batch_first=True
    )
    norm = nn.LayerNorm(config.size)
    return nn.TransformerEncoder(layer, config.layers, norm, enable_nested_tensor=False)


def copy_weights(model, theirs, config):
    """Give our model torch's parameters."""
    given = dict(theirs.named_parameters())
    named = {"out.gain": given["norm.weight"], "out.bias": given["norm.bias"]}
    rows = {"attended": "self_attn.out_proj", "mlp": "linear1", "out": "linear2"}
    for i in range(config.layers):
        at, ours = f"layers.{i}.", f"layer.{i}."
        for part in ("weight", "bias"):
            whole = given[f"{at}self_attn.in_proj_{part}"]
            for x, piece in zip("qkv", whole.chunk(3), strict=True):
                named[f"{ours}{x}.{part}"] = piece
            for our, their in rows.items():
                named[f"{ours}{our}.{part}"] = given[f"{at}{their}.{part}"]
        for norm in ("norm1", "norm2"):
            named[f"{ours}{norm}.gain"] = given[f"{at}{norm}.weight"]
            named[f"{ours}{norm}.bias"] = given[f"{at}{norm}.bias"]
    with torch.no_grad():
        for name, tensor in named.items():
            weight = model.weight(name)
            weight.copy_(tensor.reshape(weight.shape))


def both_ways(run, leaves, cuda):
    """Seconds forward without gradients, and forward and backward with."""
    weight = torch.randn_like(run())

    def train():
        torch.autograd.grad((run() * weight).sum(), leaves)

    def forward():
        with torch.no_grad():
            run()

    if cuda:
        return {
            "forward": {"wall_s": gpu_ms(forward) / 1e3},
            "both": {"wall_s": gpu_ms(train) / 1e3},
        }
    return {"forward": cpu_seconds(forward, 5), "both": cpu_seconds(train, 5)}


def main():
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    torch.set_num_threads(1)  # threads that wait for each other would count as work
    theirs = torch_encoder(CONFIG).to(device)
    model = encoder.program(CONFIG).compile(R.out).to(device)
    copy_weights(model, theirs, CONFIG)
    x = torch.randn(BATCH, N, CONFIG.size, device=device)
    torch.testing.assert_close(model(x=x), theirs(x), atol=1e-4, rtol=1e-4)
    ours_fast, theirs_fast = torch.compile(model, dynamic=False), torch.compile(theirs)
    torch.testing.assert_close(ours_fast(x=x), theirs(x), atol=1e-4, rtol=1e-4)
    ours_leaves, their_leaves = list(model.parameters()), list(theirs.parameters())
    found = {"layers": CONFIG.layers, "size": CONFIG.size, "n": N, "batch": BATCH}
    found["ours"] = both_ways(lambda: model(x=x), ours_leaves, cuda)
    found["torch"] = both_ways(lambda: theirs(x), their_leaves, cuda)
    found["ours_compiled"] = both_ways(lambda: ours_fast(x=x), ours_leaves, cuda)
    found["torch_compiled"] = both_ways(lambda: theirs_fast(x), their_leaves, cuda)
    measure = "wall_s" if cuda else "cpu_s"
    for kind in ("", "_compiled"):
        for way in ("forward", "both"):
            ratio = found[f"ours{kind}"][way][measure] / found[f"torch{kind}"][way][measure]
            found[f"ratio_{way}{kind}"] = round(ratio, 3)
    found["load"] = os.getloadavg()[0]
    print(found)
    write("encoder_torch_gpu" if cuda else "encoder_torch", found)


if __name__ == "__main__":
    main()

"""Draws a random checkpoint in the hub's layout on the GPU and writes it shard by shard.

`evenkeel init` draws the same distribution on the CPU, which takes too long for 14 GB.
"""
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file


def tensors_of(config):
    """Lists names and shapes layer by layer, one list per file."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    yield [("model.embed_tokens.weight", (config["vocab_size"], hidden)), ("model.norm.weight", (hidden,)),
           ("lm_head.weight", (config["vocab_size"], hidden))]
    for layer in range(config["num_hidden_layers"]):
        yield [(f"model.layers.{layer}.{name}", shape) for name, shape in layer_tensors(config, hidden, width)]


def layer_tensors(config, hidden, width):
    for name in ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"):
        yield f"{name}.weight", (hidden,)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        yield f"self_attn.{name}.weight", (hidden, hidden)
    yield "mlp.gate.weight", (config["num_experts"], hidden)
    for expert in range(config["num_experts"]):
        yield f"mlp.experts.{expert}.gate_proj.weight", (width, hidden)
        yield f"mlp.experts.{expert}.up_proj.weight", (width, hidden)
        yield f"mlp.experts.{expert}.down_proj.weight", (hidden, width)


def drawn(shape, device, deviation):
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    return (torch.randn(shape, device=device, dtype=torch.bfloat16) * deviation).cpu()


def write(config, folder, device, tokenizer=None):
    """Writes the model folder. `tokenizer` is a tokenizer.json to copy into it."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tokenizer:
        shutil.copy(tokenizer, folder / "tokenizer.json")
    torch.manual_seed(11)
    places, total = {}, 0
    for number, names in enumerate(tensors_of(config)):
        file = f"model-{number:05d}.safetensors"
        tensors = {name: drawn(shape, device, config["initializer_range"]) for name, shape in names}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(tensors, file)
        total += sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder

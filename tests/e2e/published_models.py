"""Writes model folders with the published shapes of OLMoE-1B-7B-0924 and OLMo-1B-hf. The weights are a hole in a sparse file: they
take no space and are all zero.
"""

import json
import math
import shutil

COMMON = {"attention_bias": False, "attention_dropout": 0.0, "clip_qkv": None, "eos_token_id": 50279, "hidden_act": "silu",
          "hidden_size": 2048, "initializer_range": 0.02, "num_attention_heads": 16, "num_hidden_layers": 16,
          "num_key_value_heads": 16, "pad_token_id": 1, "rope_scaling": None, "rope_theta": 10000.0, "use_cache": True,
          "vocab_size": 50304}
OLMOE_1B_7B = {**COMMON, "architectures": ["OlmoeForCausalLM"], "intermediate_size": 1024, "max_position_embeddings": 4096,
               "model_type": "olmoe", "norm_topk_prob": False, "num_experts": 64, "num_experts_per_tok": 8,
               "output_router_logits": False, "rms_norm_eps": 1e-05, "router_aux_loss_coef": 0.01,
               "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
OLMO_1B = {**COMMON, "architectures": ["OlmoForCausalLM"], "intermediate_size": 8192, "max_position_embeddings": 2048,
           "model_type": "olmo", "pretraining_tp": 1, "tie_word_embeddings": True, "torch_dtype": "float32"}


def shapes_of(config):
    """Returns tensor name -> shape, as the checkpoints on the hub have them."""
    d, f, vocabulary, experts = config["hidden_size"], config["intermediate_size"], config["vocab_size"], config.get("num_experts", 0)
    shapes = {"model.embed_tokens.weight": [vocabulary, d]}
    if experts:
        shapes |= {"lm_head.weight": [vocabulary, d], "model.norm.weight": [d]}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}self_attn.{name}_proj.weight": [d, d] for name in "qkvo"}
        if experts:
            norms = ("self_attn.q_norm", "self_attn.k_norm", "input_layernorm", "post_attention_layernorm")
            shapes |= {f"{at}{name}.weight": [d] for name in norms} | {f"{at}mlp.gate.weight": [experts, d]}
        for block in [f"{at}mlp.experts.{e}." for e in range(experts)] or [f"{at}mlp."]:
            shapes |= {f"{block}gate_proj.weight": [f, d], f"{block}up_proj.weight": [f, d], f"{block}down_proj.weight": [d, f]}
    return shapes


def write_model(folder, config, tokenizer):
    """Writes config.json, the tokenizer, and a safetensors file whose header is followed by a hole."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(tokenizer, folder / "tokenizer.json")
    name, size = {"bfloat16": ("BF16", 2), "float32": ("F32", 4)}[config["torch_dtype"]]
    header, end = {}, 0
    for tensor, shape in shapes_of(config).items():
        begin, end = end, end + math.prod(shape) * size
        header[tensor] = {"dtype": name, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return folder

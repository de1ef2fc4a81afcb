"""Runs llama.cpp for comparison: writes a base model as GGUF with the `gguf` package alone, and returns the output of
an installed llama.cpp.
"""
import json

import gguf
import numpy
import torch
import xllamacpp
from safetensors.torch import load_file

VOCABULARY = 211
# config.json of small models: no square shapes, E and k far apart, and llama.cpp's requirements for olmoe: an untied
# head, and as many key heads as heads.
SHARED = {"attention_bias": False, "attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": 2, "pad_token_id": 1,
          "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.12, "intermediate_size": 64,
          "max_position_embeddings": 256, "num_attention_heads": 8, "num_hidden_layers": 3, "num_key_value_heads": 4,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
          "vocab_size": VOCABULARY}
SPARSE = SHARED | {"num_experts": 16, "num_experts_per_tok": 8, "norm_topk_prob": False}
CONFIGS = {
    "olmoe": SPARSE | {"model_type": "olmoe", "num_key_value_heads": 8},
    "olmo": SHARED | {"model_type": "olmo", "intermediate_size": 192, "tie_word_embeddings": True, "clip_qkv": 2.5},
    "qwen2_moe": SPARSE | {"model_type": "qwen2_moe", "moe_intermediate_size": 48, "shared_expert_intermediate_size": 80,
                           "qkv_bias": True},
    "qwen3_moe": SPARSE | {"model_type": "qwen3_moe", "moe_intermediate_size": 48, "head_dim": 32, "norm_topk_prob": True},
    "mixtral": SHARED | {"model_type": "mixtral", "num_local_experts": 16, "num_experts_per_tok": 8, "sliding_window": None},
    "llama": SHARED | {"model_type": "llama", "num_hidden_layers": 2},
    "mistral": SHARED | {"model_type": "mistral", "sliding_window": None, "head_dim": 32},
    "qwen2": SHARED | {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": SHARED | {"model_type": "qwen3", "head_dim": 32},
    "granite": SHARED | {"model_type": "granite", "embedding_multiplier": 3.0, "logits_scaling": 1.5, "residual_multiplier": 0.6,
                         "attention_multiplier": 0.25},
    "olmo2": SHARED | {"model_type": "olmo2", "num_key_value_heads": 8},
    "gemma3_text": SHARED | {"model_type": "gemma3_text", "num_hidden_layers": 7, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 16,
                             "rope_theta": 1e6, "tie_word_embeddings": True},
    "gemma2": SHARED | {"model_type": "gemma2", "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 16, "tie_word_embeddings": True,
                        "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "phi3": SHARED | {"model_type": "phi3", "sliding_window": None, "partial_rotary_factor": 0.5},
}
ARCHITECTURES = {"olmoe": gguf.MODEL_ARCH.OLMOE, "olmo": gguf.MODEL_ARCH.OLMO, "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
                 "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE, "mixtral": gguf.MODEL_ARCH.LLAMA, "llama": gguf.MODEL_ARCH.LLAMA,
                 "mistral": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3,
                 "granite": gguf.MODEL_ARCH.GRANITE, "olmo2": gguf.MODEL_ARCH.OLMO2,
                 "gemma3_text": gguf.MODEL_ARCH.GEMMA3, "phi3": gguf.MODEL_ARCH.PHI3,
                 "gemma2": gguf.MODEL_ARCH.GEMMA2}
INTERLEAVED = ("olmo", "mixtral", "llama", "mistral", "granite")  # rotary embeddings of adjacent pairs


def experts_of(config):
    return config.get("num_experts", config.get("num_local_experts", 0))


def write_base(folder, file, top_k=None):
    """Writes a model folder as GGUF, with `top_k` experts per token if it is not the checkpoint's own."""
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[architecture])
    add_sizes(writer, config, top_k)
    add_tokens(writer, config["vocab_size"])
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for name, tensor in stacked(load_file(folder / "model.safetensors"), config).items():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def add_sizes(writer, config, top_k):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_layer_norm_eps(1e-5)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if experts_of(config):
        writer.add_expert_count(experts_of(config))
        writer.add_expert_used_count(top_k or config["num_experts_per_tok"])
    for key, add in {"clip_qkv": writer.add_clamp_kqv, "head_dim": writer.add_key_length,
                     "moe_intermediate_size": writer.add_expert_feed_forward_length,
                     "embedding_multiplier": writer.add_embedding_scale, "logits_scaling": writer.add_logit_scale,
                     "residual_multiplier": writer.add_residual_scale, "attention_multiplier": writer.add_attention_scale,
                     "sliding_window": writer.add_sliding_window, "attn_logit_softcapping": writer.add_attn_logit_softcapping,
                     "final_logit_softcapping": writer.add_final_logit_softcapping,
                     "shared_expert_intermediate_size": writer.add_expert_shared_feed_forward_length}.items():
        if config.get(key) is not None:
            add(config[key])
    if "head_dim" in config:
        writer.add_value_length(config["head_dim"])
        writer.add_rope_dimension_count(config["head_dim"])
    if config["model_type"] == "phi3":
        width = config["hidden_size"] // config["num_attention_heads"]
        writer.add_rope_dimension_count(int(width * config["partial_rotary_factor"]))
        writer.add_rope_scaling_orig_ctx_len(config["max_position_embeddings"])


def add_tokens(writer, size):
    """Adds an arbitrary vocabulary, because only ids are used."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("olmo")
    writer.add_token_list([f"t{i}" for i in range(size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * size)
    writer.add_token_merges(["t 0"])
    writer.add_eos_token_id(2)


def stacked(tensors, config):
    """Stacks experts in one tensor, and permutes rows of queries and keys for the rotary embeddings of some families in
    llama.cpp.
    """
    result = {}
    for name, tensor in tensors.items():
        values = tensor.float().numpy()
        if ".experts." in name:
            module, rest = name.split(".experts.")
            expert, projection = rest.split(".", 1)
            result.setdefault(f"{module}.experts.{projection}", {})[int(expert)] = values
        elif config["model_type"] in INTERLEAVED and ("q_proj" in name or "k_proj" in name):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            result[name] = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        elif config["model_type"].startswith("gemma") and name.endswith("norm.weight"):
            result[name] = values + 1  # llama.cpp stores what a norm multiplies by
        else:
            result[name] = values
    return {name: value if isinstance(value, numpy.ndarray) else numpy.stack([value[e] for e in sorted(value)])
            for name, value in result.items()}


def next_logprobs(base, adapter, texts):
    """Returns log-probabilities [V] of the token after each text, from llama.cpp on the CPU in float32."""
    params = xllamacpp.CommonParams()
    params.model.path = str(base)
    params.n_ctx = 256
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED  # its 16 bits move 0.002 to 0.03
    if adapter:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
    server = xllamacpp.Server(params)
    return [one_step(server, ids) for ids in texts]


def one_step(server, ids):
    answer = server.handle_completions({"prompt": ids, "n_predict": 1, "n_probs": VOCABULARY, "temperature": 0.0,
                                        "cache_prompt": False})
    logprobs = torch.full((VOCABULARY,), float("nan"))
    for token in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
        logprobs[token["id"]] = token["logprob"]
    assert not logprobs.isnan().any()
    return logprobs

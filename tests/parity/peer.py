"""Creates random models with the installed transformers and runs the program on them."""
import json
import os
import pathlib
import subprocess

import torch
import transformers
from safetensors.torch import load_file
from transformers import (AutoConfig, AutoModelForCausalLM, DeepseekV2Config, DeepseekV3Config, Dots1Config, FlexOlmoConfig, Gemma2Config,
                          Gemma3TextConfig, Glm4MoeConfig, GraniteConfig, GraniteMoeConfig, LlamaConfig, MistralConfig, MixtralConfig, Olmo2Config, OlmoConfig,
                          OlmoeConfig, Phi3Config, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig)

from forked import forked

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_PROGRAM", ROOT / "build" / "evenkeel"))
V5 = int(transformers.__version__.split(".")[0]) >= 5
# The default of transformers 5, grouped products, rejects rows that are no multiple of 16 bytes.
EXPERTS = {"experts_implementation": "eager"} if V5 else {}
CONFIGS = {"olmo": OlmoConfig, "olmoe": OlmoeConfig, "olmo2": Olmo2Config, "llama": LlamaConfig, "mistral": MistralConfig,
           "mixtral": MixtralConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config, "qwen2_moe": Qwen2MoeConfig,
           "qwen3_moe": Qwen3MoeConfig, "granite": GraniteConfig, "granitemoe": GraniteMoeConfig, "flex_olmo": FlexOlmoConfig,
           "deepseek_v2": DeepseekV2Config, "deepseek_v3": DeepseekV3Config, "glm4_moe": Glm4MoeConfig, "dots1": Dots1Config,
           "gemma2": Gemma2Config, "gemma3_text": Gemma3TextConfig, "phi3": Phi3Config}
# Norms of these families multiply by 1 + weight.
PLUS_ONE = ("gemma2", "gemma3_text")
# If the router logits of the k-th and the next expert are closer than this, rounding decides the routing.
SMALLEST_GAP = 3e-5


def divided(cases):
    """Returns every other case, the others beside the other version of transformers; all of them with EVENKEEL_NIGHTLY."""
    return list(cases) if "EVENKEEL_NIGHTLY" in os.environ else list(cases)[V5::2]


def run(*arguments, program=PROGRAM):
    """Runs the program, or another program of the tests. Returns its stdout. A failure shows its output."""
    done = (forked(*arguments, cwd=os.getcwd(), timeout=600) if program == PROGRAM else
            subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True))
    assert done.returncode == 0, f"{program.name} {arguments[0]} exited {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


def random_model(seed, rope_theta=10000.0, family="olmoe", **settings):
    """Creates a model whose weights are larger than at initialisation, so that routing and norms matter."""
    flat = V5 and family != "gemma3_text"
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": rope_theta}} if flat else {"rope_theta": rope_theta}
    rope |= {key: settings.pop(key) for key in ("rope_parameters",) if key in settings}
    settings = {"max_position_embeddings": 256} | settings
    config = CONFIGS[family](pad_token_id=1, bos_token_id=None, eos_token_id=2, **rope, **settings)
    model = AutoModelForCausalLM.from_config(config, **experts_of(config)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith(".bias"):
                parameter.copy_(0.3 * noise)
            elif parameter.dim() == 1:
                parameter.copy_((0 if family in PLUS_ONE else 1) + 0.2 * noise)
            else:
                parameter.copy_(noise * (1.2 / parameter.shape[-1] ** 0.5))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):  # at least 0: transformers 4.57 ranks experts of other groups as 0
                buffer.copy_(0.4 * torch.rand(buffer.shape, generator=generator))
        model.model.embed_tokens.weight.mul_(config.hidden_size**0.5)
        if config.tie_word_embeddings:
            model.model.embed_tokens.weight.mul_(2 / config.hidden_size**0.5)
    return model


def with_top_k(model, top_k, folder):
    """Copies a model with another number of experts per token."""
    model.save_pretrained(folder)
    path = pathlib.Path(folder) / "config.json"
    settings = json.loads(path.read_text())
    settings["num_experts_per_tok"] = top_k
    path.write_text(json.dumps(settings))
    return load_float32(folder)


def experts_of(config):
    """Returns how transformers is to compute. Its other attentions of version 4 leave out the soft cap of Gemma 2."""
    eager = {"attn_implementation": "eager"} if config.model_type == "gemma2" else {}
    return eager | (EXPERTS if number_of_experts(config) else {})


def number_of_experts(config):
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return next((number for name in names if (number := getattr(config, name, None))), 0)


def load_float32(folder):
    config = AutoConfig.from_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **experts_of(config)).eval()


def _gap(values, kept):
    """Returns the smallest difference between the last of the `kept` largest values of a row and the next."""
    if kept >= values.shape[-1]:
        return float("inf")
    ordered = values.float().sort(dim=-1, descending=True).values
    return (ordered[:, kept - 1] - ordered[:, kept]).min()


def _choices(config, router, x):
    """Returns what a router of DeepSeek's kind ranks experts by, [T, E], and the scores of groups, [T, G]."""
    logits = x.reshape(-1, config.hidden_size) @ router.weight.T
    bias = getattr(router, "e_score_correction_bias", None)
    if bias is None:
        groups = config.n_group if config.topk_method == "group_limited_greedy" else 1
        choices, most = logits, 1
    else:
        groups, choices, most = config.n_group, logits.sigmoid() + bias, 2
    grouped = choices.reshape(len(choices), groups, -1)
    scores = grouped.topk(min(most, grouped.shape[-1]), dim=-1).values.sum(-1)
    kept = torch.zeros_like(scores, dtype=torch.bool)
    kept.scatter_(1, scores.topk(config.topk_group if groups > 1 else 1, dim=-1).indices, True)
    return choices.masked_fill(~kept.repeat_interleave(grouped.shape[-1], dim=1), -1e4), scores


def _is_well_separated(config, router_logits, ranked):
    """\param ranked  what _choices() returned for each router that gives no logits"""
    gaps = [_gap(logits_TE, config.num_experts_per_tok) for logits_TE in router_logits]
    for choices, scores in ranked:
        gaps += [_gap(choices, config.num_experts_per_tok), _gap(scores, config.topk_group if scores.shape[1] > 1 else 1)]
    return min(gaps) >= SMALLEST_GAP


@torch.no_grad()
def reference(model, ids):
    """Returns the logits [tokens, V] of one sequence, or None if rounding decides a routing."""
    if not number_of_experts(model.config):
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    ranked = []
    routers = [module for name, module in model.named_modules() if name.endswith(("mlp.gate", "mlp.gate.base_layer"))
               and not hasattr(module, "base_layer")] if hasattr(model.config, "n_routed_experts") else []
    # PEFT's change of the weight is there during the call only.
    hooks = [router.register_forward_hook(lambda router, given, _: ranked.append(_choices(model.config, router, given[0]))) for router in routers]
    out = model(input_ids=torch.tensor([ids]), use_cache=False, **({} if routers else {"output_router_logits": True}))
    for hook in hooks:
        hook.remove()
    return out.logits[0].float() if _is_well_separated(model.config, () if routers else out.router_logits, ranked) else None


def texts_with_logits(model, lengths, seed):
    """Returns random sequences of the given lengths and their logits. Sequences whose routing depends on rounding are
    drawn again.
    """
    generator = torch.Generator().manual_seed(seed)
    texts, logits = [], []
    for length in lengths:
        for _ in range(60):
            ids = torch.randint(model.config.vocab_size, (length,), generator=generator).tolist()
            expected = reference(model, ids)
            if expected is not None:
                break
        assert expected is not None, f"no sequence of length {length} without near-ties in 60 draws"
        texts.append(ids)
        logits.append(expected)
    return texts, logits


def score(folder, texts, work, *flags, program=PROGRAM):
    """Returns (records, logits) of `evenkeel score` on id lists."""
    lines, dump = work / "texts.jsonl", work / "logits.safetensors"
    lines.write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in texts))
    out = run("score", "--model", folder, "--input", lines, "--json", "--logits", dump, *flags, program=program)
    tensors = load_file(dump)
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["index"] for record in records] == list(range(len(texts)))
    return records, [tensors[str(i)].float() for i in range(len(texts))]


def assert_logits_close(actual, expected, tolerance=1e-4):
    for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        assert ours.shape == theirs.shape, f"text {index}: {tuple(ours.shape)} against {tuple(theirs.shape)}"
        error = (ours - theirs).abs().max().item()
        assert error <= tolerance, f"text {index} of {len(theirs)} tokens: logits differ by {error:.2e}"


def assert_logprobs_close(records, texts, expected, tolerance=1e-4):
    for record, ids, logits in zip(records, texts, expected, strict=True):
        assert record["ids"] == ids and record["tokens"] == len(ids)
        wanted = logits.log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:], dtype=torch.long)]
        given = torch.tensor(record["token_logprobs"])
        assert given.shape == wanted.shape
        if len(ids) > 1:
            assert (given - wanted).abs().max() <= tolerance
            assert abs(record["logprob"] - wanted.sum().item()) <= tolerance * len(ids)


def assert_scores_equal(model, lengths, seed, work, program=PROGRAM):
    """Compares logits and log-probabilities of random texts of these lengths."""
    model.save_pretrained(work / "model")
    texts, expected = texts_with_logits(model, lengths, seed)
    records, logits = score(work / "model", texts, work, program=program)
    assert_logits_close(logits, expected)
    assert_logprobs_close(records, texts, expected)


def model_of(names, shape, seed, **family):
    """Creates a random model from one row of a table of shapes. hidden_size is heads times head_width."""
    settings = dict(zip(names, shape, strict=True))
    settings["hidden_size"] = settings["num_attention_heads"] * settings.pop("head_width")
    return random_model(seed, **family, **settings)

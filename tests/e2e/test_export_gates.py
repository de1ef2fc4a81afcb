"""Tests exports of families whose gates no key of config.json changes: scores as exported, and what --check says."""
import pytest

from test_as_exported import ROWS, answers
from tiny import CONFIG, lines, random_model, settings, succeed

DEEPSEEK = {
    "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 1024, "hidden_size": 32, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 2048, "n_routed_experts": 16,
    "num_experts_per_tok": 8, "moe_intermediate_size": 16, "n_shared_experts": 1, "first_k_dense_replace": 1, "topk_method": "greedy",
    "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "eos_token_id": 0, "pad_token_id": 1,
    "initializer_range": 0.3}
LOST = "without gates renormalised over the selected experts"


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("deepseek"), DEEPSEEK)


def test_gates_that_the_family_fixes_are_lost_everywhere_and_scored_as_the_family_computes_them(deepseek, tmp_path):
    run = tmp_path / "run"
    succeed("train", CONFIG, "--out", run, *settings(
        model__path=deepseek, train__rounds=1, data__limit=20, evaluate__tasks='["builtin:facts","builtin:sizes"]', evaluate__as_exported="true",
        method__name="ub-smoe", lora__router_lora="false", **{"method__ub-smoe__phi_at_eval": "false"}))
    assert {one.get("served_by") for one in lines(run / "evaluations.jsonl")} == {None, "transformers"}
    said = succeed("export", "--run", run, "--check").stdout
    for program in ("transformers 5", "vLLM", "SGLang"):
        told = [line for line in said.splitlines() if line.startswith(f"  {program}") and "not readable" not in line]
        assert told and all(LOST in line for line in told), said
    scored, file = tmp_path / "scored.jsonl", tmp_path / "file.jsonl"
    succeed("evaluate", "--run", run, "--predictions", scored)
    succeed("evaluate", "--model", deepseek, "--adapter", run / "adapter", "--gate-norm", "softmax_all", "--budget", "0.125,1", *ROWS,
            "--predictions", file)
    assert answers(scored, "transformers") == answers(file) != answers(scored)

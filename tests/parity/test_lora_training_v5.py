"""The same curve against transformers 5 + PEFT 0.21, which adapts fused tensors through `target_parameters`: attention, router
and down_proj have the same parameters there and here; the fused gate_up shares one A, which nothing of ours does."""
import json

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file

from peer import random_model
from training_peer import (ALPHA, OPTIMIZER, RANK, assert_curves_equal, assert_tensors_close, batches, fill_adapters, train,
                           train_ours)

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
EXPERTS = 7


def per_expert(name, tensor):
    """[(name in the layout of one Linear per expert, its tensor)] of one fused tensor; others are renamed only."""
    name = name.replace(".default.", ".").replace(".base_layer.", ".")
    if ".mlp.experts." not in name:
        return [(name, tensor)]
    if "lora_A" in name:  # [E r, F]: the experts one after the other
        parts = tensor.reshape(EXPERTS, RANK, -1).unbind(0)
    else:  # [D, r E]: the expert runs fastest
        parts = tensor.reshape(-1, RANK, EXPERTS).unbind(-1)
    return [(name.replace("experts.", f"experts.{e}.down_proj."), part.contiguous()) for e, part in enumerate(parts)]


def unfused(tensors):
    return dict(pair for name, tensor in tensors.items() for pair in per_expert(name, tensor.detach()))


def save_adapter(folder, tensors):
    folder.mkdir()
    save_file({n: t.clone() for n, t in tensors.items()}, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": [*ATTENTION, "down_proj", "gate"],
              "bias": "none", "lora_dropout": 0.0, "task_type": "CAUSAL_LM", "use_dora": False, "use_rslora": False}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def test_attention_router_and_down_projections_follow_the_fused_peer(tmp_path):
    base = random_model(seed=61, num_experts=EXPERTS, num_experts_per_tok=3, num_attention_heads=4,
                        num_key_value_heads=2, hidden_size=32, intermediate_size=20, vocab_size=83,
                        num_hidden_layers=2, norm_topk_prob=False)
    base.save_pretrained(tmp_path / "model")
    model = get_peft_model(base, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=ATTENTION,
                                            target_parameters=["mlp.experts.down_proj", "mlp.gate.weight"]))
    fill_adapters(model, seed=67)
    initial = {n: p.clone() for n, p in model.named_parameters() if "lora_" in n}
    save_adapter(tmp_path / "adapter", unfused(initial))
    job = {"targets": [*ATTENTION, "down_proj", "gate"], "alpha": ALPHA, "rank": RANK, "optimizer": OPTIMIZER,
           "batches": batches(base.config.vocab_size, seed=71)}

    losses, gradients = train(model, job)
    our_losses, our_gradients, our_adapter = train_ours(tmp_path / "model", tmp_path / "adapter", job, tmp_path)

    assert_curves_equal(our_losses, losses)
    assert_tensors_close(our_gradients, unfused(gradients), 1e-3, "first gradient")
    trained = {n: p for n, p in model.named_parameters() if "lora_" in n}
    assert_tensors_close(our_adapter, unfused(trained), 2e-3, "value after 20 steps")
    assert torch.isfinite(torch.tensor(losses)).all()

"""Creates adapters with PEFT, with random factors on a random OLMoE."""
import torch
from peft import LoraConfig, get_peft_model

from peer import assert_logits_close, random_model, score, texts_with_logits

OLMOE = dict(num_experts=9, num_experts_per_tok=4, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
             intermediate_size=20, vocab_size=83, num_hidden_layers=2, norm_topk_prob=False)


def assert_ours_equals_peft(work, settings):
    """Saves an adapter with these settings of LoraConfig by PEFT, and compares its logits with the program's."""
    base = random_model(seed=51, **OLMOE)
    base.save_pretrained(work / "model")
    peer = get_peft_model(base, LoraConfig(lora_dropout=0.0, bias="none", task_type="CAUSAL_LM", **settings)).eval()
    generator = torch.Generator().manual_seed(52)
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
    peer.save_pretrained(work / "adapter")
    texts, expected = texts_with_logits(peer, (1, 60, 9), seed=53)
    _, logits = score(work / "model", texts, work, "--adapter", work / "adapter")
    assert_logits_close(logits, expected, tolerance=3e-4)
    _, bare = score(work / "model", texts, work)
    assert max((a - b).abs().max() for a, b in zip(bare, expected)) > 0.1, "the adapter does nothing"

"""Runs the code block of an export's README.md unchanged, for test_model_card.py and test_model_card_v5.py."""
import json
import re

from peft import PeftModel
from transformers import AutoModelForCausalLM

from federated_run import OLMOE, federated_run
from peer import assert_logits_close, run, score, texts_with_logits

GATINGS = [(norm, gates) for norm in (False, True) for gates in ("olmoe_native", "renorm_selected", "softmax_all")]


def loaded(export, base):
    """Returns the model that the code block loads, with real folders for its placeholders."""
    block, = re.findall(r"```python\n(.*?)```", (export / "README.md").read_text(), re.S)
    code = block.replace("<this folder>", str(export)).replace("<the base model>", str(base))
    names = {}
    exec(code, names)
    return names["model"].float().eval()


def assert_card_loads_what_the_run_scores(folder, norm, gates, layouts):
    base, out = federated_run(folder, "fedit", f"method.gate_norm={gates}", "train.rounds=1", model={**OLMOE, "norm_topk_prob": norm})
    for layout in layouts:
        export = folder / layout
        run("export", "--run", out, "--format", layout, "--out", export, *(["--dtype", "float32"] if layout == "merged" else []))
        peer = loaded(export, base)
        texts, expected = texts_with_logits(peer, (1, 70, 12), seed=83)
        _, logits = score(base, texts, folder, "--adapter", out / "adapter", "--gate-norm", gates)
        assert_logits_close(logits, expected)


def assert_peft_loads_it(folder, *flags):
    """Loads the export with PEFT. Returns the base model's name in the export's config."""
    base, out = federated_run(folder, "fedit", "train.rounds=1")
    run("export", "--run", out, "--out", folder / "export", *flags)
    peer = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base).float(), folder / "export").eval()
    texts, expected = texts_with_logits(peer, (9, 30), seed=5)
    _, logits = score(base, texts, folder, "--adapter", folder / "export")
    assert_logits_close(logits, expected)
    return json.loads((folder / "export/adapter_config.json").read_text())["base_model_name_or_path"]

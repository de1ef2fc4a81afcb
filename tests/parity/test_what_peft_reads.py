"""Loads every kind of adapter folder with PEFT 0.17: model families x targets x {adapter/ of the run, `export` in both
layouts, with and without --no-pad}. The program says "exact" where PEFT gives the run's logits, and nowhere else, in the
same words everywhere.
"""
import copy
import json
import warnings
from functools import cache

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

import dense_families
from federated_run import OLMOE, save_tokenizer
from forked import forked
from peer import V5, divided, load_float32, random_model, score, texts_with_logits
from sparse_families import ATTENTION, GATED, TRAINED, attention_of

PROGRAM = "transformers 5 + PEFT 0.21" if V5 else "transformers 4.57 + PEFT 0.17"
FAMILIES = {
    "olmoe": OLMOE,
    "qwen3_moe": TRAINED["qwen3_moe"],
    "qwen3_moe, a dense layer": TRAINED["qwen3_moe"] | {"mlp_only_layers": [0]},
    "mixtral": TRAINED["mixtral"],
    "granitemoe": TRAINED["granitemoe"],
    "olmo": dict(family="olmo", num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=20,
                 num_hidden_layers=2),
}
TARGETS = {
    "attention": ATTENTION,
    "router": ["gate"],
    "attention, router": ["q_proj", "gate"],
    "gate": ["gate_proj"],
    "gate, up": ["gate_proj", "up_proj"],
    "attention, gate, up": ["v_proj", "gate_proj", "up_proj"],
    "down": ["down_proj"],
    "attention, up, down": ["q_proj", "up_proj", "down_proj"],
    "experts": GATED,
    "all": [*ATTENTION, *GATED, "gate"],
}
CASES = [(family, targets) for family in FAMILIES for targets in TARGETS if family != "olmo" or "router" not in targets and targets != "all"]
# Families with shared experts, routers that are no linear layers, and latent attention.
OTHERS = ("flex_olmo", "qwen2_moe", "deepseek_v2", "deepseek_v3", "glm4_moe")
FAMILIES |= {family: TRAINED[family] for family in OTHERS} | dense_families.TRAINED
CASES += [(family, targets) for family in OTHERS for targets in ("attention", "router", "attention, router", "gate, up", "down", "experts", "all")]
CASES += [(family, targets) for family in dense_families.FAMILIES for targets in ("attention", "gate, up", "attention, up, down")]
FUSED_OF_PHI3 = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj") | dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj")
CONFIG = """
seed = 11
threads = 1
[model]
path = "{model}"
compute_dtype = "float32"
[lora]
rank = 3
alpha = 5.0
targets = {targets}
router_lora = {router}
[data]
task = "builtin"
limit = 12
cutoff = 1000
[clients]
count = 2
budgets = [0.5, 1.0]
[method]
name = "fedit"
[train]
rounds = 1
local_epochs = 1
batch_size = 2
accumulation = 1
optimizer = {{ lr = 5e-2 }}
[evaluate]
tasks = []
budgets = [1.0]
"""


def command(*words):
    done = forked(*words, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Returns a function that makes the model of a family once: (folder, model, texts, our logits)."""

    @cache
    def made(family):
        folder = tmp_path_factory.mktemp("model")
        vocabulary = save_tokenizer(folder)
        model = random_model(seed=81, vocab_size=vocabulary + 5, max_position_embeddings=2048, **FAMILIES[family])
        model.save_pretrained(folder)
        texts, _ = texts_with_logits(model, (30, 9), seed=61)
        return folder, load_float32(folder), texts, score(folder, texts, folder, "--dtype", "float32")[1]

    return made


def named(family, targets):
    """Returns the targets, with the family's own names of its linears."""
    if family == "phi3":
        return list(dict.fromkeys(FUSED_OF_PHI3.get(name, name) for name in targets))
    own = attention_of(family) if family in OTHERS else ATTENTION
    return [*(own if set(ATTENTION) & set(targets) and own != ATTENTION else [name for name in targets if name in ATTENTION]),
            *(name for name in targets if name not in ATTENTION)]


def train(folder, base_folder, targets):
    (folder / "run.toml").write_text(CONFIG.format(
        model=base_folder, targets=json.dumps([name for name in targets if name != "gate"]), router=json.dumps("gate" in targets)))
    return command("train", folder / "run.toml", "--out", folder / "run").stderr


def logits_of_run(run, texts, work):
    (work / "texts.jsonl").write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in texts))
    command("score", "--run", run, "--input", work / "texts.jsonl", "--logits", work / "logits.safetensors", "--dtype", "float32")
    logits = load_file(work / "logits.safetensors")
    return [logits[str(i)] for i in range(len(texts))]


def peft_logits(base, folder, texts):
    """Returns PEFT's logits with an adapter folder, or the name of the error with which it refuses the folder."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PeftModel.from_pretrained(copy.deepcopy(base), folder).eval()
    except (ValueError, RuntimeError) as error:
        return type(error).__name__
    with torch.no_grad():
        return [model(input_ids=torch.tensor([ids]), use_cache=False).logits[0] for ids in texts]


def difference(ours, theirs):
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


def said_of(text, program=PROGRAM):
    """Returns what a text says of the installed versions, without their name."""
    found = {line.split(program + " (run): ", 1)[1] for line in text.splitlines() if program + " (run): " in line}
    assert len(found) == 1, text
    return found.pop()


def exported(folder, run, layout, *flags):
    """Exports a run. Returns the folder and what `--check` says of PEFT, which equals what README.md says."""
    printed = command("export", "--run", run, "--format", layout, "--check", "--out", folder, *flags).stdout
    assert "largest difference of factors 0, of logits 0 " in printed, printed
    said = said_of(printed)
    assert said == said_of((folder / "README.md").read_text())
    return folder, said


def content(folder):
    config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": None}
    return json.dumps(config, sort_keys=True), (folder / "adapter_model.safetensors").read_bytes()


def assert_as_said(said, ours, theirs, where):
    if said == "exact":
        assert not isinstance(theirs, str), f"{where}: PEFT refuses it with {theirs}"
        assert difference(ours, theirs) < 1e-4, where
        return
    assert said.startswith("not readable there ("), f"{where}: {said}"
    if isinstance(theirs, str):
        assert "refuses" in said or "alone" in said, f"{where}: {said}, and PEFT refuses it with {theirs}"
        return
    assert difference(ours, theirs) > 1e-3, f"{where}: {said}, but PEFT gives our logits"
    assert "leaves out" in said or "something else" in said, f"{where}: {said}"


@pytest.mark.parametrize("family, targets", divided(CASES))
def test_peft_gives_our_logits_where_the_program_says_so(family, targets, base, tmp_path):
    base_folder, model, texts, bare = base(family)
    warned = train(tmp_path, base_folder, named(family, TARGETS[targets]))
    run = tmp_path / "run"
    ours = logits_of_run(run, texts, tmp_path)
    assert difference(ours, bare) > 1e-2, "the adapter does nothing"
    known = {}

    def peft(folder):
        key = content(folder)
        if key not in known:
            known[key] = peft_logits(model, folder, texts)
        return known[key]

    for layout in ("peft", "peft-fused"):
        for flags in ((), ("--no-pad",)):
            folder, said = exported(tmp_path / "-".join((layout, *flags)), run, layout, *flags)
            assert_as_said(said, ours, peft(folder), f"{layout} {flags}")
    assert content(run / "adapter") == content(tmp_path / "peft")
    exact = not isinstance(peft(run / "adapter"), str) and difference(ours, peft(run / "adapter")) < 1e-4
    assert warned.count("adapter/ of this run: ") == (" (run): not readable there" in warned)
    assert (PROGRAM in warned) == (not exact), warned
    assert exact or said_of((tmp_path / "peft/README.md").read_text()) in warned

"""Runs a small federation of the program on a random model with its own tokenizer."""
import json
import tomllib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from peer import random_model, run

CONFIG = """
name = "export"
seed = 11
[model]
path = "{model}"
[lora]
rank = 3
alpha = 5.0
[data]
task = "builtin"
limit = 24
cutoff = 1000
[clients]
count = 3
budgets = [0.25, 0.5, 1.0]
[method]
name = "{method}"
[train]
rounds = 2
local_epochs = 0.5
batch_size = 4
accumulation = 1
optimizer = {{ name = "adamw", lr = 2e-2 }}
[evaluate]
budgets = [1.0]
limit = 1
max_new_tokens = 2
"""
TEXT = ["The quick brown fox jumps over the lazy dog, and seven plus eight is fifteen.",
        "Is the answer true or false? Please choose: answer1, answer2, answer3 or answer4."]


def save_tokenizer(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<|padding|>", "<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer.get_vocab_size()


OLMOE = dict(num_experts=9, num_experts_per_tok=4, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
             intermediate_size=20, num_hidden_layers=2, norm_topk_prob=False)


def federated_run(folder, method, *settings, model=OLMOE):
    """Runs two rounds on three clients. Returns (model folder, run folder). settings: a.b=value, as for --set"""
    model_folder, out = folder / "model", folder / "run"
    model_folder.mkdir(parents=True)
    vocabulary = save_tokenizer(model_folder)
    random_model(seed=81, vocab_size=vocabulary + 5, max_position_embeddings=2048, **model).save_pretrained(model_folder)
    text = CONFIG.format(model=model_folder, method=method)
    tomllib.loads(text)
    (folder / "config.toml").write_text(text)
    run("train", folder / "config.toml", "--out", out, "--threads", 1, *(word for one in settings for word in ("--set", one)))
    return model_folder, out


def gate_flags(run_folder):
    """Returns the run's gate weighting as flags of `evenkeel score`. A merged checkpoint has it in its config."""
    record = json.loads((run_folder / "rounds.jsonl").read_text().splitlines()[-1])
    return "--gate-norm", record["gate_norm"]

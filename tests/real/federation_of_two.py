"""Short federated runs on SmolLM2: two clients, a few rows of plain English each."""

import json

from tiny import settings, succeed

CONFIG = """
name = "two"
seed = 11
threads = 1
[model]
path = "{model}"
compute_dtype = "float32"
[lora]
rank = 4
alpha = 8
[data]
task = "files"
template = "chat"
[data.files]
score = "nll"
[[clients.client]]
name = "harbour"
data = "{rows}/harbour.jsonl"
test = "{rows}/harbour.jsonl"
budget = 0.5
[[clients.client]]
name = "library"
data = "{rows}/library.jsonl"
test = "{rows}/library.jsonl"
budget = 1.0
[method]
name = "flexlora"
[train]
rounds = 2
batch_size = 4
accumulation = 1
optimizer = {{ lr = 1e-3 }}
[evaluate]
budgets = [1.0]
before = true
"""
ROWS = {"harbour": [("Which pier does the ferry to Tarn leave from?", "Pier nine."), ("Who keeps the lighthouse?", "Ida Brandt."),
                    ("What colour is the pilot boat?", "Green."), ("When does the harbour office open?", "At half past six.")],
        "library": [("Where are the maps kept?", "In the cellar."), ("How many books may a reader borrow?", "Eleven books."),
                    ("Who mends the old books?", "Otto Lind."), ("On which day is the library closed?", "On Wednesday.")]}


def write_config(model, folder):
    """Writes rows and config. Returns the config."""
    for name, rows in ROWS.items():
        lines = [json.dumps({"prompt": question, "completion": answer}) for question, answer in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "two.toml").write_text(CONFIG.format(model=model, rows=folder))
    return folder / "two.toml"


def train(config, out, *flags, **changes):
    succeed("train", config, "--out", out, *settings(**changes), *flags)
    return out

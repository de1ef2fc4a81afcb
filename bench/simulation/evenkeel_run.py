"""The part of this program: `evenkeel train`, with the events that it writes as the marks of its rounds."""
import json
import shutil

import processes
import task

CONFIG = """name = "simulation"
seed = 46
threads = 1
model = {{ path = "{folder}/model", compute_dtype = "float32" }}
lora = {{ rank = {rank}, alpha = {rank}, router_lora = false }}
method = {{ name = "fedit", gate_norm = "olmoe_native" }}
clients = {{ count = {count}, participation = {participation}, parallel = {workers}, budgets = {{ values = [1.0], shares = [1] }} }}

[data]
task = "files"
template = "plain"
cutoff = {length}
partition = {{ kind = "sequential" }}
files = {{ train = ["{folder}/rows-{clients}.jsonl"], test = ["{folder}/test.jsonl"], score = "nll" }}

[train]
rounds = {rounds}
local_epochs = 1.0
batch_size = {batch}
accumulation = 1
share_prefixes = false
optimizer = {{ lr = {lr}, betas = {betas}, eps = {eps}, weight_decay = {weight_decay} }}

[evaluate]
budgets = [1.0]
limit = 1
"""


def config(folder, clients, count, participation, rounds, workers):
    """Returns the config of `count` clients over the rows of `clients` users."""
    return CONFIG.format(folder=folder, clients=clients, count=count, participation=participation, rounds=rounds, workers=workers,
                         rank=task.RANK, length=task.LENGTH, batch=task.BATCH, lr=task.LR, betas=list(task.BETAS), eps=task.EPS,
                         weight_decay=task.WEIGHT_DECAY)


def mark_of(line):
    """Marks the beginning of the run and the end of every round."""
    event = json.loads(line)
    return {"loss": event.get("loss")} if event["event"] in ("run", "round") else None


def train(folder, text, memory=False):
    """Runs a config. Returns the marks, the lines of rounds.jsonl and the peak in MiB."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    (folder / "run.toml").write_text(text)
    (folder / "test.jsonl").write_text(json.dumps({"prompt": "ba de", "completion": "ki"}))  # a run scores a row at its end
    command = [task.PROGRAM, "train", folder / "run.toml", "--out", out, "--progress", "json", "--quiet"]
    marks, peak = processes.run(command, mark_of, folder / "evenkeel.log", memory)
    return marks, [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()], peak


def missing():
    """Returns why this system cannot run here; empty if it can."""
    return "" if shutil.which(task.PROGRAM) else f"no program at {task.PROGRAM}: make build makes it"


def versions():
    return {"evenkeel": task.program("--version").strip()}


def plain(folder, clients):
    """Measures the steps alone: one client with the rows of all users takes the same number of steps in one loop.

    Wall time is that of its training, as the program measures it around the loop. Processor time is known of the round
    and counted in proportion.
    """
    marks, (line,), _ = train(folder, config(folder, clients, 1, 1.0, 1, 1))
    assert line["steps"] == clients * task.STEPS, line["steps"]
    (whole,), seconds = processes.between(marks), line["seconds"]["train"]
    return {"steps": line["steps"], "wall_s": seconds, "cpu_s": whole["cpu_s"] * seconds / whole["wall_s"]}


def federated(folder, clients, per_round, rounds, workers=1, memory=False):
    """Runs rounds after a first one that is not counted. Returns their seconds, and the parts that the program measured."""
    text = config(folder, clients, clients, per_round / clients, rounds + 1, workers)
    marks, lines, peak = train(folder, text, memory)
    for line in lines:
        assert (line["steps"], line["tokens"]) == (per_round * task.STEPS, per_round * task.ROWS * task.LENGTH), line
    return {**processes.summary(marks, peak), "parts": [line["seconds"] for line in lines[1:]]}

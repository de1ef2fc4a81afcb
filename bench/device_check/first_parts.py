"""The parts of a device check that decide what to build next: costs of starting work, steps of methods, replays of
graphs, several workers on one GPU, and the setting of cuBLAS's workspace.
"""
import json
import pathlib
import shutil
import time

from figures import adapter_hash, require

ROOT = pathlib.Path(__file__).resolve().parents[2]
METHODS = ("fedit", "ub-smoe", "smoe-llb", "hetlora")
WORKERS = (1, 2, 4)
# The one graph of the second is that of the program's first trial.
REPLAYS = (("replayed", "on", {}), ("padded", "on", {"EVENKEEL_MOST_GRAPHS": 1}), ("plain", "off", {}))
ROWS_OF_STEP = 16  # of bench/device_check/round.toml
WORKSPACES = (":4096:8", "unset", ":16:8")  # the first is the program's


def take_lines(check, figures, name):
    """Returns a function that stores each JSON line of a program under its entry `name`."""
    def take(line):
        told = json.loads(line)
        label = str(told.pop(name))
        figures[label] = told
        check.store()
        print(f"   {label}: " + ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in told.items())[:160], flush=True)
    return take


# Starting work -----------------------------------------------------------------------------------------------------------------------

def run_launch(check, figures):
    tiny = ["--tiny"] if check.tiny else []
    check.program("launch_costs", "--device", check.programs_device, *tiny, limit=60, on_line=take_lines(check, figures, "what"))


# Kernels -----------------------------------------------------------------------------------------------------------------------------

def run_kernels(check, figures):
    """Fails where a kernel is further from float64 than its operators are, which round more often."""
    tiny = ["--tiny"] if check.tiny else []
    check.program("kernel_rates", "--device", check.programs_device, *tiny, limit=60, on_line=take_lines(check, figures, "what"))
    wrong = [name for name, line in figures.items() if isinstance(line, dict) and not line.get("error", 0) <= 1.5 * line.get("operators_error", 0) + 1e-6]
    require(not wrong, f"kernels are further from float64 than operators: {', '.join(wrong)}")


# Methods -----------------------------------------------------------------------------------------------------------------------------

def federated(check, name, clients, steps, *settings):
    """Returns the arguments of a round of clients that train `steps` steps each."""
    rows = clients * steps * ROWS_OF_STEP
    return ["train", ROOT / "bench/device_check/round.toml", "--out", check.new_folder(name), "--set", f"model.path={check.model}",
            f"data.limit={rows}", f"clients.count={clients}", *settings]


def the_round(check, name):
    (record,) = [json.loads(line) for line in (check.options.work / name / "rounds.jsonl").read_text().splitlines()]
    return record


def run_methods(check, figures):
    """Trains three clients per method. The first one warms up; the others have an eighth of the budget and all of it."""
    steps, failed = (2 if check.tiny else 8), []
    for method in METHODS:
        row = figures[method] = {}
        try:
            check.program("evenkeel", *federated(check, method, 3, steps, f"method.name={method}", "clients.budgets=[1.0, 0.125, 1.0]"),
                          "--device", check.programs_device, limit=60)
            row |= steps_of(the_round(check, method))
        except RuntimeError as error:
            row["failed"] = str(error)
            failed.append(method)
        shutil.rmtree(check.options.work / method, ignore_errors=True)
        check.store()
        print(f"   {method:10} {row}", flush=True)
    require(not failed, f"failed: {' '.join(failed)}")


def steps_of(record):
    _, small, full = record["clients"]
    return {"loss": record["loss"], "ms_of_small_budget": 1e3 * small["seconds"] / small["steps"], "ms_of_full_budget": 1e3 * full["seconds"] / full["steps"],
            "tokens_of_step": full["tokens"] / full["steps"], "seconds": record["seconds"]}


# Graphs ------------------------------------------------------------------------------------------------------------------------------

def run_replay(check, figures):
    """Trains three clients with replayed passes, with the same padded passes started operator by operator, and without padding."""
    if check.programs_device == "cpu":
        figures["skipped"] = "passes are recorded on a GPU"
        return
    steps = 4 if check.tiny else 8
    for name, graphs, environment in REPLAYS:
        words = federated(check, name, 3, steps, f"model.graphs={graphs}", "clients.budgets=[1.0, 0.125, 1.0]")
        check.program("evenkeel", *words, "--device", check.programs_device, limit=60, **environment)
        figures[name] = steps_of(the_round(check, name)) | {"hash": adapter_hash(check.options.work / name)}
        shutil.rmtree(check.options.work / name, ignore_errors=True)
        check.store()
        print(f"   {name:8} {figures[name]}", flush=True)
    figures["equal"] = figures["replayed"]["hash"] == figures["padded"]["hash"]
    require(figures["equal"], "a run that replays its passes has another adapter than one that starts their operators")


# Workers -----------------------------------------------------------------------------------------------------------------------------

def run_workers(check, figures):
    """Trains eight clients by 1, 2 and 4 processes on one GPU. Their adapters must be equal."""
    steps, device = (1 if check.tiny else 6), ("cuda:0" if check.programs_device.startswith("cuda") else check.programs_device)
    for workers in WORKERS:
        row = figures[str(workers)] = {}
        name, begin = f"workers-{workers}", time.monotonic()
        try:
            ranks = ["--ranks", workers] if workers > 1 else []
            check.program("evenkeel", *federated(check, name, 8, steps), "--device", device, *ranks, limit=60)
            record = the_round(check, name)
            row |= {"seconds": time.monotonic() - begin, "round": record["seconds"], "steps": record["steps"], "hash": adapter_hash(check.options.work / name)}
        except RuntimeError as error:
            row["failed"] = str(error)
        shutil.rmtree(check.options.work / name, ignore_errors=True)
        check.store()
        print(f"   {workers} on one device: {row}", flush=True)
    check_workers(figures)


def check_workers(figures):
    hashes = {row["hash"] for row in figures.values() if "hash" in row}
    failed = [workers for workers, row in figures.items() if "failed" in row]
    figures["equal"] = len(hashes) == 1
    require(len(hashes) <= 1, "the adapters of different numbers of workers differ")
    require(not failed, f"failed with {' and '.join(failed)} workers")


# The workspace of cuBLAS -------------------------------------------------------------------------------------------------------------

def run_cublas(check, figures):
    for workspace in WORKSPACES:
        check.python("products.py", "--workspace", workspace, *(["--tiny"] if check.tiny else []), limit=20,
                     on_line=take_lines(check, figures, "workspace"))
    totals = {workspace: sum(value for value in row.values() if isinstance(value, float)) for workspace, row in figures.items()}
    figures["slower_than_unset"] = totals[WORKSPACES[0]] / totals["unset"]
    print(f"   products take {figures['slower_than_unset']:.2f} times as long with {WORKSPACES[0]} as with cuBLAS's own workspace", flush=True)

"""Checks every flag of every command with invalid values. The flags are listed by the program, so a new flag without an
entry in BAD fails.
"""

import re

import pytest

from hostile import refused
from tiny import CONFIG, ROOT, succeed

COMMANDS = ["train", "evaluate", "score", "bertscore", "gradient-bias", "pg-alignment", "generate", "tokenize", "pretrain", "export", "report",
            "init", "list", "doctor", "study", "demo", "privacy", "man", "completion"]
LARGE, BEYOND = str(2**62), str(2**63)

# Placeholders in the arguments below.
MODEL, TEXTS, RUN, OUT, NOWHERE, LETTER, STUDY = "<model>", "<texts>", "<run>", "<out>", "<nowhere>", "<letter>", "<study>"

WORKS = {
    "train": [CONFIG, "--out", OUT, "--set", f"model.path={MODEL}"],
    "evaluate": ["--model", MODEL, "--tasks", "builtin", "--limit", "1"],
    "score": ["--model", MODEL, "--input", TEXTS],
    "bertscore": ["--model", MODEL, "--input", TEXTS],
    "gradient-bias": ["--run", RUN],
    "pg-alignment": ["--run", RUN],
    "generate": ["--model", MODEL, "--prompt", "Once", "--max-new-tokens", "1"],
    "tokenize": ["--model", MODEL, "--input", TEXTS],
    "pretrain": [ROOT / "configs/tiny/pretrain.toml", "--out", OUT],
    "export": ["--run", RUN, "--out", OUT],
    "report": [RUN],
    "init": [ROOT / "configs/tiny/model.json", "--out", OUT],
    "list": ["methods"],
    "doctor": [],
    "study": [STUDY, "--out", OUT],
    "demo": ["--out", OUT],
    "privacy": ["--delta", "1e-5", "--noise", "1", "--releases", "10"],
    "man": [],
    "completion": ["bash"],
}

FOLDER = [(NOWHERE, [NOWHERE]), (LETTER, [LETTER]), ("", [])]
DEVICES = [("tpu", ["--device", "tpu", "cpu", "cuda"]), ("", ["--device", "cpu"]), ("cuda:-1", ["--device", "cuda:-1"]), ("cuda:x", ["cuda:x"])]
THREADS = [("-1", ["--threads", "-1"]), ("1025", ["--threads", "1025"])]
MODEL_FLAGS = {
    "--model": FOLDER,
    "--adapter": [(NOWHERE, [NOWHERE]), (LETTER, [LETTER]), (MODEL, ["adapter_config.json"])],
    "--top-k": [("-1", ["--top-k", "-1", "1 .. 12"]), ("13", ["--top-k", "13", "1 .. 12"]), ("1.5", ["--top-k", "1.5"]),
                (BEYOND, ["--top-k", "1 .. 12"])],
    "--gate-norm": [("softmax", ["--gate-norm", "softmax", "olmoe_native", "renorm_selected", "softmax_all"])],
    "--dtype": [("int8", ["--dtype", "int8", "checkpoint", "bfloat16"]), ("", ["--dtype", "checkpoint"])],
    "--threads": THREADS,
    "--device": DEVICES,
}
METHOD = [("nowhere.py:X", ["--method", "nowhere.py", "no file"]), ("nowhere", ["--method", "FILE.py:CLASS"])]
SOURCE_FLAGS = {  # excluded by --model
    "--run": [(NOWHERE, ["--run", "--model"])],
    "--budget": [("0.5", ["--budget", "--run", "--top-k"]), ("half", ["--budget", "half"])],
    "--rank-eval-mode": [("a", ["--rank-eval-mode", "--run"])],
    "--best": [(None, ["--best", "--run"])],
    "--base": [(NOWHERE, ["--base", "--run", "--model"])],
    "--method": METHOD,
}

BAD = {
    "train": {
        "--method": METHOD,
        "--changed-method": [(None, ["--changed-method", "--resume"])],
        "--set": [("seed", ["--set", "a.b=value"])],
        "--out": [(LETTER, ["[io]", LETTER]), ("/proc/evenkeel", ["[io]", "/proc/evenkeel"]), ("", ["--out is empty"])],
        "--resume": [],  # in a folder without a run, --resume starts one
        "--from-round": [("first", ["--from-round", "first"])],
        "--threads": THREADS + [("two", ["--threads", "two"]), ("4294967297", ["--threads", "4294967297"]), (BEYOND, ["--threads"])],
        "--progress": [("yaml", ["--progress", "yaml", "text", "json"]), ("", ["--progress", "text, json"])],
        "--base": [(NOWHERE, ["--base", NOWHERE, "--resume", "model.path"])],
        "--ranks": [("-1", ["--ranks", "-1"]), ("0", ["--ranks is 0", "1 or more"]), ("1025", ["--ranks", "1025"]), ("two", ["--ranks", "two"])],
        "--device": DEVICES,
        "--print-config": [("yes", ["yes"])],
    },
    "evaluate": {
        "--method": METHOD,
        **MODEL_FLAGS,
        "--run": [(NOWHERE, ["--run", "--model"])],
        "--base": [(NOWHERE, ["--base", "--run", "--model"])],
        "--best": [(None, ["--best", "--run"])],
        "--tasks": [("arc_x", ["arc_x", "arc_c"]), ("", ["task"])],
        "--in-the-run-only": [("yes", ["yes"]), (None, ["--in-the-run-only", "--run"])],
        "--questions": [("yes", ["yes"]), (None, ["--questions", "--predictions"])],
        "--progress": [("yaml", ["--progress", "yaml", "text", "json"]), ("", ["--progress", "text, json"])],
        "--budget": [("0", ["--budget", "is 0", "(0, 1]"]), ("0.5,1.5", ["--budget", "1.5", "(0, 1]"]),
                     ("-1", ["--budget", "-1", "(0, 1]"]), ("nan", ["--budget", "nan", "(0, 1]"]),
                     ("half", ["--budget", "half"]), ("0.01", ["--budget", "0.01", "0.125"]),
                     ("1,1", ["--budget", "1 twice"]), ("0.5,1,0.50", ["--budget", "0.5 twice"]), ("0.5,,1", ["--budget holds \"\""]), ("1,", ["--budget holds \"\""])],
        "--limit": [("-1", ["--limit", "-1", "0 or more"]), ("ten", ["--limit", "ten"]), (BEYOND, ["--limit"])],
        "--seed": [("-1", ["--seed", "-1", "0 or more"]), ("0.5", ["--seed", "0.5"])],
        "--data": [(NOWHERE, ["--data", NOWHERE, "no evaluated task reads", "--tasks files"])],
        "--format": [("alpaca", ["--format", "--tasks files"])],
        "--score": [("nll", ["--score", "--tasks files"])],
        "--options": [("yes,no", ["--options", "--tasks files"])],
        "--ignore": [("id", ["--ignore", "--tasks files"])],
        "--template": [("alpaca", ["--template", "alpaca", "paper", "llm_adapters", "chat", "plain"]), ("chat", ["has no chat template"])],
        "--chat-template": [(NOWHERE, ["--chat-template", "--template chat"])],
        "--date": [("2025-03-01", ["--date", "--template chat"])],
        "--decode": [("sample", ["--decode", "sample", "greedy", "beam4"])],
        "--max-new-tokens": [("0", ["--max-new-tokens", "is 0", "1 or more"]), (LARGE, ["--max-new-tokens", LARGE])],
        "--batch-size": [("0", ["--batch-size", "is 0", "1 or more"]), ("-7", ["--batch-size", "-7", "1 or more"]),
                         (LARGE, ["--batch-size", LARGE])],
        "--bert-encoder": [(NOWHERE, [NOWHERE])],
        "--bert-layer": [("2", ["--bert-layer", "--bert-encoder"]), ("first", ["--bert-layer", "first"])],
        "--bert-baseline": [(NOWHERE, ["--bert-baseline", "--bert-encoder"])],
        "--predictions": [(f"{NOWHERE}/p.jsonl", [NOWHERE]), ("/", ["/"]), ("-", ["--predictions is -"])],
        "--journal": [(f"{NOWHERE}/j.jsonl", [NOWHERE]), ("/", ["/"])],
        "--strict": [("yes", ["yes"]), (None, ["--strict", "--tasks files"])],
        "--json": [("yes", ["yes"])],
    },
    "score": {
        **MODEL_FLAGS,
        **SOURCE_FLAGS,
        "--input": [(NOWHERE, [NOWHERE, "cannot be"]), ("/", ["/"])],
        "--json": [("yes", ["yes"])],
        "--logits": [(f"{NOWHERE}/l.safetensors", [NOWHERE]), ("/", ["/"])],
        "--strict": [("yes", ["yes"])],
    },
    "bertscore": {
        "--model": FOLDER,
        "--input": [(NOWHERE, [])],
        "--layer": [("first", ["--layer", "first"])],
        "--idf": [("yes", ["yes"])],
        "--strict": [("yes", ["yes"])],
        "--baseline": [(NOWHERE, [])],
        "--dtype": [("int8", ["--dtype", "int8", "float32"])],
        "--device": DEVICES,
        "--threads": THREADS,
        "--json": [("yes", ["yes"])],
    },
    "gradient-bias": {
        "--method": METHOD,
        "--device": DEVICES,
        "--run": [(NOWHERE, [NOWHERE]), (MODEL, [MODEL, "no run"])],
        "--base": [(NOWHERE, [RUN, "no run"])],
        "--limit": [("0", ["--limit", "is 0", "1 or more"]), ("-1", ["--limit", "-1", "1 or more"])],
        "--data": [],
        "--json": [("yes", ["yes"])],
    },
    "pg-alignment": {
        "--method": METHOD,
        "--device": DEVICES,
        "--run": [(NOWHERE, [NOWHERE]), (MODEL, [MODEL, "no run"])],
        "--base": [(NOWHERE, [RUN, "no run"])],
        "--limit": [("0", ["--limit", "is 0", "1 or more"]), ("-1", ["--limit", "-1", "1 or more"])],
        "--pg-align-mode": [("all", ["--pg-align-mode", "all", "kmax", "dense"])],
        "--data": [],
        "--json": [("yes", ["yes"])],
    },
    "generate": {
        **MODEL_FLAGS,
        **SOURCE_FLAGS,
        "--template": [("alpaca", ["--template", "alpaca", "paper", "chat"]), ("chat", ["has no chat template"])],
        "--chat-template": [(NOWHERE, ["--chat-template", "--template chat"])],
        "--date": [("2025-03-01", ["--date", "--template chat"])],
        "--system": [],
        "--temperature": [("0", ["--temperature", "above 0"]), ("nan", ["--temperature"]), ("warm", ["--temperature", "warm"])],
        "--top-p": [("0", ["--top-p"]), ("1.5", ["--top-p", "1.5", "at most 1"]), ("-1", ["--top-p", "-1"])],
        "--top-k-tokens": [("-1", ["--top-k-tokens", "-1", "0 or more"]), (BEYOND, ["--top-k-tokens"])],
        "--seed": [("3", ["--seed", "--temperature"]), ("one", ["--seed", "one"])],
        "--prompt": [],
        "--input": [(NOWHERE, [NOWHERE, "cannot be"]), ("/", ["/"])],
        "--strict": [("yes", ["yes"]), (None, ["--strict", "--input"])],
        "--max-new-tokens": [("0", ["--max-new-tokens", "0"]), ("-1", ["--max-new-tokens", "-1"]),
                             (str(2**63 - 1), ["--max-new-tokens", str(2**63 - 1)])],
        "--beams": [("0", ["--beams", "0"]), ("-1", ["--beams", "-1"]), (str(10**12), ["--beams", str(10**12)])],
        "--json": [("yes", ["yes"])],
    },
    "tokenize": {
        "--model": FOLDER,
        "--input": [(NOWHERE, [NOWHERE]), ("/", ["/"])],
        "--decode": [("yes", ["yes"])],
        "--jsonl": [("yes", ["yes"])],
        "--no-special": [("yes", ["yes"])],
        "--chat": [("yes", ["yes"])],
        "--chat-template": [(NOWHERE, [NOWHERE])],
        "--date": [("yesterday", ["--date", "yesterday", "YYYY-MM-DD"]), ("2025-13-01", ["--date", "2025-13-01", "no moment"]),
                   ("2025-03-01", ["--date", "--chat"])],
        "--train": [("500", ["exists already"]), ("many", ["--train", "many"])],
        "--config": [(NOWHERE, ["--config", "--model and --data"])],
        "--method": METHOD,
        "--data": [(NOWHERE, ["--data", "--input"])],
        "--set": [("seed=1", ["--set", "--config or --data"])],
        "--template": [("paper", ["--template", "--config or --data"])],
        "--format": [("alpaca", ["--format", "--config or --data"])],
        "--ignore": [("id", ["--ignore", "--config or --data"])],
        "--cutoff": [("9", ["--cutoff", "--config or --data"]), ("many", ["--cutoff", "many"])],
        "--client": [("0", ["--client", "--config or --data"])],
        "--rows": [("many", ["--rows", "many"]), ("3", ["--rows", "--config or --data"])],
        "--json": [("yes", ["yes"])],
    },
    "pretrain": {
        "--set": [("seed", ["--set", "a.b=value"])],
        "--out": [(LETTER, [LETTER]), ("/proc/evenkeel", ["/proc/evenkeel"]), ("", ["--out is empty"])],
        "--experts": [("both", ["--experts", "both", "original", "fused"])],
        "--device": DEVICES,
        "--resume": [],
    },
    "export": {
        "--base-model": [("a/b/c", ["--base-model", "a/b/c", "repository of the hub"]), ("builtin:x", ["--base-model", "builtin:x"])],
        "--base": [(NOWHERE, [RUN, "no run"])],
        "--run": [(NOWHERE, [NOWHERE, "no run"]), (LETTER, [LETTER]), (MODEL, [MODEL, "no run"])],
        "--best": [(None, [RUN, "no run"])],
        "--model": [(NOWHERE, ["--run", "--model"])],
        "--adapter": [(NOWHERE, ["--adapter", "--model"])],
        "--format": [("onnx", ["--format", "onnx", "peft", "peft-fused", "merged", "gguf"])],
        "--out": [(LETTER, []), ("", ["--out is empty"])],
        "--dtype": [("float32", ["--dtype", "--format merged"])],
        "--experts": [("fused", ["--experts", "--format merged"])],
        "--check": [("yes", ["yes"])],
        "--no-pad": [("yes", ["yes"])],
    },
    "report": {
        "--html": [(f"{NOWHERE}/page.html", [])],
        "--table": [("planets", [])],
        "--format": [("docx", ["--format", "docx", "text, md, latex, csv, json, html"]), ("", ["--format", "text, md"])],
        "--endpoint": [("beauty", ["beauty", "log_likelihood, accuracy"])],
        "--task": [("planets", [])],
        "--budget": [("half", ["--budget", "half"]), ("7", [])],
    },
    "init": {
        "--out": [(LETTER, [LETTER]), ("/proc/evenkeel", ["/proc/evenkeel"]), (MODEL, [MODEL, "not empty"]), ("", ["--out is empty"])],
        "--seed": [("-1", ["--seed", "-1"]), ("one", ["--seed", "one"])],
        "--dtype": [("int8", ["--dtype", "int8", "float32"])],
        "--experts": [("both", ["--experts", "both", "original", "fused"])],
    },
    "list": {"--json": [("yes", ["yes"])], "--method": METHOD},
    "demo": {"--full": [("yes", ["yes"])], "--real": [("yes", ["yes"])], "--yes": [("yes", ["yes"])], "--model": [(NOWHERE, ["--model", "--real"])],
             "--out": [(LETTER, [LETTER]), ("/proc/evenkeel", ["/proc/evenkeel"]), ("", ["--out is empty"])]},
    "privacy": {
        "--delta": [("0", ["delta is 0", "allowed"]), ("1", ["delta is 1", "below 1"]), ("-1e-5", ["delta"]), ("nan", ["delta is nan"]),
                    ("small", ["--delta", "small"])],
        "--epsilon": [("8", ["3 of --epsilon, --noise and --releases", "two"]), ("much", ["--epsilon", "much"])],
        "--noise": [("0", ["noise multiplier is 0", "0.01"]), ("-1", ["-1"]), ("inf", ["inf"]), ("nan", ["nan"]), ("1001", ["1001"])],
        "--releases": [("0", ["--releases is 0"]), ("-3", ["--releases", "-3"]), (LARGE, ["--releases", LARGE]), (BEYOND, ["--releases"]),
                       ("1.5", ["--releases", "1.5"])],
        "--sampling": [("0", ["probability is 0"]), ("1.5", ["1.5"]), ("nan", ["nan"]), ("half", ["--sampling", "half"])],
        "--rows": [("100", ["--rows", "--lot"])],
        "--lot": [("10", ["--rows", "--lot"])],
        "--clients": [("10", ["--clients", "--values"])],
        "--values": [("10", ["--clients", "--values"])],
        "--run": [(NOWHERE, ["--run audits an account"])],
        "--json": [("yes", ["yes"])],
    },
    "man": {},
    "completion": {},
    "doctor": {"--model": FOLDER[:2], "--config": [(NOWHERE, [NOWHERE])], "--set": [("seed=1", ["--set", "--config"])], "--method": METHOD,
               "--client-profile": [("box.toml", ["--client-profile", "--config or --model"])],
               "--serve": [(None, ["--serve", "--config"]), ("yes", ["yes"])],
               "--ranks": [("0", ["--ranks is 0", "1 or more"]), ("1025", ["--ranks", "1025"]), ("two", ["--ranks", "two"]),
                           ("2", ["--ranks", "--config"])]},
    "study": {
        "--method": METHOD,
        "--set": [("seed", ["--set", "a.b=value"]), ("seed=3", ["--set sets seed=3", "[study] seeds"]), ("data.limits=3", ["limits"])],
        "--out": [(LETTER, ["[io]", LETTER, "is a file"]), (MODEL, [MODEL, "not empty"]), ("a\nb", ["--out", "a\\nb"]), ("", ["--out is empty"])],
        "--jobs": [("0", ["--jobs", "is 0", "1 or more"]), ("1025", ["--jobs", "1025"]), ("two", ["--jobs", "two"])],
        "--shard": [("3/2", ["--shard", "3/2", "i/n"]), ("0/2", ["--shard", "0/2"]), ("2", ["--shard"]), ("1/2/3", ["--shard"]),
                    ("1/99999999", ["--shard"]), ("", ["--shard"])],
        "--only": [("one", ["--only", "one", "ARM:SEED", "one:1"]), ("one:2", ["--only", "one:2"]), ("", ["--only"])],
        "--dry-run": [("yes", ["yes"])],
        "--resume": [("yes", ["yes"])],
        "--while-read": [("yes", ["yes"])],
        "--base": [(NOWHERE, ["--base", NOWHERE, "--resume"])],
    },
}


@pytest.fixture(scope="module")
def places(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("flags")
    (folder / "texts.jsonl").write_text('{"ids": [7, 8]}\n')
    (folder / "letter").write_text("mine")
    (folder / "run").mkdir()
    (folder / "study.toml").write_text(f'[study]\nbase = "{CONFIG}"\nseeds = [1]\n[[study.arm]]\nname = "one"\n'
                                       f'set = ["model.path={tiny_model}"]\n')
    return {MODEL: tiny_model, TEXTS: folder / "texts.jsonl", RUN: folder / "run", OUT: folder / "out",
            NOWHERE: folder / "nowhere", LETTER: folder / "letter", STUDY: folder / "study.toml", "folder": folder}


def placed(word, places):
    for name, path in places.items():
        word = str(word).replace(name, str(path)) if name.startswith("<") else str(word)
    return word


def flags_of(command):
    return sorted(set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", succeed(command, "--help").stdout, re.M)) - {"--help"})


def instead(words, flag, value):
    """Returns the arguments with another value for this flag."""
    words = list(map(str, words))
    if flag in words and flag != "--set":
        at = words.index(flag)
        del words[at:at + 2]
    return words + ([flag] if value is None else [flag, value])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_table_has_invalid_values_of_every_flag(command):
    assert flags_of(command) == sorted(BAD[command])


def table():
    for command, flags in BAD.items():
        for flag, bad in flags.items():
            for value, says in bad:
                yield pytest.param(command, flag, value, says, id=f"{command} {flag} {value}")


@pytest.mark.parametrize("command, flag, value, says", list(table()))
def test_a_value_that_is_not_allowed_is_rejected(places, command, flag, value, says):
    words = [placed(word, places) for word in instead(WORKS[command], flag, value)]
    refused(command, *words, says=[placed(word, places) for word in says], untouched=places["folder"])


@pytest.mark.parametrize("command, flag", [("train", "--out"), ("train", "--threads"), ("evaluate", "--budget"), ("score", "--input"),
                                           ("bertscore", "--layer"), ("generate", "--beams"), ("tokenize", "--train"),
                                           ("pretrain", "--set"), ("export", "--format"), ("report", "--html"), ("init", "--seed"),
                                           ("doctor", "--model")])
def test_a_flag_without_its_value_is_rejected(places, command, flag):
    words = [placed(word, places) for word in instead(WORKS[command], flag, None)]
    refused(command, *words, says=[flag], untouched=places["folder"])


@pytest.mark.parametrize("command, without", [("train", None), ("score", "--model"), ("score", "--input"), ("bertscore", "--model"),
                                              ("bertscore", "--input"), ("gradient-bias", "--run"), ("pg-alignment", "--run"), ("generate", "--model"),
                                              ("generate", "--prompt"), ("tokenize", "--model"), ("tokenize", "--input"),
                                              ("pretrain", None), ("export", "--run"), ("export", "--out"), ("report", None),
                                              ("init", None), ("init", "--out"), ("list", None), ("study", None)])
def test_a_command_without_a_required_argument_is_rejected(places, command, without):
    words = list(map(str, WORKS[command]))
    if without:
        at = words.index(without)
        del words[at:at + 2]
    else:
        del words[0]
    says = [without] if without else ["required"]
    refused(command, *(placed(word, places) for word in words), says=says, untouched=places["folder"])


@pytest.mark.parametrize("words, says", [
    ([], ["subcommand"]),
    (["trian", CONFIG], ["\"trian\" is no command, did you mean train?"]),
    (["simulate", CONFIG], ["\"simulate\" is no command; commands: demo, train, serve"]),
    (["train", CONFIG, "--round", "3"], ["--round"]),
    (["train", CONFIG, CONFIG], [str(CONFIG)]),
    (["list", "planets"], ["planets", "methods, models, tasks, configs"]),
    (["list", "methods", "train"], ["list methods", "train", "list keys"]),
    (["list", "keys", "planets"], ["planets", "train", "ub-smoe"]),
    (["list", "keys", "train."], ["train.", "no section"]),
    (["generate", "--model", "m", "--prompt", "p", "-x"], ["-x"]),
    (["train\nevenkeel: done", CONFIG], ["is no command"]),
    (["train", CONFIG, f"--{'x' * 5000}"], ["xxx"]),
    (["list", "x" * 5000], ["xxx", "methods"]),
    (["list", "\x1b[31mmethods"], ["methods"]),
    (["evaluate", "--tasks", "builtin"], ["--run", "--model"]),
    (["evaluate", "--model", "m"], ["--tasks"]),
    (["evaluate", "--run", "r", "--model", "m"], ["--run", "--model"]),
    (["evaluate", "--run", "r", "--adapter", "a"], ["--run", "--adapter"]),
    (["evaluate", "--run", "r", "--top-k", "3"], ["--run", "--top-k"]),
    (["evaluate", "--run", "r", "--gate-norm", "olmoe_native"], ["--run", "--gate-norm"]),
    (["evaluate", "--run", "r", "--strict"], ["--strict", "--tasks files"]),
    (["evaluate", "--model", "m", "--tasks", "files", "--data", "d", "--score", "choice", "--options", "hardware,hardware"],
     ["--options", "hardware", "twice"]),
    (["evaluate", "--model", "m", "--tasks", "builtin", "--top-k", "2", "--budget", "1"], ["--top-k", "--budget"]),
    (["generate", "--prompt", "p"], ["--run", "--model"]),
    (["generate", "--run", "r", "--gate-norm", "olmoe_native", "--prompt", "p"], ["--run", "--gate-norm"]),
    (["score", "--run", "r", "--adapter", "a", "--input", "-"], ["--run", "--adapter"]),
    (["score", "--run", "r", "--budget", "1.5", "--input", "-"], ["--budget", "1.5", "(0, 1]"]),
    (["generate", "--model", "m", "--prompt", "p", "--beams", "2", "--top-p", "0.5"], ["--beams", "--top-p"]),
    (["train", CONFIG, "--out", "a", "--out", "b"], ["--out"]),
    (["export", "--run", "r", "--format", "merged", "--no-pad", "--out", "a"], ["--no-pad", "--format peft"]),
    (["export", "--run", "r", "--format", "gguf", "--no-pad", "--check"], ["--no-pad", "--format peft"]),
    (["tokenize", "--train", "300", "--model", "m", "--input", "-", "--cutoff", "9"], ["--cutoff", "--config or --data"]),
    (["status", "r", "--insecure"], ["--insecure", "--server"]),
    (["status", "r", "--ca", "ca.pem"], ["--ca", "--server"]),
    (["serve", CONFIG, "--out", ""], ["--out is empty"]),
    (["serve", CONFIG, "--open", "--insecure", "--patience", "0"], ["--patience is 0"]),
    (["serve", CONFIG, "--open", "--insecure", "--patience", "-1"], ["--patience is -1"]),
    (["serve", CONFIG, "--open", "--insecure", "--patience", "nan"], ["--patience is nan"]),
    (["serve", CONFIG, "--open", "--insecure", "--patience", "inf"], ["--patience is inf"]),
    (["keygen", "-"], ["FILE is -"]),
    (["init", ROOT / "configs/tiny/model.json", "--out", "a", "--seed", "1", "--seed", "2"], ["--seed"]),
], ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, list) else "")
def test_a_meaningless_command_line_is_rejected(words, says):
    refused(*words, says=says)


def test_ranks_are_planned_for_a_gpu_alone(places):
    words = ["doctor", "--config", CONFIG, "--set", f"model.path={places[MODEL]}", "--set", "model.device=cpu", "--ranks"]
    refused(*words, 3, says=["--ranks is 3", "model.device cpu", "the memory of a GPU"])

"""Tests init, list, doctor, export and report through the program, including user errors."""

import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
from safetensors.torch import load_file

from hostile import refused
from tiny import CONFIG, PROGRAM, ROOT, sealed, settings, succeed


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """Runs one round, with the model in the folder next to the run."""
    folder = tmp_path_factory.mktemp("run")
    shutil.copytree(tiny_model, folder / "model")
    succeed("train", CONFIG, "--out", folder / "fedit",
            *settings(model__path=folder / "model", train__rounds=1, evaluate__limit=2, method__name="fedit"))
    return folder / "fedit"


@pytest.mark.parametrize("given, policy", [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
                                           ({"GOMP_SPINCOUNT": "9"}, None), ({"OMP_NUM_THREADS": "1"}, None)])
def test_waiting_threads_sleep_by_default(given, policy):
    """Checks the environment that the OpenMP library read when it was loaded."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    with subprocess.Popen([PROGRAM, "tokenize", "--model", "assets/tiny-olmoe", "--input", "-"], cwd=ROOT, env={**own, **given},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write("a line\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())
        environment = dict(entry.split("=", 1) for entry in
                           pathlib.Path(f"/proc/{process.pid}/environ").read_text().split("\0") if "=" in entry)
        name = pathlib.Path(f"/proc/{process.pid}/comm").read_text().strip()
        process.stdin.close()
    assert process.returncode == 0 and name == pathlib.Path(PROGRAM).name
    assert environment.get("OMP_WAIT_POLICY") == policy


def test_init_draws_the_same_weights_from_the_same_seed(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        succeed("init", "configs/tiny/model.json", "--out", tmp_path / name, "--seed", seed, "--dtype", "bfloat16")
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert all(a[name].equal(b[name]) for name in a)
    assert not a["model.embed_tokens.weight"].equal(c["model.embed_tokens.weight"])
    assert json.loads((tmp_path / "a/config.json").read_text())["torch_dtype"] == "bfloat16"


def test_init_rejects_invalid_settings(tmp_path):
    refused("init", tmp_path / "missing.json", "--out", tmp_path / "x", says=["missing.json"])
    refused("init", "configs/tiny/model.json", "--out", ROOT / "configs", says=["exists already and is not empty"])
    refused("init", "configs/tiny/model.json", "--out", tmp_path / "x", "--dtype", "int8", says=["allowed: checkpoint"])
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("keys, says", [
    ({"model_type": "qwen3_next"}, ["families of that name: qwen2_moe, qwen3_moe, qwen2, qwen3; other known families: olmo", "tutorial-new-family.md"]),
    ({"model_type": "gpt_oss"}, ["attention with sinks", "0035-families-of-leaves.md"]),
    ({"model_type": "mamba"}, ["not supported; known families: olmo", "tutorial-new-family.md"]), ({"model_type": "gemma"}, ["families of that name: gemma2, gemma3_text"]),
    ({"model_type": "mistral3", "text_config": {"model_type": "mistral"}}, ["its text part is a mistral", "troubleshooting.md"]),
    ({"model_type": "other", "text_config": {"model_type": "nothing"}}, ["known families"]), ({"model_type": ""}, ["known families"]),
    ({"model_type": "other", "text_config": {"model_type": 4}}, ["text_config.model_type"])], ids=str)
def test_a_family_that_is_not_known_is_refused_with_the_next_step(keys, says, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(json.loads((ROOT / "configs/tiny/model.json").read_text()) | keys))
    refused("init", tmp_path / "config.json", "--out", tmp_path / "x", says=[f'model_type is "{keys["model_type"]}"'] * (says != ["text_config.model_type"]) + says)


@pytest.mark.parametrize("what, holds", [("methods", "ub-smoe"), ("models", "builtin:tiny-olmoe"), ("tasks", "winogrande"),
                                         ("configs", "configs/tiny/train.toml"), ("keys", "train.rounds = 10")])
def test_list_has_one_line_each_with_a_source(what, holds):
    lines = succeed("list", what).stdout.splitlines()
    assert any(line.startswith(holds) for line in lines)
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)


def test_every_task_is_listed_with_its_answers():
    listed = [json.loads(line) for line in succeed("list", "tasks", "--json").stdout.splitlines()]
    answers = {task["name"]: task["text"].rpartition("; answers ")[2] for task in listed}
    assert answers["builtin_large:facts"] == "true/false"
    assert answers["builtin_changed:plants"] == "among the options of the row"
    assert all(answer.strip() for answer in answers.values())


def test_list_rejects_other_words():
    refused("list", "planets", says=["allowed: methods, models, tasks, configs"])


def test_quiet_may_follow_the_command():
    assert succeed("list", "methods", "--quiet").stdout == succeed("--quiet", "list", "methods").stdout != ""


def test_configs_are_listed_by_paths_relative_to_the_working_folder(tmp_path):
    for folder in (ROOT, tmp_path):
        names = [line.split()[0] for line in succeed("list", "configs", cwd=folder).stdout.splitlines()]
        assert len(names) > 10 and all((folder / name).is_file() for name in names)


@pytest.mark.parametrize("setting, says", [("model.path=models/nowhere", "models/nowhere"), ("data.task=piqa", "data.task"),
                                           ("clients.ranks=[3,2,1,3,2]", "clients.ranks")])
def test_a_run_that_cannot_start_leaves_no_folder(tiny_model, setting, says, tmp_path):
    refused("train", CONFIG, "--set", f"model.path={tiny_model}", "--set", setting, "--out", tmp_path / "runs/x", says=[says])
    assert not (tmp_path / "runs/x").exists()


def test_doctor_reports_what_fits(tiny_model):
    out = succeed("doctor", "--model", tiny_model).stdout
    for word in ("cores", "instructions", "memory", "an expert, x W^T", "own", "native", "bfloat16", "yes"):
        assert word in out
    refused("doctor", "--model", "models/nowhere", says=["models/nowhere, which is no folder here", "hf download models/nowhere"])


def test_a_forecast_does_not_ask_for_more_rows_than_there_are(tiny_model, tmp_path):
    rows = "".join(f'{{"prompt": "Which is {i}?", "completion": "red"}}\n' for i in range(8))
    (tmp_path / "train.jsonl").write_text(rows)
    (tmp_path / "test.jsonl").write_text("".join(rows.splitlines(keepends=True)[:2]).replace("Which", "What"))
    files = f'{{ train = ["{tmp_path}/train.jsonl"], test = ["{tmp_path}/test.jsonl"], score = "nll" }}'
    for limit in (0, 1):
        done = succeed("doctor", "--config", CONFIG, *settings(model__path=tiny_model, data__task="files", data__limit=0, data__files=files,
                                                               evaluate__tasks='["files"]', evaluate__limit=limit))
        assert "were asked for" not in done.stderr, done.stderr


def test_every_format_is_exported_once(run, tiny_model, tmp_path):
    base = load_file(tiny_model / "model.safetensors")
    for name in ("peft", "peft-fused", "merged"):
        succeed("export", "--run", run, "--format", name, "--out", tmp_path / name)
        refused("export", "--run", run, "--format", name, "--out", tmp_path / name, says=["exists already and is not empty"])
    own, exported = (load_file(folder / "adapter_model.safetensors") for folder in (run / "adapter", tmp_path / "peft"))
    assert own.keys() == exported.keys() and all(own[name].equal(exported[name]) for name in own)
    merged = load_file(tmp_path / "merged/model.safetensors")
    assert {n: (t.shape, t.dtype) for n, t in merged.items()} == {n: (t.shape, t.dtype) for n, t in base.items()}
    assert not merged["model.layers.0.self_attn.q_proj.weight"].equal(base["model.layers.0.self_attn.q_proj.weight"])
    assert merged["model.norm.weight"].equal(base["model.norm.weight"])
    assert (tmp_path / "merged/tokenizer.json").exists()


def test_a_merged_weight_equals_the_base_plus_the_scaled_product(run, tiny_model, tmp_path):
    succeed("export", "--run", run, "--format", "merged", "--dtype", "float32", "--out", tmp_path / "merged")
    base, merged = (load_file(f / "model.safetensors") for f in (tiny_model, tmp_path / "merged"))
    adapter, config = load_file(run / "adapter/adapter_model.safetensors"), json.loads(
        (run / "adapter/adapter_config.json").read_text())
    for module in ("model.layers.0.self_attn.k_proj", "model.layers.1.mlp.experts.3.down_proj", "model.layers.0.mlp.gate"):
        a, b = (adapter[f"base_model.model.{module}.lora_{factor}.weight"] for factor in "AB")
        expected = base[f"{module}.weight"].float() + config["lora_alpha"] / config["r"] * (b @ a)
        assert (merged[f"{module}.weight"] - expected).abs().max() <= 1e-6


@pytest.mark.parametrize("form, file", [("peft", "adapter_model.safetensors"), ("merged", "model.safetensors"), ("gguf", "adapter.gguf")])
def test_an_adapter_is_exported_with_and_without_its_run(run, form, file, tmp_path):
    succeed("export", "--run", run, "--format", form, "--out", tmp_path / "with")
    succeed("export", "--model", run.parent / "model", "--adapter", run / "adapter", "--format", form, "--out", tmp_path / "without")
    assert (tmp_path / "with" / file).read_bytes() == (tmp_path / "without" / file).read_bytes()


def test_export_rejects_unsupported_requests(run, tmp_path):
    refused("export", "--run", tmp_path, "--out", tmp_path / "x", says=["holds no run"])
    refused("export", "--run", run, "--format", "onnx", "--out", tmp_path / "x", says=["allowed: peft, peft-fused, merged, gguf"])
    refused("export", "--run", run, "--dtype", "float32", "--out", tmp_path / "x", says=["--dtype is for --format merged"])
    for flags in ([], ["--run", run, "--model", "assets/tiny-olmoe"], ["--model", "assets/tiny-olmoe"]):
        refused("export", *flags, "--out", tmp_path / "x", says=["--run", "--adapter", "--model"])
    begun = tmp_path / "begun"
    shutil.copytree(run, begun)
    shutil.rmtree(begun / "checkpoint/round-1")
    (begun / "checkpoint/commit.json").write_text(sealed({"round": 0, "record": "", "files": {}}) + "\n")
    refused("export", "--run", begun, "--out", tmp_path / "x", says=["no round is committed yet"])


@pytest.mark.parametrize("changes, says", [
    (["method.name=ub-smoe"], "phi"),
    (["method.name=ub-smoe", "method.ub-smoe.phi_at_eval=false"], None),
    (["method.name=a3smoe", "method.a3smoe.rescaler=fixed"], "the rescaler of MoE outputs"),
    (["method.name=a3smoe"], None),
])
def test_export_reports_what_an_adapter_cannot_represent(tiny_model, changes, says, tmp_path):
    sets = [word for change in changes for word in ("--set", change)]
    succeed("train", CONFIG, "--out", tmp_path / "run", *sets,
            *settings(model__path=tiny_model, train__rounds=1, data__limit=40, evaluate__limit=2))
    said = succeed("export", "--run", tmp_path / "run", "--out", tmp_path / "x").stderr
    for lost in ("phi", "the rescaler of MoE outputs"):
        assert (f"PEFT 0.21 (run): without {lost};" in said) == (lost == says), said
    assert said.count("gates renormalised over the selected experts") == 2
    assert "SGLang 0.5 (read in its source): not readable there (refuses adapters of routers)" in said
    assert said.count("set norm_topk_prob to true in the base model's config.json") == 2


def test_export_check_reports_support_per_program_and_reads_files_back(run, tmp_path):
    all_formats = succeed("export", "--run", run, "--check").stdout
    assert [line for line in all_formats.splitlines() if not line.startswith(" ")] == ["peft", "peft-fused", "merged", "gguf"]
    for program in ("transformers 4.57", "transformers 5", "vLLM", "SGLang", "llama.cpp"):
        assert all_formats.count(f"  {program}") == 3 + (program == "llama.cpp")
    assert all_formats.count("loads it without a word and computes something else") == 1
    for name in ("peft", "peft-fused"):
        said = succeed("export", "--run", run, "--format", name, "--check", "--out", tmp_path / name).stdout
        assert said.startswith(name + "\n") and "largest difference of factors 0, of logits 0 " in said
    said = succeed("export", "--run", run, "--format", "merged", "--dtype", "float32", "--check", "--out", tmp_path / "merged").stdout
    assert 0 <= float(re.search(r"largest difference of logits (\S+) from base and adapter", said)[1]) < 1e-3
    refused("export", "--run", run, says=["--out", "--check"])


def test_untrained_projections_are_written_as_zeros_or_omitted(tiny_model, tmp_path):
    succeed("train", CONFIG, "--out", tmp_path / "run", "--set", 'lora.targets=["q_proj","gate_proj"]', *settings(
        model__path=tiny_model, train__rounds=1, data__limit=30, evaluate__limit=1, method__name="fedit"))
    succeed("export", "--run", tmp_path / "run", "--out", tmp_path / "whole")
    assert "not readable there" in succeed("export", "--run", tmp_path / "run", "--no-pad", "--out", tmp_path / "part").stderr
    whole, part = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "part"))
    assert part.keys() < whole.keys() == load_file(tmp_path / "run/adapter/adapter_model.safetensors").keys()
    added = {name: tensor for name, tensor in whole.items() if name not in part}
    assert {name.split(".")[-3] for name in added} == {"up_proj", "down_proj"}
    assert not any(tensor.any() for tensor in added.values()) and all(whole[name].equal(part[name]) for name in part)
    assert len(added) == 2 * 2 * 2 * 12


def test_an_export_has_a_model_card_with_the_figures_of_the_records(run, tmp_path):
    cards = []
    for name in ("one", "two"):
        succeed("export", "--run", run, "--out", tmp_path / name)
        cards.append((tmp_path / name / "README.md").read_text())
    assert cards[0] == cards[1]
    header = cards[0].split("---\n")[1]
    assert header.startswith("library_name: peft\n") and '- "fedit"' in header
    scores = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    scores = [score for score in scores if score["budget"] == 1]
    mean = 100 * sum(score["accuracy"] for score in scores) / len(scores)
    assert f"| 1 | 8 | {mean:.1f} |" in cards[0]
    assert not (run / "adapter/README.md").exists()
    records = (run / "rounds.jsonl").read_text()
    try:
        (run / "rounds.jsonl").write_text(records.replace('"loss"', '"lost"'))
        done = succeed("export", "--run", run, "--out", tmp_path / "three")
    finally:
        (run / "rounds.jsonl").write_text(records)
    assert "no README.md" in done.stderr and not (tmp_path / "three/README.md").exists()


def made_with_the_present_base(run, out):
    """Returns a copy of the run whose manifest has the files of the base as they are now."""
    shutil.copytree(run, out)
    manifest = json.loads((out / "manifest.json").read_text())
    entries = [entry for entry in manifest["files"] if entry.get("model") != "base"]
    for file in sorted(pathlib.Path(manifest["models"]["base"]["folder"]).iterdir()):
        if file.suffix in (".json", ".safetensors") and file.name != "pretrain.json":
            data = file.read_bytes()
            entries.append({"path": str(file), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "model": "base", "name": file.name})
    (out / "manifest.json").write_text(sealed({**manifest, "files": entries}) + "\n")
    return out


@pytest.mark.parametrize("change, says", [
    ({"num_hidden_layers": 1}, "the model has no site model.layers.1."),
    ({"intermediate_size": 28}, "does not fit the model"),
    ({"num_hidden_layers": 3}, "the factors of site model.layers.2."),
    ({"model_type": "olmo"}, "the model has no site"),
])
@pytest.mark.parametrize("form", ["peft", "merged"])
def test_export_compares_the_run_with_the_present_model(run, form, change, says, tmp_path):
    file = run.parent / "model/config.json"
    was = file.read_text()
    try:
        file.write_text(json.dumps(json.loads(was) | change))
        refused("export", "--run", run, "--format", form, "--out", tmp_path / "x", says=["model/config.json has changed"])
        same = made_with_the_present_base(run, tmp_path / "run")
        refused("export", "--run", same, "--format", form, "--out", tmp_path / "x", says=["state.safetensors", str(run.parent / "model"), says])
    finally:
        file.write_text(was)
    assert not (tmp_path / "x").exists()


def test_report_compares_runs_and_writes_one_page(run, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    page = tmp_path / "report.html"
    out = succeed("report", run, other, "--html", page).stdout
    assert "fedit" in out and "other" in out and "chance" in out and "majority" in out
    text = page.read_text()
    assert "<script src" not in text and "<link" not in text and '"label":"other"' in text
    rounds = succeed("report", run, "--table", "rounds").stdout.splitlines()
    blocks = "\n".join(rounds).split("\n\n")  # the columns go on below where they are wider than 80 characters
    assert len(blocks) == 2 and all(len(block.splitlines()[-1]) <= 80 for block in blocks)
    assert blocks[0].splitlines()[-1].split()[:2] == blocks[1].splitlines()[-1].split()[:2] == [run.name, "1"]


def test_report_rejects_unreadable_runs(run, tmp_path):
    refused("report", tmp_path, says=["holds no run"])
    refused("report", run, "--table", "planets", says=["allowed: runs, log_likelihood"])
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    with open(damaged / "rounds.jsonl", "a") as file:
        file.write("{broken\n")
    refused("report", damaged, says=["rounds.jsonl, line 2: damaged"])


def test_the_commands_in_results_md_are_valid():
    """Each command prints what it would do. Other tests run such commands completely."""
    commands = [shlex.split(line, comments=True)[1:] for line in (ROOT / "docs/results.md").read_text().splitlines()
                if line.startswith("build/evenkeel ")]
    trainings = [words for words in commands if words[0] == "train"]
    assert len(trainings) >= 6
    for words in trainings:
        succeed(*words, "--print-config")
    known = succeed("--help").stdout
    assert all(words[0] in known for words in commands)


@pytest.mark.parametrize("name", [None, "allenai/OLMoE-1B-7B-0924"])
@pytest.mark.parametrize("form", ["peft", "peft-fused", "merged", "gguf"])
def test_an_export_contains_no_local_path(run, tmp_path, form, name):
    """The run's config and some tokenizers contain paths of this machine."""
    said = ["--base-model", name] if name else []
    saved = run.parent / "model/tokenizer_config.json"
    saved.write_text(json.dumps({"tokenizer_class": "X", "name_or_path": str(run.parent), "tokenizer_file": f"{ROOT}/tokenizer.json"}))
    try:
        same = made_with_the_present_base(run, tmp_path / "run")
        succeed("export", "--run", same, "--format", form, "--out", tmp_path / "export", *said)
    finally:
        saved.unlink()
    for file in (tmp_path / "export").rglob("*"):
        content = file.read_bytes()
        for part in (run.parent, ROOT):
            assert str(part).encode() not in content, file
    header = (tmp_path / "export/README.md").read_text().split("---\n")[1]
    assert (f'base_model: "{name}"\n' in header) if name else ("base_model" not in header)
    if form.startswith("peft"):
        assert json.loads((tmp_path / "export/adapter_config.json").read_text())["base_model_name_or_path"] == name


@pytest.mark.parametrize("name", ["models/a/b", "/tmp/model", "builtin:tiny-olmoe", "a--b", "x.git", ".a"])
def test_an_invalid_name_of_a_base_model_is_rejected(run, name):
    refused("export", "--run", run, "--check", f"--base-model={name}", says=["--base-model", "repository of the hub"])

"""Tests simulated client machines: simulated time, deadlines and lost clients, also when the run is interrupted and resumed.

Also tests reports over simulated time, and profiles that the program measures.
"""

import json
import subprocess
import sys
import tomllib

import pytest

from test_resume import start, wait_for
from tiny import CONFIG, ROOT, evenkeel, lines, one_line, page_data, sealed, settings, succeed, without_seconds

DEVICES = {
    "client_profiles.phone": '{ top_k = [1, 8], tokens_per_second = [300, 80], down_mbit = 20, up_mbit = 4, latency = 0.1, '
                     'dropout = 0.2, speed_factor = { distribution = "log-normal", sigma = 0.4 } }',
    "client_profiles.server": "{ tokens_per_second = [9000] }",
    "clients.profiles": '["phone", "phone", "server", "server", "phone"]',
    "clients.participation": "1.0",
    "clients.deadline": "8",
    "clients.quorum": "2",
    "method.name": "flora",
}


def arguments(model, **changes):
    words = settings(model__path=model, evaluate__limit=1, **changes)
    for key, value in DEVICES.items():
        words += ["--set", f"{key}={value}"]
    return words


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("unequal") / "run"
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model))
    return out


def test_the_virtual_clock_advances_and_losses_have_reasons(run):
    rounds = lines(run / "rounds.jsonl")
    clock, reasons = 0, set()
    for record in rounds:
        simulated = record["simulated"]
        assert simulated["start"] == clock and simulated["took"] == pytest.approx(simulated["end"] - clock)
        clock = simulated["end"]
        for client in record["clients"]:
            time = client["simulated"]
            assert time["end"] - time["start"] == pytest.approx(time["down"] + time["train"] + time["up"])
            if time["device"] == "server":
                assert time["train"] == pytest.approx(client["tokens"] / 9000)
            else:
                assert time["up"] == pytest.approx(0.1 + client["bytes_up"] * 8 / 4e6)
        lost = record.get("lost", [])
        reasons |= {one["reason"] for one in lost}
        assert len(lost) + len(record["clients"]) == 5
        assert record["bytes_down_parts"].get("tasks_of_lost", 0) == sum(one["bytes_down"] for one in lost)
    assert reasons == {"dropped out", "late"}


def test_ranks_and_one_process_lose_the_same_clients(run, tiny_model, tmp_path):
    out = tmp_path / "ranks"
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model), "--ranks", 2)
    assert without_seconds(lines(out / "rounds.jsonl")) == without_seconds(lines(run / "rounds.jsonl"))
    assert (out / "adapter/adapter_model.safetensors").read_bytes() == (run / "adapter/adapter_model.safetensors").read_bytes()


def test_a_killed_run_with_profiles_ends_with_the_same_records(run, tiny_model, tmp_path):
    out = tmp_path / "killed"
    process = start("train", CONFIG, "--out", out, *arguments(tiny_model))
    wait_for(lambda: list(out.glob("checkpoint/uploads-2/*.json")) or process.poll() is not None)
    process.kill()
    process.communicate()
    succeed("train", CONFIG, "--out", out, "--resume")
    assert without_seconds(lines(out / "rounds.jsonl")) == without_seconds(lines(run / "rounds.jsonl"))
    assert (out / "adapter/adapter_model.safetensors").read_bytes() == (run / "adapter/adapter_model.safetensors").read_bytes()


def test_report_plots_simulated_time(run):
    table = succeed("report", run, "--table", "time").stdout
    assert "simulated time" in table and "until a loss or less is reached" in table
    page = run.parent / "page.html"
    succeed("report", run, "--html", page)
    spent = page_data(page.read_text())["runs"][0]["spent"]
    assert spent["simulated_seconds"][-1] == pytest.approx(lines(run / "rounds.jsonl")[-1]["simulated"]["end"], rel=1e-5)


def test_a_measured_profile_round_trips_and_is_compared_with_a_run(tiny_model, tmp_path):
    quick = settings(model__path=tiny_model, data__limit=12, train__rounds=1, method__name="fedit", evaluate__limit=1,
                     evaluate__budgets="[1.0]")
    out = succeed("doctor", "--config", CONFIG, *quick, "--client-profile", tmp_path / "here.toml").stdout
    assert "[client_profiles.here] is in" in out
    profile = tomllib.loads((tmp_path / "here.toml").read_text())["client_profiles"]["here"]
    assert profile["top_k"] == [1, 2, 4, 8] and min(profile["tokens_per_second"]) > 0
    (tmp_path / "timed.toml").write_text(CONFIG.read_text() + (tmp_path / "here.toml").read_text())
    succeed("train", tmp_path / "timed.toml", *quick, "--set", 'clients.profiles={ values = ["here"] }', "--out", tmp_path / "run")
    check = lambda *words: subprocess.run([sys.executable, ROOT / "bench/check_times.py", tmp_path / "run", *words],
                                          capture_output=True, text=True, timeout=600)
    loose = check("--tolerance", "1000", "--together")
    assert loose.returncode == 0 and "round 1 " in loose.stdout and "client " in loose.stdout, loose.stderr
    assert check("--tolerance", "0").returncode == 1


@pytest.mark.parametrize("words, says", [
    (["--client-profile", "a b.toml"], ["--client-profile", "NAME.toml"]),
    (["--client-profile", "nowhere/box.toml"], ["nowhere", "folder"]),
])
def test_an_unwritable_profile_is_rejected_before_measuring(words, says, tmp_path):
    one_line(evenkeel("doctor", "--config", CONFIG, *words, cwd=tmp_path), *says)


def test_a_run_with_an_unreachable_quorum_is_rejected_at_the_start(tiny_model, tmp_path):
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "run", *arguments(tiny_model), "--set", "clients.quorum=5"),
             "clients would not drop out, clients.quorum is 5")
    assert not (tmp_path / "run").exists()

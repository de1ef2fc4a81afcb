"""Tests privacy of single rows: simulated in `train`, and in nodes, where a ledger keeps the account."""

import json
import shutil
import signal

import pytest

from hostile import refused
from test_federation import wait_for, wait_until
from test_node_gives import Federation, config_of
from tiny import CONFIG, lines, settings, succeed, without_seconds

ADAPTER = "adapter/adapter_model.safetensors"
PRIVATE = {"method__name": "fedit", "privacy__unit": "example", "privacy__delta": 1e-4, "privacy__clip": 0.5, "evaluate__limit": 1,
           "evaluate__budgets": "[1.0]"}
NODE = ["--privacy-epsilon", 9, "--privacy-delta", 1e-3, "--privacy-clip", 0.1]
ROWS, LOT = 8, 2  # of site-0: config_of() gives it eight training rows and a batch of two


def trained(model, out, *flags, **more):
    return succeed("train", CONFIG, "--out", out, *settings(model__path=model, **{**PRIVATE, **more}), *flags)


def expect_same_run(out, reference):
    assert (out / ADAPTER).read_bytes() == (reference / ADAPTER).read_bytes()
    assert without_seconds(lines(out / "rounds.jsonl")) == without_seconds(lines(reference / "rounds.jsonl"))


@pytest.fixture(scope="module")
def simulated(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("private") / "run"
    done = trained(tiny_model, out, privacy__noise_multiplier=1.0)
    return out, done


# --- simulated, in train ---

def test_records_have_what_each_client_has_spent(simulated):
    out, done = simulated
    rounds, steps = lines(out / "rounds.jsonl"), {}
    assert len(rounds) == 3 and all(line["loss"] > 0 for line in rounds), "simulated runs tell their losses"
    for line in rounds:
        for client in line["clients"]:
            told, lot = client["privacy"], min(4, client["examples"])
            steps[client["id"]] = steps.get(client["id"], 0) + client["steps"]
            assert told["simulated"] and not told["withheld"] and told["signal"] >= 0
            assert told["sampling"] == pytest.approx(lot / client["examples"]) and told["noise"] == 1 and told["clip"] == 0.5
            plan = json.loads(succeed("privacy", "--json", "--delta", 1e-4, "--noise", 1, "--releases", steps[client["id"]],
                                      "--rows", client["examples"], "--lot", lot).stdout)
            assert told["epsilon"] == pytest.approx(plan["epsilon"], rel=1e-9)
    assert "private for single rows in 3 clients (simulated, protects nobody): epsilon up to" in done.stderr
    assert "mostly noise, expect little learning" in done.stderr


def test_the_noise_of_a_budget_lasts_for_all_rounds(tiny_model, tmp_path):
    trained(tiny_model, tmp_path / "run", privacy__epsilon=4.0, clients__participation=1.0)
    last = lines(tmp_path / "run/rounds.jsonl")[-1]["clients"]
    assert len(last) == 5 and all(client["privacy"]["epsilon"] == pytest.approx(4, abs=1e-3) for client in last)


def test_repeated_rounds_and_ranks_give_the_same_bits(simulated, tiny_model, tmp_path):
    reference, _ = simulated
    shutil.copytree(reference, tmp_path / "again")
    succeed("train", CONFIG, "--out", tmp_path / "again", "--resume", "--from-round", 2)
    expect_same_run(tmp_path / "again", reference)
    trained(tiny_model, tmp_path / "ranks", "--ranks", 2, privacy__noise_multiplier=1.0)
    expect_same_run(tmp_path / "ranks", reference)


@pytest.mark.parametrize("method", ["ub-smoe", "a3smoe", "smoe-llb", "fed-sb"])
def test_methods_that_use_more_than_gradients_are_refused_by_name(tiny_model, method, tmp_path):
    refused("train", CONFIG, "--out", tmp_path / "run", *settings(model__path=tiny_model, **{**PRIVATE, "method__name": method},
                                                                  privacy__noise_multiplier=1.0),
            says=[f"method {method}", "single rows", "fedit", "flora"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("changes, says", [
    ({}, ["privacy.epsilon is 0", "noise_multiplier"]),
    ({"privacy__epsilon": 8.0, "privacy__noise_multiplier": 1.0}, ["privacy.epsilon is 8"]),
    ({"privacy__epsilon": -1.0}, ["privacy.epsilon is -1"]),
    ({"privacy__noise_multiplier": 0.001}, ["privacy.noise_multiplier is 0.001"]),
    ({"privacy__noise_multiplier": 1.0, "privacy__delta": 0.0}, ["privacy.delta is 0"]),
    ({"privacy__noise_multiplier": 1.0, "privacy__delta": 1.0}, ["privacy.delta is 1", "below 1"]),
    ({"privacy__noise_multiplier": 1.0, "privacy__clip": 0.0}, ["privacy.clip is 0"]),
    ({"privacy__noise_multiplier": 1.0, "privacy__lot": -1}, ["privacy.lot is -1"]),
    ({"privacy__noise_multiplier": 1.0, "train__idle_expert_update": '"skip"'}, ["idle_expert_update", "zero_grad"])])
def test_values_that_do_not_go_together_are_refused(changes, says):
    refused("train", CONFIG, "--print-config", *settings(**{**PRIVATE, **changes}), says=["[config]", *says])


# --- in a node ---

def ledger(folder, i=0):
    return folder / f"site-{i}.pem.memory/privacy/privacy.jsonl"


def releases(folder, i=0):
    return [line for line in lines(ledger(folder, i)) if line["kind"] == "release"]


@pytest.fixture(scope="module")
def served(tiny_model, tmp_path_factory):
    """One node is private, the other is not."""
    folder = tmp_path_factory.mktemp("served")
    with Federation(folder, tiny_model) as federation:
        federation.serve(config_of(folder, tiny_model, [12, 12]))
        federation.node(0, *NODE)
        federation.node(1)
        federation.ends()
    return folder


def expect_used_as_charged(told, release, steps):
    """Compares what the steps of a round drew and added with what the ledger charged, and with what that costs."""
    for key in ("noise", "clip", "sampling"):
        assert told[key] == pytest.approx(release[key], rel=1e-12), key
    assert told["clip"] == 0.1 and told["sampling"] == LOT / ROWS
    plan = json.loads(succeed("privacy", "--json", "--delta", 1e-3, "--noise", told["noise"], "--releases", steps,
                              "--rows", ROWS, "--lot", LOT).stdout)
    assert told["epsilon"] == pytest.approx(plan["epsilon"], rel=1e-9)


def test_a_private_node_withholds_its_report_and_keeps_its_account(served):
    rounds, kept, steps = lines(served / "run/rounds.jsonl"), releases(served), 0
    assert len(rounds) == len(kept) == 2
    for line, release in zip(rounds, kept, strict=True):
        private, plain = line["clients"]
        assert "loss" not in private and "first_loss" not in private and private["tokens"] == private["seconds"] == 0
        assert private["privacy"]["withheld"] and not private["privacy"]["simulated"]
        assert private["privacy"]["epsilon"] == pytest.approx(release["epsilon"]) and release["times"] == private["steps"]
        steps += private["steps"]
        expect_used_as_charged(private["privacy"], release, steps)
        assert plain["loss"] > 0 and "privacy" not in plain
        assert line["loss"] == plain["loss"] and "layers" not in line, "of those that tell it"
    assert kept[0]["epsilon"] < kept[1]["epsilon"] <= 9
    assert "private for single rows in 1 clients: epsilon up to" in (served / "serve.log").read_text()
    said = (served / "site-0.log").read_text()
    assert "private for single rows, also towards the server: epsilon up to 9 at delta 0.001" in said
    assert "private steps, epsilon" in said and "times their noise" in said
    key = (ledger(served).parent / "privacy.key").read_bytes()
    assert len(key) == 32 and (ledger(served).parent / "privacy.key").stat().st_mode & 0o777 == 0o600
    for file in (path for path in served.rglob("*") if path.is_file() and path.name != "privacy.key"):
        assert key not in file.read_bytes() and key.hex().encode() not in file.read_bytes(), file


def test_a_node_that_is_killed_gives_the_same_bytes_and_is_charged_once(tiny_model, tmp_path):
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config_of(tmp_path, tiny_model, [12, 12]))
        federation.node(0, *NODE)
        federation.node(1)
        federation.ends()
    adapter, account = (tmp_path / "run" / ADAPTER).read_bytes(), ledger(tmp_path).read_bytes()
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(tmp_path / "run.toml", "--resume", "--from-round", 0)
        node, log = federation.node(0, *NODE)
        federation.node(1)
        wait_until(lambda: "round 1: " in log.read_text().split("joined as")[-1], log)
        node.send_signal(signal.SIGKILL)
        node.wait()
        federation.node(0, *NODE)
        federation.ends()
    assert ledger(tmp_path).read_bytes() == account, "repeated rounds with equal tasks cost nothing"
    assert (tmp_path / "run" / ADAPTER).read_bytes() == adapter


def test_an_edited_ledger_is_refused(served, tiny_model, tmp_path):
    shutil.copytree(served, tmp_path / "copy")
    file = ledger(tmp_path / "copy")
    file.write_text(file.read_text().replace('"times":', '"times":1', 1))
    with Federation(tmp_path / "copy", tiny_model) as federation:
        node, log = federation.node(0, *NODE)
        assert wait_for(node, log) == 1
        assert "evenkeel: [checkpoint]" in log.read_text() and "privacy ledger that was changed is not used" in log.read_text()


def test_a_node_with_an_account_does_not_start_without_privacy(served, tiny_model, tmp_path):
    shutil.copytree(served, tmp_path / "copy")
    with Federation(tmp_path / "copy", tiny_model) as federation:
        node, log = federation.node(0)
        assert wait_for(node, log) == 1
        assert "this node was private for its rows" in log.read_text() and "--privacy-epsilon" in log.read_text()


def test_a_spent_budget_ends_the_nodes_part_and_the_run_goes_on(tiny_model, tmp_path):
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config_of(tmp_path, tiny_model, [12, 12]))
        federation.node(0, "--privacy-epsilon", 3.5, "--privacy-delta", 1e-3, "--privacy-clip", 0.1, "--privacy-noise", 0.9)
        federation.node(1)
        federation.ends()
    rounds = lines(tmp_path / "run/rounds.jsonl")
    assert [client["id"] for client in rounds[0]["clients"]] == [0, 1], (tmp_path / "site-0.log").read_text()
    assert [client["id"] for client in rounds[1]["clients"]] == [1]
    reason = rounds[1]["lost"][0]["reason"]
    assert reason.startswith("site-0: ") and "the privacy budget of this node is spent" in reason and "epsilon" in reason
    assert len(releases(tmp_path)) == 1


@pytest.mark.parametrize("flags, says", [
    (["--privacy-epsilon", 8], "delta is 0"), (["--privacy-clip", 0.1], "epsilon is 0"),
    (["--privacy-epsilon", 8, "--privacy-delta", 1e-5], "--privacy-clip is 0"),
    (["--privacy-epsilon", -8, "--privacy-delta", 1e-5, "--privacy-clip", 0.1], "epsilon is -8"),
    ([*NODE, "--privacy-lot", -1], "--privacy-lot is -1"), ([*NODE, "--privacy-noise", 0.001], "noise multiplier is 0.001"),
    ([*NODE, "--privacy-delta", "small"], "--privacy-delta")])
def test_wrong_flags_are_refused_before_a_server_is_asked(tiny_model, tmp_path, flags, says):
    config_of(tmp_path, tiny_model, [12, 12])
    with Federation(tmp_path, tiny_model) as federation:
        node, log = federation.node(0, *flags)
        assert wait_for(node, log) == 1 and says in log.read_text(), log.read_text()


def test_a_run_that_cannot_be_private_is_not_joined(tiny_model, tmp_path):
    config = config_of(tmp_path, tiny_model, [12, 12])
    config.write_text(config.read_text().replace('"fedit"', '"smoe-llb"'))
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config)
        node, log = federation.node(0, *NODE)
        assert wait_for(node, log) == 1
        assert "method smoe-llb uses a client's rows otherwise than by gradients of single rows" in log.read_text()


def test_a_private_node_takes_every_file_of_rows_once(tiny_model, tmp_path):
    config, copy = config_of(tmp_path, tiny_model, [12, 12]), tmp_path / "copy-of-site-0.jsonl"
    shutil.copy(tmp_path / "site-0.jsonl", copy)
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config)
        node, log = federation.node(0, *NODE, "--data", copy)
        assert wait_for(node, log) == 1
        said = log.read_text()
        assert f"{copy} is a copy of {tmp_path / 'site-0.jsonl'}: its rows would train twice" in said, said
        assert "allowed with --privacy-epsilon: every file once" in said, said
    assert releases(tmp_path) == []


def test_a_server_does_not_take_simulated_privacy(tiny_model, tmp_path):
    config = config_of(tmp_path, tiny_model, [12, 12])
    config.write_text(config.read_text().replace("[train]", "[privacy]\nunit = \"example\"\nepsilon = 8.0\ndelta = 1e-5\nclip = 0.1\n[train]"))
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config)
        assert wait_for(federation.server, federation.log) == 1
        assert "[privacy] is simulated and protects no node" in federation.log.read_text()

"""Privacy of clients in a federation: the server adds the noise, keeps the account, and neither its records nor its logs tell
anything of rows.
"""

import shutil

import pytest

from hostile import refused
from test_client_privacy import ADAPTER, expect_nothing_withheld_in, planned, releases
from test_federation import node_arguments
from test_node_gives import Federation, config_of
from tiny import lines


def private_config(folder, model, **privacy):
    keys = {"unit": '"client"', "delta": 1e-3, "clip": 0.5, "noise_multiplier": 2.0, **privacy}
    section = "[privacy]\n" + "\n".join(f"{key} = {value}" for key, value in keys.items())
    return config_of(folder, model, [None, None], more=section, files=", held_out = 0")


class WithoutTests(Federation):
    """Nodes that bring no test rows."""

    def node(self, i, *more):
        log = self.folder / f"site-{i}.log"
        rows = ["--data", self.folder / f"site-{i}.jsonl"]
        return self.start(*node_arguments(self.keys[i], self.model, self.address, *rows, *more, least=None), log=log), log


@pytest.fixture(scope="module")
def served(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with WithoutTests(folder, tiny_model) as federation:
        federation.serve(private_config(folder, tiny_model))
        federation.node(0)
        federation.node(1)
        federation.ends()
    return folder


def test_a_server_adds_the_noise_and_its_logs_say_nothing_of_rows(served):
    out = served / "run"
    rounds = lines(out / "rounds.jsonl")
    assert len(rounds) == len(releases(out)) == 2
    expect_nothing_withheld_in(rounds)
    assert rounds[1]["privacy"]["epsilon"] == pytest.approx(planned(noise=2, releases=2)["epsilon"], rel=1e-9)
    for event in lines(out / "federation/audit.jsonl"):
        assert "moved" not in event, event
    assert not any(line.get("client") is not None for line in lines(out / "evaluations.jsonl")), "no scores of nodes"
    key = (out / "privacy/privacy.key").read_bytes()
    for file in (path for path in served.rglob("*") if path.is_file() and path.name != "privacy.key"):
        assert key not in file.read_bytes(), file


def test_a_server_goes_back_without_a_new_charge(served, tiny_model, tmp_path):
    shutil.copytree(served, tmp_path / "copy")
    folder = tmp_path / "copy"
    account, adapter = (folder / "run/privacy/privacy.jsonl").read_bytes(), (folder / "run" / ADAPTER).read_bytes()
    with WithoutTests(folder, tiny_model) as federation:
        federation.serve(folder / "run.toml", "--resume", "--from-round", 1)
        federation.node(0)
        federation.node(1)
        federation.ends()
    assert (folder / "run/privacy/privacy.jsonl").read_bytes() == account and (folder / "run" / ADAPTER).read_bytes() == adapter


def test_a_client_lost_in_a_repeated_round_gives_other_noise_and_a_second_charge(served, tiny_model, tmp_path):
    shutil.copytree(served, tmp_path / "copy")
    folder = tmp_path / "copy"
    with WithoutTests(folder, tiny_model) as federation:
        federation.serve(folder / "run.toml", "--resume", "--from-round", 1, "--set", "clients.deadline=1", "--patience", 1)
        federation.node(0)
        federation.ends()
    first, last = releases(served / "run")[-1], releases(folder / "run")[-1]
    assert len(releases(folder / "run")) == 3 and first["round"] == last["round"] == 2 and first["digest"] != last["digest"]
    told = lines(folder / "run/rounds.jsonl")[-1]
    assert told["participants"] == 1 and told["privacy"]["divisor"] == 2, "a lost client adds zero"
    assert told["privacy"]["epsilon"] == pytest.approx(planned(noise=2, releases=3)["epsilon"], rel=1e-9), "both count"


@pytest.mark.parametrize("privacy, says", [
    ({"sampling": '"poisson"'}, "privacy.sampling"), ({"noise": '"seeded"'}, "privacy.noise"),
    ({"sampling": '"poisson"', "noise_cohort": 2}, "privacy.sampling")])
def test_a_server_refuses_what_is_simulated(tiny_model, tmp_path, privacy, says):
    refused("serve", private_config(tmp_path, tiny_model, **privacy), "--out", tmp_path / "run", "--listen", "127.0.0.1:0", "--open",
            "--insecure", says=["[config]", says, "nodes"])

"""Tests privacy of clients ([privacy] unit = "client") in `train` and `serve`: what a run releases, its account, its budget,
kills and resumes, ranks, and what is refused before a run begins.
"""

import json
import re
import shutil
import signal
import subprocess
import time

import pytest

from hostile import content, refused
from tiny import CONFIG, PROGRAM, lines, settings, succeed, without_seconds

ADAPTER = "adapter/adapter_model.safetensors"
PRIVATE = {"method__name": "fedit", "privacy__unit": "client", "privacy__delta": 1e-3, "privacy__clip": 0.5,
           "privacy__noise_multiplier": 2.0, "clients__participation": 1.0, "evaluate__limit": 1, "evaluate__budgets": "[1.0]"}
SEEDED = {**PRIVATE, "privacy__noise": '"seeded"'}
SUMS = {"secure_aggregation__mode": '"sums"', "secure_aggregation__reports": "false"}
# All that the records of a private round may hold: the config's, sizes of messages, the server's own times, the noisy sum.
OF_ROUND = {"round", "method", "gate_norm", "gates_sum_to_one", "participants", "bytes_up", "bytes_down", "bytes_up_parts",
            "bytes_down_parts", "diagnostics", "clients", "seconds", "privacy", "secure_aggregation", "checksum"}
OF_CLIENT = {"id", "budget", "top_k", "rank", "weight", "bytes_up", "bytes_down", "bytes_up_parts", "bytes_down_parts", "seconds"}
OF_PRIVACY = {"unit", "relation", "sampling", "probability", "noise", "clip", "divisor", "values", "epsilon", "order", "delta", "budget",
              "epsilon_pld", "signal", "signal_bound", "share_within", "simulated", "simulated_cohort", "honest", "ended_by"}


def words(model, out, *flags, keys=PRIVATE, **more):
    return ["train", CONFIG, "--out", out, *settings(model__path=model, **{**keys, **more}), *flags]


def train(*arguments, **more):
    return succeed(*words(*arguments, **more))


def releases(out):
    return [line for line in lines(out / "privacy/privacy.jsonl") if line["kind"] == "release"]


def planned(**flags):
    given = [word for flag, value in flags.items() for word in (f"--{flag}", value)]
    return json.loads(succeed("privacy", "--json", "--delta", 1e-3, *given).stdout)


def expect_same_run(out, reference):
    assert (out / ADAPTER).read_bytes() == (reference / ADAPTER).read_bytes()
    assert without_seconds(lines(out / "rounds.jsonl")) == without_seconds(lines(reference / "rounds.jsonl"))


def expect_nothing_withheld_in(rounds):
    for line in rounds:
        assert set(line) <= OF_ROUND and set(line["privacy"]) <= OF_PRIVACY, line
        assert line["seconds"]["train"] == line["seconds"]["steps"] == line["seconds"]["tokens_per_second"] == 0
        for client in line["clients"]:
            assert set(client) <= OF_CLIENT | {"name"} and client["seconds"] == 0, client


@pytest.fixture(scope="module")
def secret(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("secret") / "run"
    return out, train(tiny_model, out)


@pytest.fixture(scope="module")
def seeded(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("seeded") / "run"
    train(tiny_model, out, keys=SEEDED)
    return out


def test_records_have_the_account_and_nothing_of_rows(secret):
    out, done = secret
    rounds = lines(out / "rounds.jsonl")
    assert len(rounds) == 3
    expect_nothing_withheld_in(rounds)
    for i, line in enumerate(rounds):
        told = line["privacy"]
        plan = planned(noise=2, releases=i + 1)
        assert told["epsilon"] == pytest.approx(plan["epsilon"], rel=1e-9)
        assert told["epsilon_pld"] == pytest.approx(plan["epsilon_loss_distribution"], rel=1e-9) and told["epsilon_pld"] < told["epsilon"]
        assert "honest" not in told and "secure_aggregation" not in line
        assert told["divisor"] == 5 and told["relation"] == "zero-out" and told["sampling"] == "all" and not told["simulated"]
        assert told["signal_bound"] == pytest.approx(5 / (2 * told["values"] ** 0.5), rel=1e-6)
    assert rounds[0]["privacy"]["signal"] < 0.5 and rounds[0]["privacy"]["signal_bound"] < 0.1
    assert done.stderr.count("times the largest possible change: expect no learning") == 1
    assert "private for clients: epsilon" in done.stderr and "mostly noise, expect little learning" in done.stderr
    assert "protects all rows of a client against everybody who sees broadcasts, adapters and records" in done.stderr
    assert "tokens" not in done.stderr and " rows, rounds" not in done.stderr, "these depend on rows"
    for file in (out / "checkpoint").rglob("*.json"):
        held = json.loads(file.read_text())
        assert not any(held.get(key) for key in ("tokens", "targets", "loss_sum", "first_loss", "counts", "metrics", "seconds")), file


def test_the_page_shows_what_was_spent_and_the_signal_beside_the_noise(secret):
    out, _ = secret
    data = json.loads(re.search(r'id="data">(.*?)</script>', (out / "report.html").read_text(), re.S)[1])
    shown = {one["name"]: one["curves"][0]["mean"] for one in data["training"]}
    for name in ("epsilon", "signal"):
        assert shown[name] == pytest.approx([line["privacy"][name] for line in lines(out / "rounds.jsonl")], rel=1e-5)
    assert "loss" not in shown


def test_the_key_is_secret_and_in_no_other_file(secret):
    out, _ = secret
    file = out / "privacy/privacy.key"
    key = file.read_bytes()
    assert len(key) == 32 and file.stat().st_mode & 0o777 == 0o600
    for other in (path for path in out.rglob("*") if path.is_file() and path != file):
        assert key not in other.read_bytes() and key.hex().encode() not in other.read_bytes(), other


def test_two_runs_have_different_noise_and_the_seed_does_not_give_it(secret, seeded):
    out, _ = secret
    assert (out / ADAPTER).read_bytes() != (seeded / ADAPTER).read_bytes()
    assert all(line["privacy"]["simulated"] for line in lines(seeded / "rounds.jsonl"))


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_give_the_same_bits(seeded, tiny_model, tmp_path, ranks):
    train(tiny_model, tmp_path / "run", "--ranks", ranks, keys=SEEDED)
    expect_same_run(tmp_path / "run", seeded)
    assert [line["digest"] for line in releases(tmp_path / "run")] == [line["digest"] for line in releases(seeded)]


def test_a_repeated_round_has_the_same_bits_and_costs_nothing(secret, tmp_path):
    reference, _ = secret
    shutil.copytree(reference, tmp_path / "run")
    succeed("train", CONFIG, "--out", tmp_path / "run", "--resume", "--from-round", 2)
    expect_same_run(tmp_path / "run", reference)
    assert (tmp_path / "run/privacy/privacy.jsonl").read_bytes() == (reference / "privacy/privacy.jsonl").read_bytes()


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_run_killed_after_a_line_of_its_account_ends_with_the_same_bits(seeded, tiny_model, tmp_path, kept):
    out = tmp_path / "run"
    account = out / "privacy/privacy.jsonl"
    process = subprocess.Popen([PROGRAM, *map(str, words(tiny_model, out, keys=SEEDED))], stderr=subprocess.DEVNULL)
    while process.poll() is None and (not account.exists() or account.read_text().count("\n") < kept):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    succeed("train", CONFIG, "--out", out, "--resume")
    expect_same_run(out, seeded)
    assert [line["digest"] for line in releases(out)] == [line["digest"] for line in releases(seeded)]


@pytest.mark.parametrize("damage, says", [
    (lambda folder: shutil.rmtree(folder), ["is missing", "3 rounds", "lora.init"]),
    (lambda folder: (folder / "privacy.key").unlink(), ["privacy.key is missing"]),
    (lambda folder: (folder / "privacy.jsonl").write_text((folder / "privacy.jsonl").read_text().replace('"times":1', '"times":0')),
     ["was changed"]),
    (lambda folder: (folder / "privacy.jsonl").write_text("".join((folder / "privacy.jsonl").read_text().splitlines(True)[:-1])),
     ["was changed"])])
def test_a_damaged_account_is_refused(secret, tmp_path, damage, says):
    shutil.copytree(secret[0], tmp_path / "run")
    damage(tmp_path / "run/privacy")
    refused("train", CONFIG, "--out", tmp_path / "run", "--resume", "--set", "train.rounds=4", says=["[checkpoint]", *says])


@pytest.mark.parametrize("damage", [shutil.rmtree, lambda folder: (folder / "privacy.key").unlink()], ids=["no account", "no key"])
def test_nothing_is_removed_from_a_run_whose_account_is_damaged(secret, tmp_path, damage):
    out = tmp_path / "run"
    shutil.copytree(secret[0], out)
    damage(out / "privacy")

    def kept():
        return {path: found for path, found in content(out).items() if path.name != ".lock"}

    before = kept()
    refused("train", CONFIG, "--out", out, "--resume", "--from-round", 2, "--set", "train.rounds=4", says=["[checkpoint]", "is missing"])
    assert kept() == before


def test_an_account_that_is_older_than_the_run_is_refused(secret, tmp_path):
    """All its files are from before the last round, so that they agree with each other."""
    out = tmp_path / "run"
    shutil.copytree(secret[0], out)
    shutil.copytree(out / "privacy", tmp_path / "earlier")
    succeed("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=4")
    shutil.rmtree(out / "privacy")
    shutil.copytree(tmp_path / "earlier", out / "privacy")
    refused("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=5",
            says=["[checkpoint]", "no release of round 4", "older than the run"])


def test_an_account_of_another_run_is_refused(secret, tiny_model, tmp_path):
    train(tiny_model, tmp_path / "other", name="other", train__rounds=1)
    shutil.copytree(secret[0], tmp_path / "run")
    shutil.rmtree(tmp_path / "run/privacy")
    shutil.copytree(tmp_path / "other/privacy", tmp_path / "run/privacy")
    refused("train", CONFIG, "--out", tmp_path / "run", "--resume", "--set", "train.rounds=4", says=["[checkpoint]", "no account of run tiny"])
    (tmp_path / "run/privacy/privacy.key").write_bytes((secret[0] / "privacy/privacy.key").read_bytes())
    refused("train", CONFIG, "--out", tmp_path / "run", "--resume", "--set", "train.rounds=4", says=["[checkpoint]", "is not the key"])


def test_a_budget_ends_the_run_with_its_evaluation_and_is_audited(tiny_model, tmp_path):
    budget = planned(noise=2, releases=2)["epsilon"] + 0.01
    out = tmp_path / "run"
    done = train(tiny_model, out, train__rounds=5, privacy__epsilon=budget)
    rounds = lines(out / "rounds.jsonl")
    assert [line["round"] for line in rounds] == [1, 2] and len(releases(out)) == 2
    assert "ended_by" not in rounds[0]["privacy"] and rounds[1]["privacy"]["ended_by"] == "privacy budget"
    assert [line["round"] for line in lines(out / "evaluations.jsonl")] and lines(out / "evaluations.jsonl")[-1]["round"] == 2
    assert "the privacy budget ends the run after 2 of 5 rounds" in done.stderr
    assert "2/2" in (status := succeed("status", out).stdout) or "done" in status or "complete" in status, status
    audit = json.loads(succeed("privacy", "--run", out, "--json").stdout)
    assert audit["epsilon"] == pytest.approx(budget - 0.01) and audit["budget"] == budget
    assert audit["rounds"] == audit["releases"] == 2 and audit["rounds_left"] == 0 and audit["runs"] == ["tiny"]
    said = succeed("privacy", "--run", out).stdout
    assert "whole" in said and "0 more rounds like the last" in said
    again = succeed("train", CONFIG, "--out", out, "--resume")
    assert "ends the run after 2 of 5 rounds" in again.stderr and len(releases(out)) == 2
    table = succeed("report", out, "--table", "privacy").stdout
    assert "privacy budget" in table and "clients" in table and "by loss" in table
    assert f"{rounds[1]['privacy']['epsilon_pld']:.4f}" in table
    succeed("report", out, "--html", tmp_path / "report.html")


def test_a_budget_sets_the_least_noise_for_all_rounds(tiny_model, tmp_path):
    train(tiny_model, tmp_path / "run", privacy__noise_multiplier=0, privacy__epsilon=3.0)
    rounds = lines(tmp_path / "run/rounds.jsonl")
    assert len(rounds) == 3 and rounds[-1]["privacy"]["epsilon"] == pytest.approx(3, abs=1e-3)
    assert rounds[0]["privacy"]["noise"] == pytest.approx(planned(epsilon=3, releases=3)["noise"], rel=1e-6)
    assert "ended_by" not in rounds[-1]["privacy"]


def test_with_a_fixed_number_the_account_is_that_of_the_client_who_came_most_often(tiny_model, tmp_path):
    train(tiny_model, tmp_path / "run", privacy__sampling='"fixed"', clients__participation=0.4, train__rounds=4)
    rounds, counts = lines(tmp_path / "run/rounds.jsonl"), {}
    for line, release in zip(rounds, releases(tmp_path / "run"), strict=True):
        drawn = [client["id"] for client in line["clients"]]
        assert release["members"] == drawn and line["privacy"]["divisor"] == 2
        for client in drawn:
            counts[client] = counts.get(client, 0) + 1
        assert line["privacy"]["epsilon"] == pytest.approx(planned(noise=2, releases=max(counts.values()))["epsilon"], rel=1e-9)


def test_poisson_rounds_may_be_empty_and_their_number_is_expected_not_counted(tiny_model, tmp_path):
    out = tmp_path / "run"
    train(tiny_model, out, privacy__sampling='"poisson"', clients__participation=0.2, train__rounds=6)
    rounds = lines(out / "rounds.jsonl")
    sizes = [line["participants"] for line in rounds]
    assert len(set(sizes)) > 1 and 0 in sizes, f"{sizes}: another seed is needed"
    for i, line in enumerate(rounds):
        told = line["privacy"]
        assert told["divisor"] == pytest.approx(1) and told["simulated"] and told["relation"] == "add-or-remove"
        plan = planned(noise=2, releases=i + 1, sampling=0.2)
        assert told["epsilon"] == pytest.approx(plan["epsilon"], rel=1e-9)
        assert told["epsilon_pld"] == pytest.approx(plan["epsilon_loss_distribution"], rel=1e-9)
    train(tiny_model, tmp_path / "ranks", "--ranks", 2, keys=SEEDED, privacy__sampling='"poisson"', clients__participation=0.2,
          train__rounds=6)


def test_a_simulated_cohort_has_its_noise_and_no_guarantee(tiny_model, tmp_path):
    train(tiny_model, tmp_path / "run", privacy__sampling='"poisson"', clients__participation=0.4, privacy__noise_cohort=4)
    for i, line in enumerate(lines(tmp_path / "run/rounds.jsonl")):
        told = line["privacy"]
        assert told["simulated"] and told["simulated_cohort"] == 4 and told["probability"] == 0.8 and told["divisor"] == 2
        assert told["epsilon"] == pytest.approx(planned(noise=2, releases=i + 1, sampling=0.8)["epsilon"], rel=1e-9)
        assert told["signal_bound"] == pytest.approx(2 / (2 * 0.5 * told["values"] ** 0.5), rel=1e-6)
    assert "(" in succeed("report", tmp_path / "run", "--table", "privacy").stdout.splitlines()[-1]


# The noise multiplier of changes which together with indicators of noise 1 costs as much as noise multiplier 0.5 alone.
BESIDE_INDICATORS = (0.5 ** -2 - (2 * 1.0) ** -2) ** -0.5


def test_the_clip_bound_adapts_by_a_noisy_share(tiny_model, tmp_path):
    train(tiny_model, tmp_path / "run", keys=SEEDED, privacy__noise_multiplier=0.5, privacy__adapt__target=0.5,
          privacy__adapt__indicator_noise=1.0)
    told = [line["privacy"] for line in lines(tmp_path / "run/rounds.jsonl")]
    assert told[0]["clip"] == 0.5
    for line in told:
        assert line["signal_bound"] == pytest.approx(5 / (BESIDE_INDICATORS * line["values"] ** 0.5), rel=1e-6)
    for now, following in zip(told, told[1:], strict=False):
        assert following["clip"] == pytest.approx(now["clip"] * 2.718281828459045 ** (-0.2 * (now["share_within"] - 0.5)))
    train(tiny_model, tmp_path / "ranks", "--ranks", 2, keys=SEEDED, privacy__noise_multiplier=0.5, privacy__adapt__target=0.5,
          privacy__adapt__indicator_noise=1.0)
    expect_same_run(tmp_path / "ranks", tmp_path / "run")


@pytest.mark.parametrize("method, options", [
    ("ffa-lora", {}), ("smoe-llb", {}), ("ub-smoe", {"method__ub-smoe__pg": "false", "method__ub-smoe__phi_update": '"off"'})])
def test_other_methods_that_need_a_sum_of_changes_alone(tiny_model, tmp_path, method, options):
    train(tiny_model, tmp_path / "run", method__name=method, train__rounds=1, **options)
    rounds = lines(tmp_path / "run/rounds.jsonl")
    expect_nothing_withheld_in(rounds)
    assert not any("utilization" in name for name in rounds[0]["diagnostics"]), "it depends on rows"


def test_numbers_of_rows_are_in_records_only_where_they_may_be_known(tiny_model, tmp_path):
    train(tiny_model, tmp_path / "run", privacy__public_sizes="true", privacy__weights='"examples"', privacy__weight_cap=10)
    for line in lines(tmp_path / "run/rounds.jsonl"):
        weights = [min(client["examples"], 10) / 10 for client in line["clients"]]
        assert line["privacy"]["divisor"] == pytest.approx(sum(weights)) and all(client["steps"] > 0 for client in line["clients"])
        assert "tokens" not in line and "loss" not in line


def test_an_account_goes_on_in_another_run(secret, tiny_model, tmp_path):
    train(tiny_model, tmp_path / "run", privacy__continues=f'"{secret[0]}"', lora__init=f'"{secret[0] / "adapter"}"')
    last = lines(tmp_path / "run/rounds.jsonl")[-1]["privacy"]
    assert last["epsilon"] == pytest.approx(planned(noise=2, releases=6)["epsilon"], rel=1e-9)
    done = train(tiny_model, tmp_path / "apart", lora__init=f'"{secret[0] / "adapter"}"', train__rounds=1)
    assert "privacy.continues names a run folder whose account goes on" in done.stderr


@pytest.mark.parametrize("method, says", [
    ("flora", "sends the factors of each client to all others"), ("florist", "stacks"), ("hetlora", "norms"), ("flexlora", "multiplies"),
    ("fedex-lora", "multiplies"), ("fed-sb", "sums of gradients"), ("a3smoe", "weights of experts"), ("ub-smoe", "ub-smoe.pg")])
def test_methods_that_release_more_are_refused_by_name(tiny_model, tmp_path, method, says):
    refused(*words(tiny_model, tmp_path / "run", method__name=method), says=["[config]", "privacy", method, says])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("changes, says", [
    ({"privacy__noise_multiplier": 0}, ["privacy.epsilon is 0"]),
    ({"privacy__delta": 0.0}, ["privacy.delta is 0"]),
    ({"privacy__clip": 0.0}, ["privacy.clip is 0"]),
    ({"privacy__lot": 4}, ["privacy.lot is 4", "unit is client"]),
    ({"clients__participation": 0.6}, ["privacy.sampling", "fixed or poisson", "participation is 0.6"]),
    ({"privacy__sampling": '"poisson"', "clients__quorum": 2}, ["privacy.sampling", "quorum is 2"]),
    ({"privacy__weights": '"examples"'}, ["privacy.weights", "public_sizes"]),
    ({"privacy__weight_cap": 5}, ["privacy.weight_cap is 5"]),
    ({"privacy__noise_cohort": 5}, ["privacy.noise_cohort is 5", "poisson"]),
    ({"privacy__noise_cohort": 9, "privacy__sampling": '"poisson"'}, ["privacy.noise_cohort is 9", "to 5"]),
    ({"clients__update_ratio": 3.0}, ["privacy.unit", "update_ratio"]),
    ({**SUMS, "privacy__noise_multiplier": 0, "privacy__epsilon": 8.0}, ["privacy.noise_multiplier is 0", "evenkeel privacy computes it"]),
    ({**SUMS, "secure_aggregation__reports": "true"}, ["secure_aggregation.reports", "false, with privacy.unit client"]),
    ({**SUMS, "privacy__noise": '"seeded"'}, ["privacy.noise", "clients add the noise"]),
    ({**SUMS, "privacy__sampling": '"poisson"'}, ["privacy.sampling", "know each other"]),
    ({**SUMS, "secure_aggregation__range": 0.5}, ["secure_aggregation.range"]),
    ({**SUMS, "secure_aggregation__weights": '"uniform"', "privacy__weights": '"examples"', "privacy__weight_cap": 5,
      "privacy__public_sizes": "true"}, ["privacy.weights", "secure_aggregation.weights"]),
    ({**SUMS, "secure_aggregation__threshold": 2}, ["threshold is 2"]),
    ({**SUMS, "secure_aggregation__threshold": 6}, ["threshold is 6", "3 .. 5"]),
    ({**SUMS, "secure_aggregation__colluders": 5}, ["colluders is 5", "0 to 4"]),
    ({"secure_aggregation__colluders": 1}, ["colluders is 1", "privacy.unit client"]),
    ({**SUMS, "clients__participation": 0.4, "privacy__sampling": '"fixed"'}, ["secure_aggregation.mode", "2 clients drawn"]),
    ({"aggregation__rule": '"median"'}, ["privacy.unit", "aggregation.rule"]),
    ({"clients__update_norm": 3.0}, ["privacy.unit", "update_norm"]),
    ({"evaluate__per_client": "true"}, ["evaluate.per_client"])])
def test_values_that_do_not_go_together_are_refused(changes, says):
    refused("train", CONFIG, "--print-config", *settings(**{**PRIVATE, **changes}), says=["[config]", *says])


@pytest.mark.parametrize("changes, says", [
    ({"privacy__epsilon": 0.05}, ["privacy.epsilon is 0.05", "does not allow one round"]),
    ({"privacy__continues": '"/nowhere"'}, ["privacy.continues is /nowhere", "privacy.jsonl"]),
    ({"privacy__adapt__target": 0.5}, ["noise"])])
def test_a_run_without_a_first_round_is_refused_before_training(tiny_model, tmp_path, changes, says):
    done = refused(*words(tiny_model, tmp_path / "run", **changes), says=["[config]", *says])
    assert not (tmp_path / "run/rounds.jsonl").exists(), done


def test_doctor_says_who_is_protected_against_whom(tiny_model):
    def said(**keys):
        return succeed("doctor", "--config", CONFIG, *settings(model__path=tiny_model, **keys)).stdout
    own = said(**PRIVATE)
    assert "protects all rows of a client against everybody who sees broadcasts, adapters and records" in own
    assert "not against the server, which reads every upload" in own and "times of messages" in own
    assert "simulated, protects nobody (the noise follows from the seed)" in said(**SEEDED)
    assert "none: the server reads every upload" in said()


# --- noise of the clients, behind secure aggregation ---

@pytest.fixture(scope="module")
def summed(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("summed") / "run"
    train(tiny_model, out, **SUMS)
    return out


@pytest.mark.parametrize("more", [["masks"], ["masks", "--ranks", 2]])
def test_noise_of_the_clients_has_the_same_bits_with_masks_and_on_ranks(summed, tiny_model, tmp_path, more):
    mode, *flags = more
    train(tiny_model, tmp_path / "run", *flags, **{**SUMS, "secure_aggregation__mode": f'"{mode}"'})
    assert (tmp_path / "run" / ADAPTER).read_bytes() == (summed / ADAPTER).read_bytes()
    ours, theirs = lines(tmp_path / "run/rounds.jsonl"), lines(summed / "rounds.jsonl")
    assert [line["privacy"] for line in ours] == [line["privacy"] for line in theirs]
    expect_nothing_withheld_in(ours)
    for line in ours:
        assert line["secure_aggregation"]["mode"] == mode and line["secure_aggregation"]["beyond_range"] == 0


def test_noise_of_the_clients_is_that_of_the_budget_and_simulated_in_train(summed):
    for i, line in enumerate(lines(summed / "rounds.jsonl")):
        told = line["privacy"]
        assert told["epsilon"] == pytest.approx(planned(noise=2, releases=i + 1)["epsilon"], rel=1e-9)
        assert told["simulated"] and told["honest"] == 3, "more than half of 5 clients"
        assert told["divisor"] == 5
        # Five clients add the noise of which three are enough.
        assert told["signal_bound"] == pytest.approx(5 / (2 * (5 / 3 * told["values"]) ** 0.5), rel=1e-6)


def test_clients_that_may_work_with_the_server_leave_more_noise_to_the_others(tiny_model, tmp_path):
    train(tiny_model, tmp_path / "run", train__rounds=1, **SUMS, secure_aggregation__threshold=4, secure_aggregation__colluders=2)
    told = lines(tmp_path / "run/rounds.jsonl")[0]["privacy"]
    assert told["honest"] == 2 and told["signal_bound"] == pytest.approx(5 / (2 * (5 / 2 * told["values"]) ** 0.5), rel=1e-6)


def test_a_clip_bound_adapts_by_indicators_with_noise_of_the_clients(tiny_model, tmp_path):
    keys = {"privacy__noise_multiplier": 0.5, "privacy__adapt__target": 0.5, "privacy__adapt__indicator_noise": 1.0}
    for mode in ("sums", "masks"):
        train(tiny_model, tmp_path / mode, **{**SUMS, "secure_aggregation__mode": f'"{mode}"'}, **keys)
    assert (tmp_path / "sums" / ADAPTER).read_bytes() == (tmp_path / "masks" / ADAPTER).read_bytes()
    told = [line["privacy"] for line in lines(tmp_path / "sums/rounds.jsonl")]
    assert told[0]["clip"] == 0.5 and all(line["share_within"] * 10 != round(line["share_within"] * 10) for line in told), "with noise"
    for line in told:
        noise = BESIDE_INDICATORS * (5 / 3 * line["values"]) ** 0.5  # five clients add that of which three are enough
        assert line["signal_bound"] == pytest.approx(5 / noise, rel=1e-6)
    for now, following in zip(told, told[1:], strict=False):
        assert following["clip"] == pytest.approx(now["clip"] * 2.718281828459045 ** (-0.2 * (now["share_within"] - 0.5)))
        assert following["epsilon"] == pytest.approx(planned(noise=0.5, releases=2)["epsilon"], rel=1e-9) or following is told[2]


def test_a_repeated_round_with_noise_of_the_clients_costs_nothing(summed, tmp_path):
    shutil.copytree(summed, tmp_path / "run")
    succeed("train", CONFIG, "--out", tmp_path / "run", "--resume", "--from-round", 2)
    expect_same_run(tmp_path / "run", summed)
    assert (tmp_path / "run/privacy/privacy.jsonl").read_bytes() == (summed / "privacy/privacy.jsonl").read_bytes()


@pytest.mark.parametrize("keys, says", [
    ({"secure_aggregation__bits": 16}, ["secure_aggregation.bits is 16", "choose more bits"]),
    ({"privacy__noise_multiplier": 0.01, "privacy__delta": 1e-9}, None),
    ({"privacy__noise_multiplier": 900.0}, None)])
def test_sums_that_do_not_fit_are_refused_before_training(tiny_model, tmp_path, keys, says):
    arguments = words(tiny_model, tmp_path / "run", train__rounds=1, **SUMS, **keys)
    if says is None:
        succeed(*arguments)
    else:
        done = refused(*arguments, says=["[config]", *says])
        assert not (tmp_path / "run/rounds.jsonl").exists() and not releases(tmp_path / "run"), done


def test_doctor_says_that_no_server_is_trusted(tiny_model):
    def said(**keys):
        return succeed("doctor", "--config", CONFIG, *settings(model__path=tiny_model, **{**PRIVATE, **SUMS, **keys})).stdout
    masks = said(secure_aggregation__mode='"masks"')
    assert "against everybody, the server included" in masks and "no server is trusted" in masks
    assert "where no client works together with the server" in masks and "in train both are simulated" in masks
    assert "where up to 1 clients work together" in said(secure_aggregation__mode='"masks"', secure_aggregation__colluders=1)
    assert "simulated, protects nobody (sums are not masked" in said()

"""Tests runs whose server gets sums of uploads alone: masks and ranks do not change the bits, clients may be lost, records
hold no client's own measures, and what needs single uploads is refused before a run begins.
"""

import json
import random
import re
import signal
import subprocess
import time

import numpy
import pytest
from safetensors.numpy import load_file

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, lines, one_line, settings, slow, succeed, without_seconds

ADAPTER = "adapter/adapter_model.safetensors"
OWN_MEASURES = {"tokens", "targets", "loss", "first_loss", "last_loss", "experts_per_token", "flops", "metrics"}
# The fields of a client in the record of a round whose uploads are hidden: the config's, and what the server itself sees.
OPEN = {"id", "name", "node", "budget", "top_k", "rank", "examples", "weight", "steps", "bytes_up", "bytes_down", "bytes_up_parts",
        "bytes_down_parts", "seconds", "simulated"}
BOX = "{ tokens_per_second = [4000], down_mbit = 100, up_mbit = 50, dropout = 0.15 }"


def train(model, out, mode, *flags, method="fedit", resume=False, **more):
    hidden = {} if mode == "off" else {"secure_aggregation__mode": mode}
    words = [] if resume else settings(model__path=model, method__name=method, clients__participation=0.8, evaluate__limit=1,
                                       **hidden, **more)
    return ["train", CONFIG, "--out", out, *(["--resume"] if resume else []), *words, *flags]


@pytest.fixture(scope="module")
def runs(tiny_model, tmp_path_factory):
    """Returns (mode, method, keys) -> run folder, which is made on first use."""
    made = {}

    def run(mode, method="fedit", **more):
        key = (mode, method, *sorted(more.items()))
        if key not in made:
            made[key] = tmp_path_factory.mktemp("secure") / mode
            succeed(*train(tiny_model, made[key], mode, method=method, **more))
        return made[key]
    return run


def rounds(out):
    """Returns the records of the rounds without wall times and without what says how uploads were hidden."""
    records = without_seconds(lines(out / "rounds.jsonl"))
    for record in records:
        record.pop("secure_aggregation", None)
    return records


def expect_same_run(out, reference):
    assert (out / ADAPTER).read_bytes() == (reference / ADAPTER).read_bytes()
    assert rounds(out) == rounds(reference)
    assert without_seconds(lines(out / "evaluations.jsonl")) == without_seconds(lines(reference / "evaluations.jsonl"))


METHODS = ["fedit", "ub-smoe", "a3smoe", *(pytest.param(name, marks=slow) for name in ("ffa-lora", "smoe-llb"))]


@pytest.mark.parametrize("method", METHODS)
def test_masks_give_the_bits_of_sums(runs, method):
    expect_same_run(runs("masks", method), runs("sums", method))


@pytest.mark.parametrize("bits", [16, pytest.param(64, marks=slow)])
def test_masks_give_the_bits_of_sums_in_other_rings(runs, bits):
    expect_same_run(runs("masks", secure_aggregation__bits=bits), runs("sums", secure_aggregation__bits=bits))


def distance(out, reference):
    """Returns the largest difference between two adapters, and the largest change of one from zero."""
    ours, theirs = load_file(out / ADAPTER), load_file(reference / ADAPTER)
    assert ours.keys() == theirs.keys()
    return (max(float(numpy.abs(ours[name] - theirs[name]).max()) for name in ours),
            max(float(numpy.abs(theirs[name]).max()) for name in theirs if "lora_B" in name))


@pytest.mark.parametrize("method", ["fedit", "a3smoe"])
def test_one_round_of_sums_differs_from_single_uploads_by_rounding(runs, method):
    largest, size = distance(runs("sums", method, train__rounds=1), runs("off", method, train__rounds=1))
    assert 0 < largest < 1e-6 < size


def expect_same_totals(ours, theirs):
    """Compares what two records say of all clients of a round together, up to the rounding of sums."""
    assert {key: ours[key] for key in ("tokens", "targets", "steps")} == {key: theirs[key] for key in ("tokens", "targets", "steps")}
    for key in ("loss", "first_loss", "last_loss", "experts_per_token", "entropy_mean", "gini_mean"):
        assert ours[key] == pytest.approx(theirs[key], rel=1e-6), key
    assert numpy.allclose(ours["utilization"], theirs["utilization"], rtol=0, atol=1e-9)


def test_the_totals_of_a_hidden_round_are_those_of_its_clients(runs):
    ours, theirs = rounds(runs("sums", "ub-smoe", train__rounds=1))[0], rounds(runs("off", "ub-smoe", train__rounds=1))[0]
    expect_same_totals(ours, theirs)
    assert ours["metrics"] == pytest.approx(theirs["metrics"], rel=1e-5, abs=1e-6)
    assert ours["flops"] == pytest.approx(theirs["flops"], rel=0.2), "an estimate from all clients' tokens together"


@pytest.mark.parametrize("mode, ranks, method", [("masks", 2, "a3smoe"), ("sums", 2, "a3smoe"), ("masks", 2, "ub-smoe"), *(
    pytest.param("masks", n, "ub-smoe", marks=slow) for n in (3, 4))])
def test_ranks_do_not_change_the_bits(runs, tiny_model, tmp_path, mode, ranks, method):
    out = tmp_path / "run"
    succeed(*train(tiny_model, out, mode, "--ranks", ranks, method=method))
    expect_same_run(out, runs("sums", method))


def test_lost_clients_on_ranks_do_not_change_the_bits(runs, tiny_model, tmp_path):
    out = tmp_path / "run"
    succeed(*train(tiny_model, out, "masks", "--ranks", 2, **LOSSES))
    expect_same_run(out, runs("sums", **LOSSES))


def test_clients_that_train_together_do_not_change_the_bits(runs, tiny_model, tmp_path):
    out = tmp_path / "run"
    succeed(*train(tiny_model, out, "masks", clients__parallel=2))
    expect_same_run(out, runs("sums"))


LOSSES = {"clients__count": 10, "clients__budgets": "[]", "clients__profiles": '{ values = ["box"] }', "client_profiles__box": BOX, "seed": 7}


def test_lost_clients_are_missing_in_the_sum_with_masks_as_without(runs):
    masked, summed = runs("masks", **LOSSES), runs("sums", **LOSSES)
    expect_same_run(masked, summed)
    lost = [len(record.get("lost", [])) for record in rounds(masked)]
    assert sum(lost) > 0, "no client dropped out: choose another seed"
    for record in lines(masked / "rounds.jsonl"):
        assert record["secure_aggregation"]["clients"] == record["participants"]
        assert sum(client["weight"] for client in record["clients"]) == pytest.approx(1)


def test_a_sum_without_a_lost_client_is_the_mean_of_those_who_are_left(runs):
    summed, single = runs("sums", **LOSSES, train__rounds=1), runs("off", **LOSSES, train__rounds=1)
    ours, theirs = rounds(summed)[0], rounds(single)[0]
    assert len(ours["lost"]) == len(theirs["lost"]) == 1 and ours["participants"] == 7, "choose another seed"
    # The lost client has at least 1 of the 90 rows, so a sum that counts it as zero is off by more than 1e-3 / 90.
    largest, size = distance(summed, single)
    assert 0 < largest < 1e-6 and size > 1e-3
    expect_same_totals(ours, theirs)


def test_too_few_uploads_are_foreseen_or_leave_the_sum_masked(tiny_model, tmp_path):
    many = BOX.replace("0.15", "0.8")
    done = evenkeel(*train(tiny_model, tmp_path / "foreseen", "masks", **{**LOSSES, "client_profiles__box": many}))
    one_line(done, "would not drop out, secure_aggregation.threshold is 5")
    never = BOX.replace("dropout = 0.15", "dropout = 0.0")
    late = {**LOSSES, "client_profiles__box": never, "clients__deadline": 1e-3}
    done = evenkeel(*train(tiny_model, tmp_path / "late", "masks", **late))
    one_line(done, "round 1", "1 of 8 uploads arrived, secure_aggregation.threshold is 5: the sum stays masked")


@pytest.mark.parametrize("mode", ["masks", "sums"])
def test_a_killed_run_resumes_to_the_same_bits(runs, tiny_model, tmp_path, mode):
    out, draw = tmp_path / "run", random.Random(3)
    command = [PROGRAM, *map(str, train(tiny_model, out, mode))]
    kills = 0
    for attempt in range(12):
        process = subprocess.Popen(command if not (out / "manifest.json").exists() else
                                   [PROGRAM, *map(str, train(tiny_model, out, mode, resume=True))],
                                   cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(timeout=draw.uniform(0.2, 2.5) if attempt < 6 else 600)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        if process.returncode == 0:
            break
        time.sleep(0.1)
    assert process.returncode == 0, process.stderr.read()
    expect_same_run(out, runs("sums"))


def test_a_run_with_masks_says_that_they_are_simulated(runs):
    said = "masks of uploads are simulated"
    assert said in (runs("masks") / "log.txt").read_text() and said not in (runs("sums") / "log.txt").read_text()


def test_equal_weights(runs):
    for record in rounds(runs("sums", secure_aggregation__weights="uniform")):
        assert [client["weight"] for client in record["clients"]] == pytest.approx([0.25] * 4)


# --- what the run folder shows ---

@pytest.mark.parametrize("mode", ["sums", "masks"])
def test_records_hold_no_measures_of_single_clients(runs, mode):
    out = runs(mode, "ub-smoe")
    for record in lines(out / "rounds.jsonl"):
        assert len(record["clients"]) == 4
        for client in record["clients"]:
            assert client.keys() <= OPEN and not client.keys() & OWN_MEASURES
        secure = record["secure_aggregation"]
        assert (secure["mode"], secure["simulated"], secure["bits"], secure["clients"]) == (mode, mode == "masks", 32, 4)
        assert secure["values"] > 1000 and secure["beyond_range"] >= 0
        assert record["tokens"] > record["targets"] > 0 < record["loss"]


@pytest.mark.parametrize("method", ["fedit", "ub-smoe"])
def test_without_reports_the_adapter_keeps_its_bits_and_records_lack_measures(runs, method):
    told, silent = runs("sums", method), runs("masks", method, secure_aggregation__reports="false")
    assert (told / ADAPTER).read_bytes() == (silent / ADAPTER).read_bytes()
    assert without_seconds(lines(told / "evaluations.jsonl")) == without_seconds(lines(silent / "evaluations.jsonl"))
    for loud, quiet in zip(lines(told / "rounds.jsonl"), lines(silent / "rounds.jsonl"), strict=True):
        missing = OWN_MEASURES | {"layers", "utilization", "entropy", "gini"}
        assert loud.keys() & missing and not quiet.keys() & missing
        assert quiet["steps"] == loud["steps"] and quiet["secure_aggregation"]["beyond_range"] >= 0
    table = succeed("report", silent, "--table", "rounds").stdout
    assert " - " in table, table


def test_private_rows_are_summed_behind_masks_without_their_signal(runs):
    private = {"privacy__unit": "example", "privacy__epsilon": 8, "privacy__delta": 1e-3, "privacy__clip": 0.1, "train__rounds": 1}
    single = runs("off", **private)
    hidden = runs("masks", secure_aggregation__reports="false", **private)
    for alone, summed in zip(rounds(single)[0]["clients"], rounds(hidden)[0]["clients"], strict=True):
        signal_of_upload = alone["privacy"].pop("signal")
        assert signal_of_upload >= 0 and summed["privacy"] == alone["privacy"]
    before, after = load_file(single / ADAPTER), load_file(hidden / ADAPTER)
    assert max(numpy.abs(before[name] - after[name]).max() for name in before) < 1e-6
    table = succeed("report", hidden, "--table", "privacy").stdout
    assert re.search(r"\(\d+\.\d+\) .* -  *-", table), table


def test_the_report_shows_dashes_where_measures_are_hidden(runs):
    table = succeed("report", runs("masks", "ub-smoe"), "--table", "clients").stdout
    rows = [line for line in table.splitlines() if line.startswith("masks ")]
    assert len(rows) >= 4 and all(re.search(r"\s-(\s|$)", row) for row in rows), table


def test_uploads_on_disk_are_integers_behind_masks_without_reports(tiny_model, tmp_path):
    """A round that is given up leaves its journal: values that fill the ring, and no measure but the tokens of simulated time."""
    never = BOX.replace("dropout = 0.15", "dropout = 0.0")
    out = tmp_path / "run"
    one_line(evenkeel(*train(tiny_model, out, "masks", **{**LOSSES, "client_profiles__box": never, "clients__deadline": 1e-3})),
             "the sum stays masked")
    uploads = sorted(out.rglob("*.upload.safetensors"))
    assert len(uploads) == 8
    for file in uploads:
        tensors = load_file(file)
        assert set(tensors) == {"extra/sum.values", "extra/sum.counts"}
        values = numpy.abs(tensors["extra/sum.values"].astype(numpy.int64))
        assert values.mean() == pytest.approx(2**30, rel=0.05) and numpy.abs(tensors["extra/sum.counts"]).max() > 2**60
        record = json.loads(file.with_name(file.name.split(".")[0] + ".json").read_text())
        assert all(record[key] == 0 for key in ("targets", "loss_sum", "first_loss", "last_loss"))
        assert record["counts"] == {} == record["metrics"] and record["steps"] > 0


# --- refusals ---

@pytest.mark.parametrize("method", ["hetlora", "flexlora", "flora", "florist", "fedex-lora", "fed-sb"])
def test_methods_that_need_single_uploads_are_refused_by_name(tiny_model, tmp_path, method):
    done = evenkeel(*train(tiny_model, tmp_path / "run", "sums", method=method))
    one_line(done, f"method {method} ", "ub-smoe, a3smoe, smoe-llb, ffa-lora, fedit")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("keys, words", [
    ({"clients__participation": 0.4}, ["2 clients drawn per round", "3 or more"]),
    ({"secure_aggregation__threshold": 5}, ["threshold is 5", "0, or 3 .. 4"]),
    ({"secure_aggregation__threshold": 2}, ["threshold is 2", "3 or more"]),
    ({"secure_aggregation__colluders": 2, "secure_aggregation__threshold": 3}, ["threshold is 3", "0, or 4 .. 4"]),
    ({"secure_aggregation__colluders": 4}, ["colluders is 4", "0 to 3"]),
    ({"secure_aggregation__mode": "sums", "secure_aggregation__colluders": 1}, ["colluders is 1", "with mode masks"]),
    ({"aggregation__rule": "median"}, ["mode is \"masks\"", "aggregation.rule median"]),
    ({"clients__bound_simulated": "true"}, ["mode is \"masks\"", "bound_simulated"]),
    ({"clients__update_norm": 3.0}, ["mode is \"masks\"", "update_norm"]),
    ({"train__optimizer": '{ name = "sgd", lr = 0.1 }'}, ["range is 0", "not adamw"]),
    ({"secure_aggregation__surprise": 1}, ["surprise"]),
    ({"secure_aggregation__mode": "off", "secure_aggregation__reports": "false"}, ["reports is false", "sums or masks"]),
    ({"clients__count": 200, "clients__budgets": "[]"}, ["160 clients drawn per round", "up to 100"]),
])
def test_keys_that_do_not_go_together_are_refused(tiny_model, tmp_path, keys, words):
    arguments = train(tiny_model, tmp_path / "run", "masks")
    one_line(evenkeel(*arguments, *settings(**keys)), *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("keys, word", [({"rescaler": "learn"}, "rescaler"), ({"unused_expert": "mean"}, "unused_expert")])
def test_options_that_need_single_uploads_are_refused(tiny_model, tmp_path, keys, word):
    changes = {f"method__a3smoe__{key}": value for key, value in keys.items()}
    one_line(evenkeel(*train(tiny_model, tmp_path / "run", "masks", method="a3smoe", **changes)), word)


def test_a_server_of_nodes_refuses_sums_without_masks(tiny_model, tmp_path):
    done = evenkeel("serve", CONFIG, "--out", tmp_path / "run", "--open", "--insecure",
                    *settings(model__path=tiny_model, method__name="fedit", secure_aggregation__mode="sums"))
    one_line(done, 'secure_aggregation.mode is "sums"', "allowed: off or masks, where the clients are nodes")
    assert not (tmp_path / "run").exists()


def test_a_small_range_cuts_changes_and_says_so(tiny_model, tmp_path):
    done = succeed(*train(tiny_model, tmp_path / "run", "sums", train__rounds=1, secure_aggregation__range=1e-4))
    record = lines(tmp_path / "run/rounds.jsonl")[0]["secure_aggregation"]
    assert record["beyond_range"] > 0
    assert f"{record['beyond_range']} of {record['values'] * 4} changes were larger than secure_aggregation.range = 0.0001" in done.stderr


def test_the_usual_range_cuts_nothing(runs):
    assert all(record["secure_aggregation"]["beyond_range"] == 0 for record in lines(runs("sums") / "rounds.jsonl"))

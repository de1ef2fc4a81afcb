"""Checks that the tensorboard package reads from our event files the values of the records, also after a resume."""

import pytest

from tiny import CONFIG, lines, settings, succeed

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def train(model, out, *more, **changes):
    return succeed("train", CONFIG, "--out", out, *more, *settings(model__path=f'"{model}"', **changes))


def scalars(run):
    """Returns {tag: [(step, value)]} as TensorBoard reads them."""
    loaded = accumulator.EventAccumulator(str(run / "tensorboard"), size_guidance={accumulator.SCALARS: 0}).Reload()
    return {tag: [(event.step, event.value) for event in loaded.Scalars(tag)] for tag in loaded.Tags()["scalars"]}


def close(found, expected):
    return [step for step, _ in found] == [step for step, _ in expected] and \
        all(value == pytest.approx(other, rel=1e-6) for (_, value), (_, other) in zip(found, expected))


def expect_records(run):
    """Checks that the event file has every round and every score once, with its value in single precision."""
    found, rounds, scores = scalars(run), lines(run / "rounds.jsonl"), lines(run / "evaluations.jsonl")
    for tag, value in {"train/loss": lambda r: r["loss"], "traffic/bytes_up": lambda r: r["bytes_up"],
                       "experts/entropy": lambda r: r["entropy_mean"], "experts/dead": lambda r: sum(r["dead_experts"]),
                       "metrics/pg_norm": lambda r: r["metrics"]["pg_norm"]}.items():
        expected = [(r["round"], value(r)) for r in rounds if tag != "metrics/pg_norm" or "pg_norm" in r["metrics"]]
        assert close(found[tag], expected), tag
    assert scores
    for score in scores:
        for measure in ("log_likelihood", "accuracy", "accuracy_likelihood", "invalid_rate"):
            tag = f"evaluate/{score['task']}/budget {score['budget']:g}/{measure}"
            assert close([entry for entry in found[tag] if entry[0] == score["round"]], [(score["round"], score[measure])]), tag
    assert sum(len(values) for tag, values in found.items() if tag.startswith("evaluate/")) == 4 * len(scores)


@pytest.fixture(scope="module")
def watched(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("watched") / "run"
    train(tiny_model, out, report__tensorboard="true", evaluate__every=1, evaluate__before="true")
    return out


def test_tensorboard_reads_the_values_of_the_records(watched):
    expect_records(watched)


def test_a_run_without_the_key_has_the_same_adapter_and_no_event_file(watched, tiny_model, tmp_path):
    train(tiny_model, tmp_path / "run", evaluate__every=1, evaluate__before="true")
    assert not (tmp_path / "run/tensorboard").exists()
    name = "adapter/adapter_model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (watched / name).read_bytes()


@pytest.mark.parametrize("harm", ["gone", "cut", "flipped", "empty"])
def test_a_resumed_run_repairs_or_replaces_a_damaged_event_file(tiny_model, tmp_path, harm):
    run = tmp_path / "run"
    train(tiny_model, run, train__rounds=2, report__tensorboard="true", evaluate__every=1)
    file = next((run / "tensorboard").iterdir())
    before = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        flipped = before[:len(before) // 2] + bytes([before[len(before) // 2] ^ 4]) + before[len(before) // 2 + 1:]
        file.write_bytes({"cut": before[:-7], "flipped": flipped, "empty": b""}[harm])
    done = succeed("train", CONFIG, "--out", run, "--resume", *settings(train__rounds=3))
    assert ("is written anew" in done.stderr) == (harm == "flipped")
    expect_records(run)


def test_repeated_rounds_are_in_the_event_file_once(tiny_model, tmp_path):
    run = tmp_path / "run"
    train(tiny_model, run, report__tensorboard="true", evaluate__every=1)
    succeed("train", CONFIG, "--out", run, "--resume", "--from-round", "2")
    expect_records(run)


def test_scores_of_the_exported_adapter_have_tags_of_their_own(tiny_model, tmp_path):
    run = tmp_path / "run"
    train(tiny_model, run, train__rounds=1, report__tensorboard="true", evaluate__as_exported="true")
    found, scores = scalars(run), lines(run / "evaluations.jsonl")
    for score in scores:
        group = f"exported/{score['served_by']}" if "served_by" in score else "evaluate"
        tag = f"{group}/{score['task']}/budget {score['budget']:g}/accuracy_likelihood"
        assert close(found[tag], [(1, score["accuracy_likelihood"])]), tag
    groups = {tag.split("/")[0] for tag in found}
    assert "exported" in groups and not any("exported" in tag for tag in found if tag.startswith("evaluate/"))

"""Tests what the arms of a study must share, and the settings that a study file has for all of them."""

import pytest

from test_study import base, expect_same_runs, file, state, study, undisturbed, write  # noqa: F401
from tiny import one_line, started


@pytest.fixture
def native(file):
    """Returns methods.toml with the default gates of each method, on a model whose own gates are not renormalised."""
    base = file.parent / "base.toml"
    base.write_text(base.read_text().replace('gate_norm = "renorm_selected"\n', ""))
    return file


GATES = ("renormalised in a3smoe, ub-smoe (renorm_selected)", "not in fedit (olmoe_native)", "method.gate_norm", "norm_topk_prob",
         '[study] set = ["method.gate_norm=renorm_selected"]', '[study] free = ["method.gate_norm"]')


@pytest.mark.parametrize("words", [("study",), ("study", "--dry-run"), ("doctor",)])
def test_arms_with_unequal_gates_are_refused_before_any_run(native, tmp_path, words):
    command = ["doctor", "--config", native] if words == ("doctor",) else [*words[:1], native, "--out", tmp_path / "out", *words[1:]]
    one_line(started(*command), *GATES)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("keys", [{"set": ["method.gate_norm=renorm_selected"]}, {"free": ["method.gate_norm"]}])
def test_equal_gates_and_the_key_among_the_free_ones_are_allowed(native, tmp_path, keys):
    write(native, **keys)
    assert study(native, tmp_path / "out", "--dry-run").returncode == 0
    one_line(study(native, tmp_path / "out", "--dry-run", "--set", "evaluate.rank_eval_modes=[]"), "rank_eval_modes")


def test_a_study_with_settings_of_its_own_is_the_study_with_them_in_the_base_config(undisturbed, file, tmp_path):
    moved = file.parent / "base.toml"
    text = moved.read_text()
    assert "rounds = 2" in text and "rank = 3" in text
    moved.write_text(text.replace("rounds = 2", "rounds = 9").replace("rank = 3", "rank = 2"))
    write(file, reference="fedit", set=["train.rounds=2", "lora.rank=3"])
    done = study(file, tmp_path / "out", "--only", "a3smoe:2")
    assert done.returncode == 0, done.stderr
    expect_same_runs(tmp_path / "out", undisturbed[0], ["a3smoe/seed-2"])
    made = state(tmp_path / "out")
    assert made["set"] == ["train.rounds=2", "lora.rank=3"]
    again = study(tmp_path / "out/study.toml", tmp_path / "out", "--resume", "--only", "a3smoe:2")  # the folder alone is enough
    assert again.returncode == 0, again.stderr
    write(file, reference="fedit", set=["train.rounds=2", "lora.rank=2"])
    one_line(study(file, tmp_path / "out", "--resume"), "lora.rank", "choose another --out")

"""Runs the Python code of docs/tracking.md with stand-ins for the trackers."""

import re
import sys
from unittest import mock

import pytest

import evenkeel_moe as ek
from package import CONFIG, ROOT, settings

BLOCKS = re.findall(r"^```python[^\n]*\n(.*?)^```$", (ROOT / "docs/tracking.md").read_text(), re.M | re.S)


def test_the_document_has_a_block_for_each_tracker():
    assert [name for name in ("wandb", "mlflow") if any(name in block for block in BLOCKS)] == ["wandb", "mlflow"]


@pytest.mark.parametrize("block", BLOCKS, ids=["wandb", "mlflow"])
def test_every_round_is_logged(block, tiny_model, tmp_path, monkeypatch):
    trackers = {name: mock.MagicMock() for name in ("wandb", "mlflow")}
    for name, tracker in trackers.items():
        monkeypatch.setitem(sys.modules, name, tracker)
    monkeypatch.chdir(tmp_path)
    train, runs = ek.train, []

    def small(config, **options):
        assert config == "configs/demo.toml"
        runs.append(train(CONFIG, set=settings(tiny_model, evaluate__limit=1), out="run", **options))
        return runs[-1]

    monkeypatch.setattr(ek, "train", small)
    exec(block, {})
    losses = [record["loss"] for record in runs[0].rounds_list()]
    if "wandb" in block:
        assert [call.args[0]["loss"] for call in trackers["wandb"].log.call_args_list] == losses
        assert [call.kwargs["step"] for call in trackers["wandb"].log.call_args_list] == [1, 2]
    else:
        assert [call.args[1] for call in trackers["mlflow"].log_metric.call_args_list] == losses
        assert trackers["mlflow"].log_artifacts.call_args.args == (str(runs[0].path),)

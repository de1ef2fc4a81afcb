"""Follows docs/tutorial-new-family.md in an empty folder: writes its files and runs its commands."""

import json
import re

import pytest

from tiny import lines, nightly
from tutorial import assert_built_soon_and_keeps_every_promise, followed_once

followed = followed_once("tutorial-new-family.md")
pytestmark = nightly  # make test compiles the page's family too, and holds it to the contract of families


def test_the_program_builds_in_time_and_passes_the_contract_tests(followed):
    assert_built_soon_and_keeps_every_promise(followed)


def test_the_new_family_is_listed_with_the_others(followed):
    listing = followed[1][1][0].stdout
    assert re.search(r"^dots1 +sparse", listing, re.MULTILINE) and "\nolmoe" in listing


def test_two_rounds_of_ub_smoe_are_run_and_recorded_layer_by_layer(followed):
    rounds = lines(followed[0] / "runs/dots1/rounds.jsonl")
    assert [record["round"] for record in rounds] == [1, 2]
    assert all(record["layers"] == ["model.layers.1.mlp", "model.layers.2.mlp"] for record in rounds)
    assert all(part["router_adapters"] > 0 for record in rounds for part in parts_down(record))


def parts_down(record):
    return [client["bytes_down_parts"] for client in record["clients"]]


def test_the_adapter_and_the_merged_checkpoint_have_equal_scores(followed):
    logprobs = [json.loads((followed[0] / name).read_text())["token_logprobs"] for name in ("with-adapter.json", "merged.json")]
    assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-4) and len(logprobs[0]) > 2

"""Tests `evenkeel list keys` and the page that it generates: default, type, allowed values and meaning of every config key."""

import json
import re
import subprocess
import sys
import tomllib

import pytest

from tiny import ROOT, evenkeel, succeed


@pytest.fixture(scope="module")
def keys():
    return {key["key"]: key for key in map(json.loads, succeed("list", "keys", "--json").stdout.splitlines())}


def flat(table, path=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{path}{key}.")
        else:
            yield path + key, value


def config(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("config") / "run.toml"
    file.write_text(text)
    return tomllib.loads(succeed("train", file, "--print-config").stdout)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Returns the config that is printed for an empty file."""
    return dict(flat(config(tmp_path_factory, "")))


def test_every_key_of_a_printed_config_is_listed_with_its_default(keys, printed):
    for key, value in printed.items():
        if key != "method.gate_norm":  # its default depends on the method
            assert tomllib.loads(f"x = {keys[key]['default']}")["x"] == value, key
    assert len(printed) > 90


@pytest.mark.parametrize("method", [line.split()[0] for line in evenkeel("list", "methods").stdout.splitlines()])
def test_the_keys_of_a_method_are_listed(method, keys, tmp_path_factory):
    own = dict(flat(config(tmp_path_factory, f'[method]\nname = "{method}"\n[model]\npath = "builtin:tiny-olmoe"\n')["method"], "method."))
    for key, value in own.items():
        if key not in ("method.name", "method.gate_norm"):
            assert tomllib.loads(f"x = {keys[key]['default']}")["x"] == value, key
    listed = [json.loads(line)["key"] for line in succeed("list", "keys", method, "--json").stdout.splitlines()]
    assert sorted(listed) == sorted(set(own) - {"method.name", "method.gate_norm"})


def test_keys_that_an_empty_config_does_not_print_are_listed_too(keys, printed):
    hidden = set(keys) - set(printed)
    assert {"clients.client[].budget", "client_profiles.<name>.dropout", "clients.budgets.shares", "data.files.<name>.score",
            "method.florist.tau"} <= hidden
    assert keys["clients.client[].budget"]["default"] == "" and keys["clients.client[].budget"]["type"] == "number"


@pytest.mark.parametrize("key, kind, allowed", [
    ("seed", "integer", "0 or more"), ("train.rounds", "integer", "1 or more, up to 1000000000"),
    ("clients.participation", "number", "greater than 0, at most 1"), ("method.name", "text", "ub-smoe, a3smoe"),
    ("model.dtype", "text", "checkpoint, float32, bfloat16, float64"), ("evaluate.before", "boolean", "true, false"),
    ("evaluate.budgets", "list", "greater than 0, at most 1"), ("method.ub-smoe.phi_range", "list", "min <= 0 <= max"),
    ("clients.client[].budget", "number", "greater than 0, at most 1"), ("cluster.timeout", "number", "0.5 to 86400"),
    ("client_profiles.<name>.dropout", "number", "less than 1"), ("evaluate.rank_eval_modes", "list", "a, b"),
    ("model.path", "text", "")])
def test_the_listed_allowed_values_are_those_of_the_check(keys, key, kind, allowed):
    assert keys[key]["type"] == kind
    assert allowed in keys[key]["allowed"] if allowed else keys[key]["allowed"] == ""
    assert "probe" not in keys[key]["allowed"] and "9223372036854775807" not in keys[key]["allowed"]


def test_every_bounded_number_names_its_bounds(keys):
    """The bounds come from the error message for the value -1e300. A number that accepts it counts as without bounds."""
    free = [key for key, entry in keys.items() if entry["type"] in ("integer", "number") and not entry["allowed"]]
    assert free == []


def test_every_key_has_a_meaning(keys):
    assert [key for key, entry in keys.items() if not entry["help"]] == []


def test_a_single_section_can_be_listed(keys):
    lines = succeed("list", "keys", "train").stdout.splitlines()
    assert lines and all(line.startswith("train.") for line in lines)
    assert len(lines) == sum(key.startswith("train.") for key in keys)
    assert len(succeed("list", "keys", "train.schedule").stdout.splitlines()) == sum(key.startswith("train.schedule.") for key in keys)
    assert succeed("list", "keys", "fedit").stdout == ""  # fedit has no keys of its own


def test_the_page_of_keys_is_up_to_date():
    made = subprocess.run([sys.executable, ROOT / "tools/reference.py", "--check"], capture_output=True, text=True, cwd=ROOT)
    assert made.returncode == 0, made.stdout + made.stderr


def test_the_page_names_every_key(keys):
    page = (ROOT / "docs/configuration.md").read_text()
    named = re.findall(r"^\| `([^`]+)` \|", page, re.M)
    assert len(named) == len(keys)

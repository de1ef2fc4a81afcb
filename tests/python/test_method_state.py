"""Tests what a run keeps of a method in Python: memories, sites, changes of the base."""

import json

import numpy as np
import pytest

import evenkeel_moe as ek
from own_method import adapter, records, tensors
from tiny import started


class Forgets(ek.Method):
    """A client remembers a number in the first round, and clears its memory in the second."""

    def upload(self, download, setup, counts, view):
        sent = super().upload(download, setup, counts, view)
        sent.extras["model.known"] = np.array(float("number" in view.memory), "f4")
        if view.round == 0:
            view.memory["number"] = np.ones(1)
        else:
            view.memory.clear()
        return sent

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        new.memory["known"] = uploads.mean_extra("model.known")
        return new

    def diagnostics(self, state):
        return state.memory


def test_a_cleared_memory_stays_cleared_also_after_a_stop(config, tmp_path):
    few = {"train.rounds": 3, "evaluate.every": 0}
    run = ek.train(config, method=Forgets, set=few, out=tmp_path / "run")
    assert [record["diagnostics"]["known"] for record in records(run.path)] == [0, 1, 0]
    ek.train(config, method=Forgets, set={**few, "train.rounds": 2}, out=tmp_path / "stopped")
    ek.train(config, method=Forgets, set=few, resume=True, out=tmp_path / "stopped")
    assert records(tmp_path / "stopped")[2]["diagnostics"]["known"] == 0


class Attention(ek.Method):
    """Adapts the attention alone."""

    def initialize(self, server):
        state = super().initialize(server)
        state.adapters = {site: one for site, one in state.adapters.items() if server.sites[site].role == "attention"}
        return state


def test_a_run_that_leaves_sites_out_is_resumed_evaluated_and_exported(config, tmp_path):
    whole = ek.train(config, method=Attention, out=tmp_path / "whole")
    first = ek.train(config, method=Attention, set={"train.rounds": 1}, out=tmp_path / "run")
    resumed = ek.train(config, method=Attention, set={"train.rounds": 2}, resume=True, out=first.path)
    assert adapter(resumed.path) == adapter(whole.path)
    assert all("self_attn" in name for name in tensors(resumed.path))
    assert ek.evaluate(run=resumed.path, method=Attention, limit=1) is not None
    assert ek.generate("a", run=resumed.path, method=Attention, max_new_tokens=2) is not None
    for form in ("peft", "merged", "gguf"):
        done = started("export", "--run", resumed.path, "--format", form, "--out", tmp_path / form)
        assert done.returncode == 0, done.stderr


class Merges(ek.Method):
    """Moves the adapter into the base after the first round, and B begins at zero again."""

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        if round.round == 0:
            new.base_delta = {site: ek.Factors(one.a.copy(), one.b * np.float32(one.scaling)) for site, one in new.adapters.items()}
            for one in new.adapters.values():
                one.b = np.zeros_like(one.b)
        return new


class MergesAsItSays(Merges):
    changes_base = True


def products(run):
    """scaling B A of each adapted linear."""
    config, found = json.loads((run / "adapter/adapter_config.json").read_text()), tensors(run)
    scaling = config["lora_alpha"] / config["r"]
    return {key: scaling * found[key.replace("lora_A", "lora_B")] @ found[key] for key in found if "lora_A" in key}


def test_a_change_of_the_base_is_merged_once(config, tmp_path):
    """In the second round the learning rate is next to nothing."""
    still = {"train.schedule.kind": "linear", "train.schedule.final_ratio": 1e-6}
    merged = products(ek.train(config, method=MergesAsItSays, set=still, out=tmp_path / "merged").path)
    plain = products(ek.train(config, set={"train.rounds": 1}, out=tmp_path / "plain").path)
    assert merged.keys() == plain.keys()
    apart = sum(float(((merged[key] - plain[key])**2).sum()) for key in plain)**0.5
    assert apart < 1e-3 * sum(float((one**2).sum()) for one in plain.values())**0.5


def test_a_class_that_does_not_say_that_it_changes_the_base_is_refused(config, tmp_path):
    with pytest.raises(ek.EvenkeelError, match="method merges changes the base, and its changes_base is false, allowed: true"):
        ek.train(config, method=Merges, out=tmp_path / "run")

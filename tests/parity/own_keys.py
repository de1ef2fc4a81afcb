"""Compares changed config.json files of one small model with transformers, for families whose keys are not those of
test_config_keys_v5.py.
"""
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from peer import assert_logits_close, experts_of, random_model, texts_with_logits
from test_config_keys_v5 import forked_score, our_logits


@dataclass
class SavedModel:
    model: torch.nn.Module
    folder: Path
    config: dict
    alike: tuple  # groups of keys of which a change removes the others
    texts: list
    logits: list

    @staticmethod
    def of(folder, settings, alike):
        model = random_model(seed=7, **settings)
        model.save_pretrained(folder)
        return SavedModel(model, folder, json.loads((folder / "config.json").read_text()), alike, *texts_with_logits(model, (1, 40, 9), seed=5))

    def write(self, settings):
        drop = {key for group in self.alike if settings.keys() & set(group) for key in group}
        kept = {key: old for key, old in self.config.items() if key not in drop}
        (self.folder / "config.json").write_text(json.dumps(kept | settings))

    def peer_logits(self):
        config = AutoConfig.from_pretrained(self.folder)
        peer = AutoModelForCausalLM.from_config(config, dtype=torch.float32, **experts_of(config)).eval()
        peer.load_state_dict(self.model.state_dict())
        return texts_with_logits(peer, (1, 40, 9), seed=5)[1]

    def assert_read(self, settings, changes=True):
        """Checks that both have the same logits, and if `changes`, other ones than without these settings."""
        self.write(settings)
        expected = self.peer_logits()
        assert_logits_close(our_logits(self.folder, self.texts), expected)
        if changes:
            assert max((a - b).abs().max() for a, b in zip(self.logits, expected)) > 1e-3, "the value changes nothing"

    def assert_without_effect(self, settings):
        self.write(settings)
        assert_logits_close(our_logits(self.folder, self.texts), self.logits)
        assert_logits_close(self.peer_logits(), self.logits)

    def assert_refused(self, settings, *words):
        self.write(settings)
        done = forked_score(self.folder, self.texts)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
        assert all(word in done.stderr for word in ("config.json", *words)), done.stderr


def assert_size_read(settings, key, value, folder):
    model = random_model(seed=9, **settings | {key: value})
    model.save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())[key] == value
    texts, expected = texts_with_logits(model, (1, 30), seed=5)
    assert_logits_close(our_logits(folder, texts), expected)


def assert_defaults_alike(keys, folder):
    """Compares a model of a config.json with these keys alone."""
    (folder / "config.json").write_text(json.dumps(keys))
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, **experts_of(config)).eval()
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(keys))
    texts, expected = texts_with_logits(model, (30,), seed=5)
    assert_logits_close(our_logits(folder, texts), expected)

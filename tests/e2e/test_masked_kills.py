"""Masked rounds whose server and nodes are killed after single writes: the run ends with the bits of an undisturbed one, and no
secret of a node is ever in the server's run folder.
"""

import base64
import random
import signal
import time

import pytest

from preload import killing_system  # noqa: F401
from test_federation import DEADLINE, Processes
from test_masked_nodes import NODES, SECRETS, Hidden, expect_no_measure_of_one_client, expect_same_run, local, texts_of  # noqa: F401
from tiny import nightly

# What a server and a node write of masked rounds, and more changes than a run of two rounds makes of it.
JOURNAL = ("run/federation/masked-", "run/checkpoint/uploads-", "run/checkpoint/commit.json")
STORE = ("memory/secure",)
SERVER_CHANGES, NODE_CHANGES = 140, 80


class Killed(Hidden):
    """A federation whose processes start again when they were killed."""

    def __init__(self, *arguments, words, server=(), nodes=(), **more):
        self.killing, self.of_server, self.of_nodes, self.secrets, self.kills = words, iter(server), [iter(own) for own in nodes], set(), 0
        super().__init__(*arguments, **more)

    def inside(self, who):
        if who is None:
            return self.killing(next(self.of_server, 0), *(self.folder / part for part in JOURNAL))
        return self.killing(next(self.of_nodes[who], 0), *STORE) if who < len(self.of_nodes) else ()

    def collect(self):
        for attempt in self.attempts():
            for name in SECRETS:
                self.secrets.update(texts_of(attempt.get(name)))

    def expect_no_secret(self):
        for file in self.out.rglob("*"):
            content = file.read_bytes() if file.is_file() else b""
            for secret in self.secrets:
                raw = base64.b64decode(secret)
                assert not any(form in content for form in (secret.encode(), raw, raw.hex().encode())), file
        expect_no_measure_of_one_client(self.out)

    def tend(self):
        """Starts whoever was killed, until the server is done."""
        end = time.monotonic() + DEADLINE
        while self.server.poll() != 0:
            assert time.monotonic() < end, self.log.read_text()
            self.collect()
            for place, node in enumerate(self.nodes):
                if node.poll() == -signal.SIGKILL:
                    self.kills += 1
                    self.nodes[place] = self.node(self.keys[place])
            if self.server.poll() == -signal.SIGKILL:
                self.kills += 1
                self.expect_no_secret()
                self.resume()
            elif self.server.poll() not in (None, 0):
                assert self.log.read_text().splitlines()[-1].startswith("evenkeel: [data] round "), self.log.read_text()
                self.resume()
            time.sleep(0.01)
        self.expect_no_secret()
        assert self.secrets


def check(words, local, model, folder, server=(), nodes=()):
    folder.mkdir(exist_ok=True)
    with Processes() as processes:
        run = Killed(processes, folder, model, words=words, server=server, nodes=nodes)
        run.tend()
        while any(node.poll() == -signal.SIGKILL for node in run.nodes):
            run.nodes = [run.node(key) if node.poll() == -signal.SIGKILL else node for key, node in zip(run.keys, run.nodes)]
        run.finish()
    expect_same_run(run.out, local)
    assert not list(run.attempts())
    return run.kills


def test_a_server_that_is_killed_again_and_again_ends_with_the_same_bits(killing_system, local, tiny_model, tmp_path):
    draw = random.Random(5)
    assert check(killing_system, local, tiny_model, tmp_path, server=[draw.randint(3, 40) for _ in range(6)]) >= 4


def test_nodes_that_are_killed_again_and_again_end_with_the_same_bits(killing_system, local, tiny_model, tmp_path):
    draw = random.Random(6)
    assert check(killing_system, local, tiny_model, tmp_path, nodes=[[draw.randint(3, 40) for _ in range(2)] for _ in range(NODES)]) >= 4


@nightly
@pytest.mark.parametrize("part", range(5))
def test_a_server_that_is_killed_after_any_change_of_its_journal_ends_with_the_same_bits(part, killing_system, local, tiny_model, tmp_path):
    for change in range(1 + part, SERVER_CHANGES, 5):
        check(killing_system, local, tiny_model, tmp_path / f"after-{change}", server=[change])


@nightly
@pytest.mark.parametrize("part", range(5))
def test_a_node_that_is_killed_after_any_change_of_its_store_ends_with_the_same_bits(part, killing_system, local, tiny_model, tmp_path):
    for change in range(1 + part, NODE_CHANGES, 5):
        check(killing_system, local, tiny_model, tmp_path / f"after-{change}", nodes=[[change]])


@nightly
def test_the_sweeps_have_every_change(killing_system, local, tiny_model, tmp_path):
    assert check(killing_system, local, tiny_model, tmp_path, server=[SERVER_CHANGES], nodes=[[NODE_CHANGES]]) == 0

"""Secure aggregation with nodes: processes of a server and its nodes give the bits of `train` with mode sums, also when they
are killed, and neither the run folder nor a log holds a secret or a client's own measure.
"""

import base64
import contextlib
import json
import re
import signal
import threading
import time
import urllib.request

import pytest

from test_federation import DEADLINE, Processes, free_port, keygen, node_arguments, wait_for, wait_until
from test_tls import Authority
from tiny import CONFIG, evenkeel, lines, nightly, one_line, settings, slow, succeed, without_seconds

NODES = 3
ADAPTER = "adapter/adapter_model.safetensors"
MEASURES = {"tokens", "targets", "loss", "loss_sum", "first_loss", "last_loss", "counts", "metrics", "moved", "flops", "utilization",
            "experts_per_token", "accuracy"}
SECRETS = ("mask_secret", "share_secret", "seed", "seed_shares", "secret_shares")
# What the record of a client may have: what the config says, and what the server itself sees.
OPEN = {"id", "name", "node", "budget", "top_k", "rank", "examples", "weight", "steps", "bytes_up", "bytes_down", "bytes_up_parts",
        "bytes_down_parts", "seconds"}


def words(model, mode, nodes=NODES, **more):
    return settings(model__path=f'"{model}"', method__name='"fedit"', clients__count=nodes,
                    clients__budgets=[0.25, 0.5, 1.0, 0.5][:nodes], clients__participation=1.0, threads=1, train__rounds=2,
                    evaluate__limit=2, secure_aggregation__mode=f'"{mode}"', **more)


@pytest.fixture(scope="module")
def local(tiny_model, tmp_path_factory):
    """The run of mode sums in one process."""
    out = tmp_path_factory.mktemp("sums") / "run"
    succeed("train", CONFIG, *words(tiny_model, "sums"), "--out", out, timeout=DEADLINE)
    return out


class Hidden:
    """A server and its nodes, whose uploads are masked. With an authority of certificates they use TLS."""

    def __init__(self, processes, folder, model, nodes=NODES, authority=None, flags=(), **more):
        """flags: of the first node."""
        self.processes, self.folder, self.model, self.out = processes, folder, model, folder / "run"
        self.authority, self.flags = authority, flags
        self.keys = keygen(folder, nodes)
        self.port = free_port()
        self.words = ["serve", CONFIG, *words(model, "masks", nodes, **more), "--out", self.out, "--listen", f"127.0.0.1:{self.port}",
                      "--allow", folder / "keys.txt", *self.network()]
        self.log = folder / "serve.log"
        self.server = processes.start(*self.words, log=self.log, inside=self.inside(None))
        self.nodes = [self.node(key) for key in self.keys]

    def network(self):
        if not self.authority:
            return ["--insecure"]
        certificate, secret = self.authority.server("localhost", ["DNS:localhost"])
        return ["--certificate", certificate, "--key", secret]

    def inside(self, who):
        """The words that a process is started with. who: the place of a node; None: the server."""
        return ()

    def node(self, key):
        words = node_arguments(key, self.model, f"localhost:{self.port}", "--peers", self.folder / "keys.txt")
        if key == self.keys[0]:
            words += self.flags
        if self.authority:
            at = words.index("--insecure")
            words[at:at + 1] = ["--ca", self.authority.pem]
        return self.processes.start(*words, log=self.folder / f"{key.stem}.log", inside=self.inside(self.keys.index(key)))

    def resume(self):
        self.server = self.processes.start(*self.words, "--resume", log=self.log, inside=self.inside(None))

    def journal(self):
        try:
            return json.loads((self.out / "federation/masked-round.json").read_text())
        except (OSError, ValueError):
            return {}

    def attempts(self):
        for key in self.keys:
            try:
                yield json.loads((key.parent / f"{key.name}.memory/secure/attempt.json").read_text())
            except (OSError, ValueError):
                continue

    def finish(self):
        assert wait_for(self.server, self.log) == 0, self.log.read_text()
        for key, node in zip(self.keys, self.nodes):
            log = self.folder / f"{key.stem}.log"
            assert wait_for(node, log) == 0, log.read_text()


def rounds(out):
    records = without_seconds(lines(out / "rounds.jsonl"))
    return [{key: value for key, value in record.items() if key != "secure_aggregation"} for record in records]


def expect_same_run(out, reference):
    assert (out / ADAPTER).read_bytes() == (reference / ADAPTER).read_bytes()
    assert rounds(out) == rounds(reference)
    assert without_seconds(lines(out / "evaluations.jsonl")) == without_seconds(lines(reference / "evaluations.jsonl"))


def test_nodes_that_mask_over_tls_give_the_bits_of_sums(local, tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model, authority=Authority(tmp_path))
        run.finish()
    expect_same_run(run.out, local)


def texts_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts_of(inner)


def test_nodes_that_mask_give_the_bits_of_sums_and_leave_no_secret(local, tiny_model, tmp_path):
    secrets, over = set(), threading.Event()

    def collect(run):
        while not over.is_set():
            for attempt in run.attempts():
                for name in SECRETS:
                    secrets.update(texts_of(attempt.get(name)))
            time.sleep(0.002)

    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model)
        collector = threading.Thread(target=collect, args=[run])
        collector.start()
        try:
            run.finish()
        finally:
            over.set()
            collector.join()
    expect_same_run(run.out, local)
    assert len(secrets) >= 3 * NODES, secrets
    kept = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.suffix == ".log" for file in kept) and any(file.name == "audit.jsonl" for file in kept)
    for file in kept:
        content = file.read_bytes()
        for secret in secrets:
            raw = base64.b64decode(secret)
            for form in (secret.encode(), raw, raw.hex().encode()):
                assert form not in content, file
    assert not list(run.attempts())
    for key in run.keys:
        summed = lines(key.parent / f"{key.name}.memory/secure/summed.jsonl")
        assert [entry["round"] for entry in summed] == [0, 1]
        log = (tmp_path / f"{key.stem}.log").read_text()
        assert "masked: the server reads only the sum of 3 or more uploads, of nodes of 3 known keys" in log
        assert "masked the upload among 3 clients" in log
        assert ", loss " not in log


def objects_in(value):
    if isinstance(value, list):
        for entry in value:
            yield from objects_in(entry)
    elif isinstance(value, dict):
        yield value
        for entry in value.values():
            yield from objects_in(entry)


def objects_of(file):
    """The JSON objects of a file, also of one that a killed process left."""
    for text in file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]:
        with contextlib.suppress(ValueError):
            yield from objects_in(json.loads(text))


def expect_no_measure_of_one_client(out):
    """Walks every field of every file of a run folder."""
    files = [file for file in out.rglob("*") if file.suffix in (".json", ".jsonl")]
    for file in files:
        for found in objects_of(file):
            if not {"id", "client", "key"} & set(found):
                continue
            told = {name for name in MEASURES & set(found) if found[name]}
            assert not told, (file, told)
    for file in out.rglob("*.txt"):
        for line in file.read_text().splitlines():
            assert not re.search(r"(client|site)[ -]\d.*\b(loss|tokens|targets|norm|accuracy)\b", line), (file, line)
    return files


class Pages:
    """What the server's pages and `status` say while a run goes on."""

    def __init__(self, run):
        self.run, self.texts, self.over = run, [], threading.Event()
        self.thread = threading.Thread(target=self.read)

    def read(self):
        while not self.over.is_set():
            for page in ("metrics", "status"):
                with contextlib.suppress(OSError):
                    self.texts.append(urllib.request.urlopen(f"http://127.0.0.1:{self.run.port}/{page}", timeout=5).read().decode())
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def test_records_pages_and_audit_of_masked_rounds_have_no_measure_of_one_client(tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model)
        with Pages(run) as pages:
            run.finish()
    assert pages.texts
    for line in "\n".join(pages.texts).splitlines():
        assert not re.search(r"(client|site).*(loss|tokens|targets|norm|moved|accuracy)", line), line
    names = {file.name for file in expect_no_measure_of_one_client(run.out)}
    assert {"rounds.jsonl", "evaluations.jsonl", "audit.jsonl", "manifest.json"} <= names
    assert not re.search(r"(client|site)[ -]\d.*\b(loss|tokens|targets|norm)\b", run.log.read_text())
    for record in lines(run.out / "rounds.jsonl"):
        assert record["secure_aggregation"]["mode"] == "masks" and record["secure_aggregation"]["simulated"] is False
        assert record["loss"] > 0
        for client in record["clients"]:
            assert set(client) <= OPEN, set(client) - OPEN
    events = lines(run.out / "federation/audit.jsonl")
    assert sum(event["kind"] == "masked" and "the sum of 3 uploads is unmasked" in event["outcome"] for event in events) == 2
    assert all("moved" not in event for event in events)
    assert not (run.out / "federation/masked-round.json").exists()
    for file in (run.out / "checkpoint").rglob("*.json"):
        if "uploads" not in file.parent.name:
            continue
        journalled = json.loads(file.read_text())
        for name in ("tokens", "targets", "loss_sum", "first_loss", "last_loss"):
            assert journalled[name] == 0, file
        assert not journalled["counts"] and not journalled["metrics"], file


def test_a_node_that_is_private_for_its_rows_hides_among_the_others(tiny_model, tmp_path):
    private = ["--privacy-epsilon", 8, "--privacy-delta", 1e-3, "--privacy-clip", 0.1, "--privacy-lot", 2]
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model, flags=private, secure_aggregation__reports="false")
        run.finish()
    spent = []
    for record in lines(run.out / "rounds.jsonl"):
        assert not record.keys() & {"loss", "tokens", "targets", "layers", "metrics"}
        own, = [client["privacy"] for client in record["clients"] if "privacy" in client]
        assert "signal" not in own and own["withheld"] and not own["simulated"]
        spent.append(own["epsilon"])
    assert 0 < spent[0] < spent[1] <= 8
    audited = succeed("privacy", "--run", tmp_path / f"{run.keys[0].name}.memory").stdout
    assert "epsilon" in audited and "8" in audited, audited
    log = (tmp_path / f"{run.keys[0].stem}.log").read_text()
    assert "private steps, epsilon" in log and "masked the upload among 3 clients" in log and "times their noise" not in log


CLIENTS = {"privacy__unit": '"client"', "privacy__noise_multiplier": 2.0, "privacy__delta": 1e-3, "privacy__clip": 0.5,
           "secure_aggregation__reports": "false"}


def releases_of(key):
    return [line for line in lines(key.parent / f"{key.name}.memory/client-privacy/privacy.jsonl") if line["kind"] == "release"]


def test_nodes_that_add_the_noise_themselves_need_no_trusted_server(tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model, **CLIENTS)
        run.finish()
    for i, record in enumerate(lines(run.out / "rounds.jsonl")):
        assert not record.keys() & {"loss", "tokens", "targets", "layers", "metrics", "steps"}
        told = record["privacy"]
        plan = json.loads(succeed("privacy", "--json", "--delta", 1e-3, "--noise", 2, "--releases", i + 1).stdout)
        assert not told["simulated"] and told["honest"] == 3 and told["epsilon"] == pytest.approx(plan["epsilon"], rel=1e-9)
        assert record["secure_aggregation"]["mode"] == "masks" and not record["secure_aggregation"]["simulated"]
    secrets = []
    for key in run.keys:
        folder = key.parent / f"{key.name}.memory/client-privacy"
        assert [line["round"] for line in releases_of(key)] == [1, 2]
        assert releases_of(key)[-1]["epsilon"] == pytest.approx(told["epsilon"], rel=1e-6)
        assert f"{told['epsilon']:.4f}"[:5] in succeed("privacy", "--run", folder).stdout
        secrets.append((folder / "privacy.key", (folder / "privacy.key").read_bytes()))
        log = (tmp_path / f"{key.stem}.log").read_text()
        assert "private for this node as a whole, also towards the server" in log and "no budget at delta 0.001" in log
    assert len({secret for _, secret in secrets}) == NODES
    for own, secret in secrets:
        for file in (path for path in tmp_path.rglob("*") if path.is_file() and path != own):
            assert secret not in file.read_bytes(), file


def test_a_node_whose_own_budget_is_spent_leaves_and_the_others_go_on(tiny_model, tmp_path):
    plan = json.loads(succeed("privacy", "--json", "--delta", 1e-3, "--noise", 2, "--releases", 1).stdout)
    own = ["--client-epsilon", plan["epsilon"] + 0.1, "--client-delta", 1e-3]
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model, nodes=4, flags=own, clients__deadline=20, clients__quorum=3, **CLIENTS)
        assert wait_for(run.server, run.log) == 0, run.log.read_text()
    first, second = lines(run.out / "rounds.jsonl")
    assert "lost" not in first and first["participants"] == 4 and second["participants"] == 3
    assert "the privacy budget of this node as a client is spent" in second["lost"][0]["reason"]
    assert second["privacy"]["divisor"] == 4, "a lost client adds zero"
    assert [len(releases_of(key)) for key in run.keys] == [1, 2, 2, 2]


def test_a_node_with_a_budget_joins_no_run_without_noise_of_the_nodes(tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model, flags=["--client-epsilon", 3, "--client-delta", 1e-3])
        log = tmp_path / f"{run.keys[0].stem}.log"
        assert wait_for(run.nodes[0], log) == 1
    assert "this node was started with --client-epsilon" in log.read_text()


STAGES = {"keys are agreed": lambda run: run.journal().get("shares"),
          "an upload has arrived": lambda run: list(run.out.glob("checkpoint/uploads-*/*.json")),
          "the set is closed": lambda run: "set" in run.journal(),
          "masks are asked off": lambda run: run.journal().get("asked"),
          "the sum is stored": lambda run: run.journal().get("files")}


@pytest.mark.parametrize("stage", STAGES)
def test_a_server_that_is_killed_in_a_masked_round_resumes_to_the_same_bits(stage, local, tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model)
        wait_until(lambda: STAGES[stage](run) or run.server.poll() is not None, run.log)
        run.server.send_signal(signal.SIGKILL)
        run.server.wait()
        run.resume()
        run.finish()
    expect_same_run(run.out, local)


@pytest.mark.parametrize("stage", ["keys are agreed", pytest.param("an upload has arrived", marks=slow)])
def test_a_node_that_is_killed_in_a_masked_round_comes_back_with_its_keys(stage, local, tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model)
        wait_until(lambda: STAGES[stage](run) or run.server.poll() is not None, run.log)
        run.nodes[1].send_signal(signal.SIGKILL)
        run.nodes[1].wait()
        run.nodes[1] = run.node(run.keys[1])
        run.finish()
    expect_same_run(run.out, local)


@nightly
def test_a_node_that_is_gone_in_training_is_recovered_from_the_others(tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model, nodes=4, clients__deadline=6, clients__quorum=3)
        wait_until(lambda: run.journal().get("shares") or run.server.poll() is not None, run.log)
        run.nodes[3].send_signal(signal.SIGKILL)
        run.nodes[3].wait()
        assert wait_for(run.server, run.log) == 0, run.log.read_text()
    first, second = lines(run.out / "rounds.jsonl")
    assert [client["id"] for client in first["lost"]] == [client["id"] for client in second["lost"]] and len(first["lost"]) == 1
    assert first["secure_aggregation"]["clients"] == 3 == second["secure_aggregation"]["clients"]
    outcomes = [event["outcome"] for event in lines(run.out / "federation/audit.jsonl") if event["kind"] == "masked"]
    assert "attempt 0, 4 members, threshold 3: the sum of 3 uploads is unmasked" in outcomes
    assert "attempt 1, 3 members, threshold 3: the sum of 3 uploads is unmasked" in outcomes


def test_an_upload_that_comes_after_its_masks_were_recovered_is_thrown_away(tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model, nodes=4, clients__deadline=6, clients__quorum=3)
        wait_until(lambda: run.journal().get("shares") or run.server.poll() is not None, run.log)
        run.nodes[3].send_signal(signal.SIGSTOP)
        wait_until(lambda: lines(run.out / "rounds.jsonl") or run.server.poll() is not None, run.log)
        run.nodes[3].send_signal(signal.SIGCONT)
        assert wait_for(run.server, run.log) == 0, run.log.read_text()
    first = lines(run.out / "rounds.jsonl")[0]
    (lost,) = [client["id"] for client in first["lost"]]  # nodes become clients in order of arrival
    assert first["secure_aggregation"]["clients"] == 3
    events = lines(run.out / "federation/audit.jsonl")
    assert not [event for event in events if event["kind"] == "reply" and (event["client"], event["round"]) == (lost, 1)]


def test_a_round_with_too_few_uploads_is_given_up_and_goes_on_when_the_node_is_back(local, tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model, clients__deadline=5)
        wait_until(lambda: run.journal().get("shares") or run.server.poll() is not None, run.log)
        run.nodes[2].send_signal(signal.SIGKILL)
        run.nodes[2].wait()
        assert wait_for(run.server, run.log) == 1, run.log.read_text()
        said = run.log.read_text()
        assert said.count("begins again") == 2
        assert "2 clients are left to mask their uploads, secure_aggregation.threshold is 3" in said.splitlines()[-1]
        (stop,) = [event for event in lines(run.out / "federation/audit.jsonl") if event["kind"] == "stop"]
        assert "secure_aggregation.threshold is 3" in stop["outcome"]
        run.nodes[2] = run.node(run.keys[2])
        run.resume()
        run.finish()
    assert (run.out / ADAPTER).read_bytes() == (local / ADAPTER).read_bytes()


def test_serve_says_what_cannot_be_masked_before_a_node_may_join(tiny_model, tmp_path):
    keygen(tmp_path, NODES)
    serve = ["serve", CONFIG, "--out", tmp_path / "run", "--listen", f"127.0.0.1:{free_port()}", "--allow", tmp_path / "keys.txt",
             "--insecure"]
    one_line(evenkeel(*serve, *words(tiny_model, "sums")), 'secure_aggregation.mode is "sums", allowed: off or masks')
    one_line(evenkeel(*serve, *words(tiny_model, "masks"), "--set", 'method.name="flora"'), "flora")
    one_line(evenkeel(*serve, *words(tiny_model, "masks", 2)), "masks need 3 or more")
    assert not (tmp_path / "run").exists()


def test_a_node_with_peers_joins_no_run_without_masks(tiny_model, tmp_path):
    keys = keygen(tmp_path, NODES)
    log = tmp_path / "site-0.log"
    with Processes() as processes:
        address = f"127.0.0.1:{free_port()}"
        processes.start("serve", CONFIG, *[word.replace('"masks"', '"off"') for word in map(str, words(tiny_model, "masks"))], "--out",
                        tmp_path / "run", "--listen", address, "--allow", tmp_path / "keys.txt", "--insecure", log=tmp_path / "serve.log")
        node = processes.start(*node_arguments(keys[0], tiny_model, address, "--peers", tmp_path / "keys.txt"), log=log)
        assert wait_for(node, log) == 1
    assert "this node was started with --peers or --min-peers" in log.read_text()


def test_masked_rounds_cannot_be_repeated(local, tiny_model, tmp_path):
    with Processes() as processes:
        run = Hidden(processes, tmp_path, tiny_model)
        run.finish()
    one_line(evenkeel(*run.words, "--resume", "--from-round", 1), "--from-round", "begin a new run from the adapter of round 1")


def test_bad_options_of_masks_are_one_line(tiny_model, tmp_path):
    (key, *_) = keygen(tmp_path, 1)
    (tmp_path / "empty.pem").write_text("")
    node = node_arguments(key, tiny_model, f"127.0.0.1:{free_port()}")
    one_line(evenkeel(*node, "--peers", tmp_path / "none.pem"), "none.pem")
    one_line(evenkeel(*node, "--peers", tmp_path / "empty.pem"), "empty.pem")
    one_line(evenkeel(*node, "--min-peers", 2), "--min-peers is 2, allowed: 3 or more, up to 100")
    one_line(evenkeel(*node, "--client-epsilon", 3), "--client-epsilon and --client-delta", "delta is 0")
    one_line(evenkeel(*node, "--client-epsilon", -3, "--client-delta", 1e-5), "--client-epsilon and --client-delta", "epsilon is -3")

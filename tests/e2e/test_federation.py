"""Compares a federation of separate processes, `evenkeel serve` and `evenkeel node`, each with its own key, folder and
memory, with a local run of the same config.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from tiny import PROGRAM, ROOT, evenkeel, lines, one_line, settings, slow, succeed, without_seconds

CLIENTS = 4
DEADLINE = 600


def run_settings(model, method, **changes):
    return settings(**{"model__path": f'"{model}"', "method__name": f'"{method}"', "clients__count": CLIENTS,
                       "clients__budgets": "[0.25, 0.5, 0.5, 1.0]", "clients__participation": 1.0, "threads": 1, "train__rounds": 2,
                       "evaluate__limit": 4, **changes})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Processes(contextlib.ExitStack):
    """Child processes that end with the test."""

    def start(self, *arguments, log, inside=()):
        out = open(log, "a", encoding="utf-8")  # noqa: SIM115 (closed with the stack)
        self.callback(out.close)
        process = subprocess.Popen([*inside, PROGRAM, *map(str, arguments)], stdout=out, stderr=subprocess.STDOUT, cwd=ROOT,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.callback(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()


def keygen(folder, count=CLIENTS):
    """Creates `count` node keys and the allow-list keys.txt. Returns the key files."""
    printed = [succeed("keygen", folder / f"site-{i}.pem").stdout for i in range(count)]
    (folder / "keys.txt").write_text("".join(printed))
    return [folder / f"site-{i}.pem" for i in range(count)]


def node_arguments(key, model, address, *more, least=1):
    """least: the fewest test rows that the node gives scores of; None: the program's own number."""
    return ["node", "--superlink", address, "--insecure", "--key", key, "--model", model, "--poll", 0.05, "--once",
            *(["--min-test-rows", least] if least else []), *more]


def wait_for(process, log, seconds=DEADLINE):
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        pytest.fail(f"not at its end after {seconds} s; its log:\n{log.read_text()}")
    return process.returncode


def wait_until(condition, log, seconds=DEADLINE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.02)


def federation(processes, tmp_path, model, method, *more_of_serve, address=None, inside=(), node_inside=None, **changes):
    """Starts a server and its nodes. Returns (server, nodes, run folder, arguments of serve)."""
    keys = keygen(tmp_path)
    address = address or f"127.0.0.1:{free_port()}"
    serve = ["serve", "configs/tiny/train.toml", *run_settings(model, method, **changes), "--out", tmp_path / "run",
             "--listen", address, "--allow", tmp_path / "keys.txt", "--insecure", *more_of_serve]
    server = processes.start(*serve, log=tmp_path / "serve.log", inside=inside)
    nodes = [processes.start(*node_arguments(key, model, address), log=tmp_path / f"{key.stem}.log",
                             inside=node_inside(i) if node_inside else ()) for i, key in enumerate(keys)]
    return server, nodes, tmp_path / "run", serve


def local_run(tmp_path, model, method, **changes):
    folder = tmp_path / "local"
    succeed("train", "configs/tiny/train.toml", *run_settings(model, method, **changes), "--out", folder, timeout=DEADLINE)
    return folder


def same_run(one, other):
    for file in ("adapter_model.safetensors", "adapter_config.json"):
        assert (one / "adapter" / file).read_bytes() == (other / "adapter" / file).read_bytes(), file
    for file in ("rounds.jsonl", "evaluations.jsonl"):
        assert without_seconds(lines(one / file)) == without_seconds(lines(other / file)), file


@pytest.mark.parametrize("method", ["ub-smoe", *(pytest.param(more, marks=slow) for more in ["fedit", "flexlora", "flora"])])
def test_a_served_run_is_bit_identical_to_a_local_run(method, tiny_model, tmp_path):
    local = local_run(tmp_path, tiny_model, method)
    with Processes() as processes:
        server, nodes, run, _ = federation(processes, tmp_path, tiny_model, method)
        assert wait_for(server, tmp_path / "serve.log") == 0, (tmp_path / "serve.log").read_text()
        for i, node in enumerate(nodes):
            log = tmp_path / f"site-{i}.log"
            assert wait_for(node, log) == 0, log.read_text()
            assert log.read_text().count("this node will send, in each round: A and B of every adapted weight") == 1
    same_run(local, run)
    for key in ["site-0.pem", "site-3.pem"]:
        (taken,) = (tmp_path / f"{key}.adapters").iterdir()
        assert (taken / "adapter_model.safetensors").read_bytes() == (local / "adapter/adapter_model.safetensors").read_bytes()
        assert json.loads((taken / "adapter_config.json").read_text())["base_model_name_or_path"] == str(tiny_model)
        assert str(taken) in (tmp_path / f"{key.removesuffix('.pem')}.log").read_text()
    events = lines(run / "federation/audit.jsonl")
    assert len([event for event in events if event["kind"] == "reply"]) == 2 * CLIENTS


def test_a_server_killed_in_a_round_resumes_to_the_same_bits(tiny_model, tmp_path):
    local = local_run(tmp_path, tiny_model, "hetlora")
    log = tmp_path / "serve.log"
    with Processes() as processes:
        server, _, run, serve = federation(processes, tmp_path, tiny_model, "hetlora")
        uploads = run / "checkpoint"
        wait_until(lambda: list(uploads.glob("uploads-2/*.json")) or server.poll() is not None, log)
        server.send_signal(signal.SIGKILL)
        server.wait()
        assert len(lines(run / "rounds.jsonl")) == 1, log.read_text()
        again = processes.start(*serve, "--resume", log=log)
        assert wait_for(again, log) == 0, log.read_text()
    same_run(local, run)


@slow
def test_a_node_that_is_killed_and_restarted_changes_no_bit(tiny_model, tmp_path):
    local = local_run(tmp_path, tiny_model, "ub-smoe")
    log = tmp_path / "serve.log"
    with Processes() as processes:
        server, nodes, run, serve = federation(processes, tmp_path, tiny_model, "ub-smoe")
        wait_until(lambda: lines(run / "rounds.jsonl") or server.poll() is not None, log)
        nodes[2].send_signal(signal.SIGKILL)
        nodes[2].wait()
        address = serve[serve.index("--listen") + 1]
        processes.start(*node_arguments(tmp_path / "site-2.pem", tiny_model, address), log=tmp_path / "site-2.log")
        assert wait_for(server, log) == 0, log.read_text()
    same_run(local, run)


@contextlib.contextmanager
def namespaces(count):
    """Creates `count` network namespaces, each with an address, connected like hosts of one network.

    Skips the test if the system does not allow this.
    """
    names = [f"evenkeel-{os.getpid()}-{i}" for i in range(count)]
    bridge = f"ek{os.getpid() % 100000}"

    def ip(*words):
        return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)

    if shutil.which("ip") is None or ip("link", "add", bridge, "type", "bridge").returncode != 0:
        pytest.skip("network namespaces need ip and the right to make them")
    try:
        ip("link", "set", bridge, "up")
        for i, name in enumerate(names):
            done = ip("netns", "add", name)
            if done.returncode != 0:
                pytest.skip(f"network namespaces are refused: {done.stderr}")
            ip("link", "add", f"{bridge}v{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{bridge}v{i}", "master", bridge, "up")
            ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name)
        ip("link", "del", bridge)


@pytest.mark.parametrize("method", ["fedit", *(pytest.param(more, marks=slow) for more in ["ub-smoe", "flexlora", "flora"])])
def test_a_served_run_on_separate_hosts_is_bit_identical_to_a_local_run(method, tiny_model, tmp_path):
    local = local_run(tmp_path, tiny_model, method)
    with namespaces(CLIENTS + 1) as hosts, Processes() as processes:
        inside = [["ip", "netns", "exec", host] for host in hosts]
        server, _, run, _ = federation(processes, tmp_path, tiny_model, method, address="10.77.0.1:8000",
                                       inside=inside[0], node_inside=lambda i: inside[i + 1])
        assert wait_for(server, tmp_path / "serve.log") == 0, (tmp_path / "serve.log").read_text()
    same_run(local, run)


def test_a_key_identifies_its_client_and_unknown_keys_are_rejected(tiny_model, tmp_path):
    key = tmp_path / "stranger.pem"
    succeed("keygen", key)
    assert key.stat().st_mode & 0o777 == 0o600
    one_line(evenkeel("keygen", key), "stranger.pem")
    with Processes() as processes:
        keygen(tmp_path)
        address = f"127.0.0.1:{free_port()}"
        processes.start("serve", "configs/tiny/train.toml", *run_settings(tiny_model, "fedit"), "--out", tmp_path / "run", "--listen", address,
                        "--allow", tmp_path / "keys.txt", "--insecure", log=tmp_path / "serve.log")  # waits for nodes
        refused = evenkeel(*node_arguments(key, tiny_model, address), timeout=600)
        assert re.search(r"127\.0\.0\.1.*its key SHA256:\S+ is not known there", one_line(refused)), refused.stderr


def test_invalid_command_lines_of_serve_and_node_are_rejected(tiny_model, tmp_path):
    succeed("keygen", tmp_path / "a.pem")
    one_line(evenkeel("serve", "configs/tiny/train.toml", "--open"), "TLS", "insecure")
    one_line(evenkeel("serve", "configs/tiny/train.toml", "--insecure"), "--allow", "--open")
    one_line(evenkeel("serve", "configs/tiny/train.toml", "--open", "--insecure", "--listen", "nowhere"), "--listen", "nowhere")
    one_line(evenkeel("node", "--key", tmp_path / "a.pem", "--model", tiny_model), "insecure")
    one_line(evenkeel("node", "--key", tmp_path / "a.pem", "--model", tiny_model, "--insecure", "--budget", "2"), "--budget")


def test_both_sides_report_why_a_node_cannot_join(tiny_model, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    settings_of_other = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(settings_of_other | {"rope_theta": 12345.0}))
    with Processes() as processes:
        server, nodes, _, _ = federation(processes, tmp_path, tiny_model, "fedit")
        processes.end(nodes[0])
        log = tmp_path / "site-0.log"
        node = processes.start(*node_arguments(tmp_path / "site-0.pem", other, server.args[server.args.index("--listen") + 1]), log=log)
        assert wait_for(node, log) == 1
        reason = f"the model in {other} is not the server's: a file of its weights, config, tokenizer or chat template is another one"
        assert f"evenkeel: [config] {reason}" in log.read_text()
        served = tmp_path / "serve.log"
        wait_until(lambda: f"does not join: [config] {reason}" in served.read_text(), served)


def test_two_servers_cannot_share_a_port(tiny_model, tmp_path):
    with Processes() as processes:
        _, _, _, serve = federation(processes, tmp_path, tiny_model, "fedit", train__rounds=50)
        wait_until(lambda: "listening" in (tmp_path / "serve.log").read_text(), tmp_path / "serve.log")
        serve[serve.index("--out") + 1] = tmp_path / "second"
        one_line(evenkeel(*serve, timeout=DEADLINE), serve[serve.index("--listen") + 1], "in use by another process")
        assert not (tmp_path / "second").exists()


def own_rows_config(folder, count=2, colours=("red", "green", "blue")):
    """Writes a config whose clients have their own alpaca rows about colours, in a file each."""
    (folder / "rows").mkdir()
    text = (ROOT / "configs/tiny/train.toml").read_text()
    text = re.sub(r"\[data\].*?(?=\[clients\])", "[data]\ntask = 'files'\ncutoff = 256\nfiles = { held_out = 0.25, score = 'f1' }\n\n", text,
                  flags=re.DOTALL)
    text = re.sub(r"\[clients\].*?(?=\[method\])", "", text, flags=re.DOTALL)
    for i in range(count):
        rows = [{"instruction": f"What colour is thing {i}-{j}?", "input": "", "output": colours[(i + j) % 3]}
                for j in range(8 + 4 * i)]
        (folder / f"rows/site-{i}.json").write_text(json.dumps(rows))
        text += f'\n[[clients.client]]\nname = "site-{i}"\ndata = ["{folder}/rows/site-{i}.json"]\nbudget = {[0.25, 1.0][i]}\n'
    (folder / "own.toml").write_text(text)
    return folder / "own.toml"


def test_a_served_run_with_rows_on_the_nodes_is_bit_identical_to_a_local_run(tiny_model, tmp_path):
    config = own_rows_config(tmp_path)
    changes = settings(model__path=f'"{tiny_model}"', train__rounds=1)
    succeed("train", config, *changes, "--out", tmp_path / "local", timeout=DEADLINE)
    keys, log, address = keygen(tmp_path, 2), tmp_path / "serve.log", f"127.0.0.1:{free_port()}"
    with Processes() as processes:
        server = processes.start("serve", config, *changes, "--out", tmp_path / "run", "--listen", address, "--allow",
                                 tmp_path / "keys.txt", "--insecure", log=log)
        # The nodes start in reverse order: the key, not the order of joining, decides which client a node is
        for i, key in reversed(list(enumerate(keys))):
            processes.start(*node_arguments(key, tiny_model, address, "--data", tmp_path / f"rows/site-{i}.json"),
                            log=tmp_path / f"site-{i}.log")
        assert wait_for(server, log) == 0, log.read_text() + (tmp_path / "site-0.log").read_text()
    adapter = "adapter/adapter_model.safetensors"
    assert (tmp_path / "run" / adapter).read_bytes() == (tmp_path / "local" / adapter).read_bytes()
    assert without_seconds(lines(tmp_path / "run/rounds.jsonl")) == without_seconds(lines(tmp_path / "local/rounds.jsonl"))
    same_scores(tmp_path / "local", tmp_path / "run")
    assert "site-0.json" not in (tmp_path / "run/config.toml").read_text()
    shown = succeed("status", tmp_path / "run").stdout
    training, scores = shown.split("scores: the last exchange")
    assert "round 1 of 1" in shown and training.count("reply") == scores.count("reply") == 2 and "site-1" in training


def same_scores(local, run):
    """Compares evaluations in order. Floats may differ by 1e-12, and log-likelihoods by 1e-4.

    The majority rate of all rows is that of each client's most frequent answer, because no node says which answer that is.
    """
    expected, found = (without_seconds(lines(folder / "evaluations.jsonl")) for folder in (local, run))
    assert len(expected) == len(found) > 0
    for one, other in zip(expected, found):
        assert one.keys() == other.keys()
        for key in one.keys() - {"checksum"}:
            if key == "majority" and one.get("rows_of") != "own":
                assert one[key] <= other[key] <= 1
                continue
            least = 1e-4 if key == "log_likelihood" else 1e-12  # the last digits of log-likelihoods depend on the batch
            assert other[key] == (pytest.approx(one[key], abs=least) if isinstance(one[key], float) else one[key]), (key, one, other)


@pytest.mark.parametrize("score, options", [("choice", '["red", "green", "blue"]'), ("nll", "[]"), ("f1", "[]")])
def test_rows_on_nodes_are_scored_as_in_a_local_run(score, options, tiny_model, tmp_path):
    """Compares scores before and after training, at each budget of `evaluate.budgets` and at each client's own budget.

    They are computed on a sample of each client's rows and on these samples together. In free text, some references are longer than
    what is generated: their likelihood is not known.
    """
    config = own_rows_config(tmp_path, colours=("red", "green", "blue as the sky above" if score == "f1" else "blue"))
    changes = settings(model__path=f'"{tiny_model}"', train__rounds=1, evaluate__budgets="[0.25, 1.0]", evaluate__before="true",
                       evaluate__per_client="true", evaluate__limit=2, evaluate__max_new_tokens=4,
                       data__files__score=f'"{score}"', data__files__options=options)
    succeed("train", config, *changes, "--out", tmp_path / "local", timeout=DEADLINE)
    keys, log, address = keygen(tmp_path, 2), tmp_path / "serve.log", f"127.0.0.1:{free_port()}"
    with Processes() as processes:
        server = processes.start("serve", config, *changes, "--out", tmp_path / "run", "--listen", address, "--allow",
                                 tmp_path / "keys.txt", "--insecure", "--no-evaluation", log=log)
        for i, key in enumerate(keys):
            processes.start(*node_arguments(key, tiny_model, address, "--data", tmp_path / f"rows/site-{i}.json"),
                            log=tmp_path / f"site-{i}.log")
        assert wait_for(server, log) == 0, log.read_text() + (tmp_path / "site-0.log").read_text()
    same_scores(tmp_path / "local", tmp_path / "run")
    progress = [line for line in (tmp_path / "run/log.txt").read_text().splitlines() if "] evaluate" in line or " evaluate " in line]
    assert progress and all(re.search(r"files at budget \S+, scores of \d/2 clients", line) for line in progress), progress
    scores = lines(tmp_path / "run/evaluations.jsonl")
    assert len([line for line in scores if line.get("rows_of") == "own"]) == 4
    counted = [line["likelihood_rows"] for line in scores if "client" not in line]
    assert len(counted) == 4 and all(0 < count < 4 if score == "f1" else count == 4 for count in counted), counted
    assert "site-0" in succeed("report", tmp_path / "run", "--table", "client-scores").stdout
    if score == "choice":
        own = {line["client"]: (line["majority"], line["rows"]) for line in scores if line.get("rows_of") == "own"}
        of_all = sum(majority * rows for majority, rows in own.values()) / sum(rows for _, rows in own.values())
        assert [line["majority"] for line in scores if line.get("rows_of") != "own"] == pytest.approx([of_all] * 8)
    again = evenkeel("evaluate", "--run", tmp_path / "run")
    one_line(again, "at its nodes", "--data FILE")
    rows = ["--tasks", "files", "--data", tmp_path / "rows/site-0.json", "--score", score, "--json"]
    rows += ["--options", "red,green,blue"] if score == "choice" else []
    texts = [succeed("evaluate", "--run", tmp_path / name, *rows).stdout for name in ("local", "run")]
    here, served = ([without_seconds(json.loads(line)) for line in text.splitlines()] for text in texts)
    assert here == served and len(here) == 2 and all(one["rows"] > 0 for one in here), here


def test_a_server_without_evaluation_leaves_its_tasks_out(tiny_model, tmp_path):
    key, log, address = keygen(tmp_path, 1)[0], tmp_path / "serve.log", f"127.0.0.1:{free_port()}"
    changes = settings(model__path=f'"{tiny_model}"', train__rounds=1, clients__count=1, clients__participation=1.0, clients__budgets="[1.0]")
    with Processes() as processes:
        server = processes.start("serve", "configs/tiny/train.toml", *changes, "--out", tmp_path / "run", "--listen", address, "--allow",
                                 tmp_path / "keys.txt", "--insecure", "--no-evaluation", log=log)
        processes.start(*node_arguments(key, tiny_model, address), log=tmp_path / "site-0.log")
        assert wait_for(server, log) == 0, log.read_text()
    assert len(lines(tmp_path / "run/rounds.jsonl")) == 1 and lines(tmp_path / "run/evaluations.jsonl") == []
    assert "done" in succeed("status", tmp_path / "run").stdout


def test_a_server_whose_nodes_could_have_no_rows_does_not_listen(tiny_model, tmp_path):
    config = own_rows_config(tmp_path, 1)
    text = config.read_text().split("[[clients.client]]")[0].replace("held_out = 0.25", f'train = ["{tmp_path}/rows/site-0.json"]')
    config.write_text(text + "[clients]\ncount = 1\nbudgets = [0.5]\n")
    keygen(tmp_path, 1)
    done = evenkeel("serve", config, *settings(model__path=f'"{tiny_model}"'), "--out", tmp_path / "run", "--listen", "127.0.0.1:0",
                    "--allow", tmp_path / "keys.txt", "--insecure")
    one_line(done, 'data.task is "files"', "a node reads none but its own: write a [[clients.client]] with `data` for every client")
    assert "listening" not in done.stderr and not (tmp_path / "run").exists()


@slow
def test_a_node_that_measures_its_machine_reports_its_budget(tiny_model, tmp_path):
    (key,) = keygen(tmp_path, 1)
    address, log = f"127.0.0.1:{free_port()}", tmp_path / "serve.log"
    with Processes() as processes:
        server = processes.start("serve", "configs/tiny/train.toml", *run_settings(tiny_model, "ub-smoe", clients__count=1,
                                                                                  clients__budgets="[0.25]", train__rounds=1),
                                 "--out", tmp_path / "run", "--listen", address, "--allow", tmp_path / "keys.txt", "--insecure", log=log)
        processes.start(*node_arguments(key, tiny_model, address, "--budget", "auto"), log=tmp_path / "node.log")
        assert wait_for(server, log) == 0, log.read_text() + (tmp_path / "node.log").read_text()
    (client,) = lines(tmp_path / "run/rounds.jsonl")[0]["clients"]
    assert client["budget"] == 1.0, "this machine is done with a round of the tiny model in far less than ten minutes"
    assert "budgets = [1.0]" in (tmp_path / "run/config.toml").read_text()

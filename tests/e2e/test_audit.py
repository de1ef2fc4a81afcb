"""Audit logs of a server and its nodes: what they hold, how they survive kills, and how damage is found."""

import collections
import hashlib
import json
import random
import re
import signal
import time

import pytest

from test_federation import (DEADLINE, Processes, free_port, keygen, node_arguments, own_rows_config, run_settings, same_scores, wait_for,
                             wait_until)
from tiny import ROOT, evenkeel, lines, one_line, settings, slow, succeed, tiny_model  # noqa: F401 (a fixture)


def start(processes, tmp_path, model, config, *more, nodes=2, **changes):
    """Starts a server whose clients have rows of their own, and its nodes. Returns (server, nodes, run folder, words of serve)."""
    keys, address = keygen(tmp_path, nodes), f"127.0.0.1:{free_port()}"
    serve = ["serve", config, *settings(model__path=f'"{model}"', threads=1, **changes), "--out", tmp_path / "run", "--listen", address,
             "--allow", tmp_path / "keys.txt", "--insecure", *more]
    server = processes.start(*serve, log=tmp_path / "serve.log")
    started = [processes.start(*node_words(tmp_path, model, address, key, i), log=tmp_path / f"site-{i}.log") for i, key in enumerate(keys)]
    return server, started, tmp_path / "run", serve


def node_words(tmp_path, model, address, key, i):
    return node_arguments(key, model, address, "--data", tmp_path / f"rows/site-{i}.json")


@pytest.fixture(scope="module")
def federation(tiny_model, tmp_path_factory):  # noqa: F811
    """A finished run of two rounds with scores at four points. Returns its folder."""
    folder = tmp_path_factory.mktemp("federation")
    config = own_rows_config(folder)
    with Processes() as processes:
        server, nodes, _, _ = start(processes, folder, tiny_model, config, train__rounds=2, evaluate__every=1,
                                    evaluate__budgets="[0.125, 0.25, 0.5, 1.0]")
        assert wait_for(server, folder / "serve.log") == 0, (folder / "serve.log").read_text()
        for i, node in enumerate(nodes):
            assert wait_for(node, folder / f"site-{i}.log") == 0, (folder / f"site-{i}.log").read_text()
    return folder


def of(events, kind, work=None):
    return [event for event in events if event["kind"] == kind and (work is None or event.get("work") == work)]


def test_both_sides_record_each_event_and_confirm_each_other(federation):
    server = lines(federation / "run/federation/audit.jsonl")
    nodes = [lines(federation / f"site-{i}.pem.memory/audit.jsonl") for i in range(2)]
    kinds = collections.Counter(event["kind"] for event in server)
    assert kinds["start"] == kinds["stop"] == 1 and kinds["offer"] == kinds["join"] == kinds["adapter"] == kinds["round"] == 2
    assert [event["round"] for event in of(server, "round")] == [1, 2]
    assert len(of(server, "reply", "train")) == len(of(server, "task", "train")) == 4
    assert len(of(server, "reply", "score")) == 16 and not of(server, "lost")
    for event in server:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"])
        if event["kind"] in {"offer", "join", "task", "reply"}:
            assert event["name"] == f"site-{event['client']}" and event["key"].startswith("SHA256:")
    heads = [{hashlib.sha256(line).hexdigest() for line in file.read_bytes().splitlines()}
             for file in (federation / f"site-{i}.pem.memory/audit.jsonl" for i in range(2))]
    own = {hashlib.sha256(line).hexdigest() for line in (federation / "run/federation/audit.jsonl").read_bytes().splitlines()}
    for i, events in enumerate(nodes):
        for kind, digest in (("task", "task"), ("reply", "reply")):
            expected = [(e["round"], e["digest"]) for e in of(server, kind, "train") if e["client"] == i]
            assert [(e["round"], e["digest"]) for e in of(events, digest, "train")] == expected and len(expected) == 2
        assert {e["peer"] for e in events if "peer" in e} <= own, "the node noted heads of the server's log"
        assert {e["peer"] for e in server if "peer" in e and e.get("client") == i} <= heads[i], "and the server those of the node's"
        assert [e["outcome"] for e in of(events, "outcome")] == ["taken", "taken"]
        assert len(of(events, "over")) == len(of(events, "adapter")) == len(of(events, "stop")) == 1


def test_no_log_has_rows_or_values_of_scores(federation):
    scores = lines(federation / "run/evaluations.jsonl")
    texts = [(federation / file).read_text() for file in
             ("run/federation/audit.jsonl", "site-0.pem.memory/audit.jsonl", "site-1.pem.memory/audit.jsonl")]
    for text in texts:
        assert "colour" not in text and "thing" not in text
        for score in scores:
            for key in ("log_likelihood", "token_f1"):
                assert key not in text and (not score.get(key) or str(score[key]) not in text)
    assert all("digest" not in event for event in of(lines(federation / "run/federation/audit.jsonl"), "reply", "score"))


def test_a_score_brings_the_adapter_once_after_each_round(federation):
    server = lines(federation / "run/federation/audit.jsonl")
    for client in range(2):
        for after in (1, 2):
            sent = [e["bytes_down"] for e in of(server, "task", "score") if e["client"] == client and e["round"] == after]
            assert len(sent) == 4 and sent[0] > 10000 and max(sent[1:]) < 1000, sent
    training = sum(e["bytes_down"] for e in of(server, "reply", "train"))
    assert sum(e["bytes_down"] for e in of(server, "reply", "score")) < training


def test_scores_with_named_payloads_are_those_of_a_local_run(federation, tiny_model, tmp_path):  # noqa: F811
    changes = settings(model__path=f'"{tiny_model}"', threads=1, train__rounds=2, evaluate__every=1, evaluate__budgets="[0.125, 0.25, 0.5, 1.0]")
    succeed("train", federation / "own.toml", *changes, "--out", tmp_path / "local", timeout=DEADLINE)
    same_scores(tmp_path / "local", federation / "run")


def test_status_shows_training_and_scores_apart(federation):
    shown = succeed("status", federation / "run").stdout
    assert "round 2 of 2" in shown and "round 3" not in shown
    training, scores = shown.split("scores: the last exchange")
    rows = re.findall(r"^(\d) +site-\d +\S+ +\d+ +(\d+) +\S+ +(\S+) +(\S+) +reply$", training, re.MULTILINE)
    assert [(row[0], row[1]) for row in rows] == [("0", "2"), ("1", "2")] and all(float(n) > 0 for row in rows for n in row[2:])
    assert len(re.findall(r"^\d +2 +\S+ +\S+ +\S+ +reply$", scores, re.MULTILINE)) == 2
    assert re.search(r"training \d+\.\d\d MiB down and \d+\.\d\d up in 4 exchanges, scores \S+ MiB down and \S+ up in 16 exchanges", shown)
    report = succeed("report", federation / "run", "--table", "traffic").stdout
    assert "traffic of training" in report and "scores of nodes" in report


def test_a_node_writes_a_line_for_each_round(federation):
    for i in range(2):
        log = (federation / f"site-{i}.log").read_text()
        for done in (1, 2):
            assert re.search(rf"\[node\] round {done}: received \d\.\d\d MiB, trained on {6 if i == 0 else 9} rows in \d+ steps, "
                             r"loss \d+\.\d{4} \(first step \S+, last \S+\), sent \d\.\d\d MiB", log), log
            assert re.search(rf"\[node\] after round {done}: scored its test rows 4 times, received \S+ MiB, sent \S+ MiB", log), log
        assert "did not take" not in log


def test_the_chain_is_checked_on_both_sides_and_heads_are_found(federation):
    run = federation / "run"
    shown = succeed("status", run, "--audit").stdout
    head = re.search(r"^head: ([0-9a-f]{64})$", shown, re.MULTILINE).group(1)
    assert head in (run / "log.txt").read_text()
    assert head == hashlib.sha256((run / "federation/audit.jsonl").read_bytes().splitlines()[-1]).hexdigest()
    for folder in (federation / "site-0.pem.memory", federation / "site-1.pem.memory/audit.jsonl"):
        assert "each of which goes on from the one before" in succeed("status", folder, "--audit").stdout
    noted = re.findall(r"head of federation/audit.jsonl: ([0-9a-f]{64})", (run / "log.txt").read_text())
    peers = [event["peer"] for event in lines(federation / "site-0.pem.memory/audit.jsonl") if "peer" in event]
    assert len(noted) == 3
    flags = [word for digest in sorted({*noted, *peers}) for word in ("--head", digest)]
    assert succeed("status", run, "--audit", *flags).stdout.count("is the digest of line number") == len({*noted, *peers})
    one_line(evenkeel("status", run, "--audit", "--head", "0" * 63 + "1"), "no line has the digest", "cut off or written anew")
    one_line(evenkeel("status", federation / "rows", "--audit"), "no audit log is here")
    one_line(evenkeel("status", "--audit", "--server", "127.0.0.1:1", "--insecure"), "--audit")
    one_line(evenkeel("status", run, "--head", head), "--head", "--audit")


def test_both_logs_are_compared_and_one_that_was_made_anew_is_found(federation, tmp_path):
    run, node = federation / "run", federation / "site-1.pem.memory"
    for one, other in ((run, node), (node, run)):
        assert re.search(r"both logs confirm each other: the node noted \d\d heads of the server's log, the server \d\d of the node's",
                         succeed("status", one, "--audit", "--with", other).stdout)
    one_line(evenkeel("status", run, "--audit", "--with", run), "one of both")
    one_line(evenkeel("status", node, "--audit", "--with", federation / "site-0.pem.memory"), "one of both")
    for place, source, other in (("run", run / "federation/audit.jsonl", node), ("node", node / "audit.jsonl", run)):
        events = lines(source)
        changed = max(i for i, event in enumerate(events) if event["kind"] == "task") - 2
        events[changed]["outcome"] = "nothing to see here"
        for event in events:
            event.pop("checksum")
        write_chain(tmp_path / place, events)
        assert "goes on from the one before" in succeed("status", tmp_path / place, "--audit").stdout
        one_line(evenkeel("status", tmp_path / place, "--audit", "--with", other), "is no line of", "cut off or written anew")
        write_chain(tmp_path / f"short-{place}", events[:changed])
        one_line(evenkeel("status", tmp_path / f"short-{place}", "--audit", "--with", other), "is no line of")


def write_chain(folder, events):
    """Writes events as a chain that holds, as somebody can who owns the file."""
    folder.mkdir()
    before, text = "0" * 64, b""
    for event in events:
        body = json.dumps({**event, "before": before}, separators=(",", ":"), ensure_ascii=False)[:-1] + ","
        line = (body + f'"checksum":"{hashlib.sha256(body.encode()).hexdigest()[:16]}"' + "}").encode()
        before, text = hashlib.sha256(line).hexdigest(), text + line + b"\n"
    (folder / "audit.jsonl").write_bytes(text)


@pytest.mark.parametrize("damage, line, says", [
    ("edit", 5, "line 5: damaged: its bytes do not fit its checksum"), ("seal", 5, "line 6: it does not go on from line 5"),
    ("delete", 5, "line 5: it has number 6 where 5 belongs"), ("swap", 5, "line 5: it has number 6 where 5 belongs"),
    ("cut", 5, "line 5: it is not whole"), ("first", 1, "line 1: it has number 2 where 1 belongs"), ("binary", 5, "line 5: "),
    ("last", -1, "damaged")])
def test_damage_names_the_first_bad_line(damage, line, says, federation, tmp_path):
    text = (federation / "run/federation/audit.jsonl").read_bytes().splitlines(keepends=True)
    at = line - 1 if line > 0 else line
    if damage in {"edit", "last"}:
        text[at] = text[at].replace(b"2", b"3", 1)
    elif damage == "seal":
        value = json.loads(text[at])
        value.pop("checksum")
        value["name"] = "somebody else"
        body = json.dumps(value, separators=(",", ":"))[:-1] + ","
        text[at] = (body + f'"checksum":"{hashlib.sha256(body.encode()).hexdigest()[:16]}"' + "}\n").encode()
    elif damage in {"delete", "first"}:
        del text[at]
    elif damage == "swap":
        text[at], text[at + 1] = text[at + 1], text[at]
    elif damage == "cut":
        text[at] = text[at][:40] + b"\n"
    else:
        text[at] = b"\xff\x00\xfe{\n"
    (tmp_path / "audit.jsonl").write_bytes(b"".join(text))
    failed = evenkeel("status", tmp_path, "--audit")
    assert failed.returncode == 1
    one_line(failed, "audit.jsonl", says)


def test_torn_lines_are_kept_and_marked_when_a_server_goes_on(tiny_model, tmp_path):  # noqa: F811
    config = own_rows_config(tmp_path)
    with Processes() as processes:
        server, nodes, run, serve = start(processes, tmp_path, tiny_model, config, train__rounds=10)
        audit, log = run / "federation/audit.jsonl", tmp_path / "serve.log"
        wait_until(lambda: lines(run / "rounds.jsonl") or server.poll() is not None, log)
        server.send_signal(signal.SIGKILL)
        server.wait()
        torn = b'{"n":99,"kind":"re'
        audit.write_bytes(audit.read_bytes() + torn)
        assert "the last line is incomplete (18 bytes)" in succeed("status", run, "--audit").stdout
        again = processes.start(*serve, "--resume", log=log)
        assert wait_for(again, log) == 0, log.read_text()
    assert torn + b"\n" in audit.read_bytes()
    marked = [json.loads(line) for line in audit.read_bytes().splitlines() if line != torn and b'"kind":"torn"' in line]
    assert [(one["bytes"], one["digest"]) for one in marked] == [(len(torn), hashlib.sha256(torn).hexdigest())]
    shown = succeed("status", run, "--audit").stdout
    assert "1 line was left incomplete" in shown and "resume 1" in shown


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=slow) for seed in (2, 3, 4))])
def test_logs_hold_after_kills_at_random_instants(seed, tiny_model, tmp_path):  # noqa: F811
    draw = random.Random(seed)
    config = own_rows_config(tmp_path)
    with Processes() as processes:
        server, nodes, run, serve = start(processes, tmp_path, tiny_model, config, train__rounds=40)
        log, address = tmp_path / "serve.log", serve[serve.index("--listen") + 1]
        wait_until(lambda: lines(run / "rounds.jsonl") or server.poll() is not None, log)
        kills = 0
        for _ in range(3):
            time.sleep(draw.uniform(0.05, 0.8))
            if server.poll() is not None:
                break
            i, kills, starts = draw.randrange(2), kills + 1, log.read_text().count("listening")
            for process in (server, nodes[i]):
                process.send_signal(signal.SIGKILL)
                process.wait()
            nodes[i] = processes.start(*node_words(tmp_path, tiny_model, address, tmp_path / f"site-{i}.pem", i),
                                       log=tmp_path / f"site-{i}.log")
            server = processes.start(*serve, "--resume", log=log)
            wait_until(lambda before=starts: log.read_text().count("listening") > before, log)
        assert wait_for(server, log) == 0, log.read_text()
        for i, node in enumerate(nodes):
            assert wait_for(node, tmp_path / f"site-{i}.log") == 0
    for folder in (run, tmp_path / "site-0.pem.memory", tmp_path / "site-1.pem.memory"):
        assert "head: " in succeed("status", folder, "--audit").stdout
    events = [json.loads(line) for line in (run / "federation/audit.jsonl").read_bytes().splitlines() if line.endswith(b'"}')]
    assert kills > 0 and len(of(events, "start")) == 1 and 0 < len(of(events, "resume")) <= kills
    assert [e["round"] for e in of(events, "round")][-1] == 40


def test_a_node_is_told_that_its_reply_was_not_taken(tiny_model, tmp_path):  # noqa: F811
    config = own_rows_config(tmp_path)
    with Processes() as processes:
        server, nodes, run, _ = start(processes, tmp_path, tiny_model, config, "--no-evaluation", train__rounds=60, clients__deadline=1.5,
                                      clients__quorum=1)
        log = tmp_path / "serve.log"
        wait_until(lambda: lines(run / "rounds.jsonl") or server.poll() is not None, log)
        nodes[1].send_signal(signal.SIGSTOP)
        wait_until(lambda: re.search("site-1.* is lost", log.read_text()) or server.poll() is not None, log)
        nodes[1].send_signal(signal.SIGCONT)
        own = tmp_path / "site-1.log"
        wait_until(lambda: "did not take this node's reply because: no reply within 1.5 s" in own.read_text() or server.poll() is not None, own)
        assert re.search(r"\[node\] round \d+: the server did not take this node's reply because: no reply within 1.5 s", own.read_text())
    told = [event for event in of(lines(tmp_path / "site-1.pem.memory/audit.jsonl"), "outcome") if event["outcome"] != "taken"]
    lost = of(lines(run / "federation/audit.jsonl"), "lost")
    assert told and {event["round"] for event in told} <= {event["round"] for event in lost}
    assert all(event["outcome"] == "not taken: no reply within 1.5 s" for event in told), told


def test_a_refusal_is_recorded_on_both_sides(tiny_model, tmp_path):  # noqa: F811
    key, address, log = keygen(tmp_path, 1)[0], f"127.0.0.1:{free_port()}", tmp_path / "serve.log"
    changes = run_settings(tiny_model, "fedit", clients__count=1, clients__budgets="[0.5]")
    agreed = tmp_path / "agreed.toml"
    agreed.write_text(re.sub(r"rounds = \d+", "rounds = 77", (ROOT / "configs/tiny/train.toml").read_text()))
    with Processes() as processes:
        processes.start("serve", "configs/tiny/train.toml", *changes, "--out", tmp_path / "run", "--listen", address, "--allow",
                        tmp_path / "keys.txt", "--insecure", log=log)
        node = processes.start(*node_arguments(key, tiny_model, address, "--agreed", agreed), log=tmp_path / "node.log")
        assert wait_for(node, tmp_path / "node.log") == 1
        wait_until(lambda: "does not join" in log.read_text(), log)
        (refused,) = of(lines(tmp_path / "run/federation/audit.jsonl"), "refused")
    assert refused["name"] == "site-0" and "the server's run is not that of" in refused["outcome"]
    (own,) = of(lines(tmp_path / "site-0.pem.memory/audit.jsonl"), "refused")
    assert own["outcome"].startswith("asked: offer; refused: ") and "the server's run is not that of" in own["outcome"]


@pytest.mark.parametrize("head", ["", "abc", "0" * 63, "0" * 65, "A" * 64, "SHA256:" + "0" * 57])
def test_a_head_that_is_no_digest_is_rejected(head, tmp_path):
    (tmp_path / "audit.jsonl").write_text("")
    one_line(evenkeel("status", tmp_path, "--audit", "--head", head), "--head is ", "64 of the digits")

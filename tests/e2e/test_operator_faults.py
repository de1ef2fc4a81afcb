"""The faults that an operator meets, on a federation of three hospitals with TLS: each ends in the bits of an undisturbed run,
or in a refusal that says why. `make test-slow` runs them, and `.ci/nightly` with more instants.
"""

import os
import random
import re
import shutil
import signal
import time

import pytest

import faults
from faults import HOSPITALS, Hospitals, Proxy, copy_run, result
from test_tls import Authority
from tiny import slow, tiny_model  # noqa: F401

pytestmark = slow
MEMORY = ("--set", "method.name=a3smoe", "--set", "method.a3smoe.rescaler=learn")
KILLS = 10 if "EVENKEEL_NIGHTLY" in os.environ else 4


@pytest.fixture(scope="module")
def undisturbed(tiny_model, tmp_path_factory):  # noqa: F811
    with Hospitals(tmp_path_factory.mktemp("undisturbed"), tiny_model) as three:
        three.serve()
        three.all_nodes()
        three.ends_well()
        return result(three.run)


@pytest.fixture
def three(tiny_model, tmp_path):  # noqa: F811
    with Hospitals(tmp_path, tiny_model) as hospitals:
        yield hospitals


@pytest.fixture
def plain(tiny_model, tmp_path):  # noqa: F811
    with Hospitals(tmp_path, tiny_model, tls=False) as hospitals:
        yield hospitals


# --- killed and frozen processes ---

@pytest.mark.parametrize("seed", range(2))
def test_a_server_killed_at_random_instants_ends_with_the_same_bits(three, undisturbed, seed):
    clock = random.Random(seed)
    three.serve()
    three.all_nodes()
    three.until_round(1)
    for _ in range(KILLS):
        time.sleep(clock.uniform(0, 1.2))
        if three.server.poll() is not None:
            break
        three.kill(three.server)
        three.serve("--resume")
    three.ends_well()
    assert result(three.run) == undisturbed


def kill_nodes(three, clock):
    for _ in range(KILLS):
        time.sleep(clock.uniform(0, 0.8))
        name = clock.choice(HOSPITALS)
        if three.server.poll() is not None or three.nodes[name].poll() is not None:
            break
        three.kill(three.nodes[name])
        three.node(name)


def test_nodes_killed_at_random_instants_end_with_the_same_bits(three, undisturbed):
    three.serve()
    three.all_nodes()
    three.until_round(1)
    kill_nodes(three, random.Random(1))
    three.ends_well()
    assert result(three.run) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_stopped_before_the_first_round_restarts_without_any_node_ending(three, undisturbed, number):
    three.serve()
    for name in HOSPITALS[:2]:
        three.node(name)
    three.until(lambda: all("will send, in each round" in three.said(name) for name in HOSPITALS[:2]))
    time.sleep(0.5)
    three.kill(three.server, number)
    three.serve("--resume")
    time.sleep(3)
    assert all(three.nodes[name].poll() is None for name in HOSPITALS[:2]), three.everything()
    three.node("hill")
    three.ends_well()
    assert result(three.run) == undisturbed


def test_a_server_stopped_by_a_signal_resumes_to_the_same_bits(three, undisturbed):
    three.serve()
    three.all_nodes()
    three.until_round(2)
    assert three.kill(three.server, signal.SIGTERM) == 130
    assert "--resume" in three.said().splitlines()[-1]
    three.serve("--resume")
    three.ends_well()
    assert result(three.run) == undisturbed


def test_a_frozen_node_is_waited_for_where_no_deadline_is_set(three, undisturbed):
    three.serve()
    three.all_nodes()
    three.until_round(1)
    three.nodes["hill"].send_signal(signal.SIGSTOP)
    time.sleep(5)
    three.nodes["hill"].send_signal(signal.SIGCONT)
    three.ends_well()
    assert result(three.run) == undisturbed


@pytest.mark.parametrize("name", ["hill", "harbour"])  # harbour alone has test rows
def test_a_frozen_node_costs_a_deadline_for_a_round_and_for_a_score(three, name):
    three.serve("--set", "clients.deadline=8", "--set", "clients.quorum=2")
    three.all_nodes()
    three.until_round(1)
    three.nodes[name].send_signal(signal.SIGSTOP)
    three.until(lambda: three.server.poll() is not None, 180)
    assert three.server.returncode == 0, three.everything()
    assert name in "".join(line for line in three.said().splitlines() if "warning" in line), three.said()
    three.nodes[name].send_signal(signal.SIGCONT)


def test_a_node_that_has_the_final_adapter_ends_well_after_a_minute_without_the_server(three):
    three.serve()
    three.all_nodes()
    three.until(lambda: all("the final adapter is in" in three.said(name) for name in HOSPITALS))
    three.kill(three.server)
    for name in HOSPITALS:
        assert three.nodes[name].wait(150) == 0, three.everything()
        assert "the run is over" in three.said(name).splitlines()[-1], three.said(name)


# --- networks ---

@pytest.mark.parametrize("fault", [faults.cuts, faults.truncates, faults.flips, faults.delays], ids=lambda fault: fault.__name__)
def test_a_broken_network_under_tls_changes_no_bit(three, undisturbed, fault):
    proxy = Proxy(three.port, fault)
    three.at = proxy.port
    three.serve()
    three.all_nodes()
    three.ends_well()
    proxy.close()
    assert result(three.run) == undisturbed
    assert proxy.faults > 0 or fault is faults.delays


@pytest.mark.parametrize("fault", [faults.cuts, faults.flips_of_bodies], ids=lambda fault: fault.__name__)
def test_a_broken_network_without_tls_changes_no_bit(plain, undisturbed, fault):
    proxy = Proxy(plain.port, fault)
    plain.at = proxy.port
    plain.serve()
    plain.all_nodes()
    plain.ends_well(240)
    proxy.close()
    assert result(plain.run) == undisturbed and proxy.faults > 0


@pytest.fixture(scope="module")
def undisturbed_memory(tiny_model, tmp_path_factory):  # noqa: F811
    with Hospitals(tmp_path_factory.mktemp("memory"), tiny_model, tls=False) as three:
        three.serve(*MEMORY)
        three.all_nodes()
        three.ends_well()
        return result(three.run)


@pytest.mark.parametrize("fault", [faults.cuts, faults.loses_answers], ids=lambda fault: fault.__name__)
def test_a_broken_network_changes_no_bit_of_a_method_whose_clients_have_memory(plain, undisturbed_memory, fault):
    proxy = Proxy(plain.port, faults.none)
    plain.at = proxy.port
    plain.serve(*MEMORY)
    plain.all_nodes()
    plain.until_round(1)
    proxy.fault = fault
    plain.ends_well(240)
    proxy.close()
    assert result(plain.run) == undisturbed_memory and proxy.faults > 0


def test_killed_nodes_change_no_bit_of_a_method_whose_clients_have_memory(plain, undisturbed_memory):
    plain.serve(*MEMORY)
    plain.all_nodes()
    plain.until_round(1)
    kill_nodes(plain, random.Random(2))
    plain.ends_well()
    assert result(plain.run) == undisturbed_memory


def test_a_network_that_is_gone_for_a_while_changes_no_bit(three, undisturbed):
    proxy = Proxy(three.port, faults.none)
    three.at = proxy.port
    three.serve()
    three.all_nodes()
    three.until_round(1)
    proxy.hole.set()
    time.sleep(15)
    proxy.hole.clear()
    three.ends_well()
    proxy.close()
    assert result(three.run) == undisturbed


def test_a_server_that_moved_to_another_port_is_found_by_restarted_nodes(three, undisturbed):
    three.serve()
    three.all_nodes()
    three.until_round(1)
    three.kill(three.server)
    three.port = three.at = faults.free_port()
    three.serve("--resume")
    for name in HOSPITALS:
        three.kill(three.nodes[name])
        three.node(name)
    three.ends_well()
    assert result(three.run) == undisturbed


# --- disks ---

@pytest.mark.parametrize("mebibytes", [0.5, 2, 3.5])
def test_a_server_with_a_full_disk_says_so_and_goes_on_where_there_is_room(three, undisturbed, tmp_path, mebibytes):
    with faults.small_disk(tmp_path / "disk", mebibytes) as remount:
        if remount is None:
            pytest.skip("no right to mount a memory disk")
        three.run = tmp_path / "disk/run"
        three.serve()
        three.all_nodes()
        three.until(lambda: three.server.poll() is not None)
        last = three.said().splitlines()[-1]
        assert three.server.returncode == 1 and last.startswith("evenkeel: [io] ") and str(tmp_path / "disk") in last, three.everything()
        assert "full" in last or "No space" in last, last
        assert remount("size=1g")
        three.serve("--resume")
        for name in HOSPITALS:
            if three.nodes[name].poll() is not None:
                three.node(name)
        three.ends_well()
        assert result(three.run) == undisturbed


def test_a_node_with_a_full_disk_says_which_file_and_the_run_goes_on_where_there_is_room(three, undisturbed, tmp_path):
    with faults.small_disk(tmp_path / "disk", 0.05) as remount:
        if remount is None:
            pytest.skip("no right to mount a memory disk")
        three.serve()
        three.all_nodes()
        three.kill(three.nodes["hill"])
        three.node("hill", memory=tmp_path / "disk/memory", adapters=tmp_path / "disk/adapters")
        three.until(lambda: three.nodes["hill"].poll() is not None or three.server.poll() is not None)
        three.until(lambda: str(tmp_path / "disk") in three.said("hill"))
        assert remount("size=1g")
        three.until(lambda: three.server.poll() is not None)
        assert three.server.returncode == 0, three.everything()
        assert result(three.run) == undisturbed


def test_a_read_only_folder_is_named_by_the_server(three, tmp_path):
    with faults.small_disk(tmp_path / "disk", 8) as remount:
        if remount is None or not remount("ro"):
            pytest.skip("no right to mount a memory disk")
        three.serve(out=tmp_path / "disk/run")
        three.until(lambda: three.server.poll() is not None)
        assert three.server.returncode == 1 and str(tmp_path / "disk") in three.said().splitlines()[-1], three.said()


# --- wrong inputs ---

def test_a_base_with_one_other_bit_is_refused_on_both_sides_and_the_right_one_joins(three, undisturbed, tmp_path):
    other = tmp_path / "other-model"
    shutil.copytree(three.model, other)
    faults.flip_bit(next(other.glob("*.safetensors")))
    three.serve()
    three.node("hill", model=other)
    three.until(lambda: three.nodes["hill"].poll() is not None)
    assert three.nodes["hill"].returncode == 1 and "base" in three.said("hill").splitlines()[-1], three.said("hill")
    three.until(lambda: re.search(r"hill.*base|base.*hill", three.said()) is not None, 30)
    three.all_nodes()
    three.ends_well()
    assert result(three.run) == undisturbed


@pytest.mark.parametrize("names, first, last, says", [
    (["DNS:elsewhere"], -1, 2, "not for this address"), (["DNS:localhost"], -9, -1, "has expired"), (["DNS:localhost"], 1, 9, "not valid yet")])
def test_a_wrong_certificate_is_refused_and_the_right_one_ends_with_the_same_bits(three, undisturbed, names, first, last, says):
    right = [file.read_bytes() for file in three.certificate]
    three.authority.server(names[0].split(":")[1], names, first, last)
    three.serve()
    three.node("hill")
    three.until(lambda: says in three.said("hill"))
    three.kill(three.nodes["hill"]), three.kill(three.server)
    for file, data in zip(three.certificate, right):
        file.write_bytes(data)
    three.serve("--resume")
    three.all_nodes()
    three.ends_well()
    assert result(three.run) == undisturbed


def test_another_authority_plain_connections_and_an_open_key_file_are_named(three, tmp_path):
    (tmp_path / "foreign").mkdir()
    foreign = Authority(tmp_path / "foreign", "foreign")
    three.serve()
    three.node("hill", ca=foreign.pem)
    three.until(lambda: "authority" in three.said("hill") or "certificate" in three.said("hill"))
    three.kill(three.nodes["hill"])
    (three.folder / "north.pem").chmod(0o644)
    node = three.node("north")
    three.until(lambda: node.poll() is not None)
    assert node.returncode == 1 and "chmod 600" in three.said("north")
    three.tls = False
    three.node("harbour")
    three.until(lambda: "TLS" in three.said("harbour"))


@pytest.mark.parametrize("seconds", [3600, -3600, 60])
def test_a_node_whose_clock_is_off_is_told_by_how_much(three, undisturbed, tmp_path, seconds):
    three.serve()
    three.node("hill", inside=faults.shifted_clock(tmp_path, seconds))
    said = lambda: re.search(r"clock|not valid yet|expired", three.said("hill") + three.said())
    three.until(lambda: said() is not None, 60)
    three.kill(three.nodes["hill"])
    three.all_nodes()
    three.ends_well()
    assert result(three.run) == undisturbed


def test_a_clock_within_the_allowed_difference_changes_no_bit(three, undisturbed, tmp_path):
    three.serve()
    for name in HOSPITALS:
        three.node(name, inside=faults.shifted_clock(tmp_path, -200 if name == "hill" else 3))
    three.ends_well()
    assert result(three.run) == undisturbed


# --- who is who ---

def test_one_key_at_two_nodes_is_refused_or_told_at_the_server(three, undisturbed):
    three.serve()
    three.all_nodes()
    three.until_round(1)
    first = three.nodes["harbour"]
    second = three.node("harbour", memory=three.folder / "second.memory", adapters=three.folder / "second.adapters")
    three.until(lambda: three.server.poll() is not None)
    assert three.server.returncode == 0, three.everything()
    told = [line for line in three.said().splitlines() if "harbour" in line and ("warning" in line or "refused" in line)]
    assert told or second.poll() == 1 or first.poll() == 1, three.everything()
    assert result(three.run) == undisturbed


def test_a_node_that_comes_back_with_other_rows_of_equal_number_is_not_accepted_in_silence(three, undisturbed):
    faults.write_rows(three.folder / "other.jsonl", "other", 12)
    three.serve()
    three.all_nodes()
    three.until_round(1)
    three.kill(three.nodes["harbour"])
    node = three.node("harbour", rows=three.folder / "other.jsonl")
    three.until(lambda: node.poll() is not None or three.server.poll() is not None)
    if three.server.poll() is None:
        three.node("harbour")
        three.until(lambda: three.server.poll() is not None)
    told = [line for line in (three.said() + three.said("harbour")).splitlines() if "rows" in line and ("other" in line or "differ" in line)]
    assert told, three.everything()


# --- back-ups ---

def test_a_backup_restored_after_the_end_resumes_to_the_same_bits(three, undisturbed, tmp_path):
    three.serve()
    three.all_nodes()
    three.until_round(2)
    backup = copy_run(three.run, tmp_path / "backup")
    three.ends_well()
    assert result(three.run) == undisturbed
    shutil.rmtree(three.run)
    backup.rename(three.run)
    three.serve("--resume")
    three.all_nodes()
    three.ends_well()
    assert result(three.run) == undisturbed


def test_a_backup_with_the_checkpoint_copied_first_resumes_or_names_the_command(three, undisturbed, tmp_path):
    three.serve()
    three.all_nodes()
    three.until_round(1)
    names = sorted(path.name for path in three.run.iterdir() if path.name != "checkpoint")
    backup = tmp_path / "backup"
    backup.mkdir()
    faults.copy(three.run / "checkpoint", backup / "checkpoint")
    three.until_round(2)
    for name in names:
        faults.copy(three.run / name, backup / name)
    three.ends_well()
    shutil.rmtree(three.run)
    backup.rename(three.run)
    three.serve("--resume")
    three.all_nodes()
    three.until(lambda: three.server.poll() is not None)
    if three.server.returncode == 1:
        last = three.said().splitlines()[-1]
        assert "--from-round" in last, three.everything()
        three.serve("--resume", "--from-round", re.search(r"--from-round (\d+)", last)[1])
    three.ends_well()
    assert result(three.run) == undisturbed


def test_nothing_is_left_over_after_kills(three):
    three.serve("--set", "evaluate.items=true")
    three.all_nodes()
    three.until_round(1)
    clock = random.Random(5)
    for _ in range(KILLS):
        time.sleep(clock.uniform(0, 0.8))
        if three.server.poll() is not None:
            break
        three.kill(three.server)
        three.serve("--resume")
    three.ends_well()
    assert [path for path in three.run.rglob("*") if ".part-" in path.name] == []

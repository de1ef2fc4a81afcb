"""Tests that keys of `evenkeel keygen` are those that Flower's programs read, and the other way round."""

import os
import pathlib
import shutil
import subprocess

import flower_peer as peer
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (Encoding, NoEncryption, PrivateFormat, PublicFormat, load_pem_private_key,
                                                          load_ssh_private_key)

PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_PROGRAM", "build/evenkeel")).resolve()


def evenkeel(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=600)


def public_line(key, name):
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() + f" {name}\n"


@pytest.mark.parametrize("number", range(8))  # numbers with leading zeros and sign bits are among them
def test_a_key_in_openssh_format_is_read_as_flower_supernode_reads_it(tmp_path, number):
    done = evenkeel("keygen", tmp_path / "site.key", "--format", "openssh")
    assert done.returncode == 0 and "flower-supernode --auth-supernode-private-key" in done.stderr
    key = load_ssh_private_key((tmp_path / "site.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp384r1"
    assert done.stdout == public_line(key, "site")
    assert (tmp_path / "site.key").stat().st_mode & 0o777 == 0o600


def test_a_key_without_a_format_is_pkcs8(tmp_path):
    done = evenkeel("keygen", tmp_path / "site.pem", "--comment", "hospital one")
    assert done.returncode == 0 and "flower-supernode" not in done.stderr
    assert done.stdout == public_line(load_pem_private_key((tmp_path / "site.pem").read_bytes(), None), "hospital one")


def test_another_format_is_refused_before_a_file_is_made(tmp_path):
    done = evenkeel("keygen", tmp_path / "site.key", "--format", "rfc4716")
    assert done.returncode == 1 and done.stderr == 'evenkeel: [config] --format is "rfc4716", allowed: pkcs8, openssh\n'
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("curve", [ec.SECP384R1(), ec.SECP256R1()], ids=["P-384", "P-256"])
def test_a_node_takes_a_key_of_cryptography_in_either_format(tmp_path, curve):
    for name, form in {"openssh": PrivateFormat.OpenSSH, "pkcs8": PrivateFormat.PKCS8}.items():
        file = tmp_path / name
        file.write_bytes(ec.generate_private_key(curve).private_bytes(Encoding.PEM, form, NoEncryption()))
        file.chmod(0o600)
        log = tmp_path / "node.log"
        with log.open("w") as out:
            node = subprocess.Popen([PROGRAM, "node", "--superlink", "127.0.0.1:9", "--insecure", "--key", file, "--model", "builtin:tiny-olmoe",
                                     "--once"], stdout=out, stderr=out)
        try:  # it asks for a server that is not there: its key was taken
            peer.wait_until("the node does not ask", lambda: "127.0.0.1:9" in log.read_text() or node.poll() is not None)
            assert node.poll() is None, log.read_text()
        finally:
            node.kill()
            node.wait()


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_a_key_with_a_passphrase_is_refused_with_the_command_that_removes_it(tmp_path):
    file = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "secret", "-f", file], check=True)
    done = evenkeel("node", "--superlink", "127.0.0.1:9", "--insecure", "--key", file, "--model", "builtin:tiny-olmoe", "--once")
    assert done.returncode == 1 and done.stderr.splitlines()[-1].endswith(f"has a passphrase; run: ssh-keygen -p -N '' -f {file}")

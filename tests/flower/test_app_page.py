"""Follows docs/flower-app.md as written, with stock programs of Flower: TLS, registered keys, names, a run whose log is
streamed, and its continuation.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import flower_peer as peer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_PROGRAM", "build/evenkeel")).resolve()
BLOCK = re.compile(r"^```(\w+) *([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document):
    return BLOCK.findall((ROOT / "docs" / document).read_text())


def commands_of_the_page(folder):
    """Writes the page's files. Returns its commands, with ports that are free here."""
    commands = []
    for language, said, text in blocks("flower-app.md"):
        if language == "sh":
            commands.append(text)
        elif said:
            (folder / said).write_text(text)
    script = "\n".join(commands)
    for port in ("8125", "9101", "9102"):
        assert port in script
        script = script.replace(port, str(peer.free_port()))
    return script


def certificates_of_the_federation_page():
    (block,) = [text for _, _, text in blocks("federation.md") if "openssl req -x509" in text]
    return "mkdir -p keys\n" + "\n".join(line for line in block.splitlines() if line.startswith(("openssl", "printf")))


def shell(script, folder):
    """Runs commands of bash, and ends what they have left running."""
    environment = {**os.environ, "PATH": f"{peer.BIN}:{folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0",
                   "FLWR_DISABLE_UPDATE_CHECK": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", None)  # the page's flag has to do
    with (folder / "output.log").open("w") as output:
        process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(peer.DEADLINE)
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    peer.wait_until("the programs of the page do not end", lambda: not alive(process.pid), 30)
                except (ProcessLookupError, TimeoutError):
                    pass
    said = (folder / "output.log").read_text()
    assert code == 0, said + "".join(f"\n== {log.name}\n{log.read_text()[-3000:]}" for log in sorted(folder.glob("*.log")))
    return said


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@peer.nightly
def test_a_new_operator_follows_the_page_and_the_run_ends(tmp_path):
    shutil.copytree(ROOT / "flower", tmp_path / "flower", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "evenkeel").symlink_to(PROGRAM)
    once_more = 'flwr run flower my-superlink --stream --run-config "evenkeel.config=\\"$PWD/run.toml\\" evenkeel.out=\\"$PWD/first\\"' \
                ' evenkeel.resume=true evenkeel.set=\\"train.rounds=3\\""'
    said = shell("\n".join([certificates_of_the_federation_page(), commands_of_the_page(tmp_path), "echo ONCE-MORE", once_more]), tmp_path)
    first, more = said.split("ONCE-MORE")
    assert "round 2/2: loss" in first and f"the run is in {tmp_path}/first" in first, said
    assert "round 3/3: loss" in more, said
    log = (tmp_path / "first/log.txt").read_text()
    assert re.search(r"harbour.* client 1", log) and re.search(r"market.* client 0", log), log
    adapter = "adapter/adapter_model.safetensors"
    local = subprocess.run([PROGRAM, "train", tmp_path / "run.toml", "--set", "train.rounds=3", "--out", tmp_path / "local"],
                           capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=peer.DEADLINE)
    assert local.returncode == 0, local.stderr
    assert (tmp_path / "first" / adapter).read_bytes() == (tmp_path / "local" / adapter).read_bytes()

"""Checks the locked Python packages: those of the build, of Flower and of the site are taken by SHA-256."""

import re
import subprocess

import pytest

from tiny import ROOT

FOLDER = ROOT / "tools/requirements"
HASHED = sorted(file for file in FOLDER.glob("*.txt") if "--require-hashes" in file.read_text())


def test_what_the_build_and_flower_install_is_hashed():
    assert {"libtorch.txt", "flwr.txt", "site.txt", "lm_eval.txt", "templates.txt"} <= {file.name for file in HASHED}


@pytest.mark.parametrize("file", HASHED, ids=lambda file: file.name)
def test_every_package_of_a_hashed_file_has_one_version_and_a_sha256(file):
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE)
    entries = re.findall(r"^([A-Za-z0-9._-]+)==\S+ \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE)
    assert entries and len({name.lower() for name, _ in entries}) == len(entries)
    assert text == "".join(re.findall(r"^[A-Za-z0-9._-]+==\S+ \\\n(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", text, re.MULTILINE))


def function_of_setup(name):
    return re.search(rf"^{name}\(\) .*$", (ROOT / "tools/setup").read_text(), re.MULTILINE)[0]


@pytest.mark.parametrize("file", HASHED, ids=lambda file: file.name)
def test_versions_alone_are_what_another_python_installs(file):
    done = subprocess.run(["bash", "-c", f'{function_of_setup("versions")}; versions "{file}"'], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines and all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s\\]+", line) for line in lines), lines
    assert len(lines) == len(re.findall(r"==", re.sub(r"^#.*", "", file.read_text(), flags=re.MULTILINE)))

"""Tests the wheel (tools/wheel): its content, and that it runs in an environment without torch, compiler or libraries."""

import base64
import csv
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from spdx_rules import check_spdx
from tiny import PROGRAM, ROOT, nightly

BUILD = pathlib.Path(PROGRAM).parent
LEVEL = "9" if "EVENKEEL_NIGHTLY" in os.environ else "0"
NOTHING = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def load_tool():
    loader = importlib.machinery.SourceFileLoader("wheel_tool", str(ROOT / "tools/wheel"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("wheel_tool", loader))
    loader.exec_module(module)
    return module


def made(out, *more):
    return subprocess.run([sys.executable if sys.version_info >= (3, 11) else "python3", ROOT / "tools/wheel", "--build", BUILD, "--out", out,
                           "--level", LEVEL, *more], capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if not (BUILD / "cmake_install.cmake").is_file():
        pytest.skip("the program is not in its build folder")
    out = tmp_path_factory.mktemp("dist")
    done = made(out)
    assert done.returncode == 0, done.stderr
    (file,) = out.glob("*.whl")
    assert LEVEL == "0" or file.stat().st_size <= 130e6
    yield file
    shutil.rmtree(out)


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Returns a virtual environment in which only the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=600)
    subprocess.run([folder / "bin/pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel], check=True, timeout=600)
    yield folder
    shutil.rmtree(folder)


def run(environment, *words, **more):
    return subprocess.run([environment / "bin/evenkeel", *words], capture_output=True, text=True, timeout=600, cwd=environment.parent,
                          env={**NOTHING, **more})


def test_the_file_name_is_valid_for_installers(wheel):
    assert re.fullmatch(r"evenkeel_moe-\d+\.\d+\.\d+-py3-none-manylinux_2_(2[89]|3[0-9])_x86_64\.whl", wheel.name)


def test_the_record_has_every_file_with_its_digest(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        assert archive.namelist()[-1] == record and len(set(archive.namelist())) == len(archive.namelist())
        lines = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(archive.read(record).decode()))}
        assert set(lines) == set(archive.namelist()) and lines.pop(record) == ("", "")
        for name, (digest, size) in lines.items():
            data = archive.read(name)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() and int(size) == len(data)
        assert {info.date_time for info in archive.infolist()} == {(2020, 1, 1, 0, 0, 0)}
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
    assert modes["evenkeel_moe/_bin/evenkeel"] == 0o755 and modes["evenkeel_moe/_share/configs/demo.toml"] == 0o644


def test_every_packed_library_has_its_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    licences = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert {"LICENSE", "torch/LICENSE", "debian/libssl3.txt", "debian/libspdlog1.10.txt", "debian/nlohmann-json3-dev.txt"} <= licences
    assert set(re.findall(r"^License-File: (.*)$", metadata, re.MULTILINE)) == licences
    assert re.search(r"^Name: evenkeel-moe$", metadata, re.MULTILINE)


def sbom_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if "/sboms/" in name]
        assert re.fullmatch(r"evenkeel_moe-[\d.]+\.dist-info/sboms/evenkeel_moe\.spdx\.json", name)
        return archive.read(name)


def test_the_sbom_lists_every_file_and_every_packed_library_with_version_and_licence(wheel):
    document = json.loads(sbom_of(wheel))
    check_spdx(document)
    with zipfile.ZipFile(wheel) as archive:
        data = {f"./{name}": archive.read(name) for name in archive.namelist() if "/sboms/" not in name and not name.endswith("/RECORD")}
    digests = {file["fileName"]: {one["algorithm"]: one["checksumValue"] for one in file["checksums"]} for file in document["files"]}
    assert digests == {name: {"SHA1": hashlib.sha1(text).hexdigest(), "SHA256": hashlib.sha256(text).hexdigest()} for name, text in data.items()}
    names = {file["SPDXID"]: file["fileName"] for file in document["files"]}
    made_from = {names[one["spdxElementId"]]: one["relatedSpdxElement"] for one in document["relationships"]
                 if one["relationshipType"] == "GENERATED_FROM"}
    assert set(made_from) == {name for name in data if re.search(r"/_lib/[^/]*\.so", name)}
    packages = {package["name"]: package for package in document["packages"]}
    assert packages["torch"]["versionInfo"].startswith("2.13") and packages["libssl3"]["versionInfo"].startswith("3.0")
    assert {"libspdlog1.10", "libpcre2-8-0", "nlohmann-json3-dev", "libcli11-dev", "libgomp", "evenkeel-moe"} <= set(packages)
    assert [name for name, package in packages.items() if package["licenseDeclared"] == "NOASSERTION"] == []
    assert [name for name, package in packages.items() if "versionInfo" not in package] == ["libgomp"]


def test_the_sbom_and_the_checksums_stand_beside_the_wheel(wheel):
    assert wheel.with_suffix(".spdx.json").read_bytes() == sbom_of(wheel)
    listed = dict(reversed(line.split("  ")) for line in (wheel.parent / "SHA256SUMS").read_text().splitlines())
    assert listed == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (wheel, wheel.with_suffix(".spdx.json"))}


def commands_of_the_security_page():
    blocks = re.findall(r"^```sh[^\n]*\n(.*?)^```$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    return blocks


def bash(script, folder):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_the_recipe_signs_the_checksums_and_finds_what_was_changed(wheel, tmp_path):
    sign, verify = commands_of_the_security_page()
    (tmp_path / "dist").mkdir()
    for file in wheel.parent.iterdir():
        (tmp_path / "dist" / file.name).symlink_to(file)
    sums = tmp_path / "dist/SHA256SUMS"
    sums.unlink(), sums.write_bytes((wheel.parent / "SHA256SUMS").read_bytes())
    for key in ("release.key", "other.key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True)
    (tmp_path / "signers").write_text("release@evenkeel " + (tmp_path / "release.key.pub").read_text())
    done = bash(sign + verify, tmp_path)
    assert done.returncode == 0 and done.stdout.count(": OK\n") == 2 and "Good \"evenkeel\" signature for release@evenkeel" in done.stdout, done.stderr
    bill = tmp_path / "dist" / wheel.with_suffix(".spdx.json").name
    text = bill.read_bytes()
    bill.unlink(), bill.write_bytes(text + b" ")
    done = bash(verify, tmp_path)
    assert done.returncode != 0 and f"{bill.name}: FAILED" in done.stdout
    sums.write_text(sums.read_text().replace(hashlib.sha256(text).hexdigest(), hashlib.sha256(text + b" ").hexdigest()))
    done = bash(verify, tmp_path)
    assert done.returncode != 0 and ": OK" not in done.stdout and "incorrect signature" in (done.stdout + done.stderr).lower()
    (tmp_path / "signers").write_text("release@evenkeel " + (tmp_path / "other.key.pub").read_text())
    assert bash(verify, tmp_path).returncode != 0


def test_libraries_come_from_the_package_or_from_glibc(environment):
    (package,) = environment.glob("lib/python*/site-packages/evenkeel_moe")
    loaded = subprocess.run(["ldd", package / "_bin/evenkeel"], capture_output=True, text=True, env=NOTHING, check=True).stdout
    places = dict(re.findall(r"^\s(\S+) => (\S+) \(", loaded, re.MULTILINE))
    own = {name for name, place in places.items() if pathlib.Path(place).resolve().parent == (package / "_lib").resolve()}
    assert own == {file.name for file in (package / "_lib").glob("*.so*")}
    assert {name.split(".so")[0] for name in set(places) - own} <= {"libc", "libm", "libdl", "librt", "libpthread", "libgcc_s", "libstdc++"}


def test_an_environment_without_torch_runs_everything(environment):
    assert re.fullmatch(r"evenkeel \d+\.\d+\.\d+\n", run(environment, "--version").stdout)
    done = run(environment, "generate", "--model", "builtin:tiny-olmoe", "--prompt", "Once", "--max-new-tokens", "4")
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
    listed = run(environment, "list", "configs").stdout
    assert "/evenkeel_moe/_share/configs/demo.toml" in listed and str(ROOT) not in listed
    assert (environment / "share/man/man1/evenkeel.1").is_file()
    assert run(environment, "train").returncode == 1


@pytest.mark.parametrize("version, says", [("2.12.1+cu130", "torch 2.12.1+cu130"), ("3.13.0", "torch 3.13.0"), (None, "does not name a version")])
def test_a_torch_of_another_version_is_refused_in_one_line(environment, tmp_path, version, says):
    (tmp_path / "torch").mkdir()
    if version:
        (tmp_path / "torch/version.py").write_text(f"__version__ = '{version}'\n")
    done = run(environment, "list", "methods", EVENKEEL_TORCH=str(tmp_path / "torch"))
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("evenkeel: EVENKEEL_TORCH is ") and says in done.stderr


def test_evenkeel_program_comes_before_the_program_of_the_wheel(environment, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("#!/bin/sh\necho evenkeel 9.8.7\n")
    mine.chmod(0o755)
    done = run(environment, "--version", EVENKEEL_PROGRAM=str(mine))
    assert done.stdout == "evenkeel 9.8.7\n" and done.stderr.startswith(f"EVENKEEL_PROGRAM is {mine}, which is 9.8.7; this package is ")
    done = run(environment, "--version", EVENKEEL_PROGRAM=str(tmp_path))
    assert (done.returncode, done.stderr) == (1, f"evenkeel: EVENKEEL_PROGRAM is {tmp_path}, which is no program\n")


def test_a_program_outside_the_wheel_keeps_its_torch():
    done = subprocess.run([sys.executable, "-m", "evenkeel_moe", "list", "methods"], capture_output=True, text=True, timeout=600,
                          env={**NOTHING, "PYTHONPATH": str(ROOT / "python"), "EVENKEEL_PROGRAM": PROGRAM, "EVENKEEL_TORCH": "auto"})
    assert done.returncode == 1 and "only the program of the wheel" in done.stderr and done.stderr.count("\n") == 1


def test_no_torch_is_refused_in_one_line(environment):
    done = run(environment, "list", "methods", EVENKEEL_TORCH="auto")
    assert done.returncode == 1 and "this Python has no torch" in done.stderr and done.stderr.count("\n") == 1


def test_a_torch_whose_libraries_are_missing_is_refused(environment, tmp_path):
    (package,) = environment.glob("lib/python*/site-packages/evenkeel_moe")
    (tmp_path / "torch/lib").mkdir(parents=True)
    (tmp_path / "torch/version.py").write_text(f"__version__ = '{(package / '_lib/torch-version').read_text().strip()}'\n")
    for file, says in ((None, "libtorch_cpu.so is missing"), ("libtorch_cpu.so", "it cannot be loaded")):
        if file:
            (tmp_path / "torch/lib" / file).write_text("no library\n")
        done = run(environment, "list", "methods", EVENKEEL_TORCH=str(tmp_path / "torch"))
        assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_torch_of_the_same_version_is_used(environment):
    torch = load_tool().torch_folder(BUILD)
    with subprocess.Popen([environment / "bin/evenkeel", "tokenize", "--model", ROOT / "assets/tiny-olmoe", "--input", "-"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, env={**NOTHING, "EVENKEEL_TORCH": str(torch)}) as process:
        process.stdin.write("a line\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("[")
        assert pathlib.Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[0] == "evenkeel"
        mapped = set(re.findall(r"\S*libtorch_cpu\.so", pathlib.Path(f"/proc/{process.pid}/maps").read_text()))
        process.stdin.close()
    assert {pathlib.Path(path).resolve() for path in mapped} == {(torch / "lib/libtorch_cpu.so").resolve()}


@nightly
def test_the_same_build_gives_the_same_wheel(wheel, tmp_path):
    assert made(tmp_path).returncode == 0
    (again,) = tmp_path.iterdir()
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize("symbols, oldest", [
    ("GLIBC_2.2.5 GLIBC_2.34 GLIBC_2.28", (2, 34)), ("GLIBC_2.17 GLIBCXX_3.4.21", (2, 28)), ("GLIBC_2.28 GLIBCXX_3.4.30", (2, 35)),
    ("GLIBC_2.36 GLIBCXX_3.4.9", (2, 36)), ("", (2, 17)), ("GLIBC_2.31 GLIBCXX_3.4.31", (2, 39))])
def test_the_needed_glibc_is_that_of_the_newest_symbol(symbols, oldest, monkeypatch, tmp_path):
    tool = load_tool()
    needs = "Version needs section '.gnu.version_r'\n" + "\n".join(f"  Name: {name}  Flags: none" for name in symbols.split())
    monkeypatch.setattr(tool, "output", lambda *_: "Version definition section\n Name: GLIBC_9.9\n" + needs)
    assert tool.needed_glibc([tmp_path / "x.so"])[0] == oldest


@pytest.mark.parametrize("symbols, says", [("GLIBC_PRIVATE", "GLIBC_PRIVATE"), ("GLIBCXX_3.4.99", "GLIBCXX_3.4.99")])
def test_unknown_symbol_versions_are_refused(symbols, says, monkeypatch, tmp_path):
    tool = load_tool()
    monkeypatch.setattr(tool, "output", lambda *_: f"Version needs section\n Name: {symbols}\n")
    with pytest.raises(tool.Refused, match=says):
        tool.needed_glibc([tmp_path / "x.so"])


def test_a_package_of_another_version_is_refused(tmp_path):
    shutil.copytree(ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "python/evenkeel_moe/_version.py").write_text('__version__ = "9.9.9"\n')
    done = made(tmp_path / "dist", "--package", tmp_path / "python")
    assert done.returncode == 1 and "9.9.9" in done.stderr and done.stderr.startswith("wheel: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "dist").exists()


def test_a_symbol_of_libstdcxx_is_asked_for_in_its_older_version(tmp_path):
    """std::condition_variable::wait is the only symbol that would need the libstdc++ of GCC 12."""
    tool = load_tool()
    file = tmp_path / "program"
    shutil.copy(PROGRAM, file)
    before = tool.Elf(file.read_bytes())
    assert before.symbols(before.needs()["GLIBCXX_3.4.30"][1]) == set(tool.OLDER)
    assert tool.ask_for_older_symbols(file) and not tool.ask_for_older_symbols(file)
    assert tool.needed_glibc([file])[0] == (2, 34)
    listed = subprocess.run(["objdump", "-T", file], capture_output=True, text=True, check=True).stdout
    assert re.search(r"GLIBCXX_3\.4\.11\) +_ZNSt18condition_variable4wait", listed) and "GLIBCXX_3.4.30" not in listed
    started = subprocess.run([file, "--version"], capture_output=True, text=True, env={"LD_BIND_NOW": "1"})
    assert started.returncode == 0, started.stderr


def test_versions_of_other_symbols_stay(tmp_path, monkeypatch):
    tool = load_tool()
    file = tmp_path / "program"
    shutil.copy(PROGRAM, file)
    needed = tool.Elf(file.read_bytes()).needs()
    assert len(tool.Elf(file.read_bytes()).symbols(needed["GLIBCXX_3.4.21"][1])) > 1
    monkeypatch.setattr(tool, "OLDER", {next(iter(tool.OLDER)): ("GLIBCXX_3.4.21", "GLIBCXX_3.4.11")})
    assert not tool.ask_for_older_symbols(file) and file.read_bytes() == pathlib.Path(PROGRAM).read_bytes()

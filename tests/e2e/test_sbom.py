"""Tests the SBOM of an image (tools/sbom.py). tests/e2e/test_wheel.py has that of the wheel."""

import hashlib
import json
import subprocess
import sys

import pytest

from spdx_rules import check_spdx
from tiny import ROOT

STATUS = """Package: libssl3
Status: install ok installed
Architecture: amd64
Version: 3.0.19-1~deb12u1
Description: a library
 with a paragraph that names Version: 9

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u13
"""


@pytest.fixture
def image(tmp_path):
    for name, text in (("bin/evenkeel", "program"), ("lib/evenkeel/libtorch_cpu.so", "library"), ("share/evenkeel/a b/config.toml", "")):
        (tmp_path / "prefix" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "prefix" / name).write_text(text)
    (tmp_path / "status").write_text(STATUS)

    def made(out):
        subprocess.run([sys.executable, ROOT / "tools/sbom.py", "--prefix", tmp_path / "prefix", "--dpkg-status", tmp_path / "status", "--version",
                        "0.1.0", "--torch", "2.13.0", "--out", tmp_path / out], check=True, timeout=600)
        return (tmp_path / out).read_text()
    return made


def test_the_document_of_an_image_names_its_packages_and_files(image):
    document = json.loads(image("first"))
    check_spdx(document)
    versions = {package["name"]: package.get("versionInfo") for package in document["packages"]}
    assert versions == {"evenkeel-image": "0.1.0", "libssl3": "3.0.19-1~deb12u1", "libc6": "2.36-9+deb12u13", "torch": "2.13.0"}
    licences = {package["name"]: package["licenseDeclared"] for package in document["packages"]}
    assert (licences["libssl3"], licences["libc6"], licences["evenkeel-image"]) == ("Apache-2.0", "NOASSERTION", "Apache-2.0")
    files = {file["fileName"]: {one["algorithm"]: one["checksumValue"] for one in file["checksums"]} for file in document["files"]}
    assert files["./bin/evenkeel"]["SHA256"] == hashlib.sha256(b"program").hexdigest() and len(files) == 3
    purls = {package["name"]: package["externalRefs"][0]["referenceLocator"] for package in document["packages"] if "externalRefs" in package}
    assert purls["libc6"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64&distro=debian-12"


def test_equal_trees_give_equal_documents_and_others_another_name(image, tmp_path):
    first = image("first")
    assert image("second") == first
    (tmp_path / "prefix/bin/evenkeel").write_text("program of another build")
    assert json.loads(image("third"))["documentNamespace"] != json.loads(first)["documentNamespace"]


def test_the_document_is_valid_for_the_library_of_spdx(image):
    validation = pytest.importorskip("spdx_tools.spdx.validation.document_validator")
    reader = pytest.importorskip("spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser")
    document = reader.JsonLikeDictParser().parse(json.loads(image("first")))
    assert validation.validate_full_spdx_document(document) == []


def test_docker_and_podman_leave_the_same_files_out_of_the_image():
    assert (ROOT / "packaging/Containerfile.dockerignore").read_text() == (ROOT / ".containerignore").read_text()


def test_the_stages_of_the_container_are_there_and_use_flags_of_the_tool():
    text = (ROOT / "packaging/Containerfile").read_text()
    stages = [line.split(" AS ")[1] for line in text.splitlines() if line.startswith("FROM") and " AS " in line]
    assert stages == ["build", "runtime", "sbom"] and "\nFROM runtime\n" in text
    flags = subprocess.run([sys.executable, ROOT / "tools/sbom.py", "--help"], capture_output=True, text=True, check=True, timeout=600).stdout
    for flag in ("--prefix", "--dpkg-status", "--version", "--torch", "--out"):
        assert f"{flag} " in text.split("tools/sbom.py")[1] and flag in flags

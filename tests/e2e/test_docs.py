"""Runs every command of every document that is not marked as not-run (tutorial.py). Each document has its own folder
with `build/evenkeel`, `assets`, `configs` and `docs`, as in the repository.
"""

import pathlib
import re
import sys

import pytest

from tiny import PROGRAM, ROOT
from tutorial import BLOCK, follow

DOCUMENTS = [str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
             if not path.name.startswith("tutorial-")]  # tutorials have their own tests


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "build").mkdir()
    (tmp_path / "build/evenkeel").symlink_to(PROGRAM)
    for name in ("assets", "configs", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"), prepend=":")
    monkeypatch.setenv("PATH", f"{tmp_path / 'build'}:{pathlib.Path(sys.executable).parent}", prepend=":")
    return tmp_path


@pytest.mark.parametrize("document", [name for name in sorted(DOCUMENTS) if "\n```" in (ROOT / name).read_text()])
def test_every_command_of_a_document_succeeds(document, project):
    follow(document, project)


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_every_block_of_a_document_is_closed(document):
    text = (ROOT / document).read_text()
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(BLOCK.findall(text))


@pytest.mark.parametrize("block, wrong", [("sh\nfalse", "false"), ("sh not-run\ntrue", "not-run"), ("python\npass", "python"),
                                          ("sh not-run:\ntrue", "not-run")])
def test_a_failing_or_unknown_block_is_named(block, wrong, project, monkeypatch):
    monkeypatch.setattr("tutorial.ROOT", project)
    (project / "page.md").write_text(f"```{block}\n```\n")
    with pytest.raises(AssertionError, match=wrong):
        follow("page.md", project)


def test_files_and_commands_are_processed_in_order(project, monkeypatch):
    monkeypatch.setattr("tutorial.ROOT", project)
    (project / "page.md").write_text("```json a/b.json\n{}\n```\n```sh\ncat a/b.json\n```\n```sh not-run: no reason\nfalse\n```\n"
                                     "```json a/b.json\n[]\n```\n```text\nseen\n```\n```sh\ncat a/b.json\n```\n")
    assert [done.stdout for done, _ in follow("page.md", project)] == ["{}\n", "[]\n"]

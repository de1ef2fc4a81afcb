"""Checks the documentation site: every page is in the navigation, and every link and anchor has a target.

Needs no network. `make site` builds the site itself, with warnings as errors.
"""

import json
import pathlib
import re
import sys

import pytest

from tiny import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import site_pages as site  # noqa: E402

DOCUMENTS = sorted(path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))


def text_outside_code(path):
    text = site.notebook_page(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    return site.CODE.sub("", text)


def slug(heading):
    """Returns the anchor that GitHub and the site give a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(path):
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text_outside_code(path), re.M)}


def broken(path):
    """Returns the links of a document that have no target."""
    for _, target in site.LINK.findall(text_outside_code(path)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield target


@pytest.mark.parametrize("path", [*DOCUMENTS, *(ROOT / "docs" / file for file in site.NOTEBOOKS.values())], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_and_anchor_leads_somewhere(path):
    assert list(broken(path)) == []


def test_every_page_is_in_the_navigation_once():
    placed = [site.source(page) for page in site.placed() if site.source(page)]
    assert len(placed) == len(set(placed)) and all(path.is_file() for path in placed)
    missing = set(DOCUMENTS) - set(placed)
    assert missing == set(), "tools/site_pages.py: NAVIGATION has no place for these"


def test_a_missing_file_and_a_missing_anchor_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# One thing, `two`\n")
    (tmp_path / "page.md").write_text("[a](other.md) [b](other.md#one-thing-two) [c](nowhere.md) [d](other.md#three) [e](#f) [g](https://x.y)\n"
                                      "```sh\n[h](nothing.md)\n```\n")
    assert list(broken(tmp_path / "page.md")) == ["nowhere.md", "other.md#three", "#f"]


@pytest.mark.parametrize("text, page, expected", [
    ("see [a](docs/methods.md#x)", "index.md", "see [a](methods.md#x)"),
    ("[a](../CONTRIBUTING.md)", "tutorial-new-method.md", "[a](contributing.md)"),
    ("[a](../serving.md)", "decisions/0040-as-exported.md", "[a](../serving.md)"),
    ("[0012](0012-report.md)", "decisions/README.md", "[0012](../decisions/0012-report.md)"),
    ("the file [packing.h](../src/lora/packing.h) says", "federation.md", "the file packing.h says"),
    ("a [link over\ntwo lines](data.md)", "methods.md", "a [link over\ntwo lines](data.md)"),
    ("[The\nnotebook](notebooks/first-run.ipynb)", "python.md", "[The\nnotebook](first-run.md)"),
    ("[a](https://x.y/z)", "methods.md", "[a](https://x.y/z)"),
    ("```sh not-run: why\n[a](b.md)\n```", "methods.md", "```sh\n[a](b.md)\n```"),
    ("![a](figures/steps.svg)", "performance.md", "![a](figures/steps.svg)")])
def test_links_are_rewritten_for_the_site(text, page, expected):
    assert site.rewritten(text, page) == expected + "\n"


def test_no_page_of_the_site_links_outside_of_it():
    pages = set(site.placed())
    for page in site.placed():
        if page in site.MADE:
            continue
        text = site.CODE.sub("", site.text_of(page))
        for _, target in site.LINK.findall(text):
            if not re.match(r"[a-z]+:|#", target):
                there = pathlib.PurePosixPath(page).parent / target.partition("#")[0]
                name = str(pathlib.Path("/", there).resolve())[1:]
                assert name in pages or name.startswith("figures/"), (page, target)


def test_the_configuration_of_the_site_names_every_page_and_has_search():
    text = site.config_text()
    config = json.loads(text.replace("!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}", "null"))
    named = [page for group in config["nav"] for pages in group.values() for entry in pages for page in entry.values()]
    assert named == site.placed() and config["strict"] and config["plugins"] == ["search"] and config["theme"]["font"] is False


def test_generated_pages_contain_the_commands_and_public_names():
    command_line = site.MADE["command-line.md"]()
    for command in ("train", "evaluate", "list", "report", "doctor"):
        assert f"\n## {command}\n" in command_line
    assert "--progress" in command_line and str(ROOT) not in command_line
    api = site.MADE["python-api.md"]()
    for name in ("train", "Run", "Study", "EvenkeelError"):
        assert f"\n## {name}\n" in api
    assert "`.resume(rounds: Optional[int] = None, *, set: Optional[Mapping[str, Any]] = None, **options: Any) -> Run`" in api

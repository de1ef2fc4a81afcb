#!/usr/bin/env python3
"""Builds the documentation site from the Markdown of this project: `make site`.

    tools/site_pages.py           writes build-site/pages and build-site/mkdocs.yml, and builds build-site/site, strictly
    tools/site_pages.py --pages   writes the pages alone

NAVIGATION below places every page. Links that leave docs/ become plain text, because a site has no sources.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

import reference

ROOT = reference.ROOT
OUT = ROOT / "build-site"
CODE = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s]+)\)")
# Pages that are not files of docs/ under the same name.
OUTSIDE = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}
MADE = {"command-line.md": reference.command_line_page, "python-api.md": reference.python_page}
NOTEBOOKS = {"first-run.md": "notebooks/first-run.ipynb", "own-method.md": "notebooks/own-method.ipynb", "trained-model.md": "notebooks/trained-model.ipynb"}
NAVIGATION = {
    "Start": {"Quick start": "index.md", "Installing": "installing.md", "Glossary": "glossary.md"},
    "Tutorials": {"A notebook": "first-run.md", "A notebook with a method": "own-method.md", "A trained model": "trained-model.md", "A new method": "tutorial-new-method.md", "A new model family": "tutorial-new-family.md",
                  "A new task": "tutorial-new-task.md"},
    "Guides": {"Your own rows": "your-data.md", "Prompts": "prompts.md", "Python": "python.md", "Serving": "serving.md",
               "Studies": "studies.md", "Tracking": "tracking.md", "Unequal machines": "unequal-machines.md", "Data sets": "data.md",
               "GPU": "gpu.md", "Flower app": "flower-app.md"},
    "Reference": {"Configuration": "configuration.md", "Methods": "methods.md", "Ambiguities": "ambiguities.md", "Run folder": "run-folder.md",
                  "Python API": "python-api.md", "Command line": "command-line.md", "JSON lines": "json-lines.md"},
    "Operations": {"Federation": "federation.md", "Operations": "operations.md", "Threat model": "threat-model.md", "Privacy": "privacy.md", "Hostile updates": "robust-aggregation.md",
                   "Troubleshooting": "troubleshooting.md"},
    "Results": {"Results": "results.md", "The paper's claims": "claims.md", "Tables of the paper": "paper-tables.md", "Statistics of a study": "study-statistics.md",
                "Performance": "performance.md", "Kernels": "kernels.md"},
    "Project": {"Architecture": "architecture.md", "Contributing": "contributing.md", "Security": "security.md", "Changelog": "changelog.md"},
}


def numbered(folder):
    """The numbered pages of a folder of docs/, with their titles."""
    pages = sorted((ROOT / "docs" / folder).glob("0*.md"))
    return {path.read_text(encoding="utf-8").splitlines()[0].lstrip("# "): f"{folder}/{path.name}" for path in pages}


def navigation():
    return {**NAVIGATION, "Registered studies": {"Overview": "studies/README.md", **numbered("studies")},
            "Decisions": {"Index": "decisions/README.md", **numbered("decisions")}}


def placed():
    """Every page of the navigation."""
    return [page for pages in navigation().values() for page in pages.values()]


def source(page):
    """The file of a page; None for one that is made."""
    if page in MADE:
        return None
    if page in NOTEBOOKS:
        return ROOT / "docs" / NOTEBOOKS[page]
    return ROOT / OUTSIDE.get(page, f"docs/{page}")


def target_on_site(target, page):
    """Where a link of a page leads on the site; None when it leaves the site's pages."""
    path, mark, anchor = target.partition("#")
    if not path:
        return target
    folder = source(page).parent if source(page) else ROOT / "docs"
    file = (folder / path).resolve()
    if not file.exists():
        raise SystemExit(f"site: {page} links to {target}, which is not there")
    pages = {source(name).resolve(): name for name in placed() if source(name)}
    if file in pages:
        depth = page.count("/")
        return "../" * depth + pages[file] + mark + anchor
    if file.suffix == ".svg" and file.is_relative_to(ROOT / "docs"):
        return "../" * page.count("/") + str(file.relative_to(ROOT / "docs")) + mark + anchor
    return None


def rewritten(text, page):
    def link(match):
        target = match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        there = target_on_site(target, page)
        return match[1] if there is None else f"[{match[1]}]({there})"

    parts = CODE.split(text)  # text and blocks of code in turn
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    # What stands behind a block's language, "sh not-run: why" or a file's name, is for the tests.
    parts[1::2] = [re.sub(r"^( *```\w+) .*", r"\1", part) for part in parts[1::2]]
    return "".join(parts).rstrip("\n") + "\n"


def notebook_page(file):
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def text_of(page):
    if page in MADE:
        return MADE[page]()
    file = source(page)
    text = notebook_page(file) if file.suffix == ".ipynb" else file.read_text(encoding="utf-8")
    return rewritten(text, page)


def config_text():
    """mkdocs.yml. JSON is YAML."""
    nav = [{title: [{name: page} for name, page in pages.items()]} for title, pages in navigation().items()]
    theme = {"name": "material", "font": False, "features": ["navigation.indexes", "navigation.top", "search.suggest", "search.highlight",
                                                             "content.code.copy"],
             "palette": [{"media": "(prefers-color-scheme: light)", "scheme": "default", "toggle": {"icon": "material/weather-night", "name": "Dark"}},
                         {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "toggle": {"icon": "material/weather-sunny", "name": "Light"}}]}
    checks = {"nav": {"omitted_files": "warn", "not_found": "warn"}, "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn",
                                                                              "unrecognized_links": "warn"}}
    return json.dumps({"site_name": "evenkeel", "docs_dir": "pages", "site_dir": "site", "use_directory_urls": False, "strict": True, "theme": theme,
                       "plugins": ["search"], "validation": checks, "nav": nav,
                       "markdown_extensions": ["admonition", "attr_list", "tables", "pymdownx.superfences",
                                               {"pymdownx.highlight": {"guess_lang": False}},
                                               {"toc": {"permalink": True, "slugify": "!!"}}]}, indent=1).replace(
        '"!!"', "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}")


def write_pages():
    for page in placed():
        file = OUT / "pages" / page
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text_of(page), encoding="utf-8")
    figures = OUT / "pages/figures"
    figures.mkdir(exist_ok=True)
    for figure in (ROOT / "docs/figures").iterdir():
        (figures / figure.name).write_bytes(figure.read_bytes())
    (OUT / "mkdocs.yml").write_text(config_text(), encoding="utf-8")


def main():
    write_pages()
    if "--pages" in sys.argv[1:]:
        return 0
    done = subprocess.run([ROOT / ".venv-site/bin/mkdocs", "build", "--strict", "--clean", "--config-file", OUT / "mkdocs.yml"],
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout + done.stderr)
    if done.returncode == 0:
        print(f"site: {len(placed())} pages in {(OUT / 'site').relative_to(ROOT)}; with search: python3 -m http.server -d build-site/site")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes the pages of the reference that the program and the Python package describe themselves.

    tools/reference.py          writes docs/configuration.md
    tools/reference.py --check  exit code 1 when that page is not what the program says

The program is $EVENKEEL_PROGRAM, or build/evenkeel. The site (tools/site_pages.py) makes the pages of the command line and of the Python API too.
"""
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/configuration.md"
MADE = "<!-- Written by tools/reference.py; edit the definitions instead. -->\n"


def program(*words):
    path = os.environ.get("EVENKEEL_PROGRAM", str(ROOT / "build/evenkeel"))
    text = subprocess.run([path, *words], capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    return text.replace(path, "evenkeel")


# --- configuration ---

def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;").strip()


def code(text):
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""


def table_of(key):
    parts = key.split(".")
    return ".".join(parts[:-1])


def heading(table):
    if not table:
        return "The run"
    if table.endswith("[]"):
        return f"`[[{table[:-2]}]]`"
    return f"`[{table}]`"


def configuration_page():
    keys = [json.loads(line) for line in program("list", "keys", "--json").splitlines()]
    lines = ["# Configuration", "", MADE,
             "Every key of a config file, with its default, what is allowed and what it means. `evenkeel list keys` prints the same,",
             "`evenkeel list keys train` one section, and `evenkeel train CONFIG --print-config` a whole config.",
             "[methods.md](methods.md) explains the methods. A key is changed on the command line by `--set table.key=value`. `<name>`",
             "stands for a name that the file chooses.", ""]
    tables = list(dict.fromkeys(table_of(key["key"]) for key in keys))
    for table in tables:
        lines += [f"## {heading(table)}", "", "| key | default | allowed | meaning |", "| --- | --- | --- | --- |"]
        for key in keys:
            if table_of(key["key"]) == table:
                name = key["key"][len(table) + 1:] if table else key["key"]
                lines.append(f"| `{name}` | {code(key['default'])} | {cell(key['allowed'] or key['type'])} | {cell(key['help'])} |")
        lines.append("")
    return "\n".join(lines)


# --- command line ---

def commands():
    text = program("--help")
    listed = re.split(r"^\w*commands:?$", text, flags=re.M | re.I)[1]
    return re.findall(r"^  ([a-z-]+) ", listed, re.M)


def command_line_page():
    lines = ["# Command line", "", MADE, "What `--help` prints. Every command ends with exit code 0, with 1 when its input is wrong, with 2 when the "
             "program is, and with 130 when it was interrupted.", "", "```text", program("--help").strip(), "```", ""]
    for command in commands():
        lines += [f"## {command}", "", "```text", program(command, "--help").strip(), "```", ""]
    return "\n".join(lines)


# --- Python API ---

def signature(function):
    text = str(inspect.signature(function)).replace("'", "")
    return text.replace("(self, ", "(").replace("(self)", "()")


def doc(thing):
    return inspect.cleandoc(thing.__doc__ or "")


def members(cls):
    for name, member in vars(cls).items():
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, property):
            yield f"`.{name}`", doc(member)
        elif isinstance(member, classmethod):
            yield f"`.{name}{signature(member.__func__).replace('(cls, ', '(')}`", doc(member.__func__)
        elif inspect.isfunction(member) and doc(member) and name != "__init__":
            yield f"`.{name}{signature(member)}`", doc(member)


def python_page():
    sys.path.insert(0, str(ROOT / "python"))
    import evenkeel_moe
    lines = ["# Python API", "", MADE, "The package `evenkeel_moe`. [python.md](python.md) is the guide.", ""]
    for name in sorted(set(evenkeel_moe.__all__) - {"__version__"}, key=str.lower):
        thing = getattr(evenkeel_moe, name)
        lines += [f"## {name}", ""]
        if inspect.isfunction(thing):
            lines += ["```text", f"{name}{signature(thing)}", "```", ""]
        lines += [doc(thing), ""]
        if inspect.isclass(thing):
            for title, text in members(thing):
                lines += [f"{title}  ", text, ""]
    return "\n".join(lines)


def main():
    page = configuration_page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page, encoding="utf-8")
        print(f"reference: {PAGE.relative_to(ROOT)} written")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"reference: {PAGE.relative_to(ROOT)} is out of date: run tools/reference.py with the program that is built")
    return 1


if __name__ == "__main__":
    sys.exit(main())

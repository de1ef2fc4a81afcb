"""Checks bad input from tables: it is rejected with the expected line, and no existing file changes."""

import hashlib
import json
import os
import pathlib
import stat

import pytest

from tiny import CONFIG, evenkeel, settings, succeed

DEEP = 100_000


def cases(table):
    """Converts [(id, *case)] to arguments of pytest.mark.parametrize. Each id names what is wrong."""
    ids = [case[0] for case in table]
    assert len(set(ids)) == len(ids), sorted(id for id in set(ids) if ids.count(id) > 1)
    return [pytest.param(*case[1:], id=case[0]) for case in table]


def content(folder):
    """Returns everything below a folder: kind, permissions, and content or link target."""
    found = {}
    for path in sorted(pathlib.Path(os.fsdecode(folder)).rglob("*")):
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            found[path] = os.readlink(path)
        else:
            found[path] = (stat.S_IFMT(info.st_mode), hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
    return found


def refused(*arguments, says, untouched=None, code=1, **options):
    """Runs the program and checks that it fails with one line that contains every word of `says`, prints nothing to
    stdout, and changes nothing below the folder `untouched`.
    """
    before = content(untouched) if untouched else None
    done = evenkeel(*arguments, timeout=600, errors="replace", **options)
    assert done.returncode == code, (done.returncode, done.stderr[-2000:])
    assert done.stdout == ""
    text = [line for line in done.stderr.split("\n") if line.startswith("evenkeel: ")]
    assert len(text) == 1 and done.stderr.endswith(text[0] + "\n"), done.stderr[-2000:]
    line = text[0]
    assert len(line.encode()) <= 500, line
    assert all(ord(c) >= 0x20 and ord(c) != 0x7f for c in line), repr(line)
    for word in says:
        assert str(word) in line, line
    if untouched:
        assert content(untouched) == before
    return line


def changed(**changes):
    """Returns a function that changes keys of a JSON object. None removes a key."""
    def change(text):
        value = json.loads(text)
        for key, entry in changes.items():
            value.pop(key, None) if entry is None else value.update({key: entry})
        return json.dumps(value)
    return change


def put(text):
    return lambda _: text


# Damages of any JSON file: (id, change of its text, words of the error line besides the file name).
DAMAGES = [
    ("empty", put(""), ["JSON"]),
    ("cut", lambda text: text[:len(text) // 2], ["JSON"]),
    ("no JSON", put("rounds = 3"), ["JSON"]),
    ("two values", lambda text: text + text, ["JSON"]),
    ("a NUL behind", lambda text: text + "\0", []),
    ("not UTF-8", put(b'{"a": "\xff\xfe"}'), []),
    ("deep lists", put("[" * DEEP), []),
    ("deep objects", put('{"a":' * DEEP + "1" + "}" * DEEP), []),
    ("a list", put("[]"), []),
    ("null", put("null"), []),
    ("a number too large", put('{"a": 1e999}'), []),
]
# All JSON is parsed by one function. Two formats are tested with all damages, the others with those that depend on the
# reader.
SOME_DAMAGES = [damage for damage in DAMAGES if damage[0] in ("cut", "deep lists", "a list", "null")]


def damaged(file, change):
    """Rewrites a file. None removes it."""
    if change is None:
        file.unlink()
        return
    text = change(file.read_bytes().decode() if file.exists() else "")
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture(scope="session")
def run(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "fedit"
    succeed("train", CONFIG, "--out", out, *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1, data__limit=30,
                                                     evaluate__budgets="[1.0]", method__name="fedit"))
    return out

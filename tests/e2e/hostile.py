"""Bad input by the table: what is refused, with which line, and that nothing that existed is changed."""

import hashlib
import json
import os
import pathlib
import stat

import pytest

from tiny import CONFIG, evenkeel, settings, succeed

DEEP = 100_000


def cases(table):
    """[(id, *case)] -> arguments of pytest.mark.parametrize, with ids that say what is wrong."""
    ids = [case[0] for case in table]
    assert len(set(ids)) == len(ids), sorted(id for id in set(ids) if ids.count(id) > 1)
    return [pytest.param(*case[1:], id=case[0]) for case in table]


def content(folder):
    """Everything below a folder: kind, rights, and what it holds or points to."""
    found = {}
    for path in sorted(pathlib.Path(os.fsdecode(folder)).rglob("*")):
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            found[path] = os.readlink(path)
        else:
            found[path] = (stat.S_IFMT(info.st_mode), hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
    return found


def refused(*arguments, says, untouched=None, code=1, **options):
    """Runs the program, which has to end in one line that holds every word of `says`, having written nothing to stdout
    and changed nothing below the folder `untouched`."""
    before = content(untouched) if untouched else None
    done = evenkeel(*arguments, timeout=20, errors="replace", **options)
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
    """A change of keys of a JSON object; None takes a key away."""
    def change(text):
        value = json.loads(text)
        for key, entry in changes.items():
            value.pop(key, None) if entry is None else value.update({key: entry})
        return json.dumps(value)
    return change


def put(text):
    return lambda _: text


# What may happen to any JSON file, whatever it is for: (id, change of its text, what the line says beside its name).
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
# All JSON is parsed in one place: two formats get every damage, the others what differs by who reads it.
SOME_DAMAGES = [damage for damage in DAMAGES if damage[0] in ("cut", "deep lists", "a list", "null")]


def damaged(file, change):
    """Rewrites a file; None: it is not there."""
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

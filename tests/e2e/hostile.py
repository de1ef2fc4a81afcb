"""Bad input by the table: what is refused, with which line, and that nothing that existed is changed."""

import hashlib
import os
import pathlib
import stat

from tiny import evenkeel


def cases(table):
    """[(id, *case)] -> arguments of pytest.mark.parametrize, with ids that say what is wrong."""
    import pytest

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

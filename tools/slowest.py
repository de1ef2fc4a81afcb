"""Prints the ten slowest entries of CTest and the ten slowest tests in them: `python3 tools/slowest.py
BUILD_FOLDER...`.

Reads the log of CTest's last run in each folder. A test is a test of GoogleTest, or the set-up, call or tear-down of a
test of pytest, which prints the slowest of each process.
"""

import pathlib
import re
import sys

NAME = re.compile(r"^\d+/\d+ Testing: (\S+)")
ENTRY = re.compile(r"^Test time = +([\d.]+) sec")
GOOGLE = re.compile(r"^\[       OK \] (\S.*) \((\d+) ms\)")
PYTEST = re.compile(r"^([\d.]+)s (call|setup|teardown) +(\S.*)")


def times(log):
    """Returns ([(seconds, entry)], [(seconds, test)])."""
    entries, tests, name = [], [], ""
    for line in log.splitlines():
        if match := NAME.match(line):
            name = match[1]
        elif match := ENTRY.match(line):
            entries.append((float(match[1]), name))
        elif match := GOOGLE.match(line):
            tests.append((int(match[2]) / 1000, f"{name} {match[1]}"))
        elif match := PYTEST.match(line):
            tests.append((float(match[1]), f"{match[3].strip()} ({match[2]})"))
    return entries, tests


def main(folders):
    for folder in folders:
        log = pathlib.Path(folder) / "Testing/Temporary/LastTest.log"
        if not log.exists():
            continue
        for what, found in zip(("entries of CTest", "tests"), times(log.read_text(errors="replace"))):
            print(f"-- the slowest {what} in {folder}, in seconds")
            for seconds, name in sorted(found, reverse=True)[:10]:
                print(f"{seconds:8.1f}  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])

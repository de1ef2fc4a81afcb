"""Runs Python tests in one pytest process: `python tests/run_python.py [--shard I/N] FILE... [OPTION OF PYTEST...]`.

A test that ends the process, or takes longer than EVENKEEL_TEST_SECONDS, counts as failed, and the remaining tests run
in another process. The exit code is 1 if a test failed or ended its process, otherwise 0. `--shard 2/3` takes every
third file, from the second on. This file is also a plugin of pytest, which records in a journal which tests have begun
and ended.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
JOURNAL = "EVENKEEL_TEST_JOURNAL"
SECONDS = os.environ.get("EVENKEEL_TEST_SECONDS", "900")
NO_TESTS = 5  # pytest's exit code if no test was selected


# --- the plugin ---

def note(event, test=""):
    with open(os.environ[JOURNAL], "a", encoding="utf-8") as journal:
        journal.write(json.dumps([event, test]) + "\n")


def noted(event):
    """Returns the tests of an event, in order."""
    events = [json.loads(line) for line in pathlib.Path(os.environ[JOURNAL]).read_text(encoding="utf-8").splitlines()]
    return [test for kind, test in events if kind == event]


def pytest_collection_modifyitems(config, items):
    begun = set(noted("begun"))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in begun])
    items[:] = [item for item in items if item.nodeid not in begun]


def pytest_runtest_logstart(nodeid):
    note("begun", nodeid)


def pytest_runtest_logfinish(nodeid):
    note("ended", nodeid)


def pytest_sessionfinish():
    note("finished")


# --- the process that starts pytest ---

def run_pytest(files, options):
    """Runs pytest and returns its exit code. Remaining processes of its process group are killed."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", FOLDER.joinpath(__file__).stem,
               "--rootdir", FOLDER.parent, "--continue-on-collection-errors", "--durations=10", "-o", f"faulthandler_timeout={SECONDS}",
               "-o", "faulthandler_exit_on_timeout=true", *options, *files]
    path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, process_group=0)
    try:
        return process.wait()
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def run(files, options):
    """Returns what ended a process, one line each, and whether a test failed."""
    broken, failed = [], False
    while True:
        begun, finished = len(noted("begun")), len(noted("finished"))
        code = run_pytest(files, options)
        if len(noted("finished")) > finished:
            return broken, failed or code not in (0, NO_TESTS)
        ended = set(noted("ended"))
        open_tests = [test for test in noted("begun")[begun:] if test not in ended]
        broken += [f"{test} ended its process (exit code {code})" for test in open_tests]
        if len(noted("begun")) > begun:
            print(f"\n{broken[-1] if open_tests else f'the process ended (exit code {code})'}; going on with the tests that are left", flush=True)
            failed = True
            continue
        if len(files) == 1:
            return [*broken, f"{files[0]} ended its process before its first test (exit code {code})"], True
        alone = [run([file], options) for file in files]
        return broken + [line for lines, _ in alone for line in lines], True


def main(words):
    shard, shards = 1, 1
    if words[:1] == ["--shard"]:
        shard, shards = map(int, words[1].split("/"))
        words = words[2:]
    files = [word for word in words if word.endswith(".py")]
    options = [word for word in words if not word.endswith(".py")]
    assert len(files) >= shards >= shard >= 1, __doc__
    with tempfile.NamedTemporaryFile(prefix="evenkeel-tests-") as journal:
        os.environ[JOURNAL] = journal.name
        broken, failed = run(files[shard - 1::shards], options)
    for line in broken:
        print(f"FAILED {line}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

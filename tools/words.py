#!/usr/bin/env python3
"""Rejects names that were replaced by the field's terms (docs/glossary.md) in sources, tests and documents.

Prints one line per occurrence; the exit code is 1 if there are any.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "apps", "tests", "docs", "bench", "README.md", "CONTRIBUTING.md")
RETIRED = {
    "lying_times": "gemm_nt_unpacked", "lies_well": "can_skip_packing", "kWorthThreads": "kMinParallelMacs", "SideBySideOf": "GroupedOperand",
    "times_transposed": "gemm_nt", "transposed_times": "gemm_tn", "ProductTable": "MatmulTable", "ProductPlace": "GemmContext",
    "KvStretch": "KvBlock", "KeptList": "WorkspacePool", "ExpertKept": "SavedActivations",
    "shared_beginning": "common_prefix", "known_or_made": "get_or_compute", "answer_behind": "answer_span", "whole_news": "full_sync",
    "take_up": "restore_clients", "make_room": "trim_heap", "rehearse": "dry_run", "LostRouting": "UnexportableRouting",
    "Workplace": "ClientContext", "with_way_out": "with_recovery_hint", "LatePayload": "DeferredPayload", "write_past_caches": "store_nontemporal",
    "Talks": "Sessions", "bid_farewell": "send_shutdown", "IncomingLetter": "IncomingEnvelope", "lie_idle": "on_idle",
    "in_the_way": "has_waiters", "done_with_mapped": "advise_dontneed", "enter_mapping": "register_mapping", "DeviceProfile": "MachineProfile",
    "foresight": "memory estimate", "gain_base_delta": "add_base_delta", "out_of_device_memory": "device_memory_message",
    "others_go_on": "survives_loss", "tell_who_gives_none": "report_nodes_without_scores", "ClientSide": "RunClientScores",
}
ALLOWED = re.compile(r"is called|\(was|was `|were `|merged")
PATTERN = re.compile(r"(?<!\w)(" + "|".join(sorted(map(re.escape, RETIRED), key=len, reverse=True)) + r")(?!\w)")


def occurrences(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for match in PATTERN.finditer(line):
            yield f"{path.relative_to(ROOT)}:{number}: {match.group(1)} is called {RETIRED[match.group(1)]} now"


def main():
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [ROOT / name for name in listed
             if name.endswith((".h", ".cpp", ".inc", ".py", ".md", ".toml"))]
    found = [line for path in files if path.exists() for line in occurrences(path)]
    print("\n".join(found + [f"words: {len(files)} files, {len(found)} retired names"]))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())

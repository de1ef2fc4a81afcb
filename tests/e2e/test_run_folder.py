"""Checks that docs/run-folder.md names exactly the files of a run folder and the fields of its records."""

import json
import re

import pytest

from tiny import CONFIG, ROOT, lines, settings, succeed

PAGE = (ROOT / "docs/run-folder.md").read_text()
RECORDS = {
    "src/fed/store/round_records.h": ["RoundMeasures", "SimulatedClient", "ClientOfRound", "LostClient", "SimulatedRound",
                                      "SummedRoundRecord", "ClientPrivacyRecord", "ExpertUse", "PhaseSeconds", "RoundRecord", "EvaluationRecord",
                                      "ItemRecord", "MissingScore"],
    "src/train/private_steps.h": ["PrivateReport"],
    "src/fed/run/best_round.h": ["RoundValue", "EarlyStop", "BestRound"],
    "src/scoring/task_score.h": ["TaskScore", "ItemScores", "ClientOfScore"],
    "src/study/definition/study_state.h": ["Arm", "StudyRun", "StudyState"],
}
SECTIONS = {"rounds.jsonl": ["RoundMeasures", "SimulatedClient", "ClientOfRound", "LostClient", "SimulatedRound", "ExpertUse",
                             "SummedRoundRecord", "PhaseSeconds", "PrivateReport", "RoundRecord", "ClientPrivacyRecord"],
            "evaluations.jsonl": ["EvaluationRecord", "TaskScore", "ClientOfScore"],
            "items/round-N.jsonl and missing_scores.jsonl": ["ItemRecord", "ItemScores", "MissingScore"],
            "best.json": ["BestRound", "RoundValue", "EarlyStop"],
            "Study folder": ["Arm", "StudyRun", "StudyState"]}


def fields_of(record):
    """Returns the keys that visit() of a record names."""
    header = next(header for header, records in RECORDS.items() if record in records)
    body = re.search(rf"^struct {record}\b.*?^}};", (ROOT / header).read_text(), re.S | re.M)[0]
    return set(re.findall(r'field(?:\.optional)?\(\s*"(\w+)"', body))


def section(title):
    return re.split(r"^##+ ", PAGE.split(f"# {title}")[1], flags=re.M)[0]


def named_in(text):
    """Returns the fields in the tables of a section: the names in backticks in the first column that has such names.

    A column of record names is skipped.
    """
    names = set()
    for row in re.findall(r"^\|(.*)\|$", text, re.M):
        cells = [set(re.findall(r"`(\w+)`", cell)) for cell in row.split("|")]
        names |= next((cell for cell in cells if cell and not any(name[0].isupper() for name in cell)), set())
    return names


@pytest.mark.parametrize("title", SECTIONS)
def test_the_fields_of_a_section_are_those_of_its_records(title):
    fields = set().union(*(fields_of(record) for record in SECTIONS[title]))
    assert len(fields) > 5 and named_in(section(title)) == fields


def test_every_record_has_a_section():
    assert {record for records in SECTIONS.values() for record in records} == {r for records in RECORDS.values() for r in records}


def test_the_files_on_the_page_are_those_of_which_no_other_command_writes_one():
    text = (ROOT / "src/fed/store/run_files.h").read_text().split("kRunFiles =")[1].split(");")[0]
    files = {name.split("/")[0] for name in re.findall(r"^\| `([^`]+)` \|", section("Run folder"), re.M)}
    assert files - {"report.html"} == {name for name in re.findall(r'"([^"]+)"', text) if not name.startswith(".")}


def test_the_files_and_keys_of_a_run_are_on_the_page(tiny_model, tmp_path):
    run = tmp_path / "run"
    succeed("train", CONFIG, "--out", run, *settings(model__path=tiny_model, train__rounds=2, evaluate__limit=1, data__limit=30,
                                                     evaluate__items="true", evaluate__every=1, evaluate__keep_best="true",
                                                     report__tensorboard="true"))
    files = set(re.findall(r"^\| `([^`]+)` \|", section("Run folder"), re.M))
    here = {entry.name + ("/" if entry.is_dir() else "") for entry in run.iterdir() if not entry.name.startswith(".")}
    here = {"items/round-N.jsonl" if name == "items/" else name for name in here} - {"lock"}
    assert {"items/round-N.jsonl", "best.json", "best/", "tensorboard/"} <= here <= files, here - files
    manifest = json.loads((run / "manifest.json").read_text())
    assert set(manifest) - {"checksum"} <= named_in(section("manifest.json, format 3"))
    assert set(json.loads((run / "partition.json").read_text())) - {"checksum"} <= named_in(section("partition.json"))
    for name, title in (("rounds.jsonl", "rounds.jsonl"), ("evaluations.jsonl", "evaluations.jsonl")):
        assert set(lines(run / name)[0]) - {"checksum"} <= named_in(section(title))

"""Tests rows of Python and of tables: what each value becomes, which rows a run gets, and what is refused."""

import csv
import datetime
import decimal
import hashlib
import json
import math
import os
import shlex
import subprocess
import sys
import uuid

import numpy as np
import pandas as pd
import pytest

import evenkeel_moe as ek
from evenkeel_moe import _row_files, _table_files
from package import CONFIG, ROOT, settings
from tiny import evenkeel, lines, one_line, without_seconds

RENAMED = {"prompt": "question", "completion": "answer"}


def asked(count=12, first=0):
    """Rows with columns that the program does not know, and one that it ignores."""
    return [{"question": f"What is {i}+{i}?", "answer": f" {2 * i}", "place": "north" if i % 3 else "south"} for i in range(first, first + count)]


def answered(rows):
    return [{"prompt": row["question"], "completion": row["answer"], "place": row["place"]} for row in rows]


def write(file, text):
    file.write_text(text, encoding="utf-8")
    return file


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def frame_of(rows):
    return pd.DataFrame(rows)


def columns_of(rows):
    return {key: [row[key] for row in rows] for key in rows[0]}


def separated(rows, separator):
    quoted = [[f'"{value}"' for value in row.values()] for row in rows]
    return "\n".join(separator.join(cells) for cells in [list(rows[0]), *quoted]) + "\n"


class Items:
    """A data set as torch has them: numbered items, and no end of its own."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number % len(self.rows)]


SOURCES = {
    "DataFrame": lambda rows, _: frame_of(rows),
    "DataFrame with a named index": lambda rows, _: frame_of(rows).set_index("question"),
    "filtered DataFrame": lambda rows, _: pd.concat([frame_of(rows), frame_of(asked(3, 90))]).query("answer not in (' 180', ' 182', ' 184')"),
    "list of dicts": lambda rows, _: rows,
    "tuple of dicts": lambda rows, _: tuple(rows),
    "generator": lambda rows, _: (row for row in rows),
    "dict of columns": lambda rows, _: columns_of(rows),
    "dict of arrays": lambda rows, _: {key: np.array(column) for key, column in columns_of(rows).items()},
    "CSV": lambda rows, folder: write(folder / "rows.csv", separated(rows, ",")),
    "CSV with semicolons": lambda rows, folder: write(folder / "rows.csv", "\ufeff" + separated(rows, ";")),
    "TSV": lambda rows, folder: str(write(folder / "rows.tsv", separated(rows, "\t"))),
    "TSV of another name": lambda rows, folder: write(folder / "rows.txt", separated(rows, "\t")),
    "CSV as Excel writes Unicode": lambda rows, folder: [(folder / "rows.csv").write_text(separated(rows, "\t"), encoding="utf-16"), folder / "rows.csv"][1],
    "list of files": lambda rows, folder: [write(folder / "rows.csv", separated(rows, ","))],
    "pattern": lambda rows, folder: [write(folder / "rows.csv", separated(rows, ",")), folder / "r*.csv"][1],
    "JSON lines": lambda rows, folder: write(folder / "rows.jsonl", json_lines(rows)),
    "JSON list": lambda rows, folder: write(folder / "rows.json", json.dumps(rows, indent=1)),
    "JSON object with data": lambda rows, folder: write(folder / "rows.json", json.dumps({"version": 1, "data": rows})),
    "JSON object of columns by number": lambda rows, folder: [frame_of(rows).to_json(folder / "rows.json"), folder / "rows.json"][1],
    "JSON object of rows by number": lambda rows, folder: [frame_of(rows).to_json(folder / "rows.json", orient="index"), folder / "rows.json"][1],
    "object with items": lambda rows, _: Items(rows),
    "JSON object of columns": lambda rows, folder: write(folder / "rows.json", json.dumps(columns_of(rows))),
}


def written(source, folder, columns=None):
    """The rows of the file that is made for the program."""
    with _row_files.RowFiles(folder, columns) as rows:
        files = rows.files_of(source, "train", "data")
    assert len(files) == 1
    return [json.loads(line) for line in (folder / "rows" / os.path.basename(files[0])).read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.mark.parametrize("name", SOURCES)
def test_rows_of_every_source_are_the_same_file(name, tmp_path):
    rows = asked()
    assert written(SOURCES[name](rows, tmp_path), tmp_path / "out", RENAMED) == answered(rows)
    (file,) = (tmp_path / "out/rows").iterdir()
    assert file.name.split("-")[-1] == hashlib.sha256(file.read_bytes()).hexdigest()[:12] + ".jsonl"


def test_paths_that_the_program_reads_stay_as_they_are(tmp_path):
    file = write(tmp_path / "rows.jsonl", json_lines(answered(asked())))
    with _row_files.RowFiles(tmp_path / "out", None) as rows:
        for source in (str(file), file, [file], str(tmp_path / "*.jsonl"), tmp_path / "nothing.jsonl", "hf://datasets/org/name"):
            assert rows.files_of(source, "train", "data") == ([str(source)] if not isinstance(source, list) else [str(file)])
    assert not (tmp_path / "out").exists()


def test_equal_tables_of_one_name_are_two_files(tmp_path):
    for folder, rows in (("A", asked()), ("B", asked()), ("C", asked(3))):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "t.csv", separated(rows, ","))
    tables = [tmp_path / folder / "t.csv" for folder in "ABC"]
    for source in (tables, map(str, tables), [tmp_path / "A/t.csv", str(tmp_path / "[BC]/t.csv")], tmp_path / "*/t.csv", [*tables, tables[1]]):
        with _row_files.RowFiles(tmp_path / "out", None) as rows:
            files = rows.files_of([*source] if isinstance(source, map) else source, "train", "data")
        names = sorted(path.name for path in (tmp_path / "out/rows").iterdir())
        assert len(names) == 3 and [lines(tmp_path / file) for file in files][:3] == [asked(), asked(), asked(3)]
        assert files[1] == files[0].replace("/t-", "/t-2-") and set(map(os.path.basename, files)) == set(names)


def test_a_table_under_several_paths_is_one_file(tmp_path):
    """The program matches JSON lines as files too. The path of messages is the first one."""
    (tmp_path / "d/deep").mkdir(parents=True)
    table = write(tmp_path / "d/t.csv", separated(asked(), ","))
    json_file = write(tmp_path / "d/rows.jsonl", json_lines(asked(3)))
    (tmp_path / "folder").symlink_to(tmp_path / "d/deep")
    for place in ("t.csv", "linked.csv"):
        (tmp_path / place).symlink_to(table)
    for place in ("d/deep/t.csv", "d/hard.csv"):
        os.link(table, tmp_path / place)
    paths = ["t.csv", "linked.csv", "d/deep/t.csv", "d/hard.csv", "d/deep/../t.csv", "folder/../t.csv", "d/*.csv"]
    for number, others in enumerate((paths, *([path] for path in paths))):
        with _row_files.RowFiles(tmp_path / str(number), None) as rows:
            files = rows.files_of([tmp_path / "d/t.csv", *(str(tmp_path / path) for path in others)], "train", "data")
        assert len(set(files)) == len(list((tmp_path / str(number) / "rows").iterdir())) == 1 and lines(tmp_path / files[0]) == asked(), others
        assert rows.wrote == {tmp_path / files[0]: str(table)}
    os.link(json_file, tmp_path / "hard.jsonl")
    with _row_files.RowFiles(tmp_path / "out", {"prompt": "question"}) as rows:
        assert len(set(rows.files_of([json_file, tmp_path / "hard.jsonl"], "train", "data"))) == len(rows.wrote) == 1


def test_a_path_with_two_dots_after_a_link_is_not_shortened(tmp_path):
    (tmp_path / "other/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "other/deep")
    for folder, rows in ((".", asked()), ("other", asked(3))):
        write(tmp_path / folder / "t.csv", separated(rows, ","))
    with _row_files.RowFiles(tmp_path / "out", None) as rows:
        files = rows.files_of([tmp_path / "t.csv", tmp_path / "link/../t.csv"], "train", "data")
    assert [lines(tmp_path / file) for file in files] == [asked(), asked(3)]


def test_csv_reads_long_cells_and_keeps_the_limit_of_the_process(tmp_path):
    first, second = (write(tmp_path / name, f"a,b\n1,{'x' * 200_000}\n2,{'y' * 200_000}\n") for name in ("first.csv", "second.csv"))
    before = csv.field_size_limit()
    try:
        for limit in (1000, before, _table_files.LONGEST_CELL + 1):
            csv.field_size_limit(limit)
            one, two = (_table_files.rows_of_file(file) for file in (first, second))
            assert next(one) and next(two) and csv.field_size_limit() >= _table_files.LONGEST_CELL
            assert len(list(one)) == 1 and csv.field_size_limit() >= _table_files.LONGEST_CELL and len(list(two)) == 1
            assert csv.field_size_limit() == limit
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize("text, rows", [
    ('{"prompt":{"0":"a","1":"b"},"completion":{"1":"y","0":"x"}}', [{"prompt": "a", "completion": "x"}, {"prompt": "b", "completion": "y"}]),
    ('{"data":[1],"prompt":"x"}\n\n{"data":[2],"prompt":"y"}\n', [{"data": [1], "prompt": "x"}, {"data": [2], "prompt": "y"}]),
    ('{"ids":[1,2]}\n{"ids":[3]}', [{"ids": [1, 2]}, {"ids": [3]}]), ('{"0":{"a":1}}\n{"1":{"a":2}}', [{"0": {"a": 1}}, {"1": {"a": 2}}]),
    ('{"a":[1,2]}\n\n', [{"a": 1}, {"a": 2}]), ('{\n"a":[1,2]\n}\n', [{"a": 1}, {"a": 2}])])
def test_json_is_a_table_or_lines(text, rows, tmp_path):
    assert [row for _, row in _table_files.rows_of_file(write(tmp_path / "rows.json", text))] == rows


# --- values ---

NAN = float("nan")
VALUES = [
    ("text – ü\u2028\n", "text – ü\u2028\n"), (7, 7), (True, True), (None, None), (2.5, 2.5), (NAN, None), (pd.NA, None), (pd.NaT, None),
    (np.float64(NAN), None), (np.float32(0.5), 0.5), (np.int64(-3), -3), (np.uint8(3), 3), (np.bool_(True), True), (np.str_("a"), "a"),
    (np.datetime64("2024-05-06T07:08:09.123456789"), "2024-05-06T07:08:09.123456789"), (np.datetime64("NaT"), None),
    (np.array(["2024-05-06"], dtype="datetime64[ns]"), ["2024-05-06T00:00:00.000000000"]),
    (pd.Timestamp("2024-05-06 07:08:09"), "2024-05-06T07:08:09"), (pd.Timestamp("2024-05-06", tz="UTC"), "2024-05-06T00:00:00+00:00"),
    (datetime.date(2024, 5, 6), "2024-05-06"), (datetime.time(7, 8), "07:08:00"), (decimal.Decimal("1.50"), 1.5), (decimal.Decimal("12"), 12),
    (decimal.Decimal("NaN"), None), (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"), (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.array([1.0, NAN]), [1.0, None]), ([{"role": "user", "content": np.str_("a")}, {"n": [np.int32(1), NAN]}],
                                          [{"role": "user", "content": "a"}, {"n": [1, None]}]), (("a", 1), ["a", 1]), (2**70, 2**70),
    (pd.Series(["a", "b"]), ["a", "b"]), ([], []), ({}, {}),
]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_values_become_json_as_pandas_and_arrow_write_them(number, tmp_path):
    value, expected = VALUES[number]
    assert written([{"a": "b", "column": value}], tmp_path) == [{"a": "b", "column": expected}]


@pytest.mark.parametrize("value, says", [
    (math.inf, "row 1: column is inf"), (np.float32(-math.inf), "row 1: column is -inf"), (b"bytes", "column is of type bytes"), (1j, "of type complex"),
    (np.array([1j]), "of type complex"), ({"a": [b"x"]}, r"column.a\[0\] is of type bytes"), ({3: "a"}, "column is a dict with the key 3, which is no text"),
    (datetime.timedelta(1), "of type timedelta"), (np.timedelta64(1, "s"), "of type timedelta64"), (pd.Period("2024"), "of type Period"), ({1, 2}, "of type set"),
    (object(), "of type object"), (decimal.Decimal("0.12345678901234567890123"), "with more digits"), ("\ud83d", "half of a surrogate pair"),
])
def test_values_that_json_lacks_are_refused_by_row_and_column(value, says, tmp_path):
    with pytest.raises(ek.EvenkeelError, match=rf"^\[data\] data row 1: .*{says.split(': ')[-1]}") as caught:
        written([{"column": "fine"}, {"column": value}], tmp_path / "out")
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_types_of_a_data_frame_are_those_of_its_columns(tmp_path):
    frame = pd.DataFrame({"text": pd.Series(["a", None], dtype="string"), "whole": pd.Series([1, None], dtype="Int64"), "part": [0.5, NAN],
                          "group": pd.Categorical(["x", "y"]), "flag": [True, False], "when": pd.to_datetime(["2024-05-06", None]),
                          "nested": [{"a": 1}, None], 3: ["by number", "b"]})
    assert written(frame, tmp_path) == [
        {"text": "a", "whole": 1, "part": 0.5, "group": "x", "flag": True, "when": "2024-05-06T00:00:00", "nested": {"a": 1}, "3": "by number"},
        {"text": None, "whole": None, "part": None, "group": "y", "flag": False, "when": None, "nested": None, "3": "b"}]


def test_cells_of_csv_stay_as_they_are_written(tmp_path):
    file = write(tmp_path / "rows.csv", '"prompt",completion,n\r\n"a ""b"",\r\nc",007,\r\n\r\nNA,null,1e3\r\n')
    assert written(file, tmp_path / "out") == [{"prompt": 'a "b",\r\nc', "completion": "007", "n": ""}, {"prompt": "NA", "completion": "null", "n": "1e3"}]


# --- columns ---

def test_columns_rename_and_leave_the_others(tmp_path):
    rows = [{"q": "a", "a": "b", "prompt": "old", "z": 1}, {"q": "c", "a": "d", "prompt": "old", "z": 2}]
    assert written(rows, tmp_path / "one", {"prompt": "q", "completion": "a", "answer": "a", "before": "prompt"}) == [
        {"prompt": "a", "completion": "b", "answer": "b", "before": "old", "z": 1}, {"prompt": "c", "completion": "d", "answer": "d", "before": "old", "z": 2}]
    assert written([{"q": "a"}, {"q": "b", "a": "c"}], tmp_path / "two", {"prompt": "q", "completion": "a"}) == \
        [{"prompt": "a"}, {"prompt": "b", "completion": "c"}]
    assert written([{"q": "a"}, {"prompt": "b"}], tmp_path / "four", {"prompt": "q"}) == [{"prompt": "a"}, {"prompt": "b"}]
    assert written(pd.DataFrame([["a", "b"]]), tmp_path / "three", {"prompt": 0, "completion": 1}) == [{"prompt": "a", "completion": "b"}]


@pytest.mark.parametrize("source, columns, says", [
    ([{"question": "a", "answer": "b"}], {"prompt": "queston"}, "data: columns takes prompt from queston, but the columns are answer, question"),
    ([{"question": "a", "answer": "b"}], {"question": "prompt", "answer": "completion"}, "takes question from prompt, but the columns are answer, question"),
    ([{"question": "a", "prompt": "b"}], {"prompt": "question"}, "row 0: columns takes prompt from the column question, but there is a column prompt too"),
    ([{"a": "b"}, "c"], None, "data row 1 is of type str, allowed: a dict"), ({"a": ["b"], "c": ["d", "e"]}, None, "not equally long: a 1, c 2"),
    ({"prompt": "a", "completion": "b"}, None, "the column prompt is of type str, allowed: a list with the value of every row; a single row is a list of one"),
    (pd.DataFrame([["a", "b"]], columns=["x", "x"]), None, "two columns x"), (pd.DataFrame([["a", "b"]], columns=["1", 1]), None, "two columns 1"),
    (pd.DataFrame([["a", "b"]], columns=pd.MultiIndex.from_product([["a"], ["b", "c"]])), None, "columns of several levels"),
    (pd.DataFrame([["a"]], columns=[pd.Timestamp("2024-05-06")]), None, "a column has the name Timestamp"), (pd.DataFrame({"a": []}), None, "data has no rows"),
    ({"train": pd.DataFrame({"a": ["b"]})}, None, "data is a dict with the splits train: give one of them, as rows['train']"),
    ({"a": pd.DataFrame({"a": ["b"]}), "b": ["c"]}, None, "the column a is of type DataFrame"), (iter([]), None, "data has no rows"), ({}, None, "data has no rows"),
])
def test_tables_that_are_no_rows_are_refused_by_name(source, columns, says, tmp_path):
    with pytest.raises(ek.EvenkeelError) as caught:
        written(source, tmp_path / "out", columns)
    assert says in str(caught.value) and str(caught.value).startswith("[data] data") and not (tmp_path / "out").exists()


@pytest.mark.parametrize("text, name, says", [
    ("a,b\n1,2\n1,2,3\n", "rows.csv", ":3: the row has 3 cells, the header 2"), ("a,a\n1,2\n", "rows.csv", "two columns a"),
    ('a,b\n"1,2\n', "rows.csv", "unexpected end of data"), ("a,b\n", "rows.csv", "has no rows"), (b"a,b\n\xe9,2\n", "rows.csv", "is not UTF-8"),
    ('{"a": 1}\n{"a": {"b": 1, "c": 2, "b": 3}}\n', "rows.jsonl", ':2: the key "b" stands twice in one object'),
    ('[{"a": 1, "a": 2}]', "rows.json", 'rows.json: the key "a" stands twice in one object'),
    ('{"a": NaN}\n', "rows.jsonl", ":1: not valid JSON: NaN is no JSON"), ('{"a": 1}\n{"a"\n', "rows.jsonl", ":2: not valid JSON"),
    ('{"a": {"0": 1, "1": 2}, "b": {"0": 3, "2": 4}}', "rows.json", "of the columns a and b only one has row 1, allowed: every row in all columns"),
    ('{"a": {"0": 1}, "b": {"0": 3, "1": 4}}', "rows.json", "of the columns a and b only one has row 1"),
    ("[1, 2]", "rows.json", "row 0 is of type int"), ("{'a': 1}", "rows.txt", "no rows that can be read"), ("plain words\n", "rows.txt", "no rows that can be read"),
    ("", "rows.csv", "no rows"), ("PK\x03\x04", "rows.xlsx", "no rows that can be read"),
])
def test_files_that_are_no_tables_are_refused_by_name_and_line(text, name, says, tmp_path):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ek.EvenkeelError) as caught:
        list(_row_files.json_lines(_table_files.rows_of_file(tmp_path / name), {}, name)) or (_ for _ in ()).throw(ek.EvenkeelError(f"{name} has no rows", 1))
    assert says in str(caught.value) and name in str(caught.value) and "\n" not in str(caught.value)


def test_objects_that_are_no_rows_are_a_type_error(tmp_path):
    class LazyFrame:
        def collect(self):
            raise AssertionError
    for source, says in ((LazyFrame(), "data is a LazyFrame, .*; give rows.collect()"), (object(), "data is of type object, allowed: a data frame")):
        with pytest.raises(TypeError, match=says):
            written(source, tmp_path)
    for columns in (["prompt"], "prompt=question"):
        with pytest.raises(TypeError, match="columns is a .*, allowed: a dict"):
            written([{"a": "b"}], tmp_path, columns)
    with pytest.raises(TypeError, match="columns goes with rows"):
        ek.train(CONFIG, columns={"prompt": "a"}, out=tmp_path / "run")
    for key, rows in (("data.files.train", {"data.files": {"train": ["a.jsonl"]}}), ("data.files.test", {"data": {"files.test": asked()}})):
        with pytest.raises(TypeError, match=f"data and {key} of set are the same rows: give one of them"):
            ek.train(CONFIG, data=asked(), test_data=asked(), set=rows, out=tmp_path / "run")
    with pytest.raises(TypeError, match="test_data goes with data"):
        ek.train(CONFIG, test_data=[{"prompt": "a"}], out=tmp_path / "run")


def test_a_table_of_arrow_without_pyarrow_names_what_to_install(tmp_path, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet", "pyarrow.ipc"):
        monkeypatch.setitem(sys.modules, name, None)
    for name, start in (("rows.parquet", b"PAR1"), ("rows.arrow", b"ARROW1"), ("data.arrow", b"\xff\xff\xff\xff")):
        (tmp_path / name).write_bytes(start + b"....")
        with pytest.raises(ek.MissingPackage, match=rf"reading .*{name} needs pyarrow, which is not installed: pip install 'evenkeel-moe\[tables\]'"):
            ek.train(CONFIG, data=tmp_path / name, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- runs ---

def own(model, **changes):
    chosen = settings(model, **{"data__limit": 0, "data__partition": {"kind": "iid"}, "data__template": "plain", "data__files__score": "nll",
                                "data__files__held_out": 0.25, **changes})
    return chosen


def adapter(run):
    return (run.path / "adapter/adapter_model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def from_a_file(tiny_model, tmp_path_factory):
    """The run on a file of JSON lines that somebody wrote."""
    folder = tmp_path_factory.mktemp("by-hand")
    file = write(folder / "rows.jsonl", json_lines(answered(asked())))
    return ek.train(CONFIG, set={**own(tiny_model), "data.task": "files", "evaluate.tasks": ["files"], "data.files.train": [file]}, out=folder / "run")


def test_a_run_on_a_data_frame_is_that_on_its_file(from_a_file, tiny_model, tmp_path):
    run = ek.train(CONFIG, data=frame_of(asked()), columns=RENAMED, set=own(tiny_model), out=tmp_path / "run")
    assert adapter(run) == adapter(from_a_file)
    assert without_seconds(run.evaluations_list()) == without_seconds(from_a_file.evaluations_list())
    (file,) = (run.path / "rows").iterdir()
    assert lines(file) == answered(asked()) and run.config["data"]["files"]["train"] == [str(file)]
    entry = next(entry for entry in run.manifest["files"] if entry["path"] == str(file))
    assert entry["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert json.loads((run.path / "partition.json").read_text())["files"] == [str(file)]


def test_a_run_on_rows_resumes_with_them(from_a_file, tiny_model, tmp_path):
    run = ek.train(CONFIG, data=asked(), columns=RENAMED, set=own(tiny_model, train__rounds=1), out=tmp_path / "run")
    assert adapter(run.resume(rounds=2)) == adapter(from_a_file)
    again = ek.train(CONFIG, data=asked(), columns=RENAMED, set=own(tiny_model), out=tmp_path / "run", resume=True)
    assert len(again.rounds_list()) == 2 and len(list((run.path / "rows").iterdir())) == 1
    with pytest.raises(ek.EvenkeelError, match="data.files.train is .*, in the run"):
        ek.train(CONFIG, data=asked(13), columns=RENAMED, set=own(tiny_model), out=tmp_path / "run", resume=True)
    (file,) = (run.path / "rows").iterdir()
    file.write_text(json_lines(answered(asked(12, 1))))
    with pytest.raises(ek.EvenkeelError, match=f"{file.name} has changed since the run was made"):
        run.resume(rounds=3)


def test_a_run_folder_that_was_moved_has_its_rows_with_it(from_a_file, tiny_model, tmp_path):
    run = ek.train(CONFIG, data=asked(), test_data=asked(5, 50), columns=RENAMED, set=own(tiny_model, train__rounds=1), out=tmp_path / "first")
    whole = ek.train(CONFIG, data=asked(), test_data=asked(5, 50), columns=RENAMED, set=own(tiny_model), out=tmp_path / "whole")
    moved = ek.Run(run.path.rename(tmp_path / 'moved "ü'))
    assert without_seconds(ek.evaluate(run=moved)) == [
        {key: value for key, value in score.items() if key not in ("round", "method")} for score in without_seconds(moved.evaluations_list())]
    assert adapter(moved.resume(rounds=2)) == adapter(whole)
    assert without_seconds(moved.evaluations_list()) == without_seconds(whole.evaluations_list())
    again = ek.train(CONFIG, data=asked(), test_data=asked(5, 50), columns=RENAMED, set=own(tiny_model), out=moved, resume=True)
    assert len(again.rounds_list()) == 2 and len(list((moved.path / "rows").iterdir())) == 2
    once_more = ek.Run(moved.path.rename(tmp_path / "again"))
    assert len(once_more.resume(rounds=3).rounds_list()) == 3
    (file,) = (once_more.path / "rows").glob("train-*")
    file.unlink()
    with pytest.raises(ek.EvenkeelError, match=f"{file.name} is gone, but the run was made with it"):
        once_more.resume(rounds=4)


def test_test_rows_are_scored_in_place_of_held_out_ones(tiny_model, tmp_path):
    run = ek.train(CONFIG, data=asked(), test_data=write(tmp_path / "exam.csv", separated(asked(5, 50), ",")), columns=RENAMED,
                   set=own(tiny_model, train__rounds=1, evaluate__limit=0), out=tmp_path / "run")
    assert [score["rows"] for score in run.evaluations_list()] == [5]
    assert sum(map(len, json.loads((run.path / "partition.json").read_text())["clients"])) == 12
    (exam,) = (run.path / "rows").glob("exam-*.jsonl")
    assert lines(exam) == answered(asked(5, 50)) and str(exam) in [entry["path"] for entry in run.manifest["files"]]


def test_a_dict_of_frames_is_its_splits(tiny_model, tmp_path):
    both = {"train": frame_of(asked()), "test": frame_of(asked(4, 50))}
    run = ek.train(CONFIG, data=both, columns=RENAMED, set=own(tiny_model, train__rounds=1, evaluate__limit=0), out=tmp_path / "run")
    assert [score["rows"] for score in run.evaluations_list()] == [4]


def test_rows_may_stand_wherever_a_config_names_files(tiny_model, tmp_path):
    sets = {"data.task": "files", "evaluate.tasks": ["files"], "data.files": {"north": {"train": frame_of(asked(6))}, "south.test": asked(4, 20)},
            "data.files.south.train": columns_of(asked(7, 40))}
    run = ek.train(CONFIG, columns=RENAMED, set={**own(tiny_model, train__rounds=1, evaluate__limit=0, data__files__held_out=0), **sets}, out=tmp_path / "run")
    assert {file.name.rsplit("-", 1)[0] for file in (run.path / "rows").iterdir()} == {"north-train", "south-test", "south-train"}
    assert [(score["task"], score["rows"]) for score in run.evaluations_list()] == [("files:south", 4)]
    clients = [{"name": f"site {i}", "data": asked(4, 10 * i), "test": frame_of(asked(2, 10 * i + 5)), "budget": 0.5} for i in range(3)]
    config = {"name": "sites", "threads": 1, "model": {"path": tiny_model, "compute_dtype": "float32"}, "data": {"task": "files", "template": "plain"},
              "data.files.score": "nll", "clients": {"client": clients}, "train": {"rounds": 1, "batch_size": 2}, "method.name": "fedit"}
    sites = ek.train(config, columns=RENAMED, out=tmp_path / "sites", set={"evaluate.budgets": [1.0]})
    assert len(list((sites.path / "rows").iterdir())) == 6
    assert [entry["clients"] for entry in sites.manifest["files"] if "rows/client-" in entry["path"]] == [["site 0"], ["site 1"], ["site 2"]] * 2


def test_equal_tables_train_twice_with_a_warning_and_a_run_resumes_with_them(tiny_model, tmp_path, caplog):
    for folder in "AB":
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "t.csv", separated(asked(), ","))
    given = {"data": [tmp_path / "A/t.csv", tmp_path / "B/t.csv"], "columns": RENAMED, "out": tmp_path / "run"}
    run = ek.train(CONFIG, test_data=asked(2), set=own(tiny_model, train__rounds=1), **given)
    assert sum(map(len, json.loads((run.path / "partition.json").read_text())["clients"])) == 24
    assert any("is a copy of" in record.message and "its rows count twice" in record.message for record in caplog.records)
    assert len(ek.train(CONFIG, test_data=asked(2), set=own(tiny_model), resume=True, **given).rounds_list()) == 2


def test_without_a_folder_rows_go_into_the_folder_of_the_config(tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ek.train(CONFIG, data=asked(), columns=RENAMED, set=own(tiny_model, train__rounds=1, name="mine", evaluate__limit=1))
    for name in ("tomllib", "tomli"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ek.MissingPackage, match="writing rows without out, which names the run folder, needs tomli"):
        ek.train(CONFIG, data=asked(), columns=RENAMED, set=own(tiny_model, name="other"))
    assert run.path == tmp_path / "runs/mine" and len(list((run.path / "rows").iterdir())) == 1


def test_a_run_that_does_not_begin_leaves_nothing_of_its_rows(tiny_model, tmp_path, from_a_file):
    def refused(says, out, rows, **changes):
        with pytest.raises(ek.EvenkeelError, match=says):
            ek.train(CONFIG, data=rows, columns=changes.pop("columns", RENAMED), set=own(tiny_model, **changes), out=out)
    refused("is not a known key", tmp_path / "one/run", asked(), train__round=1)
    refused(r"^\[data\] data row 3: completion is missing", tmp_path / "one/run", asked(3) + [{"question": "a"}])
    refused(r"^\[data\] data row 0: prompt is 7, expected a string", tmp_path / "one/run", [{"question": 7, "answer": "a"}])
    refused(r"^\[data\] data row 0: its keys \(answer, place, question\) are of no format.*--columns prompt=KEY,completion=KEY", tmp_path / "one/run", asked(), columns=None)
    refused(r"\[data\] data row 0: x is inf", tmp_path / "one/run", [{"question": "a", "answer": "b", "x": math.inf}])
    assert not list(tmp_path.iterdir())
    (tmp_path / "theirs/rows").mkdir(parents=True)
    for name in ("theirs/rows/mine.csv", "theirs/notes.txt", "file"):
        (tmp_path / name).write_text("a,b\n")
    refused("theirs: exists already and is not empty; choose another --out", tmp_path / "theirs", asked())
    refused("file", tmp_path / "file", asked())
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine.csv", "notes.txt", "rows", "theirs"]
    files = sorted(from_a_file.path.rglob("*"))
    refused("holds a run already", from_a_file.path, asked())
    assert sorted(from_a_file.path.rglob("*")) == files


def test_a_folder_with_rows_of_a_process_that_was_killed_is_used_again(tiny_model, tmp_path):
    (tmp_path / "run/rows").mkdir(parents=True)
    (tmp_path / "run/rows/train.part-1").write_text("{")
    run = ek.train(CONFIG, data=asked(), columns=RENAMED, set=own(tiny_model, train__rounds=1, evaluate__limit=1), out=tmp_path / "run")
    assert len(run.rounds_list()) == 1
    one_line(evenkeel("evaluate", "--run", run.path, "--predictions", run.path / "rows"), "rows, which")


def test_evaluate_scores_rows_as_their_file(tiny_model, tmp_path):
    file = write(tmp_path / "rows.jsonl", json_lines(answered(asked())))
    flags = {"model": tiny_model, "score": "exact", "max_new_tokens": 3, "limit": 8}
    expected = without_seconds(ek.evaluate(tasks="files", data=file, **flags))
    assert expected[0]["rows"] == 8
    assert without_seconds(ek.evaluate(data=file, **flags)) == without_seconds(ek.evaluate(data=str(tmp_path / "row*.jsonl"), **flags)) == expected
    with pytest.raises(ek.EvenkeelError, match="--model needs --tasks|--tasks files"):
        ek.evaluate(data=tmp_path, model=tiny_model)
    for source in (frame_of(asked()), asked(), write(tmp_path / "rows.csv", separated(asked(), ","))):
        assert without_seconds(ek.evaluate(data=source, columns=RENAMED, **flags)) == expected
    for part, rows in (("a", asked(7)), ("b", asked(5, 7))):
        write(tmp_path / f"part-{part}.csv", separated(rows, ","))
    assert without_seconds(ek.evaluate(data=str(tmp_path / "part-*.csv"), columns=RENAMED, **flags)) == expected
    with pytest.raises(ek.EvenkeelError, match=r"none of the 2 rows of data can be read; the first: data row 0: its keys \(x\) are of no format"):
        ek.evaluate(data=[{"x": "a"}, {"x": "b"}], **flags)
    with pytest.raises(ek.EvenkeelError, match=r"rows.csv row 1: completion is missing|rows.csv row 1: completion"):
        ek.evaluate(data=write(tmp_path / "rows.csv", "prompt,completion\na,b\nc,\n"), strict=True, **flags)
    with pytest.raises(ek.EvenkeelError, match="data is 2 files, allowed: one, or a pattern"):
        ek.evaluate(data=[file, file], **flags)
    with pytest.raises(TypeError, match="options is of type DataFrame, allowed: a text"):
        ek.evaluate(data=file, options=frame_of(asked()), **flags)


def test_a_study_trains_all_arms_on_rows(tiny_model, tmp_path):
    (tmp_path / "base.toml").write_text(CONFIG.read_text())
    (tmp_path / "study.toml").write_text('[study]\nbase = "base.toml"\nseeds = [1, 2]\nreference = "fedit"\nendpoint = "nll"\n'
                                         + "".join(f'[[study.arm]]\nname = "{name}"\nset = ["method.name={name}"]\n' for name in ("fedit", "ffa-lora")))
    chosen = {key: value for key, value in own(tiny_model, train__rounds=1, evaluate__limit=2).items() if key != "method.name"}
    study = ek.Study(tmp_path / "study.toml", out=tmp_path / "study", data=frame_of(asked()), columns=RENAMED)
    with pytest.raises(ek.EvenkeelError, match="not a known key"):
        study.run(set={**chosen, "train.round": 1})
    assert not study.path.exists()
    assert len(study.run(set=chosen, only=["fedit:1"]).runs()) == 1 and len(study.run(set=chosen).runs()) == 4
    (file,) = (study.path / "rows").iterdir()
    assert lines(file) == answered(asked())
    assert all(str(file) in [entry["path"] for entry in run.manifest["files"]] for run in study.runs())
    assert len(ek.Study.open(study.path).run().runs()) == 4


def test_a_study_finds_its_rows_after_it_was_moved(tiny_model, tmp_path):
    (tmp_path / "base.toml").write_text(CONFIG.read_text())
    (tmp_path / "study.toml").write_text('[study]\nbase = "base.toml"\nseeds = [1, 2]\nreference = "fedit"\nendpoint = "nll"\n'
                                         '[[study.arm]]\nname = "fedit"\nset = ["method.name=fedit"]\n')
    chosen = {key: value for key, value in own(tiny_model, train__rounds=1, evaluate__limit=2).items() if key != "method.name"}
    study = ek.Study(tmp_path / "study.toml", out=tmp_path / "study", data=frame_of(asked()), columns=RENAMED)
    study.run(set=chosen, only=["fedit:1"])
    moved = study.path.rename(tmp_path / "moved")
    assert len(ek.Study.open(moved).run().runs()) == 2
    again = ek.Study(tmp_path / "study.toml", out=moved, data=frame_of(asked()), columns=RENAMED)
    assert len(again.run(set=chosen).runs()) == 2 and len(ek.Study.open(moved).report()["values"]) > 0
    assert len(list((moved / "rows").iterdir())) == 1


# --- the command ---

def rows_command(*words, cwd):
    return subprocess.run([sys.executable, "-m", "evenkeel_moe", "rows", *map(str, words)], capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})


@pytest.mark.parametrize("name, separator", [("rows.csv", ","), ("my rows.tsv", "\t"), ("it's.csv", ";"), ("rows.jsonl", "\t")])
def test_the_line_of_a_refusal_makes_the_rows(name, separator, tmp_path):
    rows = answered(asked())
    write(tmp_path / name, separated(rows, separator))
    said = one_line(evenkeel("evaluate", "--model", "builtin:tiny-olmoe", "--tasks", "files", "--data", name, "--score", "nll", cwd=tmp_path), name)
    line = said.split("convert it: ")[1].split("; to rename columns add --columns prompt=COLUMN,completion=COLUMN")[0]
    words = shlex.split(line)
    assert words[:4] == ["python3", "-m", "evenkeel_moe", "rows"] and words[4] == name
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, env={
        **os.environ, "PYTHONPATH": str(ROOT / "python"), "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]})
    assert done.returncode == 0 and lines(tmp_path / words[5]) == rows, done.stderr
    assert evenkeel("evaluate", "--model", "builtin:tiny-olmoe", "--tasks", "files", "--data", words[5], "--score", "nll", "--limit", 1,
                    cwd=tmp_path).returncode == 0


def test_the_command_renames_columns_and_replaces_its_file(tmp_path):
    write(tmp_path / "rows.csv", separated(asked(), ","))
    write(tmp_path / "out.jsonl", "old")
    done = rows_command("rows.csv", "out.jsonl", "--columns", "prompt=question,completion=answer", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and lines(tmp_path / "out.jsonl") == answered(asked())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "rows.csv"]


def test_the_command_names_its_file_when_the_disk_is_full(tmp_path):
    write(tmp_path / "rows.csv", separated(asked(2000), ","))
    done = subprocess.run(["bash", "-c", f"ulimit -f 8; exec {shlex.quote(sys.executable)} -m evenkeel_moe rows rows.csv out.jsonl"],
                          capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert (done.returncode, done.stderr) == (1, f"evenkeel: [io] {tmp_path / 'out.jsonl'}: File too large\n")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


@pytest.mark.parametrize("words, says", [
    (["rows.csv"], "the following arguments are required: OUT"), (["rows.csv", "out.jsonl", "--columns", "prompt"], "'prompt', allowed: KEY=COLUMN"),
    (["rows.csv", "out.jsonl", "--columns", "a=question,a=answer"], "has a key twice"), (["rows.csv", "rows.csv"], "IN and OUT are both"),
    (["none.csv", "out.jsonl"], "none.csv: No such file"), (["rows.csv", "none/out.jsonl"], "none is no folder"), (["rows.csv", "."], "is no file"),
    (["rows.csv", "/dev/null"], "/dev/null is no file"), (["rows.csv", "out.jsonl", "--columns", "prompt=q"], "prompt from q, but the columns are answer"),
    (["folder", "out.jsonl"], "folder has no rows that can be read"), (["rows.csv", "out.jsonl", "--column", "a=b"], "unrecognized arguments: --column"),
])
def test_the_command_refuses_in_one_line_and_changes_nothing(words, says, tmp_path):
    write(tmp_path / "rows.csv", separated(asked(), ","))
    write(tmp_path / "kept.jsonl", "old")
    (tmp_path / "folder").mkdir()
    done = rows_command(*words, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1 and done.stderr.startswith("evenkeel: ") and says in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "kept.jsonl", "rows.csv"]

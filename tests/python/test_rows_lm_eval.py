"""Tests rows of Arrow, Parquet and the package datasets, in the environment of lm-evaluation-harness, which has them."""

import datetime
import decimal
import os
import shlex
import subprocess
import sys

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import evenkeel_moe as ek
from evenkeel_moe import _row_files
from package import CONFIG, ROOT
from test_rows import RENAMED, adapter, answered, asked, from_a_file, lines, own, rows_command, written  # noqa: F401
from tiny import evenkeel, one_line


def table_of(rows):
    return pa.Table.from_pylist(rows)


def stream_to(file, table):
    with pa.ipc.new_stream(str(file), table.schema) as out:
        for batch in table.to_batches(max_chunksize=5):
            out.write_batch(batch)
    return file


def saved(dataset, folder):
    dataset.save_to_disk(folder, num_shards=3)
    return folder


def in_place(write, file, *options):
    write(*options)
    return file


SOURCES = {
    "Dataset": lambda rows, _: datasets.Dataset.from_list(rows),
    "Dataset in numpy's format": lambda rows, _: datasets.Dataset.from_list(rows).with_format("numpy", columns=["question"]),
    "shuffled and selected Dataset": lambda rows, _: datasets.Dataset.from_list([*asked(5, 70), *rows]).select(range(5, 5 + len(rows))),
    "IterableDataset": lambda rows, _: datasets.Dataset.from_list(rows).to_iterable_dataset(),
    "dict of columns of a Dataset": lambda rows, _: {name: datasets.Dataset.from_list(rows)[name] for name in rows[0]},
    "dict of columns of a table": lambda rows, _: {name: table_of(rows)[name] for name in rows[0]},
    "dict of arrays of Arrow": lambda rows, _: {name: table_of(rows)[name].combine_chunks() for name in rows[0]},
    "table": lambda rows, _: table_of(rows),
    "record batch": lambda rows, _: table_of(rows).to_batches()[0],
    "reader of batches": lambda rows, _: table_of(rows).to_reader(max_chunksize=5),
    "DataFrame of Arrow's types": lambda rows, _: table_of(rows).to_pandas(types_mapper=pd.ArrowDtype),
    "Parquet": lambda rows, folder: in_place(parquet.write_table, folder / "rows.parquet", table_of(rows), folder / "rows.parquet"),
    "Parquet of another name": lambda rows, folder: in_place(parquet.write_table, folder / "rows", table_of(rows), folder / "rows"),
    "Arrow": lambda rows, folder: in_place(feather.write_feather, folder / "rows.arrow", table_of(rows), str(folder / "rows.arrow")),
    "Arrow, compressed": lambda rows, folder: in_place(feather.write_feather, folder / "rows.arrow", table_of(rows), str(folder / "rows.arrow"), "zstd"),
    "Feather 1": lambda rows, folder: in_place(lambda: feather.write_feather(table_of(rows), str(folder / "rows.feather"), version=1), folder / "rows.feather"),
    "stream": lambda rows, folder: stream_to(folder / "rows.arrow", table_of(rows)),
    "folder of save_to_disk": lambda rows, folder: saved(datasets.Dataset.from_list(rows), folder / "saved"),
    "folder of a split": lambda rows, folder: saved_splits(rows, folder) / "train",
}


def saved_splits(rows, folder):
    both = datasets.DatasetDict({"train": datasets.Dataset.from_list(rows), "test": datasets.Dataset.from_list(asked(4, 50))})
    both.save_to_disk(folder / "both")
    return folder / "both"


@pytest.mark.parametrize("name", SOURCES)
def test_rows_of_every_source_are_the_same_file(name, tmp_path):
    rows = asked(11)
    assert written(SOURCES[name](rows, tmp_path), tmp_path / "out", RENAMED) == answered(rows)


def test_values_of_arrow_become_json(tmp_path):
    moment = datetime.datetime(2024, 5, 6, 7, 8, 9)
    schema = pa.schema([("text", pa.string()), ("whole", pa.int64()), ("part", pa.float32()), ("price", pa.decimal128(9, 2)), ("when", pa.timestamp("ms")),
                        ("day", pa.date32()), ("kind", pa.dictionary(pa.int8(), pa.string())),
                        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])))])
    row = {"text": "ü", "whole": 2**60, "part": 0.5, "price": decimal.Decimal("1.20"), "when": moment, "day": datetime.date(2024, 5, 6), "kind": "x",
           "messages": [{"role": "user", "content": None}]}
    empty = dict.fromkeys(row)
    table = pa.Table.from_pylist([row, empty], schema=schema)
    expected = [{**row, "price": 1.2, "when": "2024-05-06T07:08:09", "day": "2024-05-06"}, empty]
    assert written(table, tmp_path / "one") == expected
    parquet.write_table(table, tmp_path / "rows.parquet")
    assert written(tmp_path / "rows.parquet", tmp_path / "two") == expected
    assert written(datasets.Dataset(table), tmp_path / "three") == expected


def test_a_list_of_many_batches_keeps_its_order_and_row_numbers(tmp_path):
    table = pa.table({"question": [f"q{i}" for i in range(2500)], "answer": [str(i) for i in range(2500)]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=700)
    assert [row["answer"] for row in written(tmp_path / "rows.parquet", tmp_path / "out", {"prompt": "question"})] == [str(i) for i in range(2500)]
    values = [0.5] * 2400 + [float("inf")]
    with pytest.raises(ek.EvenkeelError, match=r"rows.parquet row 2400: x is inf"):
        parquet.write_table(pa.table({"x": values}), tmp_path / "rows.parquet")
        written(tmp_path / "rows.parquet", tmp_path / "out")


@pytest.mark.parametrize("source, says", [
    (lambda folder: pa.table({"image": [b"x"]}), "data row 0: image is of type bytes"),
    (lambda folder: pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["x", "x"]), "two columns x"),
    (lambda folder: datasets.DatasetDict({"train": datasets.Dataset.from_list(asked(2))}), r"data is a DatasetDict with the splits train: give one of them, as rows\['train'\]"),
    (lambda folder: in_place((folder / "rows.parquet").write_bytes, folder / "rows.parquet", b"PAR1....PAR1"), "rows.parquet cannot be read"),
    (lambda folder: in_place((folder / "x.arrow").write_bytes, folder / "x.arrow", b"ARROW1\0\0...."), "x.arrow cannot be read"),
    (lambda folder: in_place((folder / "x.arrow").write_bytes, folder / "x.arrow", b"\xff\xff\xff\xff\x10\0\0\0"), "x.arrow cannot be read"),
    (lambda folder: saved_splits(asked(2), folder), r"both has the splits train, test: name one of their folders, as .*both/train"),
])
def test_tables_that_are_no_rows_are_refused_by_name(source, says, tmp_path):
    with pytest.raises(ek.EvenkeelError, match=says) as caught:
        written(source(tmp_path), tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_nanoseconds_are_kept_or_refused(tmp_path):
    table = pa.table({"when": pa.array([1], pa.timestamp("ns"))})
    assert written(table, tmp_path) == [{"when": "1970-01-01T00:00:00.000000001"}]


def test_splits_train_and_test_are_training_and_test_rows(tiny_model, tmp_path, from_a_file):  # noqa: F811
    both = saved_splits(asked(), tmp_path)
    chosen = own(tiny_model, evaluate__limit=0, data__files__held_out=0)
    for name, source in (("object", datasets.load_from_disk(both)), ("folder", both)):
        run = ek.train(CONFIG, data=source, columns=RENAMED, set={**chosen, "train.rounds": 1}, out=tmp_path / name)
        assert [score["rows"] for score in run.evaluations_list()] == [4]
        assert sorted(len(lines(file)) for file in (run.path / "rows").iterdir()) == [4, 12]
    for others in ({"train": 1, "validation": 1}, {"validation": 1}, {"train": 1, "test": 1, "validation": 1}):
        splits = datasets.DatasetDict({name: datasets.Dataset.from_list(asked(2)) for name in others})
        with pytest.raises(ek.EvenkeelError, match=rf"data has the splits {', '.join(others)}, allowed: train, and test"):
            ek.train(CONFIG, data=splits, set=chosen, out=tmp_path / "run")
    with pytest.raises(ek.EvenkeelError, match="data has the splits train, test, allowed"):
        ek.train(CONFIG, data=datasets.load_from_disk(both), test_data=asked(2), set=chosen, out=tmp_path / "run")
    run = ek.train(CONFIG, data=datasets.load_from_disk(both)["train"], columns=RENAMED, set=own(tiny_model), out=tmp_path / "run")
    assert adapter(run) == adapter(from_a_file)


@pytest.mark.parametrize("name", ["Parquet", "Arrow", "stream", "folder of save_to_disk", "splits"])
def test_the_line_of_a_refusal_makes_the_rows(name, tmp_path):
    rows = answered(asked())
    path = saved_splits(rows, tmp_path) if name == "splits" else SOURCES[name](rows, tmp_path)
    said = one_line(evenkeel("evaluate", "--model", "builtin:tiny-olmoe", "--tasks", "files", "--data", path.name, "--score", "nll", cwd=tmp_path), path.name)
    line = said.split("convert it: ")[1].split("; to rename columns add --columns ")[0]
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, env={
        **os.environ, "PYTHONPATH": str(ROOT / "python"), "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]})
    assert done.returncode == 0 and lines(tmp_path / shlex.split(line)[5]) == rows, done.stderr


def test_the_command_reads_parquet_with_columns(tmp_path):
    parquet.write_table(table_of(asked()), tmp_path / "rows.parquet")
    done = rows_command("rows.parquet", "out.jsonl", "--columns", "prompt=question,completion=answer", cwd=tmp_path)
    assert done.returncode == 0 and lines(tmp_path / "out.jsonl") == answered(asked())
    refused = rows_command("rows.parquet", "other.jsonl", "--columns", "prompt=q", cwd=tmp_path)
    assert refused.returncode == 1 and "rows.parquet: columns takes prompt from q, but the columns are answer, place, question" in refused.stderr


def test_numbers_of_a_class_label_stay_numbers(tmp_path):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["a", "b"])})
    dataset = datasets.Dataset.from_dict({"text": ["x", "y"], "label": [0, 1]}, features=features)
    assert written(dataset, tmp_path) == [{"text": "x", "label": 0}, {"text": "y", "label": 1}]


def test_tensors_of_a_format_are_not_seen(tmp_path):
    dataset = datasets.Dataset.from_dict({"vector": [[1.5, 2.5]], "text": ["a"]}).with_format("numpy")
    assert isinstance(dataset[0]["vector"], np.ndarray) and written(dataset, tmp_path) == [{"vector": [1.5, 2.5], "text": "a"}]
    assert _row_files.holds_rows(dataset)

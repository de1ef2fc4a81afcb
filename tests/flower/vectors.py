"""Writes vectors.json: objects as the installed flwr builds them, for src/flower/format/objects_test.cpp, which builds
the same content.
Usage: .venv-flwr/bin/python tests/flower/vectors.py     (test_wire.py checks that the stored vectors are up to date)
"""
import importlib.metadata
import json
import os
import pathlib

os.environ["FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE"] = "1024"

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

FILE = pathlib.Path(__file__).with_name("vectors.json")


def filled(dtype, shape, seed):
    """Returns data whose byte i is (7 i + seed) mod 251; all zero for seed 0."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    data = (7 * np.arange(count) + seed) % 251 if seed else np.zeros(count)
    return np.frombuffer(data.astype(np.uint8).tobytes(), dtype=dtype).reshape(shape)


def content():
    return RecordDict({
        "config": ConfigRecord({"round": 3, "negative": -(2**40), "rate": 0.5, "flag": True, "text": "größe \"q\"\n\x7f", "raw": b"\x00\xff",
                                "ints": [1, -2], "floats": [0.5, -0.0], "flags": [True, False], "texts": ["a", ""],
                                "raws": [b"", b"\x01"], "none": []}),
        "metrics": MetricRecord({"loss": 2.25, "count": 12, "series": [0.5, 1.5]}),
        "arrays": ArrayRecord({
            "layer.0.A": Array(filled("float32", (3, 5, 70), 1)),
            "zeros.a": Array(filled("float32", (7, 100), 0)),
            "zeros.b": Array(filled("float32", (7, 100), 0)),
            "bf16": Array(filled("uint16", (5, 7), 2)),
            "counts": Array(filled("int64", (2, 3), 3)),
            "scalar": Array(filled("float64", (), 4)),
            "empty": Array(filled("bool", (0, 4), 0)),
            "größe \"q\"\u2028": Array(filled("float16", (9,), 5)),
        }),
    })


def tree(node):
    return [node.object_id, [tree(child) for child in node.children]]


def vectors():
    record = content()
    objects = {i: o.deflate().hex() for i, o in get_all_nested_objects(record).items()}
    small = {i: c for i, c in objects.items() if len(c) < 4000 and not bytes.fromhex(c).startswith(b"ArrayChunk")}
    return {"flwr": importlib.metadata.version("flwr"), "tree": tree(get_object_tree(record)), "ids": sorted(objects), "objects": small}


def text():
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(FILE, FILE.stat().st_size, "bytes")

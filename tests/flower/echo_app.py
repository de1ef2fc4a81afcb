"""A Flower app in the layout of `flwr new`. Its ServerApp sends arrays of every kind to every node and checks that each
returns with all bytes changed (by tests/flower/wire_echo.cpp). Its ClientApp does the same for stock nodes.
"""
import pathlib
import textwrap

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "echo"
version = "1.0.0"
description = "sends arrays and checks what comes back"
license = { file = "LICENSE" }
dependencies = ["flwr>=1.40.0"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "evenkeel"
fab-format-version = 1
flwr-version-target = "1.42.0"

[tool.flwr.app.components]
serverapp = "echo.server_app:app"
clientapp = "echo.client_app:app"

[tool.flwr.app.config]
verdict = ""
nodes = 1
rounds = 1
bytes = 0
arrays = 32
ttl = 0.0
wait = 60.0
"""

CHANGED = """\
import io

import numpy as np
from flwr.app import Array

CHANGE = 0x5A


def changed(array):
    \"\"\"The same head, and every byte of the data changed.\"\"\"
    data = array.numpy()
    flat = np.ascontiguousarray(data).view(np.uint8) if data.ndim else np.frombuffer(data.tobytes(), np.uint8)
    bytes_ = (flat.reshape(-1) ^ CHANGE).tobytes()
    return np.frombuffer(bytes_, dtype=data.dtype).reshape(data.shape)


def zoo(seed, total, count):
    rng = np.random.default_rng(seed)
    if total:
        return {f"layer.{i // 2}.{'AB'[i % 2]}": rng.integers(0, 2**32, total // count // 4, dtype=np.uint32).view(np.float32)
                for i in range(count)}
    special = np.array([[-0.0, np.inf, 1e-42], [np.nan, 1.0, -1e30]], dtype=np.float32)
    return {
        "special": special,
        "bf16": rng.integers(0, 2**16, (5, 7), dtype=np.uint16),
        "counts": rng.integers(-2**62, 2**62, (3,), dtype=np.int64),
        "flags": np.array([True, False, True]),
        "scalar": np.array(2.5, dtype=np.float64),
        "empty": np.zeros((0, 4), dtype=np.float32),
        "fortran": np.asfortranarray(rng.normal(size=(3, 4, 5)).astype(np.float32)),
        "zeros.a": np.zeros((7, 3), dtype=np.float32),
        "zeros.b": np.zeros((7, 3), dtype=np.float32),
        "größe \\"q\\"": rng.normal(size=(2, 3)).astype(np.float16),
        "long": rng.normal(size=(700_000,)).astype(np.float64),
        "many zeros": np.zeros((1_600_000,), dtype=np.float64),
    }
"""

SERVER = """\
import json
import time
import traceback

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

from echo.changed import changed, zoo

app = ServerApp()


def one_round(grid, config, number):
    deadline = time.time() + config["wait"]
    while len(nodes := list(grid.get_node_ids())) < config["nodes"] and time.time() < deadline:
        time.sleep(0.1)
    arrays = zoo(number, int(config["bytes"]), int(config["arrays"]))
    values = {"server-round": number, "rate": 0.5, "flag": True, "text": "größe", "raw": b"\\x00\\xff",
              "ints": [1, -2], "floats": [0.5], "texts": ["a", "b"]}
    begin = time.time()
    record = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    messages = [Message(RecordDict({"arrays": record, "config": ConfigRecord(values)}), dst_node_id=node,
                        message_type="train", group_id=str(number), **({"ttl": config["ttl"]} if config["ttl"] else {}))
                for node in nodes]
    waiting = set(grid.push_messages(messages))
    pushed = time.time() - begin
    found = []
    while waiting and time.time() < deadline:
        for reply in grid.pull_messages(waiting):
            waiting.discard(reply.metadata.reply_to_message_id)
            found.append(verdict(reply, arrays, values, time.time() - begin, pushed))
        time.sleep(0.05)
    return {"nodes": len(nodes), "replies": found, "missing": len(waiting)}


def verdict(reply, arrays, values, seconds, pushed):
    if reply.has_error():
        return {"error": reply.error.code, "reason": reply.error.reason}
    content = reply.content
    back = content["arrays"]
    exact = list(back.keys()) == list(arrays.keys()) and all(
        back[name].dtype == str(value.dtype) and tuple(back[name].shape) == value.shape
        and changed(back[name]).tobytes() == value.tobytes("C") for name, value in arrays.items())
    same = {k: v for k, v in content["config"].items()} == values if "config" in content else None
    return {"exact": exact, "config": same, "native": content["metrics"].get("native", 0), "seconds": seconds,
            "down_s": content["metrics"].get("down-s", 0), "pushed_s": pushed}


@app.main()
def main(grid, context):
    config = context.run_config
    try:
        result = {"rounds": [one_round(grid, config, i + 1) for i in range(int(config["rounds"]))]}
    except Exception:
        result = {"failed": traceback.format_exc()}
    with open(config["verdict"] + ".part", "w") as file:
        json.dump(result, file)
    import os
    os.rename(config["verdict"] + ".part", config["verdict"])
"""

CLIENT = """\
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from echo.changed import changed

app = ClientApp()


@app.train()
def train(message, context):
    content = RecordDict({
        "config": message.content["config"],
        "metrics": MetricRecord({"num-examples": 1, "native": 0}),
        "arrays": ArrayRecord({name: Array(changed(value)) for name, value in message.content["arrays"].items()})})
    return Message(content, reply_to=message)
"""


def write(folder: pathlib.Path) -> pathlib.Path:
    app = folder / "app"
    (app / "echo").mkdir(parents=True)
    for name, text in (("pyproject.toml", PYPROJECT), ("LICENSE", "Apache-2.0\n"), ("echo/__init__.py", '"""Echo."""\n'),
                       ("echo/changed.py", CHANGED), ("echo/server_app.py", SERVER), ("echo/client_app.py", CLIENT)):
        (app / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return app

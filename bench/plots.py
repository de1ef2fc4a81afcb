#!/usr/bin/env python3
"""Draws the plots of docs/performance.md from the JSON lines of the benchmarks, and from a record.

    build/aggregation_bench --full --clients 2 4 8 32 --folder uploads > server.jsonl
    .venv-v4/bin/python bench/plots.py server server.jsonl --out docs/figures
    .venv-v4/bin/python bench/plots.py simulation bench/records/DATE-simulation.json --out docs/figures

`server` plots seconds and memory of the server's step over clients, rank and experts. Each plot uses the lines that
differ only in its variable. A dotted line shows linear growth from the first point.

`simulation` plots the processor time of a client, its steps and the rest, and the peak memory over the number of
clients, for each system.
"""
import argparse
import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

# Makes files of equal plots equal.
plt.rcParams.update({"svg.hashsalt": "evenkeel", "font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
LAYOUT = ("clients", "rank", "experts", "layers", "hidden", "width", "threads")


def read_lines(paths):
    lines = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            lines += [json.loads(line) for line in file if line.startswith("{")]
    return [line for line in lines if line["round"] == 1]


def series(lines, axis):
    """Returns method -> lines that differ in `axis` only, sorted by it. The longest such series of each method is used.
    """
    found = {}
    for line in lines:
        rest = tuple(line[key] for key in LAYOUT if key != axis)
        found.setdefault((line["method"], rest), {})[line[axis]] = line
    longest = {}
    for (method, _), points in found.items():
        if len(points) > max(1, len(longest.get(method, []))):
            longest[method] = [points[key] for key in sorted(points)]
    return longest


def draw(panel, by_method, axis, value, label):
    for method, points in sorted(by_method.items()):
        xs, ys = [p[axis] for p in points], [value(p) for p in points]
        (line,) = panel.plot(xs, ys, marker="o", markersize=3, linewidth=1, label=method)
        panel.plot(xs, [ys[0] * x / xs[0] for x in xs], ":", linewidth=0.7, color=line.get_color())
    panel.set(xlabel=axis, ylabel=label, xscale="log", yscale="log")
    panel.set_xticks(sorted({p[axis] for points in by_method.values() for p in points}))
    panel.get_xaxis().set_major_formatter("{x:.0f}")
    panel.minorticks_off()


def server(lines, out):
    written = []
    for axis in ("clients", "rank", "experts"):
        by_method = series(lines, axis)
        if not by_method:
            continue
        figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
        draw(left, by_method, axis, lambda p: p["seconds"], "seconds")
        draw(right, by_method, axis, lambda p: p["peak_beside_bytes"] / 2**20, "MiB beside the state before")
        right.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
        written.append(out / f"server-{axis}.svg")
        figure.savefig(written[-1], metadata={"Date": None})
        plt.close(figure)
    return written


def draw_time(panel, systems):
    """Draws a bar of milliseconds of processor time per client: its steps alone, and what comes on top."""
    for i, (name, system) in enumerate(systems.items()):
        time = system["time"]
        whole = 1000 * time["cpu_s_per_client"]
        steps = min(whole, whole / (1 + time["overhead_cpu"]))  # noise can make the steps alone the longer ones
        panel.bar(i, steps, 0.6, color="#4c72b0", label=None if i else "steps alone")
        panel.bar(i, whole - steps, 0.6, bottom=steps, color="#dd8452", label=None if i else "the rest")
        panel.text(i, whole, f"{100 * time['overhead_cpu']:+.1f} %", ha="center", va="bottom")
    panel.set_xticks(range(len(systems)), systems)
    panel.margins(y=0.12)
    panel.set_ylabel("processor time per client, ms")
    panel.legend(frameon=False, loc="upper left")


def draw_memory(panel, systems):
    """Draws the peak memory of all processes over the number of clients."""
    for name, system in systems.items():
        points = system["memory"]
        panel.plot([p["clients"] for p in points], [p["peak_pss_mib"] for p in points], marker="o", markersize=3, linewidth=1, label=name)
    panel.set(xlabel="clients", ylabel="peak memory of all processes, MiB", xscale="log", ylim=(0, None))
    panel.set_xticks([p["clients"] for p in points])
    panel.get_xaxis().set_major_formatter("{x:,.0f}")
    panel.minorticks_off()
    panel.legend(frameon=False)


def simulation(path, out):
    systems = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["simulation"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    draw_time(left, systems)
    draw_memory(right, systems)
    figure.savefig(out / "simulation.svg", metadata={"Date": None})
    return [out / "simulation.svg"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["server", "simulation"])
    parser.add_argument("lines", nargs="+", help="files of JSON lines, or a record")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/figures"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    written = simulation(arguments.lines[0], arguments.out) if arguments.what == "simulation" else server(read_lines(arguments.lines), arguments.out)
    if not written:
        sys.exit("no two lines differ in clients, rank or experts alone")
    print(*written, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

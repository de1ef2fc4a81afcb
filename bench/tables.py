#!/usr/bin/env python3
"""Makes the tables and plots of docs/performance.md, docs/gpu.md and docs/robust-aggregation.md from bench/records/*.json.

    bench/tables.py                 prints every table as Markdown
    bench/tables.py --check         exit code 1 if a table in the documents differs from its record
    bench/tables.py --write         writes the tables into the documents
    .venv-v4/bin/python bench/tables.py --plot docs/figures/steps.svg

A line `<!-- table: RECORD PART -->` in a document marks the place of a table. PART is step, server, evaluation, gpu,
gpu_memory, simulation or robust.
"""
import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = ROOT / "bench/records"
DOCUMENTS = ("docs/performance.md", "docs/gpu.md", "docs/robust-aggregation.md")
MARKED = re.compile(r"^<!-- table: (\S+) (\w+) -->\n\n((?:\|.*\n)*)", re.MULTILINE)


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def percent(value):
    return "" if value is None else f"{100 * value:.0f}"


def count(tokens):
    """Returns the number of tokens of a batch: "8 x 256" is 2,048 tokens."""
    sizes = tokens.split(" x ")
    return f"{int(sizes[0]) * int(sizes[1]):,}" if len(sizes) == 2 else tokens


def step(record):
    """Draws the table of one LoRA step: seconds of this program and of its peer, memory, and the fraction of the
    limits.
    """
    head = ["layers", "tokens", "K", "ours, s", "peer, s", "ours / peer", "ours, GiB", "peer, GiB", "of the limit, %", "of GEMM, %"]
    rows = [[str(r["layers"]), count(r["tokens"]), str(r["k"]), number(r["ours_s"]), number(r["peer_s"]),
             number(r["ours_s"] / r["peer_s"]), number(r.get("ours_gib"), "{:.1f}"), number(r.get("peer_gib"), "{:.1f}"),
             percent(r.get("share_of_limit")), percent(r.get("share_of_gemm"))] for r in record["step"]]
    filled = [i for i in range(len(head)) if any(row[i] for row in rows)]
    return markdown([head[i] for i in filled], [[row[i] for i in filled] for row in rows])


def server(record):
    """Draws the table of the server's step: seconds for 8 and for 32 clients, and peak memory for 8."""
    more = {r["method"]: r["seconds"] for r in record["server"]["rows_32"]}
    return markdown(["method", "8 clients, s", "8 clients, peak MiB", "32 clients, s"],
                    [[r["method"], f"{r['seconds']:g}", str(r["peak_mib"]), f"{more[r['method']]:g}"] for r in record["server"]["rows"]])


def evaluation(record):
    """Draws the table of hours for the 22,419 rows of the eight commonsense sets."""
    return markdown(["new tokens per row", "K = 8, h", "K = 4, h", "K = 2, h", "K = 1, h", "lower limit of all four, h"],
                    [[str(r["new_tokens"]), *(number(r["hours"].get(k), "{:.1f}") for k in "8421"),
                      number(r.get("limit_hours"), "{:.1f}")] for r in record["evaluation"]])


def gpu(record):
    """Draws the table of a step of all 16 layers on a GPU."""
    rows = {}
    for shape, r in record["steps"].items():
        if not isinstance(r, dict) or "peer_ms" not in r:
            continue
        batch, tokens, k = map(int, shape.split("x"))
        rows[batch * tokens, k] = [f"{batch * tokens:,}", str(k), number(r["ms"], "{:.0f}"), number(r["peer_ms"], "{:.0f}"),
                                   number(r["times_faster"]), number(r["ours"]["peak_gib"], "{:.1f}"),
                                   number(r["peer"]["peak_gib"], "{:.1f}"), number(r.get("roofline_ms"), "{:.1f}")]
    return markdown(["tokens", "K", "ours, ms", "peer, ms", "peer / ours", "ours, GiB", "peer, GiB", "roofline, ms"], [rows[place] for place in sorted(rows)])


def gpu_memory(record):
    """Draws the table of a GPU's peak memory in GiB by experts per token: training by tokens of a step, generation and
    evaluation by prompts at a time.
    """
    peaks, heads = {}, {}  # by (kind, size, K), and the heading of each (kind, size)
    for shape, r in record["steps"].items():
        if isinstance(r, dict) and "ours" in r:
            batch, length, k = map(int, shape.split("x"))
            peaks[0, batch * length, k] = r["ours"]["peak_gib"]
            heads[0, batch * length] = f"{batch * length:,} tokens"
    for kind, part in ((1, "generate"), (2, "evaluate")):
        for shape, r in record.get(part, {}).get("runs", {}).items():
            size, k = map(int, shape.split("x"))
            peaks[kind, size, k] = r["peak_gib"]
            heads[kind, size] = f"{('', 'generate', 'evaluate')[kind]} {size}"
    return markdown(["K", *(heads[column] for column in sorted(heads))],
                    [[str(k), *(number(peaks.get((*column, k)), "{:.1f}") for column in sorted(heads))] for k in sorted({key[2] for key in peaks})])


def simulation(record):
    """Draws the table of what simulating clients costs beside their steps, one line per system. "Processor" is the
    overhead in processor time, "2 workers" the processor time of a round with two over that with one.
    """
    rows = []
    for name, system in record["simulation"].items():
        time, (one, two) = system["time"], system["workers"]
        rows.append([name, f"{time['s_per_round']:.1f}", f"{time['s_per_client']:.3f}", f"{time['ms_per_step']:.1f}",
                     *(f"{100 * time[key]:.1f}" for key in ("overhead", "overhead_cpu")),
                     " / ".join(f"{point['peak_pss_mib']:,.0f}" for point in system["memory"]), f"{two['cpu_s'] / one['cpu_s']:.2f}"])
    populations = " / ".join(f"{point['clients']:,}" for point in next(iter(record["simulation"].values()))["memory"])
    return markdown(["", "round, s", "client, s", "step, ms", "overhead, %", "processor, %", f"MiB at {populations}", "2 workers"], rows)


def robust(record):
    """Draws the table of accuracy under attack, in percent, one line per attack, one column per rule."""
    rows = record["robust"]["rows"]
    rules, attacks = (list(dict.fromkeys(row[key] for row in rows)) for key in ("rule", "attack"))
    cells = {(row["attack"], row["rule"]): [100 * value for value in row["accuracy"] if value is not None] for row in rows}

    def cell(values):
        return f"{sum(values) / len(values):.1f} ({min(values):.1f}-{max(values):.1f})" if values else "no run ends"
    return markdown(["attack", *(f"`{rule}`" if "," not in rule else rule for rule in rules)],
                    [[attack, *(cell(cells[attack, rule]) for rule in rules)] for attack in attacks])


PARTS = {"robust": robust, "step": step, "server": server, "evaluation": evaluation, "gpu": gpu, "gpu_memory": gpu_memory, "simulation": simulation}


def load(name):
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def table(name, part):
    return PARTS[part](load(name))


def plot(path):
    """Draws bars of ours / peer, one group per record."""
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"svg.hashsalt": "evenkeel", "font.size": 8})
    names = [p.stem for p in sorted(RECORDS.glob("*.json")) if "step" in load(p.stem)]
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    shapes = [("1 x 256", 1), ("1 x 256", 8), ("8 x 256", 1), ("8 x 256", 8)]
    for offset, (tokens, k) in enumerate(shapes):
        ratios = [next((r["ours_s"] / r["peer_s"] for r in load(n)["step"] if (r["layers"], r["tokens"], r["k"]) == (2, tokens, k)), 0)
                  for n in names]
        axes.bar([i + 0.2 * offset for i in range(len(names))], ratios, 0.18, label=f"{tokens}, K = {k}")
    axes.set_xticks([i + 0.3 for i in range(len(names))], [n[11:] for n in names])
    axes.set_ylabel("time of a step, ours / peer")
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--plot", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.plot:
        return plot(arguments.plot)
    wrong = []
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        drawn = MARKED.sub(lambda m: f"<!-- table: {m[1]} {m[2]} -->\n\n{table(m[1], m[2])}{'' if m[3] else chr(10)}", text)
        if arguments.write:
            (ROOT / name).write_text(drawn, encoding="utf-8")
        elif arguments.check and drawn != text:
            wrong.append(name)
        elif not arguments.check:
            print(*(f"{m[1]} {m[2]}\n{table(m[1], m[2])}" for m in MARKED.finditer(text)), sep="\n")
    if wrong:
        print("tables: not those of bench/records, run bench/tables.py --write: " + ", ".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Tests the report page in headless Chromium: pages of 1, 2, 8 and 24 runs and of studies, in a wide window and in one of a phone's width.

No two texts of a chart may overlap, none may be cut, and the page may not be wider than its window. Chromium is not
installed by tools/setup: without it these tests are skipped with a message.
"""

import json
import re
import shutil
import subprocess

import pytest

from synthetic_study import synthetic_study
from tiny import CONFIG, nightly, settings, succeed

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
METHODS = ["fedit", "ub-smoe", "a3smoe", "hetlora", "smoe-llb", "ffa-lora"]

# Runs inside the page and posts what it finds to the frame around it.
CHECK = """
window.addEventListener('load', () => setTimeout(() => {
  const found = [];
  for (const svg of document.querySelectorAll('figure > svg')) {
    const name = svg.closest('figure').querySelector('figcaption').textContent, frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([text, a], i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1)
        found.push(`${name}: "${text}" is cut`);
      for (const [other, b] of boxes.slice(i + 1))
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2)
          found.push(`${name}: "${text}" and "${other}" overlap`);
    });
  }
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) found.push(`the page is ${width} wide in a window of ${innerWidth}`);
  const unnamed = [...document.querySelectorAll('select, input, button')].filter((control) =>
    !control.closest('label') && !control.textContent && !control.ariaLabel);
  if (unnamed.length) found.push(`${unnamed.length} controls have no name`);
  const charts = [...document.querySelectorAll('figure > svg')];
  if (charts.some((svg) => !svg.getAttribute('aria-label') || svg.tabIndex !== 0)) found.push('a chart cannot be read aloud or reached by keys');
  parent.postMessage(JSON.stringify({ width: innerWidth, charts: charts.length, errors: window.failures, found }), '*');
}, 50));
window.failures = [];
window.addEventListener('error', (event) => window.failures.push(event.message));
"""
FRAME = """<body style="margin:0"><iframe src="page.html" style="border:0;width:{width}px;height:900px"></iframe>
<script>addEventListener('message', (event) => {{
  const pre = document.createElement('pre'); pre.id = 'result'; pre.textContent = event.data; document.body.append(pre);
}});</script></body>"""


@pytest.fixture(scope="module")
def runs(tiny_model, tmp_path_factory):
    """Returns a function that trains and returns the first `count` runs: four seeds of each method."""
    folder = tmp_path_factory.mktemp("runs")
    made = []

    def of(count):
        while len(made) < count:
            method, seed = METHODS[len(made) // 4], len(made) % 4 + 1
            out = folder / f"{method}-{seed}"
            succeed("train", CONFIG, "--out", out, *settings(model__path=f'"{tiny_model}"', seed=seed, method__name=method,
                                                             evaluate__before="true", evaluate__every=1, train__rounds=2))
            made.append(out)
        return made[:count]

    return of


def opened(page, width, folder, check=CHECK):
    """Opens the page in a window of `width` pixels and returns what `check` posts."""
    (folder / "page.html").write_text(page.replace("<script>", f"<script>{check}</script><script>", 1))
    (folder / "frame.html").write_text(FRAME.format(width=width))
    text = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1600,1000", "--virtual-time-budget=5000",
                           "--dump-dom", f"file://{folder}/frame.html"], capture_output=True, text=True, timeout=600).stdout
    return json.loads(re.search(r'<pre id="result">(.*?)</pre>', text, re.S).group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("count", [1, 2, 8, pytest.param(24, marks=nightly)])
def test_no_label_overlaps_or_is_cut(runs, tmp_path, count, width):
    succeed("report", *runs(count), "--html", tmp_path / "report.html")
    seen = opened((tmp_path / "report.html").read_text(), width, tmp_path)
    assert seen["width"] == width
    assert seen["errors"] == [] and seen["found"] == []
    assert seen["charts"] >= 15


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize(("seeds", "measure"), [(2, "log_likelihood"), (8, "invalid_rate"), (40, "accuracy")])
def test_no_label_of_a_study_overlaps_or_is_cut_whatever_measure_is_chosen(runs, tmp_path, seeds, measure, width):
    made = runs(13)
    study = synthetic_study(tmp_path / "study", {"fedit": made[0], "ub-smoe": made[4], "hetlora": made[12]}, range(1, seeds + 1))
    choose = f"""window.addEventListener('load', () => {{
      for (const select of document.querySelectorAll('select'))
        if ([...select.options].some(({{value}}) => value === '{measure}')) {{ select.value = '{measure}'; select.onchange(); }}
    }});"""
    seen = opened(succeed("report", study, "--format", "html").stdout, width, tmp_path, choose + CHECK)
    assert seen["width"] == width and seen["errors"] == [] and seen["found"] == []
    assert seen["charts"] >= 15


def test_the_check_finds_labels_that_overlap_and_are_cut(runs, tmp_path):
    succeed("report", *runs(2), "--html", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    wider = page.replace("const kFont = 12;", "const kFont = 40;")
    assert wider != page
    found = opened(wider, 1440, tmp_path)["found"]
    assert any("overlap" in line for line in found) and any("is cut" in line for line in found)


def test_each_method_has_one_colour_and_the_reference_is_grey(runs, tmp_path):
    succeed("report", *runs(8), "--html", tmp_path / "report.html")
    colours = "addEventListener('load', () => parent.postMessage(JSON.stringify(groups.map((g) => [g.name, g.colour, g.runs.length])), '*'));"
    assert opened((tmp_path / "report.html").read_text(), 1440, tmp_path, colours) == [["fedit", "var(--grey)", 4], ["ub-smoe", "var(--c0)", 4]]

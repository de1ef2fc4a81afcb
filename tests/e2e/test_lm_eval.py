"""Compares evaluations with lm-evaluation-harness: on the merged export with the harness's own model, and on the run
with the model class of docs/serving.md. It uses .venv-lm-eval, offline.
"""

import importlib.util
import json
import os
import tempfile

import pytest

from tiny import PROGRAM, ROOT, succeed
from tutorial import BLOCK

# The harness reads this variable when it is imported.
CACHE = tempfile.TemporaryDirectory()
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": CACHE.name}
pytest.importorskip("lm_eval", reason="lm-evaluation-harness (lm-eval) is not installed")

QUESTIONS = ["The sky is", "A stone is", "Seven plus eight is", "Is the answer true or false? It is", "The fox jumps over"]
CHOICES = [" blue", " true", " fifteen and more", " a dog"]
PROMPTS = ["The quick brown", "Below is an instruction", "answer", "Question: what is it?"]
CHOICE_TASK = """
task: choosing
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
target_delimiter: ""
metric_list: [{metric: acc}]
"""
ANSWER_TASK = """
task: answering
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match}]
"""


def write_rows(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def generated(model, prompt):
    """Returns the answer to a prompt, up to its first line end."""
    text = succeed("generate", "--model", model, "--prompt", prompt, "--max-new-tokens", 6).stdout
    return text.removeprefix(prompt).split("\n")[0]


@pytest.fixture(scope="module")
def merged(small_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("merged") / "merged"
    succeed("export", "--run", small_run, "--format", "merged", "--out", folder)
    return folder


@pytest.fixture(scope="module")
def tasks(merged, tmp_path_factory):
    """Writes the two tasks. Half of the free answers are the model's own answers."""
    folder = tmp_path_factory.mktemp("tasks")
    choosing = [{"question": question, "choices": CHOICES, "answer": i % len(CHOICES)} for i, question in enumerate(QUESTIONS)]
    answering = [{"prompt": prompt, "answer": generated(merged, prompt) if i % 2 else "something else"}
                 for i, prompt in enumerate(PROMPTS)]
    (folder / "choosing.yaml").write_text(CHOICE_TASK % write_rows(folder / "choosing.jsonl", choosing))
    (folder / "answering.yaml").write_text(ANSWER_TASK % write_rows(folder / "answering.jsonl", answering))
    return folder


def evaluated(model, folder, names):
    """Returns results and samples of tasks by name."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = simple_evaluate(model=model, tasks=names, task_manager=manager, bootstrap_iters=0)
    return found["results"], found["samples"]


def likelihoods(samples):
    """Returns (log-likelihood, is greedy) of every choice of every row."""
    return [[tuple(answer) for answer in sample["filtered_resps"]] for sample in sorted(samples, key=lambda s: s["doc_id"])]


@pytest.fixture(scope="module")
def by_the_harness(merged, tasks):
    from lm_eval.models.huggingface import HFLM
    return evaluated(HFLM(pretrained=str(merged), device="cpu", dtype="float32", batch_size=1), tasks, ["choosing", "answering"])


def ranked(model, rows, folder, *flags):
    """Returns the share of rows whose answer has the largest log-probability, and all log-probabilities."""
    texts = write_rows(folder / "texts.jsonl", [{"text": row["question"] + choice} for row in rows for choice in ("", *row["choices"])])
    said = iter([json.loads(line) for line in succeed("score", "--model", model, "--input", texts, "--json", *flags).stdout.splitlines()])
    found = []
    for row in rows:
        begin = next(said)["tokens"] - 1
        found.append([sum(next(said)["token_logprobs"][begin:]) for _ in row["choices"]])
    return sum(values.index(max(values)) == row["answer"] for values, row in zip(found, rows)) / len(rows), found


def test_multiple_choice_scores_equal_our_likelihood_ranking(merged, tasks, by_the_harness, tmp_path):
    rows = [json.loads(line) for line in (tasks / "choosing.jsonl").read_text().splitlines()]
    accuracy, expected = ranked(merged, rows, tmp_path)
    results, samples = by_the_harness
    assert results["choosing"]["acc,none"] == pytest.approx(accuracy)
    for theirs, ours in zip(likelihoods(samples["choosing"]), expected, strict=True):
        assert [value for value, _ in theirs] == pytest.approx(ours, abs=1e-3)


def test_free_answers_equal_those_of_generate(by_the_harness):
    results, _ = by_the_harness
    assert results["answering"]["exact_match,none"] == 0.5


@pytest.fixture(scope="module")
def evenkeel_lm(tmp_path_factory):
    """Returns the class of docs/serving.md."""
    name = "evenkeel_lm.py"
    code, = [text for _, said, text in BLOCK.findall((ROOT / "docs/serving.md").read_text()) if said == name]
    file = tmp_path_factory.mktemp("class") / name
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("evenkeel_lm", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_class_scores_a_run_like_the_harness_scores_its_merged_export(small_run, evenkeel_lm, tasks, by_the_harness):
    model = evenkeel_lm.Evenkeel("--run", str(small_run), "--budget", "1", program=PROGRAM)
    results, samples = evaluated(model, tasks, ["choosing"])
    assert results["choosing"]["acc,none"] == by_the_harness[0]["choosing"]["acc,none"]
    for ours, theirs in zip(*(likelihoods(found["choosing"]) for found in (samples, by_the_harness[1])), strict=True):
        assert [value for value, _ in ours] == pytest.approx([value for value, _ in theirs], abs=1e-3)
        assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]


EMPTY_CONTEXTS = ["The sky is blue", "T", " blue", "Is it so?", "<|endoftext|>A stone", "\n", "42"]


def test_the_class_scores_empty_contexts_like_the_harness(small_run, evenkeel_lm, merged):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    pairs = [("", text) for text in EMPTY_CONTEXTS] + [("The sky is", " blue"), ("The sky is ", "blue"), ("A stone\n", "is true")]
    requests = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)]
    theirs = HFLM(pretrained=str(merged), device="cpu", dtype="float32", batch_size=1).loglikelihood(requests)
    ours = evenkeel_lm.Evenkeel("--run", str(small_run), "--budget", "1", program=PROGRAM).loglikelihood(requests)
    for (value, greedy), (wanted, wanted_greedy), pair in zip(ours, theirs, pairs, strict=True):
        assert value == pytest.approx(wanted, abs=1e-3), pair
        assert greedy == wanted_greedy and value < 0

"""evaluate, score and generate: what they print, that they agree with each other, and one line for bad input."""

import json
import math

import pytest
from safetensors.torch import load_file, save_file

from forked import forked
from hostile import refused
from tiny import CONFIG, lines, model, one_line, settings, succeed, tiny_model  # noqa: F401

ROW = {"instruction": "Please answer the following question with true or false, question: is {} water wet?\n\n"
                      "Answer format: true/false", "input": "", "output": "the correct answer is true", "answer": "true"}
KEYS = ["task", "budget", "reading", "top_k", "rows", "questions", "accuracy", "accuracy_cased", "accuracy_lowercase",
        "invalid_rate", "accuracy_valid", "accuracy_likelihood", "chance", "majority", "seconds"]


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "boolq").mkdir()
    # Row 8 asks what row 7 asked.
    rows = [{**ROW, "instruction": ROW["instruction"].format(min(i, 7)), "answer": "false" if i % 3 == 0 else "true"}
            for i in range(9)]
    (folder / "boolq/test.json").write_text(json.dumps(rows))
    return folder


def texts(tmp_path, *records):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


# --- evaluate ---

def test_scores_of_every_task_and_budget(tiny_model, data, tmp_path):  # noqa: F811
    predictions = tmp_path / "predictions.jsonl"
    done = succeed("evaluate", "--model", tiny_model, "--tasks", "boolq", "--data", data, "--budget", "0.125,1",
                   "--json", "--predictions", predictions)
    scores = json_lines(done.stdout)
    assert [list(score) for score in scores] == [KEYS, KEYS]
    assert [(s["task"], s["budget"], s["top_k"], s["rows"]) for s in scores] == [("boolq", 0.125, 1, 9), ("boolq", 1, 8, 9)]
    for score in scores:
        assert score["questions"] == 8
        assert score["chance"] == 0.5 and score["majority"] == pytest.approx(6 / 9)
        of_budget = [one for one in lines(predictions) if one["budget"] == score["budget"]]
        assert [one["row"] for one in of_budget] == list(range(9))
        share = [sum(test(one) for one in of_budget) / 9 for test in (
            lambda one: one["extracted"] == one["gold"], lambda one: not one["extracted"],
            lambda one: one["ranked"] == one["gold"])]
        assert share == pytest.approx([score["accuracy"], score["invalid_rate"], score["accuracy_likelihood"]])
        assert {one["ranked"] for one in of_budget} <= {"true", "false"}


def test_batches_of_rows_change_nothing(tiny_model, data):  # noqa: F811
    def scores(*flags):
        out = succeed("evaluate", "--model", tiny_model, "--tasks", "boolq", "--data", data, "--json", *flags).stdout
        return [{key: value for key, value in score.items() if key != "seconds"} for score in json_lines(out)]
    assert scores("--batch-size", 1) == scores() == scores("--top-k", 8)


def test_the_table_has_every_number_and_the_limit_holds(tiny_model, data):  # noqa: F811
    out = succeed("evaluate", "--model", tiny_model, "--tasks", "boolq,builtin", "--data", data, "--limit", 2,
                  "--budget", "0.5", "--decode", "beam4", "--template", "llm_adapters").stdout
    for word in ("budget 0.5, K=4", "boolq", "mean", "acc", "inv", "val", "lik", "chance", "major"):
        assert word in out
    assert "questions: boolq 2, builtin:facts 2, " in out
    assert max(map(len, out.splitlines())) <= 120


def test_more_rows_than_there_are_are_all_scored_and_it_is_said_once(tiny_model):  # noqa: F811
    done = succeed("evaluate", "--model", tiny_model, "--tasks", "builtin:tools", "--limit", 15, "--budget", "0.125,1",
                   "--max-new-tokens", 1, "--json")
    assert [(one["rows"], one["questions"]) for one in json_lines(done.stdout)] == [(14, 14)] * 2
    assert done.stderr.count("builtin:tools has 14 rows, 15 were asked for: all are scored") == 1


def test_evaluating_a_run_repeats_the_scores_of_its_last_round(tiny_model, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    succeed("train", CONFIG, "--out", run, *settings(model__path=tiny_model, train__rounds=1))
    again = json_lines(succeed("evaluate", "--run", run, "--json").stdout)
    recorded = {(one["task"], one["budget"]): one for one in lines(run / "evaluations.jsonl")}
    assert len(again) == len(recorded) > 0
    for score in again:
        known = recorded[score["task"], score["budget"]]
        assert {key: score[key] for key in KEYS[:-1]} == {key: known[key] for key in KEYS[:-1]}
    fewer = json_lines(succeed("evaluate", "--run", run, "--json", "--budget", "1", "--limit", "1").stdout)
    assert {(one["budget"], one["rows"]) for one in fewer} == {(1, 1)}
    # The adapter alone, without the method: another way to the same model, so it runs at least.
    succeed("generate", "--model", tiny_model, "--adapter", run / "adapter", "--prompt", "Once", "--max-new-tokens", 2)


# --- score and generate ---

def test_score_gives_every_token_and_their_sum(tiny_model, tmp_path):  # noqa: F811
    file = texts(tmp_path, {"text": "The correct answer is true"}, {"ids": [7, 8, 9, 300, 12]}, {"ids": [5]})
    records = json_lines(succeed("score", "--model", tiny_model, "--input", file, "--json").stdout)
    assert [list(record) for record in records] == [["index", "tokens", "logprob", "token_logprobs", "ids"]] * 3
    assert [record["index"] for record in records] == [0, 1, 2]
    assert records[1]["ids"] == [7, 8, 9, 300, 12] and records[2]["token_logprobs"] == []
    for record in records:
        assert record["tokens"] == len(record["ids"]) == len(record["token_logprobs"]) + 1
        assert record["logprob"] == pytest.approx(math.fsum(record["token_logprobs"]), abs=1e-9)
        assert all(one <= 0 for one in record["token_logprobs"])
    fewer = json_lines(succeed("score", "--model", tiny_model, "--input", file, "--json", "--top-k", 1).stdout)
    assert fewer[0]["logprob"] != records[0]["logprob"]
    table = succeed("score", "--model", tiny_model, "--input", file).stdout.splitlines()
    assert len(table) == 4 and table[0].split() == ["index", "tokens", "logprob", "per", "token"]


def test_a_texts_greedy_continuation_is_the_most_likely_token_by_token(tiny_model, tmp_path):  # noqa: F811
    out = json_lines(succeed("generate", "--model", tiny_model, "--prompt", "The answer", "--prompt", "Once upon",
                             "--max-new-tokens", 1, "--json").stdout)
    assert [list(one) for one in out] == [["prompt_ids", "ids", "text"]] * 2
    for one in out:
        file = texts(tmp_path, *({"ids": one["prompt_ids"] + [token]} for token in range(640)))
        scores = [record["token_logprobs"][-1]
                  for record in json_lines(succeed("score", "--model", tiny_model, "--input", file, "--json").stdout)]
        best = max(range(640), key=scores.__getitem__)
        assert one["ids"] == ([] if best == 0 else [best])


def test_generate_prints_the_text_behind_its_prompt(tiny_model):  # noqa: F811
    for flags in ([], ["--beams", 3], ["--dtype", "bfloat16", "--threads", 1]):
        out = succeed("generate", "--model", tiny_model, "--prompt", "Once upon", "--max-new-tokens", 5, *flags).stdout
        assert out.startswith("Once upon")


# --- bad input ---

def test_bad_score_and_generate_input(tiny_model, tmp_path):  # noqa: F811
    (tmp_path / "empty.jsonl").write_text("\n")
    refused("score", "--model", tiny_model, "--input", tmp_path / "empty.jsonl", says=["empty.jsonl"])
    refused("score", "--model", tiny_model, "--input", tmp_path / "none.jsonl", says=["none.jsonl"])
    refused("generate", "--model", tiny_model, "--prompt", "", says=["no tokens"])
    refused("generate", "--model", tiny_model, "--prompt", "a", "--max-new-tokens", "0", says=["--max-new-tokens"])
    refused("generate", "--model", tiny_model, "--prompt", "a", "--max-new-tokens", "2000", says=["2000", "1024"])
    refused("generate", "--model", tiny_model, "--prompt", "a", "--beams", "0", says=["--beams"])
    refused("generate", "--model", tiny_model, "--prompt", "a", "--adapter", tmp_path / "none", says=[tmp_path / "none"])


def test_what_is_not_finite_is_an_error_that_names_the_first_row(model, data, tmp_path):  # noqa: F811
    """Finite weights whose products are not; the first token of a text is not predicted."""
    weights = load_file(model / "model.safetensors")
    weights["model.layers.0.self_attn.v_proj.weight"][:] = 3e38
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    scored = forked("score", "--model", model, "--input", texts(tmp_path, {"ids": [1]}, {"ids": [1, 2]}), "--json")
    one_line(scored, "[numeric]", "text 1", "not finite")
    refused("evaluate", "--model", model, "--tasks", "boolq", "--data", data, "--json",
            says=["[numeric]", "task boolq: row 0", "not finite"])
    for flags in ([], ["--beams", 2]):
        refused("generate", "--model", model, "--prompt", "a", *flags, says=["[numeric]", "prompt 0", "not finite"])


def test_a_model_that_cannot_be_used(model, tmp_path):  # noqa: F811
    generate = ["generate", "--prompt", "a", "--model"]
    refused(*generate, tmp_path / "nowhere", says=[tmp_path / "nowhere"])
    (model / "tokenizer.json").unlink()
    refused(*generate, model, says=["tokenizer.json"])
    refused("evaluate", "--tasks", "builtin", "--model", model, says=["tokenizer.json"])
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    refused(*generate, model, says=["llama", "olmoe"])

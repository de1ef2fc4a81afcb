"""Tests how rows are scored: options by position, rankings that do not use the answer, empty prompts, invalid rows."""

import json
import shutil

import pytest

from hostile import refused
from tiny import evenkeel, lines, one_line, succeed

ANSWERS = ["answer1", "answer2", "answer3"]
CHAT = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}")
# Text around an answer in a row's output, as a function of the answer.
OUTPUTS = ["{}", "the correct answer is {}", "{}. Because {} is what the text says, {}", "So: {} since the text points to {}"]


def write(file, rows):
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows))
    return file


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def chatty(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chatty") / "model"
    shutil.copytree(tiny_model, folder)
    (folder / "chat_template.jinja").write_text(CHAT)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    return folder


def predictions(model, rows, tmp_path, *flags, score="choice"):
    out = tmp_path / "predictions.jsonl"
    file = write(tmp_path / "rows.jsonl", rows)
    succeed("evaluate", "--model", model, "--tasks", "files", "--data", file, "--score", score, "--max-new-tokens", 2, "--json",
            "--predictions", out, *flags)
    return lines(out)


# --- rankings ---

def shaped(form, question, output):
    if form == "messages":
        return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": output}]}
    first, second = ("prompt", "completion") if form == "prompt_completion" else ("instruction", "output")
    return {first: question, second: output}


@pytest.mark.parametrize("template", ["paper", "llm_adapters", "plain", "chat"])
def test_a_ranking_does_not_depend_on_the_right_option(chatty, template, tmp_path):
    for form in ("alpaca", "prompt_completion", "messages"):
        rows = [{**shaped(form, f"Question {i}: which one?", output.format(*[answer] * 3)), "answer": answer, "options": ANSWERS}
                for i, output in enumerate(OUTPUTS) for answer in ANSWERS]
        # The same text with any answer.
        rows += [{**shaped(form, f"Question {i}: who?", "Not answer2 but answer1"), "answer": answer, "options": ANSWERS}
                 for i in range(3) for answer in ANSWERS]
        ranked = [one["ranked"] for one in predictions(chatty, rows, tmp_path, "--template", template)]
        for i in range(0, len(rows), 3):
            assert len(set(ranked[i:i + 3])) == 1, (form, rows[i])


def test_a_conversation_is_ranked_like_prompt_and_completion(chatty, tmp_path):
    found = {}
    for form in ("messages", "prompt_completion", "alpaca"):
        rows = [{**shaped(form, f"Question {i}: which one?", OUTPUTS[i % 4].format(*[ANSWERS[i % 3]] * 3)), "answer": ANSWERS[i % 3],
                 "options": ANSWERS} for i in range(12)]
        found[form] = predictions(chatty, rows, tmp_path, "--template", "chat")
    assert found["messages"] == found["prompt_completion"] == found["alpaca"]


def test_options_are_ranked_after_the_text_before_the_first_option(tiny_model, tmp_path):
    rows = [{"prompt": f"Question {i}: which one? ", "completion": output.format(*[ANSWERS[i % 3]] * 3), "answer": ANSWERS[i % 3],
             "options": ANSWERS} for i, output in enumerate(OUTPUTS * 2)]
    ranked = [one["ranked"] for one in predictions(tiny_model, rows, tmp_path, "--template", "plain")]
    texts = [{"prompt": row["prompt"].rstrip(), "completion": " " + output.split("{}")[0] + answer}
             for row, output in zip(rows, OUTPUTS * 2) for answer in ANSWERS]
    said = json_lines(succeed("score", "--model", tiny_model, "--input", write(tmp_path / "texts.jsonl", texts), "--json").stdout)
    values = [one["completion"]["logprob"] for one in said]
    best = [max(range(3), key=values[i:i + 3].__getitem__) for i in range(0, len(values), 3)]
    assert ranked == [ANSWERS[one] for one in best]


# --- empty or impossible values ---

def test_a_row_with_an_impossible_answer_is_rejected(tiny_model, tmp_path):
    (tmp_path / "boolq").mkdir()
    row = {"instruction": "Is it?\n\nAnswer format: true/false", "input": "", "output": "the correct answer is true", "answer": "true"}
    for answer in ("True", "false ", "maybe", "", "true/false"):
        (tmp_path / "boolq/test.json").write_text(json.dumps([row, {**row, "answer": answer}]))
        refused("evaluate", "--model", tiny_model, "--tasks", "boolq", "--data", tmp_path, says=["row 1"])
    (tmp_path / "boolq/test.json").write_text(json.dumps([row, {**row, "instruction": " \n"}]))
    refused("evaluate", "--model", tiny_model, "--tasks", "boolq", "--data", tmp_path, says=["row 1", "instruction is empty"])


def test_a_too_long_prompt_is_rejected_before_any_answer(tiny_model, tmp_path):
    rows = [{"prompt": "Is it so?", "completion": "yes"}] * 300 + [{"prompt": "so " * 4000, "completion": "no"}]
    done = evenkeel("evaluate", "--model", tiny_model, "--tasks", "files", "--data", write(tmp_path / "rows.jsonl", rows),
                    "--score", "f1", "--batch-size", 1, "--max-new-tokens", 200, "--strict")
    one_line(done, "rows.jsonl:301", "tokens")
    assert done.stdout == ""


def test_an_empty_output_is_never_right(tiny_model, tmp_path):
    rows = [{"prompt": f"Say {answer}", "completion": answer} for answer in ("A", "the", "*", "?!")]
    for score in ("f1", "exact"):
        for one in predictions(tiny_model, rows, tmp_path, "--template", "plain", score=score):
            if not one["output"]:
                assert one["exact_match"] == one["f1"] == 0


# --- score ---

def test_an_empty_prompt_is_scored_after_the_prefix_token(tiny_model, tmp_path):
    completions = ["T", "The answer", " blue", "\n", "<|endoftext|>The answer"]
    rows = [{"prompt": "", "completion": text} for text in completions]
    said = json_lines(succeed("score", "--model", tiny_model, "--input", write(tmp_path / "rows.jsonl", rows), "--json").stdout)
    ids = [{"ids": one["ids"]} for one in said]
    assert [one["ids"][0] for one in said] == [0] * len(rows)
    assert said[4]["ids"] == said[1]["ids"]  # a text that begins with the token gets no second one
    plain = json_lines(succeed("score", "--model", tiny_model, "--input", write(tmp_path / "ids.jsonl", ids), "--json").stdout)
    for given, wanted in zip(said, plain, strict=True):
        assert given["completion"]["first"] == 1
        assert given["completion"]["logprob"] == pytest.approx(wanted["logprob"], abs=1e-6) and wanted["logprob"] < 0
        assert given["completion"]["greedy"] == all(wanted["greedy"])
    (tmp_path / "named").mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(tiny_model / file, tmp_path / "named")
    for names, wanted in (({"bos_token": "a", "eos_token": "b"}, "a"), ({"bos_token": None, "eos_token": "b"}, "b"),
                          ({"bos_token": {"__type": "AddedToken", "content": "c"}}, "c")):
        (tmp_path / "named/tokenizer_config.json").write_text(json.dumps(names))
        (one,) = json_lines(succeed("score", "--model", tmp_path / "named", "--input", write(tmp_path / "one.jsonl", rows[:1]),
                                    "--json").stdout)
        vocabulary = json.loads((tiny_model / "tokenizer.json").read_text())["model"]["vocab"]
        assert one["ids"][0] == vocabulary[wanted]


BAD = ['{"text": 3}', "no JSON", '{"prompt": "x", "completion": ""}', '{"prompt": "", "completion": ""}', '{"ids": [999999]}', '{"text": ""}']
GOOD = ['{"ids": [7, 8, 9]}', '{"text": "The answer"}']


@pytest.mark.parametrize("json_flag", [["--json"], []])
@pytest.mark.parametrize("stdin", [True, False])
def test_a_line_that_cannot_be_scored_does_not_stop_the_others(tiny_model, tmp_path, json_flag, stdin):
    rows = [GOOD[0], *BAD[:3], GOOD[1], *BAD[3:]]
    text = "\n".join(rows) + "\n"
    file = write(tmp_path / "rows.jsonl", rows)
    flags = ["score", "--model", tiny_model, "--input", "-" if stdin else file, *json_flag]
    done = evenkeel(*flags, **({"input": text} if stdin else {}))
    one_line(done, "6 of 8 rows could not be scored", "line 2")
    if json_flag:
        said = json_lines(done.stdout)
        assert [one["index"] for one in said] == list(range(8))
        assert ["error" in one for one in said] == [row in BAD for row in rows]
        assert all(f"line {i + 1}" in one["error"] for i, one in enumerate(said) if "error" in one)
        alone = json_lines(succeed("score", "--model", tiny_model, "--input", write(tmp_path / "good.jsonl", GOOD), "--json").stdout)
        assert [one["token_logprobs"] for one in said if "error" not in one] == [pytest.approx(one["token_logprobs"], abs=1e-5) for one in alone]
    else:
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["index", *map(str, range(8))]
    strict = evenkeel(*flags, "--strict", **({"input": text} if stdin else {}))
    one_line(strict, "line 2")
    assert strict.stdout == ""


def test_a_prompt_that_cannot_be_answered_does_not_stop_the_others(tiny_model, tmp_path):
    rows = ['{"prompt": "Once"}', '{"prompt": ""}', '{"prompt": 5}', "{", json.dumps({"prompt": "so " * 4000}), '{"prompt": "The answer"}']
    flags = ["generate", "--model", tiny_model, "--input", write(tmp_path / "rows.jsonl", rows), "--max-new-tokens", 3]
    done = evenkeel(*flags, "--json")
    one_line(done, "4 of 6 rows could not be answered", "line 2")
    said = json_lines(done.stdout)
    assert ["error" in one for one in said] == [False, True, True, True, True, False]
    assert [one.get("index") for one in said] == [None, 1, 2, 3, 4, None]
    alone = succeed("generate", "--model", tiny_model, "--prompt", "Once", "--prompt", "The answer", "--max-new-tokens", 3, "--json").stdout
    assert [said[0], said[5]] == json_lines(alone)
    strict = evenkeel(*flags, "--strict")
    one_line(strict, "line 2")
    assert strict.stdout == ""
    assert evenkeel(*flags, input="").stdout.splitlines()[0].startswith("Once")
    refused("generate", "--model", tiny_model, says=["--prompt or --input"])


def test_invalid_rows_are_skipped_in_an_evaluation_or_rejected(tiny_model, tmp_path):
    good = {"prompt": "Is it so?", "completion": "yes"}
    rows = [good, {"prompt": "Is it?"}, "no JSON", {**good, "prompt": "Really?"}, {"prompt": "", "completion": "no"}]
    flags = ["evaluate", "--model", tiny_model, "--tasks", "files", "--data", write(tmp_path / "rows.jsonl", rows), "--score", "exact",
             "--max-new-tokens", 2, "--json"]
    for more, count in (([], 2), (["--limit", 1], 1)):
        done = evenkeel(*flags, *more)
        one_line(done, "3 of 5 rows of", "left out", "rows.jsonl:2")
        assert [one["rows"] for one in json_lines(done.stdout)] == [count]
        strict = evenkeel(*flags, *more, "--strict")
        one_line(strict, "rows.jsonl:2")
        assert strict.stdout == ""
    assert evenkeel(*flags[:6], write(tmp_path / "good.jsonl", [good]), *flags[7:]).returncode == 0


# --- before work starts ---

def test_outputs_and_encoders_are_checked_before_scoring(tiny_model, tmp_path):
    file = write(tmp_path / "rows.jsonl", [{"prompt": "Is it so?", "completion": "yes"}])
    flags = ["evaluate", "--model", tiny_model, "--tasks", "files", "--data", file]
    for more, word in ((["--predictions", tmp_path], "cannot be written"), (["--predictions", tmp_path / "no/p.jsonl"], "cannot be written"),
                       (["--bert-encoder", tmp_path / "none"], "is not a folder"), (["--bert-encoder", tmp_path, "--bert-layer", 1], "config.json")):
        done = evenkeel(*flags, *more)
        one_line(done, word)
        assert done.stdout == ""
    refused("bertscore", "--model", tmp_path / "none", "--input", write(tmp_path / "t.jsonl", [{"candidate": "a", "reference": "b"}]),
            says=["is not a folder"])
    for bad in (tmp_path, tmp_path / "no/l.safetensors"):
        refused("score", "--model", tiny_model, "--input", write(tmp_path / "s.jsonl", GOOD), "--logits", bad, says=["cannot be written"])


def test_nll_of_rows_of_text_is_that_of_their_tokens_with_the_end_of_sequence(tiny_model, tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("the fox lives in the forest", "the owl sleeps by day")))
    words = ("evaluate", "--model", tiny_model, "--tasks", "files", "--data", file, "--json", "--template", "plain")
    score = json.loads(succeed(*words, "--score", "nll").stdout)
    end = json.loads((tiny_model / "config.json").read_text())["eos_token_id"]
    texts = [json.loads(line) for line in succeed("score", "--model", tiny_model, "--input", file, "--json").stdout.splitlines()]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps({"ids": text["ids"] + [end]}) + "\n" for text in texts))
    tokens = [json.loads(line)["token_logprobs"]
              for line in succeed("score", "--model", tiny_model, "--input", tmp_path / "ids.jsonl", "--json").stdout.splitlines()]
    assert score["answer_tokens"] == sum(map(len, tokens)) and score["questions"] == score["rows"] == 2
    assert score["nll"] == pytest.approx(-sum(map(sum, tokens)) / score["answer_tokens"], rel=1e-6)
    refused(*words, "--score", "f1", says=["texts.jsonl:1", "a text asks nothing", "nll"])

"""Tests evaluate, score and generate: their output, their agreement, and one line for bad input."""

import json
import math
import subprocess

import pytest
from safetensors.torch import load_file, save_file

from hostile import refused
from tiny import CONFIG, PROGRAM, evenkeel, lines, one_line, settings, succeed

ROW = {"instruction": "Please answer the following question with true or false, question: is {} water wet?\n\n"
                      "Answer format: true/false", "input": "", "output": "the correct answer is true", "answer": "true"}
KEYS = ["task", "budget", "rank_eval_mode", "top_k", "rows", "questions", "accuracy", "accuracy_cased", "accuracy_lowercase",
        "invalid_rate", "accuracy_valid", "accuracy_likelihood", "log_likelihood", "likelihood_rows", "chance", "majority", "seconds"]


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "boolq").mkdir()
    # Row 8 asks the question of row 7.
    rows = [{**ROW, "instruction": ROW["instruction"].format(min(i, 7)), "answer": "false" if i % 3 == 0 else "true"}
            for i in range(9)]
    (folder / "boolq/test.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """Runs one round of UB-SMoE, which modulates routers and renormalises gates."""
    out = tmp_path_factory.mktemp("run") / "ub-smoe"
    said = succeed("train", CONFIG, "--out", out, *settings(model__path=tiny_model, train__rounds=1)).stderr
    assert f"evenkeel generate --run {out} --prompt" in said
    return out


def texts(tmp_path, *records):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


# --- evaluate ---

def test_scores_of_every_task_and_budget(tiny_model, data, tmp_path):
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


def test_results_do_not_depend_on_the_batch_size(tiny_model, data):
    def scores(*flags):
        out = succeed("evaluate", "--model", tiny_model, "--tasks", "boolq", "--data", data, "--json", *flags).stdout
        return [{key: round(value, 5) if key == "log_likelihood" else value for key, value in score.items() if key != "seconds"}
                for score in json_lines(out)]
    assert scores("--batch-size", 1) == scores() == scores("--top-k", 8)


def test_the_table_is_complete_and_respects_the_limit(tiny_model, data):
    out = succeed("evaluate", "--model", tiny_model, "--tasks", "boolq,builtin", "--data", data, "--limit", 2,
                  "--budget", "0.5", "--decode", "beam4", "--template", "llm_adapters").stdout
    for word in ("budget 0.5, K=4", "boolq", "mean", "acc", "inv", "val", "lik", "chance", "major"):
        assert word in out
    assert "questions: boolq 2, builtin:facts 2, " in out
    assert max(map(len, out.splitlines())) <= 120


def test_a_limit_above_the_number_of_rows_is_reported_once(tiny_model):
    done = succeed("evaluate", "--model", tiny_model, "--tasks", "builtin:tools", "--limit", 15, "--budget", "0.125,1",
                   "--max-new-tokens", 1, "--json")
    assert [(one["rows"], one["questions"]) for one in json_lines(done.stdout)] == [(14, 14)] * 2
    assert done.stderr.count("builtin:tools has 14 rows, 15 were asked for: all are scored") == 1


def test_evaluating_a_run_gives_the_scores_of_its_last_round(tiny_model, run):
    again = json_lines(succeed("evaluate", "--run", run, "--json").stdout)
    recorded = {(one["task"], one["budget"]): one for one in lines(run / "evaluations.jsonl")}
    assert len(again) == len(recorded) > 0
    for score in again:
        known = recorded[score["task"], score["budget"]]
        assert {key: score[key] for key in KEYS[:-1]} == {key: known[key] for key in KEYS[:-1]}
    fewer = json_lines(succeed("evaluate", "--run", run, "--json", "--budget", "1", "--limit", "1").stdout)
    assert {(one["budget"], one["rows"]) for one in fewer} == {(1, 1)}
    # The adapter alone, without the method, is another model; this command only has to run.
    succeed("generate", "--model", tiny_model, "--adapter", run / "adapter", "--prompt", "Once", "--max-new-tokens", 2)


def test_flags_of_a_chat_template_are_rejected_for_other_prompts(run, tmp_path):
    (tmp_path / "own.jinja").write_text("{{ messages[0].content }}")
    for flags in (["--chat-template", tmp_path / "own.jinja"], ["--date", "2025-03-01"]):
        refused("evaluate", "--run", run, "--json", *flags, says=[f"{flags[0]} goes with --template chat", "the prompts are paper"], untouched=tmp_path)


def write_next_tokens(folder, logits):
    """Replaces the weights of a model, so that the last token alone decides the next. `logits` are
    {last token: {next token: logit}}. The first last token, None, stands for all that are not named.
    """
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith(("embed_tokens.weight", "lm_head.weight", "o_proj.weight", "down_proj.weight")):
            weight[:] = 0
    embedding, head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    weights["model.norm.weight"][:] = embedding.shape[1] ** -0.5
    for state, (last, following) in enumerate(logits.items()):
        embedding[slice(None) if last is None else last] = 0
        embedding[slice(None) if last is None else last, state] = 1
        for token, logit in following.items():
            head[token, state] = logit
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def test_beam4_finds_the_answer_that_greedy_decoding_misses(model, tmp_path):
    """The likeliest first token is that of "no", but the end after "no" is unlikely. After "yes" it is certain."""
    ids = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    write_next_tokens(model, {None: {ids["n"]: 17, ids["y"]: 16.9}, ids["n"]: {ids["o"]: 30}, ids["o"]: {0: 1},
                              ids["y"]: {ids["e"]: 30}, ids["e"]: {ids["s"]: 30}, ids["s"]: {0: 30}})
    rows = texts(tmp_path, *({"prompt": f"Is it so {i}?", "completion": "yes" if i % 3 else "no",
                              "options": ["yes", "no"]} for i in range(9)))

    def scored(*flags):
        predictions = tmp_path / "predictions.jsonl"
        done = succeed("evaluate", "--model", model, "--tasks", "files", "--data", rows, "--score", "choice",
                       "--budget", 1, "--max-new-tokens", 5, "--json", "--predictions", predictions, *flags)
        return json.loads(done.stdout)["accuracy"], [one["output"] for one in lines(predictions)]

    assert scored() == (pytest.approx(3 / 9), ["no"] * 9)
    assert scored("--decode", "beam4") == (pytest.approx(6 / 9), ["yes"] * 9)
    for beams, answer in ((1, "no"), (4, "yes")):
        (out,) = json_lines(succeed("generate", "--model", model, "--template", "paper", "--prompt", "Is it so 1?",
                                    "--beams", beams, "--max-new-tokens", 5, "--json").stdout)
        assert out["text"] == answer


# --- score and generate ---

def test_score_prints_every_token_and_the_sum(tiny_model, tmp_path):
    file = texts(tmp_path, {"text": "The correct answer is true"}, {"ids": [7, 8, 9, 300, 12]}, {"ids": [5]})
    records = json_lines(succeed("score", "--model", tiny_model, "--input", file, "--json").stdout)
    assert [list(record) for record in records] == [["index", "tokens", "logprob", "token_logprobs", "greedy", "ids"]] * 3
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


def test_a_texts_greedy_continuation_is_the_most_likely_token_by_token(tiny_model, tmp_path):
    out = json_lines(succeed("generate", "--model", tiny_model, "--prompt", "The answer", "--prompt", "Once upon",
                             "--max-new-tokens", 1, "--json").stdout)
    assert [list(one) for one in out] == [["prompt_ids", "ids", "text"]] * 2
    for one in out:
        file = texts(tmp_path, *({"ids": one["prompt_ids"] + [token]} for token in range(640)))
        scores = [record["token_logprobs"][-1]
                  for record in json_lines(succeed("score", "--model", tiny_model, "--input", file, "--json").stdout)]
        best = max(range(640), key=scores.__getitem__)
        assert one["ids"] == ([] if best == 0 else [best])


def test_generate_prints_the_text_after_its_prompt(tiny_model):
    for flags in ([], ["--beams", 3], ["--dtype", "bfloat16", "--threads", 1]):
        out = succeed("generate", "--model", tiny_model, "--prompt", "Once upon", "--max-new-tokens", 5, *flags).stdout
        assert out.startswith("Once upon")


def test_score_and_generate_agree_with_the_evaluation_of_a_run(run, tiny_model, data, tmp_path):
    """Answers are ranked and generated as in the evaluation, at every budget. The adapter without phi is another model.
    """
    predictions = tmp_path / "predictions.jsonl"
    succeed("evaluate", "--run", run, "--tasks", "boolq", "--data", data, "--limit", 0, "--predictions", predictions, "--json")
    questions = [row["instruction"] for row in json.loads((data / "boolq/test.json").read_text())][:3]
    prompts = [f"Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
               f"### Instruction:\n{question}\n\n### Response:\n" for question in questions]
    file = texts(tmp_path, *({"prompt": prompt, "completion": f"the correct answer is {answer}"}
                             for prompt in prompts for answer in ("true", "false")))
    words = [word for question in questions for word in ("--prompt", question)]
    for budget, top_k in ((0.125, 1), (1.0, 8)):
        expected = [one for one in lines(predictions) if one["budget"] == budget][:3]
        of_run = json_lines(succeed("score", "--run", run, "--budget", budget, "--input", file, "--json").stdout)
        pairs = [[one["completion"]["logprob"] for one in of_run[i:i + 2]] for i in (0, 2, 4)]
        assert [("true", "false")[pair[1] > pair[0]] for pair in pairs] == [one["ranked"] for one in expected]
        answers = succeed("generate", "--run", run, "--budget", budget, *words, "--max-new-tokens", 4, "--json").stdout
        assert [one["text"].split("### Response:")[0].strip() for one in json_lines(answers)] == [one["output"] for one in expected]
        alone = json_lines(succeed("score", "--model", tiny_model, "--adapter", run / "adapter", "--top-k", top_k, "--gate-norm",
                                   "renorm_selected", "--input", file, "--json").stdout)
        assert max(abs(a["logprob"] - b["logprob"]) for a, b in zip(of_run, alone)) > 1e-3


def test_the_template_of_a_run_is_applied_to_a_prompt(run, tiny_model):
    def ids(*flags):
        out = succeed("generate", *flags, "--prompt", "Is it so?", "--max-new-tokens", 1, "--json").stdout
        return json_lines(out)[0]["prompt_ids"]
    assert ids("--run", run) == ids("--model", tiny_model, "--template", "paper")
    assert ids("--run", run, "--template", "plain") == ids("--model", tiny_model) == ids("--model", tiny_model, "--template", "plain")
    forms = [ids("--model", tiny_model, "--template", form) for form in ("paper", "llm_adapters", "plain")]
    forms.append(ids("--model", tiny_model, "--system", "Say yes."))
    assert len({tuple(form) for form in forms}) == 4


def chat_model(model):
    (model / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'system' and m.content == 'no' %}{{ raise_exception('no system, please') }}{% endif %}"
        "[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}")
    (model / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')


def test_a_run_can_train_evaluate_and_generate_with_the_chat_template(model, tmp_path):
    out = tmp_path / "chat"
    changes = settings(model__path=model, train__rounds=1, evaluate__limit=1, data__limit=30, data__template='"chat"', method__name='"fedit"')
    refused("train", CONFIG, "--out", out, *changes, says=["has no chat template", model])
    chat_model(model)
    succeed("train", CONFIG, "--out", out, *changes)
    assert any(one["path"].endswith("chat_template.jinja") for one in json.loads((out / "manifest.json").read_text())["files"])
    question = ["--prompt", "Is it so?", "--max-new-tokens", 3]
    (answer,) = json_lines(succeed("generate", "--run", out, *question, "--json").stdout)
    (lines_of,) = json_lines(succeed("tokenize", "--model", model, "--chat", "--input", "-",
                                     input='{"messages": [{"role": "user", "content": "Is it so?"}], "add_generation_prompt": true}').stdout)
    assert answer["prompt_ids"] == lines_of["ids"]
    assert succeed("generate", "--run", out, *question).stdout == answer["text"] + "\n"
    refused("generate", "--run", out, *question, "--system", "no", says=["chat_template.jinja line 1", "no system, please"])


def test_sampled_tokens_depend_only_on_the_seed(tiny_model):
    def drawn(*flags, prompts=("Once", "The answer")):
        words = [word for prompt in prompts for word in ("--prompt", prompt)]
        return [one["ids"] for one in json_lines(succeed("generate", "--model", tiny_model, *words, "--max-new-tokens", 12, "--json",
                                                         *flags).stdout)]
    warm = ("--temperature", 2, "--top-p", 0.95)
    assert drawn(*warm) == drawn(*warm, "--seed", 42) != drawn(*warm, "--seed", 43)
    assert drawn(*warm, prompts=["Once"])[0] == drawn(*warm)[0] != drawn("--temperature", 2)[0]
    assert drawn("--top-k-tokens", 1) == drawn("--top-p", 1e-9) == drawn()


def test_lines_of_standard_input_are_answered_one_by_one(tiny_model):
    with subprocess.Popen([PROGRAM, "score", "--model", tiny_model, "--input", "-", "--json"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as score:
        for index, line in enumerate(({"ids": [7, 8, 9]}, {"prompt": "The correct", "completion": " answer"})):
            score.stdin.write(json.dumps(line) + "\n")
            score.stdin.flush()
            said = json.loads(score.stdout.readline())
            assert said["index"] == index and len(said["greedy"]) == len(said["token_logprobs"]) == said["tokens"] - 1
        first = said["completion"]["first"]
        assert said["completion"]["logprob"] == pytest.approx(math.fsum(said["token_logprobs"][first - 1:]))
        assert said["completion"]["greedy"] == all(said["greedy"][first - 1:])
        score.stdin.close()
        assert score.wait() == 0


# --- bad input ---

def test_invalid_input_of_score_and_generate_is_rejected(tiny_model, tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    refused("score", "--model", tiny_model, "--input", tmp_path / "empty.jsonl", says=["empty.jsonl"])
    refused("score", "--model", tiny_model, "--input", tmp_path / "none.jsonl", says=["none.jsonl"])
    refused("generate", "--model", tiny_model, "--prompt", "", says=["no tokens"])
    refused("generate", "--model", tiny_model, "--prompt", "a", "--max-new-tokens", "0", says=["--max-new-tokens"])
    refused("generate", "--model", tiny_model, "--prompt", "a", "--max-new-tokens", "2000", says=["2000", "1024"])
    refused("generate", "--model", tiny_model, "--prompt", "a", "--beams", "0", says=["--beams"])
    refused("generate", "--model", tiny_model, "--prompt", "a", "--adapter", tmp_path / "none", says=[tmp_path / "none"])


def test_the_error_for_values_that_are_not_finite_names_the_first_row(model, data, tmp_path):
    """The weights are finite, their products are not. The first token of a text is not predicted."""
    weights = load_file(model / "model.safetensors")
    weights["model.layers.0.self_attn.v_proj.weight"][:] = 3e38
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    scored = evenkeel("score", "--model", model, "--input", texts(tmp_path, {"ids": [1]}, {"ids": [1, 2]}), "--json")
    one_line(scored, "[numeric]", "text 1", "not finite")
    refused("evaluate", "--model", model, "--tasks", "boolq", "--data", data, "--json",
            says=["[numeric]", "task boolq: row 0", "not finite"])
    for flags in ([], ["--beams", 2]):
        refused("generate", "--model", model, "--prompt", "a", *flags, says=["[numeric]", "prompt 0", "not finite"])


def test_an_unusable_model_is_rejected(model, tmp_path):
    generate = ["generate", "--prompt", "a", "--model"]
    refused(*generate, tmp_path / "nowhere", says=[tmp_path / "nowhere"])
    (model / "tokenizer.json").unlink()
    refused(*generate, model, says=["tokenizer.json"])
    refused("evaluate", "--tasks", "builtin", "--model", model, says=["tokenizer.json"])
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}))
    refused(*generate, model, says=["gpt2", "olmoe"])

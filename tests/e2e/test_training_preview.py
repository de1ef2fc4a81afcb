"""Tests that `tokenize --config` shows what a run trains on: the loss of the run's first step is that of the ids and targets shown."""

import json
import re
import shutil

import pytest

from tiny import ROOT, evenkeel, lines, one_line, succeed

TURNS = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
         "{% if add_generation_prompt %}[assistant]{% endif %}")
QUESTIONS = [("What does the cat drink?", "milk"), ("Where do owls sleep in winter?", "in a hollow tree"), ("Is a fox blue?", "no")]
SINGLE = ("paper", "llm_adapters", "plain", "chat")


def turns(question, answer, more=False):
    before = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi, ask me."}] if more else []
    return [{"role": "system", "content": "Be brief."}, *before, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def shared(message):
    return {"from": {"user": "human", "assistant": "gpt"}.get(message["role"], message["role"]), "value": message["content"]}


# name -> (row of a question and its answer, templates that write it)
FORMATS = {
    "alpaca": (lambda q, a: {"instruction": q, "output": a}, SINGLE),
    "alpaca with a context": (lambda q, a: {"instruction": q, "input": f"About {a}.", "output": a}, SINGLE),
    "dolly": (lambda q, a: {"instruction": q, "context": "A zoo.", "response": a}, SINGLE),
    "prompt_completion": (lambda q, a: {"prompt": q, "completion": a}, SINGLE),
    "prompt_completion with a system": (lambda q, a: {"system": "Be brief.", "prompt": q, "completion": a}, SINGLE),
    "prompt_completion with a history": (lambda q, a: {"prompt": q, "completion": a, "history": [["Hello.", "Hi."]]}, ("chat",)),
    "prompt_completion of messages": (lambda q, a: {"prompt": turns(q, a, True)[:-1], "completion": turns(q, a)[-1:]}, ("chat",)),
    "messages": (lambda q, a: {"messages": turns(q, a)}, SINGLE),
    "messages of several turns": (lambda q, a: {"messages": turns(q, a, True)}, ("chat",)),
    "messages of which one is not learned": (lambda q, a: {"messages": [{**m, "weight": 0} if m["content"].startswith("Hi") else m for m in turns(q, a, True)]},
                                             ("chat",)),
    "sharegpt": (lambda q, a: {"conversations": [shared(m) for m in turns(q, a)]}, SINGLE),
    "sharegpt of several turns": (lambda q, a: {"conversations": [shared(m) for m in turns(q, a, True)]}, ("chat",)),
    "text": (lambda q, a: {"text": f"{q} {a}"}, ("plain",)),
}
CASES = [(name, template) for name, (_, templates) in FORMATS.items() for template in templates]


@pytest.fixture(scope="module")
def chatty(tmp_path_factory):
    """The built-in model with a chat template."""
    folder = tmp_path_factory.mktemp("chatty") / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        shutil.copy(ROOT / "assets/tiny-olmoe" / name, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>", "chat_template": TURNS}))
    return folder


def config_of(folder, model, rows, template, cutoff=256, mask_prompt="true", batch=3):
    """A run of one step over three rows by one client that can afford the whole model."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.toml").write_text(f"""
threads = 1
model = {{ path = "{model}", compute_dtype = "float32" }}
method = {{ name = "fedit" }}
clients = {{ count = 1, budgets = [1.0] }}
train = {{ rounds = 1, local_epochs = 1.0, batch_size = {batch}, accumulation = 1 }}
evaluate = {{ tasks = ["builtin"], limit = 1, budgets = [1.0], max_new_tokens = 1 }}
[data]
task = "files"
template = "{template}"
cutoff = {cutoff}
mask_prompt = {mask_prompt}
files = {{ train = ["{folder}/rows.jsonl"], held_out = 0 }}
""")
    return folder / "run.toml"


def shown(*arguments):
    return [json.loads(line) for line in succeed("tokenize", *arguments, "--rows", 0, "--json").stdout.splitlines()]


def likelihoods(model, examples, folder):
    """The log-probability of every target that is shown, one list per example."""
    (folder / "ids.jsonl").write_text("".join(json.dumps({"ids": one["ids"]}) + "\n" for one in examples))
    done = succeed("score", "--model", model, "--input", folder / "ids.jsonl", "--dtype", "float32", "--json")
    scored = [json.loads(line)["token_logprobs"] for line in done.stdout.splitlines()]
    return [[tokens[position - 1] for position in one["targets"]] for one, tokens in zip(examples, scored)]


def read_text(text):
    """The ids and targets of the text form: runs of tokens, each given or a target."""
    examples = []
    for block in text.strip().split("\n\n"):
        ids, targets = [], []
        for kind, written in re.findall(r"^  (given|target) +\".*\"\n +(\[.*\])$", block, re.M):
            run = json.loads(written)
            targets += range(len(ids), len(ids) + len(run)) if kind == "target" else []
            ids += run
        examples.append((ids, targets))
    return examples


@pytest.mark.parametrize("name, template", CASES, ids=[f"{name}-{template}" for name, template in CASES])
def test_the_first_loss_of_training_is_that_of_the_targets_shown(name, template, chatty, tmp_path):
    examples = check_first_loss(chatty, tmp_path, rows_of(name), template, "true")
    by_file = shown("--model", chatty, "--data", tmp_path / "rows.jsonl", "--template", template)
    assert sorted((one["ids"], one["targets"]) for one in by_file) == sorted((one["ids"], one["targets"]) for one in examples)


@pytest.mark.parametrize("template", SINGLE)
def test_the_first_loss_is_that_of_all_tokens_where_the_prompt_is_learned(template, chatty, tmp_path):
    examples = check_first_loss(chatty, tmp_path, rows_of("messages"), template, "false")
    assert all(one["targets"] == list(range(1, len(one["ids"]))) for one in examples)


def rows_of(name):
    return [FORMATS[name][0](question, answer) for question, answer in QUESTIONS]


def check_first_loss(chatty, tmp_path, rows, template, mask_prompt):
    """Trains one step and compares it with what is shown, which is returned."""
    config = config_of(tmp_path, chatty, rows, template, mask_prompt=mask_prompt)
    examples = shown("--config", config)
    assert len(examples) == 3 and not any(one["left_out"] or one["cut"] for one in examples)
    succeed("train", config, "--out", tmp_path / "run")
    (record,) = lines(tmp_path / "run/rounds.jsonl")
    targets = [value for values in likelihoods(chatty, examples, tmp_path) for value in values]
    assert record["targets"] == len(targets) and record["clients"][0]["examples"] == 3
    assert record["tokens"] == sum(len(one["ids"]) for one in examples)
    assert record["first_loss"] == pytest.approx(-sum(targets) / len(targets), rel=2e-6)
    assert read_text(succeed("tokenize", "--config", config, "--rows", 0).stdout) == [(one["ids"], one["targets"]) for one in examples]
    return examples


@pytest.mark.parametrize("name, template", CASES, ids=[f"{name}-{template}" for name, template in CASES])
def test_the_targets_shown_are_the_answers_with_their_end(name, template, chatty, tmp_path):
    config_of(tmp_path, chatty, rows_of(name), template)
    for (question, answer), one in zip(QUESTIONS, shown("--model", chatty, "--data", tmp_path / "rows.jsonl", "--template", template)):
        learned = "".join(one["tokens"][position] for position in one["targets"]).replace("Ġ", " ").replace("Ċ", "\n")
        before = "Hi, ask me.<|endoftext|>" if "several turns" in name else "Hi.<|endoftext|>" if "history" in name else ""
        whole = f"{question} {answer}<|endoftext|>"
        assert learned.strip() == (whole[len(whole) - len(learned.strip()):] if name == "text" else f"{before}{answer}<|endoftext|>"), learned
        assert name != "text" or len(learned) > len(answer) + len("<|endoftext|>")


def test_a_row_that_is_cut_or_left_out_is_shown_as_it_is_trained(chatty, tmp_path):
    rows = [{"instruction": "What is it?", "input": "It is old. " * 60, "output": "a clock"}, {"instruction": "Which one?", "output": "this " * 90},
            {"instruction": "word " * 300, "output": "lost"}, {"instruction": "Short?", "output": "yes"}]
    config = config_of(tmp_path, chatty, rows, "paper", cutoff=100)
    done = succeed("train", config, "--out", tmp_path / "run")
    assert "3 of 4 rows are longer than data.cutoff = 100 tokens; 1 of them keep a window of their context" in done.stderr
    assert "1 of 4 rows have no token of an answer within data.cutoff = 100 tokens and are left out" in done.stderr
    by_line = {int(one["row"].rsplit(":", 1)[1]): one for one in shown("--config", config)}
    assert {line for line, one in by_line.items() if one["left_out"]} == {3} and {line for line, one in by_line.items() if one["cut"]} == {1, 2, 3}
    assert by_line[1]["context_cut"] and not by_line[2]["context_cut"]
    kept = [one for one in by_line.values() if not one["left_out"]]
    assert all(len(one["ids"]) <= 100 for one in kept)
    (record,) = lines(tmp_path / "run/rounds.jsonl")
    targets = [value for values in likelihoods(chatty, kept, tmp_path) for value in values]
    assert (record["targets"], record["clients"][0]["examples"]) == (len(targets), 3)
    assert record["first_loss"] == pytest.approx(-sum(targets) / len(targets), rel=2e-6)


def test_a_row_that_its_template_refuses_is_shown_with_the_reason(chatty, tmp_path):
    (tmp_path / "own.jinja").write_text("{% if 'owls' in messages[0].content %}{{ raise_exception('no owls') }}{% endif %}" + TURNS)
    config = config_of(tmp_path, chatty, [{"prompt": question, "completion": answer} for question, answer in QUESTIONS], "chat")
    done = succeed("tokenize", "--config", config, "--set", "data.files.strict=false", "--set", f"data.chat_template={tmp_path}/own.jinja")
    (row,) = re.findall(r"^.*left out.*$", done.stdout, re.M)
    assert re.search(r"rows\.jsonl:2, .*: left out, .*rows\.jsonl:2: .*no owls$", row) and "data.cutoff" not in row, row
    assert len(re.findall("1 of 3 rows cannot be tokenised", done.stderr)) == 1 and "1 of 1 rows" not in done.stderr, done.stderr


@pytest.mark.parametrize("template", ["paper", "llm_adapters", "plain"])
def test_several_turns_without_a_chat_template_are_refused_by_both(template, chatty, tmp_path):
    config = config_of(tmp_path, chatty, [FORMATS["messages of several turns"][0](*QUESTIONS[0])] * 2, template)
    for words in (["tokenize", "--config", config], ["train", config, "--out", tmp_path / "run"]):
        one_line(evenkeel(*words), "rows.jsonl:1", 'data.template = "chat"')
    assert not (tmp_path / "run").exists()

"""Tests that files of others are read as their makers mean them: contexts of rows, named chat templates, begin tokens, an
adapter in a model's folder, and files in other forms than JSON lines. `tokenize` shows what training sees.
"""
import gzip
import io
import json
import pickle
import shutil
import sqlite3
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

from tiny import ROOT, evenkeel, lines, one_line, settings, succeed

TINY = ROOT / "assets/tiny-olmoe"
MODEL = "builtin:tiny-olmoe"
TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
WITH_TOOLS = "TOOLS {{ tools | length }} " + TURNS
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
ASKED = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}


def write_rows(file, *rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def model_folder(folder, config=None, weights=True):
    """Copies the built-in model, with a tokenizer_config.json of its own."""
    folder.mkdir()
    for name in ["config.json", "tokenizer.json"] + ["model.safetensors"] * weights:
        shutil.copy(TINY / name, folder)
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def shown(*arguments):
    """Returns the lines of `tokenize --json`."""
    return [json.loads(line) for line in succeed("tokenize", *arguments, "--json").stdout.splitlines()]


# --- rows ---

@pytest.mark.parametrize("context, answer", [("input", "output"), ("context", "response"), ("input", "response"), ("context", "output")])
def test_a_context_counts_under_each_of_its_names(context, answer, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", {"instruction": "Which colour is it?", context: "The sky is blue.", answer: "blue"})
    done = succeed("evaluate", "--model", MODEL, "--tasks", "files", "--data", rows, "--score", "nll", "--json")
    assert json.loads(done.stdout)["nll"] == pytest.approx(18.271, abs=1e-3)


def test_a_row_that_loses_a_key_is_refused_before_training(tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", {"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": "b", "question": "c"})
    config = tmp_path / "run.toml"
    config.write_text(f'[data]\ntask = "files"\n[data.files]\ntrain = ["{rows}"]\nheld_out = 0\n[clients]\ncount = 2\n[evaluate]\ntasks = ["builtin"]\n')
    one_line(evenkeel("train", config, "--out", tmp_path / "run"), "rows.jsonl:2: question would be lost", "data.files.ignore")
    one_line(evenkeel("evaluate", "--model", MODEL, "--tasks", "files", "--data", rows, "--strict"), "rows.jsonl:2: question")
    seen = shown("--config", config, "--set", 'data.files.ignore=["question"]')
    assert len(seen) == 2


# --- chat templates ---

NAMED = [{"name": "default", "template": TURNS}, {"name": "tool_use", "template": WITH_TOOLS}, {"name": "rag", "template": "never"}]
FORMS = {"list": NAMED, "object": {one["name"]: one["template"] for one in NAMED}}


@pytest.mark.parametrize("form", [*FORMS, "files"])
def test_rows_with_tools_use_the_template_for_tools(form, tmp_path):
    folder = model_folder(tmp_path / "m", {"eos_token": "<|endoftext|>"} | ({"chat_template": FORMS[form]} if form in FORMS else {"chat_template": "unused"}))
    if form == "files":
        (folder / "chat_template.jinja").write_text(TURNS)
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates/tool_use.jinja").write_text(WITH_TOOLS)
    rows = write_rows(tmp_path / "rows.jsonl", ASKED | {"tools": [ADD]}, ASKED | {"tools": []}, ASKED, ASKED | {"tools": None})
    texts = ["TOOLS 1 [user]2+2?[assistant]4<|endoftext|>", "TOOLS 0 [user]2+2?[assistant]4<|endoftext|>"] + ["[user]2+2?[assistant]4<|endoftext|>"] * 2
    chat = [json.loads(line) for line in succeed("tokenize", "--model", folder, "--chat", "--input", rows).stdout.splitlines()]
    assert [one["text"] for one in chat] == texts
    seen = shown("--model", folder, "--data", rows, "--template", "chat")
    assert [one["text"] for one in seen] == texts
    assert [(one["ids"], one["targets"]) for one in seen] == [(one["ids"], one["targets"]) for one in chat]


def test_a_folder_without_a_default_template_has_one_for_tools_only(tmp_path):
    folder = model_folder(tmp_path / "m", {"eos_token": "<|endoftext|>", "chat_template": NAMED[1:]})
    write_rows(tmp_path / "tools.jsonl", ASKED | {"tools": [ADD]})
    write_rows(tmp_path / "plain.jsonl", ASKED)
    assert shown("--model", folder, "--data", tmp_path / "tools.jsonl", "--template", "chat")[0]["text"].startswith("TOOLS 1")
    one_line(evenkeel("tokenize", "--model", folder, "--data", tmp_path / "plain.jsonl", "--template", "chat"), "none is named default", "tool_use, rag")


def test_a_run_with_named_templates_is_begun_and_exported_with_all_of_them(tmp_path):
    folder = model_folder(tmp_path / "m", {"eos_token": "<|endoftext|>"})
    (folder / "chat_template.jinja").write_text(TURNS)
    (folder / "additional_chat_templates").mkdir()
    extra = folder / "additional_chat_templates/tool_use.jinja"
    extra.write_text(WITH_TOOLS)
    rows = write_rows(tmp_path / "rows.jsonl", *[ASKED | {"tools": [ADD]}] * 2, *[ASKED] * 2)
    config = tmp_path / "run.toml"
    config.write_text(f'threads = 1\n[model]\npath = "{folder}"\ncompute_dtype = "float32"\n[data]\ntask = "files"\ntemplate = "chat"\n[data.files]\ntrain = ["{rows}"]\n'
                      'held_out = 0\n[clients]\ncount = 2\n[train]\nrounds = 1\nlocal_epochs = 1.0\nbatch_size = 2\naccumulation = 1\n'
                      '[evaluate]\ntasks = ["builtin"]\nlimit = 1\nbudgets = [1.0]\nmax_new_tokens = 2\n')
    succeed("train", config, "--out", tmp_path / "run")
    assert str(extra) in (tmp_path / "run/manifest.json").read_text()
    succeed("export", "--run", tmp_path / "run", "--format", "merged", "--out", tmp_path / "merged")
    assert (tmp_path / "merged/additional_chat_templates/tool_use.jinja").read_text() == WITH_TOOLS


# --- the begin token ---

@pytest.fixture(scope="module")
def with_begin(tmp_path_factory):
    """Returns the built-in model with a tokenizer that puts token 1 in front of every text, as Mixtral's does."""
    bos = "<|padding|>"
    folder = model_folder(tmp_path_factory.mktemp("begin") / "m", {"bos_token": bos, "eos_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"})
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
        "special_tokens": {bos: {"id": bos, "ids": [1], "tokens": [bos]}}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.mark.parametrize("template", ["plain", "paper", "llm_adapters"])
def test_a_begin_token_is_in_training_evaluation_and_generation(template, with_begin, tmp_path):
    asked = json.loads(succeed("generate", "--model", with_begin, "--template", template, "--prompt", "The cat", "--max-new-tokens", 2, "--json").stdout)
    without = json.loads(succeed("generate", "--model", TINY, "--template", template, "--prompt", "The cat", "--max-new-tokens", 2, "--json").stdout)
    assert asked["prompt_ids"] == [1] + without["prompt_ids"]
    rows = write_rows(tmp_path / "rows.jsonl", {"prompt": "The cat", "completion": " sits."})
    (seen,), (plain,) = (shown("--model", model, "--data", rows, "--template", template) for model in (with_begin, TINY))
    assert seen["ids"] == [1] + plain["ids"]
    assert seen["targets"] == [position + 1 for position in plain["targets"]]
    assert seen["text"] == "<|padding|>" + plain["text"]
    scored = [json.loads(succeed("evaluate", "--model", model, "--tasks", "files", "--data", rows, "--score", "nll", "--template", template,
                                 "--json").stdout) for model in (with_begin, TINY)]
    assert scored[0]["answer_tokens"] == scored[1]["answer_tokens"] and scored[0]["nll"] != scored[1]["nll"]


# --- an adapter in a model's folder ---

def add_adapter(folder):
    draws = np.random.default_rng(1)
    save_file({f"base_model.model.model.layers.{i}.self_attn.{p}.lora_{x}.weight": draws.normal(0, 0.3, (2, 128) if x == "A" else (128, 2)).astype("float32")
               for i in range(4) for p in ("q_proj", "v_proj") for x in "AB"}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "m", "r": 2, "lora_alpha": 2,
                                                            "target_modules": ["q_proj", "v_proj"]}))
    return folder


def test_an_adapter_beside_the_weights_is_applied_or_refused(tmp_path):
    folder, text = add_adapter(model_folder(tmp_path / "m")), write_rows(tmp_path / "t.jsonl", {"text": "The cat sits."})
    def score(*flags):
        done = succeed("score", "--input", text, "--json", "--dtype", "float32", *flags)
        return json.loads(done.stdout)["logprob"], done.stderr
    logprob, said = score("--model", folder)
    assert logprob == pytest.approx(-75.397, abs=2e-3)
    assert "adapter_config.json beside the weights is applied" in said
    assert score("--model", folder, "--adapter", folder)[0] == logprob
    assert score("--model", MODEL, "--adapter", folder)[0] == logprob
    assert score("--model", MODEL)[0] == pytest.approx(-65.342, abs=2e-3)
    rows = write_rows(tmp_path / "rows.jsonl", {"prompt": "The cat", "completion": " sits."})
    evaluated = [succeed("evaluate", "--model", model, *more, "--tasks", "files", "--data", rows, "--score", "nll", "--json").stdout
                 for model, *more in [(folder,), (MODEL, "--adapter", folder)]]
    assert json.loads(evaluated[0])["nll"] == json.loads(evaluated[1])["nll"]
    other = add_adapter(model_folder(tmp_path / "other"))
    one_line(evenkeel("score", "--model", folder, "--adapter", other, "--input", text), "adapter_config.json", "move one of the two away")
    one_line(evenkeel("train", "configs/tiny/train.toml", "--out", tmp_path / "run", *settings(model__path=folder)), "adapter_config.json", "lora.init")
    assert not (tmp_path / "run").exists()
    (folder / "config.json").unlink()
    one_line(evenkeel("score", "--model", folder, "--input", text), "holds an adapter and no model", "--adapter")


def test_keys_of_the_folder_that_are_not_applied_are_named(tmp_path):
    folder = model_folder(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, "temperature": 0.6, "top_p": 0.9, "do_sample": True, "repetition_penalty": 1.05, "min_length": 0}))
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModelForCausalLM": "code.Model"}}))
    said = succeed("generate", "--model", folder, "--prompt", "The cat", "--max-new-tokens", 1).stderr
    assert "generation_config.json: repetition_penalty = 1.05: transformers applies it" in said and "temperature" not in said
    assert "config.json: auto_map names code" in said
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq", "bits": 4}}))
    one_line(evenkeel("generate", "--model", folder, "--prompt", "a"), "config.json: quantization_config")


# --- what training sees ---

def test_tokenize_shows_the_examples_of_a_run(tmp_path):
    """The targets that are shown are the tokens whose likelihood `evaluate` scores, and the partition is the run's."""
    rows = [{"instruction": f"Which colour is {i}?", "input": "It is blue. " * (1 + 40 * (i % 3)), "output": "blue" * (1 + i)} for i in range(9)]
    write_rows(tmp_path / "rows.jsonl", *rows, {"instruction": "x " * 200, "output": "y"})
    config = tmp_path / "run.toml"
    config.write_text(f'threads = 1\n[model]\ncompute_dtype = "float32"\n[data]\ntask = "files"\ncutoff = 150\n[data.files]\ntrain = ["{tmp_path}/rows.jsonl"]\nheld_out = 0\n'
                      '[clients]\ncount = 3\n[train]\nrounds = 1\nlocal_epochs = 1.0\nbatch_size = 2\naccumulation = 1\n'
                      '[evaluate]\ntasks = ["builtin"]\nlimit = 1\nbudgets = [1.0]\nmax_new_tokens = 2\n')
    seen = shown("--config", config, "--rows", 0)
    kept = [row for row in seen if not row["left_out"]]
    assert sorted(int(row["row"].rsplit(":", 1)[1]) for row in kept) == list(range(1, 10))
    assert [row["row"] for row in seen if row["left_out"]] == [f"{tmp_path}/rows.jsonl:10"]
    assert {row["row"].rsplit(":", 1)[1]: row["context_cut"] for row in kept} == {str(i + 1): i % 3 > 0 for i in range(9)}
    for row in kept:
        answer = "".join(row["tokens"][i] for i in row["targets"])
        assert answer.endswith("<|endoftext|>") and answer.startswith("blue") and len(row["ids"]) <= 150
        assert row["text"].count("### Context:") == 1
    succeed("train", config, "--out", tmp_path / "run")
    partition = json.loads((tmp_path / "run/partition.json").read_text())
    by_client = [sorted(int(row["row"].rsplit(":", 1)[1]) - 1 for row in kept if row["client"] == client) for client in range(3)]
    assert by_client == [sorted(own) for own in partition["clients"]]
    text = succeed("tokenize", "--config", config, "--rows", 1, "--client", 2).stdout
    assert "client 2: " in text and "  target  \"blue" in text and "  given   \"Below is" in text
    assert text.count(" of them targets") == 1
    one_line(evenkeel("tokenize", "--config", config, "--client", "nobody"), "--client is nobody")


FORMATS = {
    "paper": [{"instruction": "q?", "input": "c", "output": "a"}, {"instruction": "q?", "context": "c", "response": "a"}, {"prompt": "q?", "context": "c", "completion": "a"}],
    "plain": [{"text": "q? a"}],
    "chat": [ASKED, {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]}, {"prompt": "2+2?", "completion": "4"},
             {"prompt": ASKED["messages"][:1], "completion": ASKED["messages"][1:]}, {"instruction": "2+2?", "output": "4"}],
}


@pytest.mark.parametrize("template", FORMATS)
def test_every_format_is_shown_alike(template, tmp_path):
    folder = model_folder(tmp_path / "m", {"eos_token": "<|endoftext|>", "chat_template": TURNS})
    ids = set()
    for i, row in enumerate(FORMATS[template]):
        (seen,) = shown("--model", folder, "--data", write_rows(tmp_path / f"{i}.jsonl", row), "--template", template)
        ids.add((tuple(seen["ids"]), tuple(seen["targets"])))
        assert seen["text"].endswith(("a<|endoftext|>", "4<|endoftext|>")) and seen["row"].endswith(f"{i}.jsonl:1")
    assert len(ids) == 1


def test_flags_of_tokenize_that_do_not_fit_together_are_refused(tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", {"prompt": "a", "completion": "b"})
    one_line(evenkeel("tokenize", "--model", MODEL), "--input")
    one_line(evenkeel("tokenize", "--data", rows), "--model and --data")
    one_line(evenkeel("tokenize", "--model", MODEL, "--data", rows, "--chat"), "exclude --input, --chat")
    one_line(evenkeel("tokenize", "--config", "configs/demo.toml", "--template", "plain"), "--template", "--set")
    one_line(evenkeel("tokenize", "--model", MODEL, "--input", rows, "--template", "plain"), "go with --config or --data")
    one_line(evenkeel("tokenize", "--model", MODEL, "--data", rows, "--rows", "-1"), "--rows is -1")


# --- files in other forms ---

ROW = {"prompt": "a \"b\", c", "completion": "007"}


def sheet():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return buffer.getvalue()


def database(folder):
    file = folder / "made.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE talks (prompt TEXT, completion TEXT)")
        connection.execute("INSERT INTO talks VALUES (?, ?)", list(ROW.values()))
    return file.read_bytes()


def array():
    buffer = io.BytesIO()
    np.save(buffer, np.array([ROW], dtype=object), allow_pickle=True)
    return buffer.getvalue()


LINE = json.dumps(ROW) + "\n"
# name -> (content, words of the refusal, True: the line of Python needs the standard library alone)
FILES = {
    "rows.xlsx": (lambda _: sheet(), ["is an Excel sheet", "read_excel("], False),
    "rows.npy": (lambda _: array(), ["is an array of NumPy", "numpy.load("], False),
    "rows.jsonl.gz": (lambda _: gzip.compress(LINE.encode()), ["(gzip)", "gzip.open("], True),
    "rows.jsonl.zst": (lambda _: b"\x28\xb5\x2f\xfd\x00", ["(zstd)", "zstandard"], False),
    "rows.db": (database, ["is an SQLite database", "SELECT * FROM talks"], False),
    "rows.pkl": (lambda _: pickle.dumps([ROW]), ["is a pickle", "read_pickle("], False),
    "rows16.json": (lambda _: LINE.encode("utf-16"), ["is UTF-16 text", "utf-16"], True),
    "rows16le.json": (lambda _: LINE.encode("utf-16-le"), ["is UTF-16 text", "utf-16-le"], True),
    "columns.json": (lambda _: json.dumps({key: {"0": value} for key, value in ROW.items()}).encode(), ["is a table by columns", "read_json("], False),
    "repr.jsonl": (lambda _: f"{ROW}\n".encode(), ["Python's text of dicts", "ast.literal_eval"], True),
}


# name -> (content, what the refusal calls it); tests/python/test_rows.py and test_rows_lm_eval.py run the command
TABLES = {
    "rows.csv": (b'prompt,completion\n"a ""b"", c",007\n', "is CSV"),
    "rows.tsv": (b"prompt\tcompletion\na\t007\n", "is TSV"),
    "rows.parquet": (b"PAR1....PAR1", "is a Parquet table"),
    "data-00000.arrow": (b"\xff\xff\xff\xff\x10\x00\x00\x00", "is an Arrow stream"),
    "rows.arrow": (b"ARROW1\x00\x00", "is an Arrow table"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_named_with_the_command_that_converts_it(name, tmp_path):
    content, says = TABLES[name]
    (tmp_path / name).write_bytes(content)
    one_line(evenkeel("evaluate", "--model", MODEL, "--tasks", "files", "--data", tmp_path / name, "--score", "nll"), f"{name}: {says}",
             "convert it: python3 -m evenkeel_moe rows ", f"{name} {name.split('.')[0]}.jsonl; to rename columns add --columns ")


@pytest.mark.parametrize("name", FILES)
def test_a_file_in_another_form_is_named_with_the_line_that_converts_it(name, tmp_path):
    content, says, runs_here = FILES[name]
    (tmp_path / name).write_bytes(content(tmp_path))
    said = one_line(evenkeel("evaluate", "--model", MODEL, "--tasks", "files", "--data", tmp_path / name, "--score", "nll"), name, *says)
    code = said.split("convert it: ")[1]
    compile(code, "the line", "exec")
    if runs_here:
        subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
        made = json.loads(code.split("open(")[-1].split(",")[0]) if "rows.jsonl.gz" in name else None
        written = [file for file in tmp_path.glob("*.jsonl") if file.name != name]
        assert [lines(file) for file in written] == [[ROW]], made
        assert written[0].name in code


def test_folders_of_tables_are_named_with_the_line_that_converts_them(tmp_path):
    saved = tmp_path / "saved"
    saved.mkdir()
    for name in ("dataset_info.json", "state.json"):
        (saved / name).write_text("{}")
    one_line(evenkeel("evaluate", "--model", MODEL, "--tasks", "files", "--data", saved), "save_to_disk()", "evenkeel_moe rows ", "saved saved.jsonl; ")

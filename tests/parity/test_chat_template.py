"""Compares chat templates with transformers' apply_chat_template: texts, token ids, and which ids are answers."""
import json

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

import chat_templates as own
from forked import forked
from peer import ROOT

SPECIAL = ["<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
           "<|begin_of_text|>"]
SYSTEM, QUESTION = {"role": "system", "content": "You are – kind. "}, {"role": "user", "content": " Hi ünï 你好\n"}
THOUGHT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello\n"}
# At the end of an answer, transformers marks only the first of several tokens of a character. These texts have none.
EMPTY, ANSWER = {"role": "user", "content": ""}, {"role": "assistant", "content": "it's 🙂 12 o'clock"}
CONVERSATIONS = [[SYSTEM, QUESTION, THOUGHT, EMPTY, ANSWER], [QUESTION, ANSWER], [SYSTEM, QUESTION], [QUESTION],
                 [QUESTION, ANSWER, QUESTION, THOUGHT], [SYSTEM, EMPTY, ANSWER], [EMPTY, EMPTY],
                 [QUESTION, {"role": "assistant", "content": ""}, QUESTION, ANSWER, EMPTY, {"role": "assistant", "content": "\nx"}]]


def published():
    """Returns the templates that trl ships, or none without trl, which a test reports. Templates that depend on the
    date are excluded.
    """
    files = sorted(ROOT.glob(".venv-templates/lib/python3*/site-packages/trl/chat_templates/*.jinja"))
    return {file.stem: file.read_text() for file in files}


PUBLISHED = published()
FIXED_DAY = {"date_string": "26 Jul 2024"}  # the date that Llama 3.2 uses without a clock
BY_THE_CLOCK = {"gptoss", "gptoss_training", "muse_glimmer", "muse_glimmer_training"}
FAMILIES = [name for name in PUBLISHED if name not in BY_THE_CLOCK]


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["<|assistant|>\nyou are kind\n\n\nit's the clock <think>\nhello\n</think>\n\n" * 3], trainer)
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(file))
    return file.read_text()


def model_folder(folder, tokenizer_json, template, beside=True, **config):
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer_json)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"} | config
    if beside:
        (folder / "chat_template.jinja").write_text(template)
    else:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def ours(folder, lines):
    """Returns the program's output per line, or its error for the first line that it rejects."""
    file = folder / "lines.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = forked("tokenize", "--model", folder, "--chat", "--input", file)
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]], None if done.returncode == 0 else done.stderr


def as_transformers_5_reads(message):
    """Leaves out keys that are null, and gives reasoning both of its names, which transformers 4 does not."""
    message = {key: value for key, value in message.items() if value is not None}
    found = [message[name] for name in ("reasoning_content", "thinking", "reasoning") if name in message]
    if not found or int(transformers.__version__.split(".")[0]) >= 5:
        return message
    return {"thinking": found[0], **message, "reasoning_content": found[0]}


def theirs(tokenizer, line):
    messages = [as_transformers_5_reads(message) for message in line["messages"]]
    prompt = line.get("add_generation_prompt", False)
    given = {name: line.get(name) for name in ("tools", "documents")} | line.get("chat_template_kwargs", {})
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, **FIXED_DAY, **given)
    return text, tokenizer(text, add_special_tokens=False)["input_ids"]


def compare(folder, lines):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    accepted = []
    for line in lines:
        try:
            accepted.append((line, *theirs(tokenizer, line)))
        except Exception as refusal:  # jinja2 raises many kinds
            out, said = ours(folder, [line])
            assert said, (line, out, refusal)
    out, said = ours(folder, [line for line, *_ in accepted])
    assert said is None, said
    for got, (line, text, ids) in zip(out, accepted, strict=True):
        assert got["text"] == text, line
        assert got["ids"] == ids, line
    return tokenizer, accepted, out


LINES = [{"messages": messages, "add_generation_prompt": prompt} for messages in CONVERSATIONS for prompt in (False, True)
         if not prompt or messages[-1]["role"] == "user"]
ANSWERED = [{"messages": messages} for messages in CONVERSATIONS if messages[-1]["role"] == "assistant"]


@pytest.mark.parametrize("name", [*FAMILIES, *own.SHAPES, "everything"])
def test_texts_and_ids_equal_those_of_transformers(name, tokenizer_json, tmp_path):
    template = {**PUBLISHED, **own.SHAPES, "everything": own.EVERYTHING}[name]
    compare(model_folder(tmp_path / name, tokenizer_json, template), LINES)


CALL = {"type": "function", "id": "c1", "function": {"name": "size_of", "arguments": {"what": "fox", "in": ["cm", 2.5], "exact": True}}}
TOOLS = [{"type": "function", "function": {"name": "size_of", "description": "How large?", "parameters": {
    "type": "object", "properties": {"what": {"type": "string"}, "in": {"type": "array"}}, "required": ["what"]}}}]
WITH_KEYS = [
    {"messages": [{"content": "2+2?", "role": "user", "name": "Bob"}, {"role": "assistant", "reasoning_content": "two and two", "content": "4"}]},
    {"messages": [QUESTION, {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "name": "size_of", "content": "70", "tool_call_id": "c1"},
                  ANSWER], "tools": TOOLS},
    {"messages": [QUESTION, {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}], "tools": TOOLS},
    {"messages": [QUESTION | {"name": None, "tool_calls": None}, ANSWER | {"reasoning_content": None}]},
    {"messages": [QUESTION, ANSWER], "documents": [{"title": "T", "text": "z", "a": 1}], "chat_template_kwargs": {"enable_thinking": False, "mark": "!"}},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]}, ANSWER]}]
REASONING = [{"messages": [QUESTION, {"role": "assistant", "content": "a", **keys}, QUESTION | keys, ANSWER | keys]} for keys in (
    {"reasoning": "R1"}, {"thinking": "T1"}, {"reasoning_content": "C1"}, {"reasoning": "", "thinking": None}, {"thinking": "T1", "reasoning": "R1"},
    {"reasoning": "R1", "reasoning_content": "C1"}, {"reasoning_content": None, "thinking": ["T1"], "reasoning": "R1"}, {"reasoning_content": "C1", "thinking": "T1"})]
ALL_KEYS = """{% if tools %}{{ tools | tojson }}
{% endif %}{% if documents %}{{ documents | tojson(indent=1) }}{% endif %}{{ mark }}{{ enable_thinking is defined }}
{% for m in messages %}{{ m.keys() | list | tojson }} {{ m.name or m.role }}:{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{% if m.content is string %}{{ m.content }}{% elif m.content %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}
{% for call in m.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}
{% endfor %}"""


@pytest.mark.parametrize("name", ["all keys", "qwen2_5", "qwen3", "llama3_1"])
def test_every_key_of_rows_and_messages_reaches_the_template(name, tokenizer_json, tmp_path):
    """Published templates that print parts as a list are rejected here, so that row is omitted for them."""
    template = {**PUBLISHED, "all keys": ALL_KEYS}.get(name)
    if template is None:
        pytest.skip("trl, which ships published templates, is not installed")
    compare(model_folder(tmp_path / name, tokenizer_json, template), WITH_KEYS if name == "all keys" else WITH_KEYS[:5])


def test_reasoning_under_any_of_its_names_reaches_the_template(tokenizer_json, tmp_path):
    template = ALL_KEYS + "{% for m in messages %}{{ m.thinking }}|{{ m.reasoning_content }}|{{ m.reasoning }};{% endfor %}"
    _, accepted, _ = compare(model_folder(tmp_path / "m", tokenizer_json, template), REASONING)
    assert len(accepted) == len(REASONING)


@pytest.mark.skipif(not PUBLISHED, reason="trl, which ships published templates, is not installed")
def test_published_templates_of_the_families_are_among_them():
    assert {"qwen2_5", "qwen3", "qwen3_instruct_2507", "llama3", "llama3_1", "llama3_2"} <= set(FAMILIES)
    assert len(FAMILIES) > 40


@pytest.mark.parametrize("name", [*(name for name in FAMILIES if "generation %}" in PUBLISHED[name]), "marked"])
def test_answers_are_where_the_template_marks_them(name, tokenizer_json, tmp_path):
    folder = model_folder(tmp_path / name, tokenizer_json, {**PUBLISHED, **own.SHAPES}[name])
    tokenizer, accepted, out = compare(folder, ANSWERED)
    for (line, _, ids), got in zip(accepted, out, strict=True):
        mask = tokenizer.apply_chat_template(line["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        assert got["targets"] == [i for i, one in enumerate(mask["assistant_masks"]) if one], line


@pytest.mark.parametrize("name", ["lines", "brackets"])
def test_without_marks_every_answer_and_its_end_is_found(name, tokenizer_json, tmp_path):
    _, accepted, out = compare(model_folder(tmp_path / name, tokenizer_json, own.SHAPES[name]), ANSWERED)
    for (line, *_), got in zip(accepted, out, strict=True):
        tokenizer = Tokenizer.from_str(tokenizer_json)
        said = tokenizer.decode([got["ids"][i] for i in got["targets"]], skip_special_tokens=False)
        assert said.replace(" ", "") == "".join(turn["content"] + "</s>" for turn in line["messages"]
                                                if turn["role"] == "assistant").replace(" ", "")


def test_only_the_last_answer_is_a_target_if_earlier_ones_are_rewritten(tokenizer_json, tmp_path):
    folder = model_folder(tmp_path / "m", tokenizer_json, own.FORGETFUL)
    (got,), _ = ours(folder, [{"messages": CONVERSATIONS[0]}])
    tokenizer = Tokenizer.from_str(tokenizer_json)
    assert tokenizer.decode([got["ids"][i] for i in got["targets"]], skip_special_tokens=False) == ANSWER["content"] + "<|im_end|>"


def test_an_answer_that_cannot_be_separated_from_its_prompt_is_rejected(tokenizer_json, tmp_path):
    folder = model_folder(tmp_path / "m", tokenizer_json, own.CROOKED)
    (got,), _ = ours(folder, [{"messages": [QUESTION, ANSWER]}])
    assert "{% generation %}" in got["refused"] and "targets" not in got


@pytest.mark.parametrize("template, says", own.REFUSED, ids=[template[:40].strip() for template, _ in own.REFUSED])
def test_unsupported_constructs_are_rejected_by_name(template, says, tokenizer_json, tmp_path):
    said = ours(model_folder(tmp_path / "m", tokenizer_json, template), [{"messages": [QUESTION]}])[1]
    assert said.count("\n") == 1 and all(word in said for word in ["chat_template.jinja", *says]), said


def test_a_template_file_has_precedence_over_the_config(tokenizer_json, tmp_path):
    line = {"messages": [QUESTION]}
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ bos_token }}named"}]
    for template, beside in (("text{{ eos_token }}", False), (named, False), ("file", True)):
        compare(model_folder(tmp_path / "m", tokenizer_json, template, beside), [line])
    compare(model_folder(tmp_path / "m", tokenizer_json, "file", True, chat_template="config"), [line])
    (tmp_path / "m/chat_template.jinja").unlink()
    (tmp_path / "m/tokenizer_config.json").write_text("{}")
    assert "has no chat template" in ours(tmp_path / "m", [line])[1]


@pytest.mark.parametrize("config", [{"bos_token": None}, {"eos_token": {"content": "<|im_end|>", "__type": "AddedToken"}},
                                    {"tokenizer_class": "GPTNeoXTokenizerFast", "bos_token": None}], ids=str)
def test_template_special_tokens_are_those_of_the_tokenizer(config, tokenizer_json, tmp_path):
    template = "{{ bos_token is defined }}{{ bos_token }}|{{ eos_token }}|{{ messages[0].content }}{{ eos_token }}"
    compare(model_folder(tmp_path / "m", tokenizer_json, template, **config), [{"messages": [QUESTION]}])


NAMED = {"default": own.SHAPES["lines"], "tool_use": "TOOLS {{ tools | length }} {{ tools | tojson }}\n" + own.SHAPES["lines"], "rag": "{{ unused }}"}
WITH_TOOLS = [{"messages": messages, **tools} for messages in CONVERSATIONS[:3] for tools in ({}, {"tools": None}, {"tools": []}, {"tools": TOOLS})]


@pytest.mark.parametrize("form", ["list", "object", "files", "tool_use alone", "file over list"])
def test_named_templates_are_chosen_as_by_transformers(form, tokenizer_json, tmp_path):
    names = {name: NAMED[name] for name in (["tool_use"] if form == "tool_use alone" else NAMED)}
    listed = [{"name": name, "template": template} for name, template in names.items()]
    config = {"object": names, "files": "unused"}.get(form, listed)
    folder = model_folder(tmp_path / "m", tokenizer_json, config, beside=False)
    if form in ("files", "file over list"):
        (folder / "chat_template.jinja").write_text(NAMED["default"])
    if form == "files":
        (folder / "additional_chat_templates").mkdir()
        for name in ("tool_use", "rag"):
            (folder / f"additional_chat_templates/{name}.jinja").write_text(NAMED[name])
    _, accepted, _ = compare(folder, WITH_TOOLS)
    assert len(accepted) == (6 if form == "tool_use alone" else 12)

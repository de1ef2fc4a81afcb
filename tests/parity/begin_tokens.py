"""Folders of every model family with tokenizers that put special tokens around a text, and what transformers'
tokenizer makes of the text of every prompt template.
"""
import json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

from peer import random_model, run

END, BEGIN = "</s>", "<s>"
SMALL = dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=20, vocab_size=420, num_hidden_layers=2,
             max_position_embeddings=900)
MODELS = {
    "olmo": SMALL,
    "olmoe": SMALL | dict(num_experts=5, num_experts_per_tok=2),
    "qwen3_moe": SMALL | dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=14),
    "mixtral": SMALL | dict(num_local_experts=5, num_experts_per_tok=2, head_dim=8),
    "granitemoe": SMALL | dict(num_local_experts=5, num_experts_per_tok=2),
    "mistral": SMALL | dict(sliding_window=None), "qwen3": SMALL | dict(head_dim=8),
    "olmo2": SMALL, "llama": SMALL, "qwen2": SMALL, "granite": SMALL, "phi3": SMALL,
    "gemma3_text": SMALL | dict(head_dim=8, sliding_window=16), "gemma2": SMALL | dict(head_dim=8, sliding_window=16),
}
# What a tokenizer puts around a text.
AROUND = {"nothing": "$A", "begin": f"{BEGIN} $A", "begin and end": f"{BEGIN} $A {END}"}
CHAT = ("{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}\n"
        "{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}")
QUESTION, CONTEXT, ANSWER = "Which colour is it?", "The sky is blue – today.", "it's blue"
TASK = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
WITH_CONTEXT = ("Below is an instruction that describes a task, paired with context that provides further information. "
                "Write a response that appropriately completes the request.")
WITH_INPUT = ("Below is an instruction that describes a task, paired with an input that provides further context. "
              "Write a response that appropriately completes the request.")
ROWS = [{"instruction": QUESTION, "output": ANSWER}, {"instruction": QUESTION, "input": CONTEXT, "output": ANSWER}]


def adapters(row, task, after, blank):
    """LLM-Adapters' prompt: every line is indented by 16 spaces."""
    indent = " " * 16
    blocks = [f"{indent}### Instruction:\n{indent}{row['instruction']}\n{blank}\n"]
    if "input" in row:
        blocks.append(f"{indent}### Input:\n{indent}{row['input']}\n{blank}\n")
    return f"{task}{after}\n\n{''.join(blocks)}{indent}### Response:\n{indent}"


def prompt_of(template, row, training):
    context = row.get("input")
    if template == "paper":
        head = f"{WITH_CONTEXT if context else TASK}\n\n### Instruction:\n{row['instruction']}\n\n"
        return head + (f"### Context:\n{context}\n\n" if context else "") + "### Response:\n"
    if template == "llm_adapters":
        return adapters(row, WITH_INPUT if context else TASK, "  " if training else " ", " " * 16 if training else "")
    return row["instruction"] + (f"\n\n{context}" if context else "")


def write_tokenizer(folder, around, **config):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([f"{WITH_CONTEXT} {WITH_INPUT} {QUESTION} {CONTEXT}"] * 3, trainer)
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in (BEGIN, END)])
    ids = [(word, tokenizer.token_to_id(word)) for word in (BEGIN, END)]
    tokenizer.post_processor = processors.TemplateProcessing(AROUND[around], "$A $B", ids)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END} | config))
    (folder / "chat_template.jinja").write_text(CHAT)
    return dict(ids)


def folder_of(family, around, folder, **config):
    """Writes a model with a tokenizer, and returns transformers' tokenizer of it."""
    folder.mkdir()
    random_model(seed=3, family=family, **MODELS[family]).save_pretrained(folder)
    ids = write_tokenizer(folder, around, **config)
    settings = json.loads((folder / "config.json").read_text()) | {"eos_token_id": ids[END]}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return AutoTokenizer.from_pretrained(folder)


def without_end(ids, around, tokenizer):
    return ids[:-1] if around == "begin and end" and ids and ids[-1] == tokenizer.eos_token_id else ids


def chat_ids(tokenizer, messages, prompt=False):
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def shared(prompt, whole):
    """Returns how many ids of the prompt the whole text begins with."""
    return next((i for i, pair in enumerate(zip(prompt, whole)) if pair[0] != pair[1]), len(prompt))


def trained_on(template, row, around, tokenizer):
    """Returns ids and targets as LLM-Adapters' finetune.py makes them: the tokenizer's ids of the whole text, then eos if
    they do not end with it, and no loss on the ids of the prompt. A token on the border belongs to the answer here.
    """
    if template == "chat":
        user = {"role": "user", "content": row["instruction"] + (f"\n\n{row['input']}" if "input" in row else "")}
        ids = chat_ids(tokenizer, [user, {"role": "assistant", "content": ANSWER}])
        return ids, list(range(shared(chat_ids(tokenizer, [user], prompt=True), ids), ids.index(tokenizer.eos_token_id) + 1))
    prompt = prompt_of(template, row, training=True)
    ids = tokenizer(prompt + ANSWER)["input_ids"]
    ids += [] if ids[-1] == tokenizer.eos_token_id else [tokenizer.eos_token_id]
    asked = without_end(tokenizer(prompt)["input_ids"], around, tokenizer)
    return ids, list(range(shared(asked, ids), len(ids)))


def check(family, around, folder, **config):
    """Compares training examples and prompts of every template with the tokenizer."""
    tokenizer = folder_of(family, around, folder, **config)
    for template in ("paper", "llm_adapters", "plain", "chat"):
        seen = [json.loads(line) for line in run("tokenize", "--model", folder, "--data", folder / "rows.jsonl", "--template", template,
                                                 "--cutoff", 900, "--json").splitlines()]
        for row, got in zip(ROWS, seen, strict=True):
            ids, targets = trained_on(template, row, around, tokenizer)
            assert (got["ids"], got["targets"]) == (ids, targets), (template, row)
            assert got["tokens"] == tokenizer.convert_ids_to_tokens(ids)
            assert got["ids"].count(tokenizer.bos_token_id) <= 1
        line = json.loads(run("generate", "--model", folder, "--template", template, "--prompt", QUESTION, "--max-new-tokens", 1, "--json"))
        if template == "chat":
            asked = chat_ids(tokenizer, [{"role": "user", "content": QUESTION}], prompt=True)
        else:
            asked = without_end(tokenizer(prompt_of(template, {"instruction": QUESTION}, training=False))["input_ids"], around, tokenizer)
        assert line["prompt_ids"] == asked, template


def registered():
    """Returns the families that the program knows."""
    return {json.loads(line)["name"] for line in run("list", "models", "--json").splitlines() if "builtin" not in line}

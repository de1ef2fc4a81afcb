"""Compares which tokens end a text with transformers' generate(): eos_token_id of config.json and of
generation_config.json, one id or a list.
"""
import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from peer import EXPERTS, run
from test_generation import SHAPES, model_of, save_tokenizer, words

NEW_TOKENS, PROMPTS = 16, 8
NEVER = {"eos_token_id": None}
ABSENT = object()


@torch.no_grad()
def ended(model, ids, beams):
    """Returns the new tokens before the first end token."""
    whole = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), num_beams=beams,
                           do_sample=False, length_penalty=1.0, early_stopping=False, max_new_tokens=NEW_TOKENS, pad_token_id=1)
    ends = model.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    new = whole[0, len(ids):].tolist()
    return new[:next((at for at, token in enumerate(new) if token in ends), len(new))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    model_of(SHAPES[0], seed=3).to(torch.float32).save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def prompts(folder):
    tokenizer = save_tokenizer(folder)
    texts = [" ".join(words(40 + i, 2 + 2 * i)) for i in range(PROMPTS)]
    return texts, [tokenizer.encode(text).ids for text in texts]


def write(folder, config, generation):
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("eos_token_id", None)
    if config is not ABSENT:
        settings["eos_token_id"] = config
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))


@pytest.fixture(scope="module")
def common(folder, prompts):
    """Returns the tokens that occur in most texts, so that many texts end early."""
    write(folder, None, NEVER)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, **EXPERTS)
    texts = [ended(model, ids, 1)[2:] for ids in prompts[1]]
    tokens = sorted({token for text in texts for token in text}, key=lambda token: (-sum(token in text for text in texts), token))
    return tokens[:4]


@pytest.mark.parametrize("beams", [1, 4])
def test_every_id_of_a_list_ends_a_text_as_in_transformers(folder, prompts, common, beams):
    a, b, c, d = common
    lengths = {}
    for name, config, generation in [
            ("one", a, None), ("list", [a, b], None), ("three and one twice", [c, b, c, d], None),
            ("generation_config's list", a, {"eos_token_id": [a, b]}), ("generation_config's one", [a, b], {"eos_token_id": c}),
            ("generation_config names none", [a, b], {"max_length": 40}), ("generation_config says null", [a, b], NEVER),
            ("generation_config alone", None, {"eos_token_id": [b, d]}), ("none", None, None), ("empty", [], None),
            ("no key", ABSENT, None), ("no token of the vocabulary", [a, 4000], None), ("negative", [-1, b], None)]:
        write(folder, config, generation)
        wanted = []
        for dtype in (torch.float64, torch.float32):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **EXPERTS)
            wanted.append([ended(model, ids, beams) for ids in prompts[1]])
        flags = [word for text in prompts[0] for word in ("--prompt", text)]
        out = run("generate", "--model", folder, *flags, "--beams", beams, "--max-new-tokens", NEW_TOKENS, "--json")
        given = [json.loads(line)["ids"] for line in out.splitlines()]
        clear = [i for i in range(PROMPTS) if wanted[0][i] == wanted[1][i]]  # otherwise rounding decides
        assert len(clear) >= PROMPTS // 2
        for i in clear:
            assert given[i] == wanted[0][i], (name, i)
        lengths[name] = sum(map(len, given))
    if beams == 1:
        assert lengths["three and one twice"] < lengths["none"] and lengths["list"] < lengths["one"] < lengths["none"]
        assert lengths["generation_config names none"] == lengths["none"] == PROMPTS * NEW_TOKENS

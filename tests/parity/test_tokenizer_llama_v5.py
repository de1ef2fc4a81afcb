"""Compares tokenizers of the Llama, Mixtral and Gemma kinds with the `tokenizers` library: small ones trained by the
library, with every normalizer, pre-tokenizer and decoder of these kinds.
"""
import json
import random
import unicodedata

import pytest

from tokenizer_peer import BOTH, CODE_POINTS, ENGLISH, compare, fails, random_texts, run

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA_DECODER = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
HARD = ["", " ", "  ", "   a", "a   ", " a  b ", SPACE, f"{SPACE}a", f" {SPACE} a", "<s>", "<s> a", "a<s>b", " <s> ", "</s><s>", "a </s> b", "<0x41>", "<0x0A>a",
        "\n", "\t\n x", "ﬁ ﬂ Å ½ ① Ⅷ ㍿ ﷺ", "e\u0301 A\u030a", "\u1112\u1161\u11ab", "日本語のテキスト", "👩‍👩‍👧‍👦 👍🏽", "\ufffd\ufffe\ufeff", "\x00\x01\x7f", "\u00a0x\u3000y", "\U00011935\U00011930",
        "ⓐ\u0345\u0323", "<unk>", "a<unk>b", "[INST] hi [/INST]", "\U00010D5D", "\U0001e030", "\u32ff", "q" * 100, "日" * 60]


def llama(normalizer=None, pre_tokenizer=None, decoder=None, vocab=420, added=(), byte_tokens=BYTES, alphabet=None, **model):
    """Returns a tokenizer trained on the words that it splits itself."""
    settings = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True} | model
    tokenizer = Tokenizer(models.BPE(**settings))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if decoder:
        tokenizer.decoder = decoder
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>", *byte_tokens], show_progress=False,
                                  limit_alphabet=alphabet or 60, initial_alphabet=[SPACE, "a", "b", "e"])
    words = [word for text in ENGLISH * 3 + ["a <s> b", "the cat", "the  hat"] for word in text.replace(" ", f" {SPACE}").split(" ")]
    tokenizer.train_from_iterator(words, trainer)
    # The trainer adds byte tokens as added tokens. In tokenizer.json of these kinds they are in the vocabulary only.
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in BYTES]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    tokenizer.add_tokens(list(added))
    return tokenizer


def sequence(*parts):
    return normalizers.Sequence(list(parts))


def metaspace(scheme, split, replacement=SPACE):
    return pre_tokenizers.Metaspace(replacement=replacement, prepend_scheme=scheme, split=split)


STRIP = decoders.Sequence([*LLAMA_DECODER, decoders.Strip(" ", 1, 0)])
SENTENCE = sequence(normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE))
KINDS = {
    "tinyllama": lambda: llama(SENTENCE, None, STRIP),
    "llama v5": lambda: llama(None, metaspace("first", False), STRIP),
    "always whole": lambda: llama(None, metaspace("always", False), STRIP),
    "never": lambda: llama(None, metaspace("never", False), decoders.Sequence(LLAMA_DECODER)),
    "always split": lambda: llama(None, metaspace("always", True), decoders.Metaspace(replacement=SPACE, prepend_scheme="always")),
    "first split": lambda: llama(None, metaspace("first", True), decoders.Metaspace(replacement=SPACE, prepend_scheme="first")),
    "never split": lambda: llama(None, metaspace("never", True), decoders.Metaspace(replacement=SPACE, prepend_scheme="never")),
    "gemma": lambda: llama(normalizers.Replace(" ", SPACE), pre_tokenizers.Split(" ", "merged_with_previous"), decoders.Sequence(LLAMA_DECODER)),
    "nfkc": lambda: llama(sequence(normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)), None, STRIP),
    "nfkd": lambda: llama(sequence(normalizers.NFKD(), normalizers.Lowercase()), metaspace("always", False), STRIP),
    "nfd strip": lambda: llama(sequence(normalizers.NFD(), normalizers.Strip(True, True)), metaspace("always", True), STRIP),
    "digits": lambda: llama(None, pre_tokenizers.Sequence([pre_tokenizers.Digits(True), metaspace("first", True)]), STRIP),
    "removed": lambda: llama(None, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[\n-]"), "removed"), metaspace("first", False)]), STRIP),
    "metaspace twice": lambda: llama(None, pre_tokenizers.Sequence([metaspace("first", True), pre_tokenizers.Split("e", "isolated"), metaspace("always", True, "_")]), STRIP),
    "no decoder": lambda: llama(SENTENCE, None, None),
    "strip both": lambda: llama(SENTENCE, None, decoders.Sequence([*LLAMA_DECODER, decoders.Strip(" ", 2, 0), decoders.Replace(Regex("[aeiou]"), "*")])),
    "unfused": lambda: llama(SENTENCE, None, STRIP, fuse_unk=False, byte_tokens=BYTES[:0x80]),
    "fused, half of the bytes": lambda: llama(SENTENCE, None, STRIP, byte_tokens=BYTES[:0xC0] + BYTES[0xE3:]),
    "unfused, half of the bytes": lambda: llama(SENTENCE, None, STRIP, fuse_unk=False, byte_tokens=BYTES[:0xC0] + BYTES[0xE3:]),
    "no bytes": lambda: llama(SENTENCE, None, STRIP, byte_fallback=False, byte_tokens=[]),
    "no unknown token": lambda: llama(SENTENCE, None, STRIP, byte_fallback=False, unk_token=None, byte_tokens=[]),
    "ignore merges": lambda: llama(None, metaspace("always", True), STRIP, ignore_merges=True),
    "added": lambda: llama(SENTENCE, None, STRIP, added=[AddedToken("cat", normalized=True), AddedToken("[INST]", lstrip=True, rstrip=True), AddedToken("hat", single_word=True),
                                                         AddedToken("<|end|>", special=True), AddedToken(" b", normalized=False)]),
    "added, first": lambda: llama(None, metaspace("first", False), STRIP, added=[AddedToken("cat"), AddedToken("[INST]", lstrip=True, rstrip=True), AddedToken("é")]),
    "byte level over nfkc": lambda: byte_level(),
}


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer, tokenizer.decoder = normalizers.NFKC(), decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{Han}+|\w+"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.train_from_iterator(ENGLISH, trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_text_equal_those_of_the_library(tmp_path, kind):
    file = tmp_path / "tokenizer.json"
    KINDS[kind]().save(str(file))
    compare(file, HARD + ENGLISH + random_texts(250, 31) + [f"{a}cat{b}hat{c}" for a in ["", " ", "x"] for b in ["", " ", "<s>"] for c in ["", " "]])


@pytest.mark.parametrize("kind", ["tinyllama", "llama v5", "always split", "nfkc", "added", "strip both", "fused, half of the bytes"])
def test_any_ids_decode_equally_as_in_generation(tmp_path, kind):
    """Decodes random ids and all their prefixes, which may end inside a character."""
    file, draw = tmp_path / "tokenizer.json", random.Random(3)
    tokenizer = KINDS[kind]()
    tokenizer.save(str(file))
    lists = []
    for _ in range(60):
        ids = [draw.choice([draw.randrange(tokenizer.get_vocab_size()), draw.randrange(3, 259)]) for _ in range(8)]
        lists += [ids[:n] for n in range(9)]
    lists += [[tokenizer.token_to_id(token) for byte in text.encode() for token in [f"<0x{byte:02X}>"]][:n] for text in ["é日👍🏽", "a\u0301"] for n in range(9)
              if None not in [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in text.encode()]]
    for skip, flags in [(False, ()), (True, ("--no-special",))]:
        assert run(file, lists, "--decode", *flags) == tokenizer.decode_batch(lists, skip_special_tokens=skip)


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"])
def test_every_code_point_is_normalised_equally(tmp_path, form):
    tokenizer = llama(getattr(normalizers, form)(), None, decoders.Sequence(LLAMA_DECODER))
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    texts = ["".join(f"a{chr(c)}\u0345{chr(c)}\u0334" for c in CODE_POINTS[i:i + 256]) for i in range(0, len(CODE_POINTS), 256)]
    compare(file, texts, decode=False, ways=BOTH[1:])


def test_long_texts_without_words_are_encoded_fast(tmp_path):
    file = tmp_path / "tokenizer.json"
    KINDS["tinyllama"]().save(str(file))
    compare(file, ["the cat " * 20_000, "日本" * 20_000, " " * 50_000], ways=BOTH[:1])


def test_the_older_spelling_of_metaspace_is_read(tmp_path):
    content, file = json.loads(KINDS["always split"]().to_str()), tmp_path / "tokenizer.json"
    for part in (content["pre_tokenizer"], content["decoder"]):
        del part["prepend_scheme"], part["split"]
        part["add_prefix_space"] = True
    file.write_text(json.dumps(content))
    compare(file, HARD)
    content["decoder"]["add_prefix_space"] = False  # the library rejects it as well
    file.write_text(json.dumps(content))
    assert "where add_prefix_space is false" in fails("--model", file, "--input", "-")


def test_unsupported_components_are_rejected_by_name(tmp_path):
    file, content = tmp_path / "tokenizer.json", json.loads(KINDS["tinyllama"]().to_str())

    def refused(**parts):
        file.write_text(json.dumps(content | parts))
        return fails("--model", file, "--input", "-")
    assert 'model.type is "WordLevel"' in refused(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"})
    assert '"Nmt"' in refused(normalizer={"type": "Nmt"})
    assert "Whitespace" in refused(pre_tokenizer={"type": "Whitespace"})
    assert "CTC" in refused(decoder={"type": "CTC"})
    assert "expected one character" in refused(pre_tokenizer={"type": "Metaspace", "replacement": "ab", "prepend_scheme": "first", "split": True})
    assert 'prepend_scheme is last' in refused(pre_tokenizer={"type": "Metaspace", "replacement": "_", "prepend_scheme": "last", "split": True})
    assert "becomes one of" in refused_text(file, content)


def refused_text(file, content):
    steps = [{"type": "Replace", "pattern": {"Regex": ""}, "content": "x" * 200}] * 4
    file.write_text(json.dumps(content | {"normalizer": {"type": "Sequence", "normalizers": steps}}))
    return fails("--model", file, "--input", "-", text=b"abc\n")

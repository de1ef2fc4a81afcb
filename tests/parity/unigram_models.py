"""Unigram tokenizers trained by the `tokenizers` library, with the parts that conversions of SentencePiece have, and a
builder of the tables of replacements (Precompiled).
"""
import base64
import json
import struct

import pytest

from tokenizer_peer import ENGLISH, random_texts

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
HARD = ["", " ", "  ", "   a", "a   ", " a  b ", SPACE, f"{SPACE}a", f" {SPACE} a", f"{SPACE}{SPACE}", "<s>", "<s> a", "a<s>b", " <s> ", "</s><s>", "<unk>", "a<unk>b", "<unk><unk>", "<0x41>", "\n",
        "\t\n x", "\r\n", "\r", "\n\r\n", "ﬁ ﬂ Å ½ ① Ⅷ ㍿ ﷺ", "e\u0301 A\u030a a\u0301\u0323", "\u1112\u1161\u11ab", "日本語のテキスト", "👩‍👩‍👧‍👦 👍🏽", "\ufffd\ufffe\ufeff", "\x00\x01\x7f", "a\x00\u0301b",
        "\u00a0x\u3000y\u2028z\x85w", "aaaaaaaaaaa", "aabab" * 5, "thethethe the  the   the", "q" * 100, "日" * 60, "©\u200d©\u0301", "\u0600\u1100\u1161", "\u0915\u094d\u0915\u0301", "🇫🇷🇩🇪"]


def charsmap(entries):
    """Returns a table of replacements, from keys and values in bytes: a double-array trie and its texts."""
    texts, begins, root = b"", {}, {}
    for key, value in entries.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        if value not in begins:
            begins[value] = len(texts)
            texts += value + b"\0"
        node["value"] = begins[value]
    units = {0: 0}

    def place(node, at):
        labels = [label for label in node if label != "value"]
        needed = labels + [0] * ("value" in node)
        base = next(base for base in range(1, 1 << 20) if all(base ^ label not in units for label in needed))
        units.update({base ^ label: label for label in needed})
        units[at] |= (at ^ base) << 10 | ("value" in node) << 8
        if "value" in node:
            units[base] = node["value"] | 1 << 31
        for label in labels:
            place(node[label], base ^ label)
    place(root, 0)
    array = b"".join(struct.pack("<I", units.get(at, 0)) for at in range(max(units) + 256))
    return struct.pack("<I", len(array)) + array + texts


def small_charsmap():
    """Returns a table like SentencePiece's: compositions, compatibility forms, white space and controls."""
    pairs = {"e\u0301": "é", "a\u0301": "á", "a\u0301\u0323": "ạ́", "A\u030a": "Å", "ﬁ": "fi", "ﬂ": "fl", "½": "1/2", "①": "1", "Ⅷ": "VIII", "㍿": "株式会社", "ﷺ": "صلى الله عليه وسلم", "\u3000": " ", "\u00a0": " ",
             "\t": " ", "\n": " ", "\r": " ", "\u200b": "", "\x01": "", "\x7f": "", "\ufeff": "", "Ａ": "A", "か\u3099": "が", "\u1112\u1161": "하", "©": "(c)", "x": "x", "\u0915": "ka", "\u0600": "#"}
    return charsmap({key.encode(): value.encode() for key, value in pairs.items()})


def texts():
    return ENGLISH * 4 + HARD + random_texts(120, 41)


def unigram(normalizer=None, pre_tokenizer=None, decoder=None, vocab=1_500, corpus=None, specials=("<unk>", "<s>", "</s>"), added=(), **model):
    """Returns a tokenizer trained on texts that it normalises and splits itself. `model` replaces keys of its model."""
    tokenizer = Tokenizer(models.Unigram())
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if decoder:
        tokenizer.decoder = decoder
    tokenizer.train_from_iterator(corpus or texts(), trainers.UnigramTrainer(vocab_size=vocab, special_tokens=list(specials), unk_token="<unk>", show_progress=False))
    content = json.loads(tokenizer.to_str())
    content["model"] |= model
    tokenizer = Tokenizer.from_str(json.dumps(content))
    if "</s>" in specials:
        tokenizer.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", specials.index("</s>"))])
    tokenizer.add_tokens(list(added))
    return tokenizer


def with_bytes(**settings):
    """Returns a tokenizer with a piece for each byte, at the lowest score, as SentencePiece's byte_fallback makes them."""
    content = json.loads(unigram(corpus=ENGLISH, vocab=300, **settings).to_str())
    content["model"]["vocab"] += [[piece, 0.0] for piece in BYTES]
    content["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(content))


def metaspace(scheme="always", split=True, replacement=SPACE):
    return pre_tokenizers.Metaspace(replacement=replacement, prepend_scheme=scheme, split=split)


def joined(scheme="always", split=True):
    return decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=split)


def sequence(*parts):
    return normalizers.Sequence(list(parts))


def precompiled():
    return normalizers.Precompiled(small_charsmap())


LLAMA = sequence(normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE))
TEXT = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
STRIPPED = decoders.Sequence([*TEXT, decoders.Strip(" ", 1, 0)])
SPLIT = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()])
KINDS = {
    "t5": lambda: unigram(precompiled(), SPLIT, joined()),
    "converted": lambda: unigram(sequence(precompiled(), normalizers.Strip(False, True), normalizers.Replace(Regex(" {2,}"), SPACE)), metaspace(), joined()),
    "converted, first": lambda: unigram(sequence(precompiled(), normalizers.Strip(False, True), normalizers.Replace(Regex(" {2,}"), SPACE)), metaspace("first"), joined("first")),
    "whole text": lambda: unigram(None, metaspace("always", False), joined()),
    "never": lambda: unigram(None, metaspace("never"), joined("never")),
    "first, whole": lambda: unigram(None, metaspace("first", False), joined("first")),
    "llama": lambda: unigram(LLAMA, None, STRIPPED),
    "llama with bytes": lambda: with_bytes(normalizer=LLAMA, decoder=STRIPPED),
    "bytes, split": lambda: with_bytes(normalizer=normalizers.NFKC(), pre_tokenizer=metaspace(), decoder=decoders.Sequence([decoders.ByteFallback(), joined()])),
    "gemma": lambda: unigram(normalizers.Replace(" ", SPACE), pre_tokenizers.Split(" ", "merged_with_previous"), decoders.Sequence(TEXT)),
    "nfkc": lambda: unigram(sequence(normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(True, True)), metaspace(replacement="_"), None),
    "byte level": lambda: unigram(normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()),
    "plain": lambda: unigram(None, None, None),
    "white space": lambda: unigram(None, pre_tokenizers.WhitespaceSplit(), None),
    "digits": lambda: unigram(None, pre_tokenizers.Sequence([pre_tokenizers.Digits(True), metaspace("first", False)]), joined("first")),
    "added": lambda: unigram(precompiled(), metaspace(), joined(), added=[AddedToken("cat", normalized=True), AddedToken("[X]", lstrip=True, rstrip=True), AddedToken("é", normalized=True), AddedToken(" b", normalized=False)]),
    "no unknown token": lambda: with_bytes(normalizer=normalizers.Replace(Regex("[^a-e]"), "a"), unk_id=None),
}


def with_pieces(pieces, unk_id=0, byte_fallback=False, **parts):
    """Returns the content of a tokenizer.json with given pieces."""
    return {"version": "1.0", **parts, "model": {"type": "Unigram", "unk_id": unk_id, "byte_fallback": byte_fallback, "vocab": pieces}}

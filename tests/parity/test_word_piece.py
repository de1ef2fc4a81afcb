"""Compares BERT's WordPiece tokenizers with the `tokenizers` library: ids and decoded text."""
import json

import pytest

from tokenizer_peer import BOTH, CODE_POINTS, ENGLISH, compare, fails, random_texts

from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers)

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["unaffable UNAFFABLE una", "I don't, do not; he's, we've (they're) \"fine\" ' 'm. Really?! Yes , n't",
          "Ångström Œuvre İstanbul ΟΔΟΣ straße ǅ", "東京都x한국어 e\u0301 \u1e69 \u0073\u0323\u0307 a\u0307\u0323b",
          "tab\there\u00a0nbsp\u200bzero\u0000nul\ufffdbad\u00adsoft", "inside [SEP] a [MASK]text[CLS] [mask]", "x" * 99, "y" * 100,
          "z" * 101, "é" * 100, "é" * 101, "a##b ## ##a"]


def finished(tokenizer, cleanup=True, prefix="##"):
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1",
                                                             [("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = decoders.WordPiece(prefix=prefix, cleanup=cleanup)
    return tokenizer


def trained(prefix="##", longest=100, cleanup=True, **normalizer):
    """Returns a small tokenizer trained by the library."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=prefix, max_input_chars_per_word=longest))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=900, min_frequency=1, special_tokens=SPECIALS, show_progress=False,
                                        continuing_subword_prefix=prefix)
    tokenizer.train_from_iterator((ENGLISH + PIECES) * 3 + random_texts(200, 2), trainer)
    return finished(tokenizer, cleanup, prefix)


def of_every_code_point(**normalizer):
    """Returns a vocabulary with every code point, first and following, so that the unknown token hides no difference.
    """
    tokens = SPECIALS + [chr(c) for c in CODE_POINTS] + ["##" + chr(c) for c in CODE_POINTS]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return finished(tokenizer)


def composed_first():
    tokenizer = trained(lowercase=False)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer(lowercase=False)])
    return tokenizer


KINDS = {
    "uncased": trained,
    "cased": lambda: trained(lowercase=False),
    "accents_kept": lambda: trained(strip_accents=False),
    "accents_alone": lambda: trained(strip_accents=True, lowercase=False),
    "not_cleaned": lambda: trained(clean_text=False, cleanup=False),
    "ideographs_joined": lambda: trained(handle_chinese_chars=False),
    "short_words": lambda: trained(longest=4),
    "other_prefix": lambda: trained(prefix="@"),
    "composed_first": composed_first,
}


def saved(tokenizer, folder):
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_random_strings_are_encoded_equally_by_every_kind(kind, tmp_path):
    compare(saved(KINDS[kind](), tmp_path), random_texts(2_000, 31) + ENGLISH + PIECES)


@pytest.mark.parametrize("settings", [{}, {"clean_text": False, "lowercase": False}, {"strip_accents": False}],
                         ids=["uncased", "not_cleaned", "accents_kept"])
def test_every_code_point_has_its_class_small_letter_and_parts(settings, tmp_path):
    """Puts each code point inside a word, alone and between marks, which reveals how it is removed, separated,
    decomposed or lowered.
    """
    texts = []
    for start in range(0, len(CODE_POINTS), 512):
        texts.append(" ".join(f"a{chr(c)}b {chr(c)} {chr(c)}\u0345{chr(c)}\u0334" for c in CODE_POINTS[start:start + 512]))
    compare(saved(of_every_code_point(**settings), tmp_path), texts, decode=False, ways=BOTH[:1])


@pytest.mark.parametrize("normalized", [False, True])
def test_added_tokens_are_encoded_equally(normalized, tmp_path):
    tokenizer = trained()
    tokenizer.add_special_tokens([AddedToken(token, normalized=normalized) for token in SPECIALS])
    tokenizer.add_tokens([AddedToken("Naïve Café", normalized=normalized), AddedToken("<x>", lstrip=True, rstrip=True)])
    texts = PIECES + [f"{a}{b}" for a in ("naive cafe", "Naïve Café", " <x> ", "[MASK]", "[mask]") for b in PIECES]
    # Releases of the library decode a token that normalisation changes differently.
    compare(saved(tokenizer, tmp_path), texts, decode=not normalized)


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a " * 500_000, "\u0301" * 500_000, "東" * 300_000, "." * 1_000_000],
                         ids=["a word", "words", "marks", "ideographs", "punctuation"])
def test_a_line_of_a_megabyte_is_encoded_equally(text, tmp_path):
    compare(saved(trained(), tmp_path), [text], decode=False, ways=BOTH[:1])


def test_bad_input_is_reported_in_one_line(tmp_path):
    def refused(tokenizer):
        return fails("--model", saved(tokenizer, tmp_path), "--input", "-")

    tokenizer = trained()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    assert 'pre_tokenizer is {"type":"Whitespace"}, allowed with WordPiece: BertPreTokenizer' in refused(tokenizer)
    tokenizer = trained()
    tokenizer.normalizer = normalizers.Sequence([normalizers.BertNormalizer(), normalizers.NFC()])
    compare(saved(tokenizer, tmp_path), ["Hello wo\u0308rld", "cafe\u0301 \u212b"], decode=False, ways=BOTH[:1])
    good = json.loads(saved(trained(), tmp_path).read_text())
    file = tmp_path / "tokenizer.json"

    def refused_without(part, key):
        spoilt = json.loads(json.dumps(good))
        del spoilt[part][key]
        file.write_text(json.dumps(spoilt))
        with pytest.raises(Exception):
            Tokenizer.from_file(str(file))
        return fails("--model", file, "--input", "-")

    for part, key in [("normalizer", "clean_text"), ("normalizer", "handle_chinese_chars"), ("normalizer", "lowercase"),
                      ("decoder", "cleanup"), ("decoder", "prefix"), ("model", "unk_token"),
                      ("model", "continuing_subword_prefix"), ("model", "max_input_chars_per_word")]:
        assert f"{part}.{key} is missing" in refused_without(part, key)
    file.write_text(json.dumps(good | {"model": good["model"] | {"unk_token": "[unknown]"}}))
    assert 'model.unk_token "[unknown]" is not in the vocabulary' in fails("--model", file, "--input", "-")

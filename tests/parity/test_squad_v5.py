"""Compares exact match and F1 of free text with SQuAD's published rule, implemented here in Python."""
import collections
import pathlib
import random
import re
import string
import sys
import unicodedata

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from jobs import answer  # noqa: E402


def normalised(text):
    """Lowers case, then removes ASCII punctuation, articles and extra spaces, in this order."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(output, reference):
    output, reference = normalised(output).split(), normalised(reference).split()
    if not output or not reference:
        return 0.0  # as in SQuAD 1.1's script, an empty answer is never right
    common = sum((collections.Counter(output) & collections.Counter(reference)).values())
    precision, recall = common / len(output), common / len(reference)
    return 2 * precision * recall / (precision + recall) if common else 0.0


HARD = ["The  cat's\u00a0hat", "an\u2003apple a-day", "\u0130stanbul", "\u039f\u0394\u039f\u03a3", "\u039f\u0394\u039f\u03a3-\u0391", "\u03a3",
        "\u03a3.\u03a3", "\u0391\u03a3.", "\u0391\u03a3'\u0391", "A\u03a3\u0301", "a\u0301 the\u0301", "_a_ the_", "a\u3001the", "\u00aba\u00bb \u2018the\u2019",
        "\u1e9e STRASSE \u00df", "a\x1cb\x1dthe\x1ean\x1fc", "x\u0085y", "x\u200by the", "\u1d2c\u03a3", "\u2160\u03a3 \u2170", "\u01c5 \u01c4",
        "\U00010400 \u10a0 \u13a0", "\u7684 the\u7684", "9a 9 a9 a", "$1,000.00", "\uff21 \uff41n", "the", "", "?!", "\u0345\u03a3", "\u00aa the \u00ba",
        "\u0627\u0644 the", "\u0915\u094d\u0937 a", "\u0e01 an \u0e02"]
LETTERS = "aAnthe TH\u0130\u03a3\u03c3\u03c2\u0391.'\u2019-_ \u00a0\u0301\u00ad\u02b01\u00df\u4e2d\x1c\u00b7:"


def scores(tmp_path, pairs):
    out = answer("text_scores", tmp_path, {"pairs": pairs, "words": str(tmp_path / "words.txt")})
    return (tmp_path / "words.txt").read_text(encoding="utf-8").split("\n")[:-1], out["exact_match"], out["f1"]


def test_scores_equal_those_of_the_published_rule(tmp_path):
    draw = random.Random(7)
    texts = HARD + ["".join(draw.choice(LETTERS) for _ in range(draw.randrange(1, 14))) for _ in range(400)]
    pairs = [(texts[i], texts[(i * 7 + k) % len(texts)]) for i in range(len(texts)) for k in (0, 1, 5)]
    pairs += [(text, text.lower() + " the.") for text in texts]
    words, exact, ours = scores(tmp_path, pairs)
    for (output, reference), word, match, score in zip(pairs, words, exact, ours, strict=True):
        assert word == normalised(output), ascii(output)
        assert match == (normalised(output) == normalised(reference) != ""), (ascii(output), ascii(reference))
        assert score == pytest.approx(f1(output, reference), abs=1e-12), (ascii(output), ascii(reference))


def test_every_character_is_lowered_as_in_python(tmp_path):
    """Tests the characters of Python's Unicode version, alone and between a word and a sigma, whose lower case depends
    on its neighbours.
    """
    known = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"
             and unicodedata.category(chr(c)) != "Co"]
    pairs = [(f"x {''.join(known[i:i + 50])} y", "") for i in range(0, len(known), 50)]
    pairs += [(" ".join(f"\u03a3{c}\u03a3" for c in known[i:i + 50]), "") for i in range(0, len(known), 50)]
    words, _, _ = scores(tmp_path, pairs)
    wrong = [ascii(text) for (text, _), word in zip(pairs, words, strict=True) if word != normalised(text)]
    assert not wrong, (len(wrong), wrong[:5])

"""Shared by the tests of tokenizers: runs the program and the `tokenizers` library, and draws texts that reveal
differences.
"""
import json
import os
import pathlib
import random

import pytest

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import Tokenizer

from forked import forked_bytes

DATA = pathlib.Path(os.environ.get("EVENKEEL_DATA", "$EVENKEEL_DATA"))  # without it: not there


def is_worth_asking(code_point):
    """Returns whether to test a code point: all but a sample of the large uniform blocks (ideographs, Hangul,
    unassigned and private planes).
    """
    if 0xD800 <= code_point <= 0xDFFF:
        return False
    blocks = [(0x3420, 0x4DA0), (0x4E20, 0x9FE0), (0xAC20, 0xD780), (0xE020, 0xF8E0), (0x12020, 0x12380),
              (0x13020, 0x143E0), (0x17020, 0x187E0), (0x18B20, 0x18CC0), (0x20000, 0x3347F), (0x33480, 0xE0000),
              (0xE0200, 0x110000)]
    inside = any(low < code_point < high for low, high in blocks)
    return not inside or code_point % (17 if code_point < 0x33480 else 997) == 0


CODE_POINTS = [c for c in range(0x110000) if is_worth_asking(c)]


def need(path):
    if not path.exists():
        pytest.skip(f"not there: {path}")
    return path


def run(model, lines, *flags):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    done = forked_bytes("tokenize", "--model", model, "--input", "-", "--jsonl", *flags, input=text.encode(), timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    out = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(out) == len(lines)
    return out


def first_difference(ours, theirs):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"at {at}: {ours[max(0, at - 3):at + 5]} instead of {theirs[max(0, at - 3):at + 5]}"


BOTH = ((True, ()), (False, ("--no-special",)))


def compare(model, texts, decode=True, ways=BOTH):
    """Compares ids and decoded text, with and without special tokens."""
    library = Tokenizer.from_file(str(model))
    for special, flags in ways:
        theirs = [e.ids for e in library.encode_batch(texts, add_special_tokens=special)]
        for text, mine, reference in zip(texts, run(model, texts, *flags), theirs):
            assert mine == reference, f"{text[:200]!r}: {first_difference(mine, reference)}"
        if decode:
            back = library.decode_batch(theirs, skip_special_tokens=not special)
            for text, mine, reference in zip(texts, run(model, theirs, "--decode", *flags), back):
                assert mine == reference, f"decoding {text[:200]!r}: {first_difference(mine, reference)}"


def any_code_point(draw):
    """Draws from planes and from the scripts, marks and controls that tokenizers treat specially, with equal shares."""
    low, high = draw.choice(
        [(0, 0x7F), (0x80, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x8FF), (0x900, 0xDFF),
         (0xE00, 0x11FF), (0x1100, 0x11FF), (0x1AB0, 0x1AFF), (0x1E00, 0x20CF), (0x20D0, 0x2BFF), (0x2E80, 0x9FFF),
         (0xA000, 0xABFF), (0xAC00, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x107FF), (0x10D00, 0x11FFF),
         (0x12000, 0x1D1FF), (0x1E000, 0x1EFFF), (0x1F000, 0x1FFFF), (0x20000, 0x3FFFF), (0x40000, 0x10FFFF)])
    return chr(draw.randint(low, high))


def fragment(draw):
    marks = lambda: "".join(chr(draw.choice([0x300, 0x301, 0x323, 0x345, 0x327, 0x334, 0x897, 0x1ABF, 0x20D0, 0x3099]))
                            for _ in range(draw.randint(1, 5)))
    return draw.choice([
        lambda: draw.choice("abcdefghijklmnopqrstuvwxyzABCXYZ") * draw.randint(1, 3),
        lambda: draw.choice(["'s", "'S", "'t", "'re", "'ve", "'LL", "'ll", "'d", "'m", "'", "’s", "'ſ"]),
        lambda: str(draw.randint(0, 10 ** draw.randint(1, 9))),
        lambda: draw.choice([" ", "  ", "   ", "\n", "\r\n", "\t", "\v", "\x85", "\u00a0", "\u2028", "\u3000", "\u180e"])
        * draw.randint(1, 3),
        lambda: any_code_point(draw),
        lambda: any_code_point(draw) * draw.randint(1, 4),
        lambda: chr(draw.randint(0, 31)) + chr(draw.randint(0x7F, 0x9F)),
        lambda: draw.choice("aeioucnAEO\u1100\u00e9\u0915\u11938\u105d2") + marks(),
        lambda: chr(0x1100 + draw.randint(0, 18)) + chr(0x1161 + draw.randint(0, 20)) + chr(0x11A7 + draw.randint(0, 27)),
        lambda: draw.choice(["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇫🇷🇩🇪", "1️⃣", "☺️", "🧑🏿‍🚀", "❤️‍🔥", "\u200d", "\ufe0f"]),
        lambda: draw.choice(["Å", "Ω", "ﬁ", "ß", "İ", "ǆ", "½", "Ⅷ", "①", "٣", "३", "ⓐ", "𝒜", "\ufeff", "\u200b"]),
        lambda: draw.choice("!?.,;:-_()[]{}<>|@#$%^&*+=~`\"/\\"),
    ])()


def without_surrogates(text):
    return "".join(c for c in text if not 0xD800 <= ord(c) <= 0xDFFF)


def random_text(draw):
    return without_surrogates("".join(fragment(draw) for _ in range(draw.randint(0, 24))))


def random_texts(count, seed):
    draw = random.Random(seed)
    return [random_text(draw) for _ in range(count)]


ENGLISH = [
    "It's the first day of the year, and they'll go where we've been before.",
    "The naïve café owner couldn't say how 1234 became 5678; nobody could.",
    "    indented = [x ** 2 for x in range(10)]  # squares\n\n\tdone()",
    "Der Übermut tut selten gut. Größe 42, heißt es.  Ja!",
    "こんにちは世界、東京は晴れです。 한국어 문장도 있습니다. Привет, мир! مرحبا بالعالم",
]


def fails(*arguments, text=b""):
    done = forked_bytes("tokenize", *arguments, input=text)
    error = done.stderr.decode()
    assert done.returncode == 1 and error.count("\n") == 1, error
    return error


def saver_of(kinds, folder):
    """Returns a function from the name of a kind to its tokenizer.json, which is written when it is first asked for.

    kinds: name -> a function that makes a tokenizer.
    """
    made = {}

    def path(kind):
        if kind not in made:
            made[kind] = folder / kind / "tokenizer.json"
            made[kind].parent.mkdir()
            kinds[kind]().save(str(made[kind]))
        return made[kind]
    return path

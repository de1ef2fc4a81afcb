"""Compares patterns with the `tokenizers` library: each construct over all code points, and random patterns over random
texts.

A pattern that the library accepts gives the same pieces here or is rejected by name. The test is complete if
EVENKEEL_NIGHTLY is set, otherwise it uses a sample of the code points and of the random patterns.
"""
import itertools
import json
import os
import pathlib
import random
import re
import subprocess

import pytest

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import Regex, pre_tokenizers

from tokenizer_peer import CODE_POINTS

NIGHTLY = bool(os.environ.get("EVENKEEL_NIGHTLY"))
HEADER = pathlib.Path(__file__).parents[2] / "src" / "base" / "unicode" / "unicode_properties.h"

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
# The sample contains every code point whose properties changed since Unicode 14, with its neighbours.
TABLES = HEADER.read_text() + HEADER.with_name("unicode_tables.h").read_text()
RANGES = [[int(code, 16) for code in pair] for pair in re.findall(r"(0x[0-9A-F]{5}), (0x[0-9A-F]{5})", TABLES)]
SAMPLE = sorted(set(c for c in CODE_POINTS if c % 5 == 0 or c < 0x600) | {
    c + d for first, last in RANGES for c in range(first, min(last, first + 40) + 1) for d in (-1, 0, 1)})


@pytest.fixture(scope="module")
def spans():
    program = pathlib.Path(os.environ["EVENKEEL_PROGRAM"]).with_name("pattern_spans")
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(pattern, **text):
        print(json.dumps({"pattern": pattern, **text}), file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())
    yield ask
    process.stdin.close()
    assert process.wait() == 0


def library(pattern, text):
    """Returns the lengths of the pieces in bytes, or None if the library rejects the pattern or gives up on this text."""
    try:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
    except Exception:
        return None
    try:
        return [len(piece.encode()) for piece, _ in split.pre_tokenize_str(text)]
    except BaseException as error:  # its panic is no Exception
        if "retry-limit-in-match" not in str(error):
            raise
        return None


def difference(ours, pattern, text):
    """Returns the difference from our answer, or None."""
    theirs = library(pattern, text)
    if isinstance(ours, str):
        # The last is a pattern that takes too long
        named = ["is not supported", "lookbehind assertion", "match limit exceeded"]
        return None if theirs is None or any(reason in ours for reason in named) else ours
    return None if theirs is None or ours == theirs else f"{len(ours)} pieces instead of {len(theirs)}"


def names(table):
    text = HEADER.read_text().split(table, 1)[1].split("};", 1)[0]
    return text.split('"')[1::2]


CATEGORIES = ["L", "M", "N", "P", "S", "Z", "C", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
              "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cn", "Co", "Cs", "LC", "Letter",
              "Uppercase_Letter", "Nonspacing Mark", "decimal-number", "Cased_Letter", "Any", "Assigned"]
POSIX = ["alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word", "xdigit"]
PROPERTIES = CATEGORIES + POSIX + names("kScripts[]") + names("kBinaryProperties[]") + names("kPropertyAliases[]")[::2] + ["Unknown", "Zzzz"]
SETS = [r"[^\s\p{L}\p{N}]", r"[\p{L}\p{M}]", r"[^\r\n\p{L}\p{N}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
        r"[\p{Han}&&[^\p{N}]]", r"[\w&&[^\d]]", r"[\w&&\p{L}&&[^a-z]]", r"[^\w&&\p{L}]", r"[[^\w]\d]", r"[^[^\w]\d]", r"[\W\d]", r"[^\W]",
        r"[\S\n]", r"[\H]", r"[\D]", r"[[:^alpha:]x]", r"[^[:^word:]]", r"[\P{L}]", r"[\p{^L}]", r"[\P{^L}]", r"[A-Za-z𐐀-𐑏]",
        r"[一-龥぀-ゟ゠-ヿ]", r"[à-ü一-鿿]", r"[\x{1F600}-\x{1F64F}\u00e9]", r"[\-\]\^\\&&[\]-\^]]", r"[a&b]", r"[-a]", r"[a-]", r"[+--]",
        r"[ -~]", r"[^\x{0}-\x{FFFF}]", r"[\x{D7FF}-\x{E000}]", r"[\b\a\e\f\v]", r"[!-/:-~&&[^\$]]", ".", r"(?m:.)", r"\N", r"\O", r"\R",
        r"(?i:[a-z])", r"(?i:[^a-z])", r"(?i:k)", r"(?i:S)", r"(?i:\w)", r"(?i:\W)", r"(?i:\d)", r"(?i:\s)", r"(?i:\h)", r"(?i:[\h])",
        r"(?i:[\d\s])", r"(?i:\p{Nd})", r"(?i:\p{P})", r"(?i:’)", r"(?i:é)", r"(?i:\p{L})", r"(?i:[\p{Lu}])", r"(?i:[^\p{L}])", r"(?i:İ)",
        r"(?i:ß)", r"(?i:[ß])", r"(?i:[^ß])", r"(?i:\p{Lu})", r"(?i:[\p{Ll}])", r"(?i:[\p{L}])", r"(?i:[^\p{Lu}])", r"(?i:[à-ý])", r"(?i:[Ꭰ-Ᏼ])",
        r"(?i:[\w&&[^é]])", r"(?i:[[é]a])", r"(?i:[^[^é]])", r"(?i:[[^é]])", r"(?i:\p{word})", r"(?i:[\p{Greek}&&\p{Ll}])", r"(?i:\x{10D50})"]
CONSTRUCTS = [rf"\{c}" for c in "dDhHsSwW"] + [f"[{x}]" for c in "dDhHsSwW" for x in [f"\\{c}", f"^\\{c}"]] + \
    [rf"[[:{n}:]]" for n in POSIX] + [rf"[[:^{n}:]]" for n in POSIX] + \
    [form % n for n in PROPERTIES for form in (r"\p{%s}", r"[\p{%s}]", r"\P{%s}")] + SETS


# In parts, because all of them take most of an hour.
@pytest.mark.parametrize("part", range(8))
def test_each_class_equals_that_of_the_library_over_all_code_points(spans, tmp_path, part):
    wrong = []
    text = "".join(map(chr, ALL if NIGHTLY else SAMPLE))
    (tmp_path / "text").write_text(text, newline="")
    for construct in CONSTRUCTS[part::8]:
        pattern = f"(?:{construct})+"
        problem = difference(spans(pattern, file=str(tmp_path / "text")), pattern, text)
        if problem:
            wrong.append((construct, problem))
    assert not wrong, f"{len(wrong)} constructs, the first {wrong[:5]}"


def test_word_boundaries_equal_those_of_the_library(spans, tmp_path):
    text = "".join(f"a{chr(c)} {chr(c)}" for c in (ALL if NIGHTLY else SAMPLE[::7]))
    (tmp_path / "text").write_text(text, newline="")
    for pattern in [r"\b", r"\B", r"\b.", r"(?<=\w)\W", r"\w+(?!\w)"]:
        problem = difference(spans(pattern, file=str(tmp_path / "text")), pattern, text)
        assert not problem, (pattern, problem)


# Classes of published tokenizers, which must not be rejected.
def test_constructs_of_published_patterns_are_supported(spans):
    for construct in [r"\w", r"[\w]", r"\s", r"\d", r"\p{L}", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Han}", r"\p{Hiragana}", r"\p{Latin}",
                      r"\p{Grek}", r"\p{word}", r"[\P{word}]",
                      r"[\p{Han}&&[^\p{N}]]", r"a{,2}", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"(?i:[sdmt]|ll|ve|re)", r"\s+(?!\S)", r"(?<=[^a])b",
                      r"[一-龥]", r"\v", r"(?>a|b)", r"a++", r"a{1,3}+", r"\u2581", r"(?<digits>\d{1,3}(?=(\d{3})*\b))"]:
        assert isinstance(spans(construct, text="a"), list), spans(construct, text="a")


ESCAPES = [rf"\{chr(c)}" for c in range(0x21, 0x7F)]
ODD = ["", "()", "(?:)", "a||b", "(|a)b", "a{}", "a{,}", "a{1", "a{ 1}", "a{,2}", "a{2}?", "a{2}??", "a{2}+", "a{2}*", "a{0}", "a{0,0}b", "a{1,2}?", "a{1,2}+",
       "a{1,2}+a", "a{3,1}", "a{2}{3}", "a**", "a+?+", "a+?*", "a???", "a+??", "a*+?", "a?+", "a++", "a*+a", "(?:a+)?b", "(?:a*)*b", "(?:a|b*)*c", "^a", "a$", "^",
       "$", "^$", r"\Aa", r"a\Z", r"a\z", r"\Z", r"(?i)a|b", "x(?i)a|b", "(?:x(?i)a|b)c", "(?i:a(?-i:b)c)", "(?i-m:a.)", "(?m-i:a.)", "(?mi:a.)", "(?m).", "(?-m).",
       "(?<n>a)b", "(?'n'a)b", "(?P<n>a)b", "(?#x)a", "a(?#x)+", "(?#a\\))b", "(?x: a b)", "(?W:a)", "(?a)", "(?~ab)", "(*FAIL)", "(?{x})", r"(a)\1", r"\k<a>", r"\g<1>",
       "(?<=a+)b", "(?<=a|bc)d", "(?<!a)b", "(?<=(?:a|b))b", "(?<=^)a", "(?>a+)a", "(?>a|ab)c", "(?=a)", "(?=a)*b", "(?!a)b", "^*a", r"\b*a", "*a", "a|*", "{1}a", "{", "}", "]", "a)", "(a", "[", "[]",
       "[]a]", "[^]a]", "[a-b-c]", "[a-\\d]", "[\\d-a]", "[a-[b]]", "[a&&b]", "[&&a]", "[a&&]", "[[:foo:]]", "[:alpha:]", "[[:alpha:]-z]", "[b-a]", "[\\w-]", "[\\w-x]", "[--/]", "[a--]", "[^-a]",
       "[\\p{L}--[a]]", "[a[b]", "[[]", "[[:alpha:]", "[\\]", "[a\\", "\\", "(?i:ss)", "(?i:st)", "(?i:ff)", "(?i:fi)", "(?i:f(?:i))", "(?i:f(?:i|l))", "(?i:f(?#)i)", "(?i:s{2})", "(?i:s+)", "(?i:s?s)", "(?i:sas)",
       "(?i:[s]s)", "(?i:s)s", "s(?i:s)", "(?i:a\u02be)", "(?i:i)\u0307", "(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?i:[sdmt]|ll|ve|re)", "(?i:ß+)", "(?i:ß)s", "(?i:sß)", "(?i:ßs)", "(?i:(?:h|x)\u0331)", "(?i:[h]\u0331)",
       "(?i:ss+)", "(?i:sss)", "(?i:ssss)", "(?i:ffi)", "(?i:fffi)", "(?i:f(?#x)fl)", "(?i:\\x73\\x53)", "(?i:s{1}s)", "(?i:ss{1})", "(?i:s{2}s)", "(?i:ss{2})", "(?i:s+s)",
       "(?i:(?:ss){2})", "(?i:(?:sas)+)", "(?i:(?:s)+)", "(?i:(?:s){2}s)", "(?i:(?:s|a)s)", "(?i:s(?=s)s)", "(?i:s(?i:s))", "(?i)ss(?-i)ss", "(?i:s\\bs)", "(?i:s{)", "(?i:ss{,)", "(?i:sß)",
       "(?i:st|ss|ff)+", "(?i:\u03b9\u0308(?:\u0301))", "(?i:\u03b9\u0308\u0301+)", "(?i:\u0565\u0582)", "(?<=(?i:ss))a", "(?i:(?<=ffi)a)", "(?i:(?<!ß)a)", "(?i:(?<=[ß])a)", "(?i:(?<=s)s)",
       "(a)\\1", "(a|b)\\1", "(a+)b\\1", "(a)(b)\\2\\1", "(?<n>a|b)\\k<n>", "(?'n'a|b)\\k'n'", "(a|b)\\k<1>", "(a)\\k<-1>", "(a)\\k'1'", "(?<n>a)(b)\\k<n>", "(?<n>a)\\1", "(a)(?<n>b)\\1",
       "(?<n>a)(?<n>b)\\k<n>", "(?<n>a)\\k<n>(?<n>b)", "(?<n>a)(?<m>b)\\k<m>", "(?:(a)|b)\\1", "(a)?\\1", "(a)?b\\1", "(a)+\\1", "(?:(a)|b)+\\1", "(?:(a)\\1)+", "(a)\\1+", "(a)\\1{2}",
       "(a|b)(?:\\1c|\\1)", "(a*)\\1", "(a*)b\\1", "()\\1a", "(?=(a|b))\\1", "(?!(a))\\1", "(a)(?=\\1)", "(a)(?!\\1)", "(a)(?<=\\1)", "(?>(a+))\\1", "(a\\1)", "\\1(a)", "\\2(a)(b)",
       "(a)\\2", "(a)\\10", "(a)\\11", "(a)\\12", "(a)\\01", "\\k<n>", "\\k<>", "\\k<1", "\\k", "(a)\\k<1+0>", "(a)\\k<0>", "(?i)(a)\\1", "(?i:(a))\\1", "(a)(?i:\\1)", "(é|日本)\\1",
       "((a)|b)\\1", "((a|b)(c|d))\\1\\2\\3", "(.)\\1", "(\\w+)\\s\\1", "(['\"])a\\1", "(.)(.)\\2\\1", "(a)[\\1]",
       "(?i:é|è)+", "(?i:[éß]{2})", "(?i:[ﬀﬃ])", "(?i:[ﬃﬀ]+)i", "(?i:[ﬀﬃ])$", "(?<=(?i:é))a", "(?<=(?i:ß))a", "(?i:ι\u0308\u0301)", "(?i:ſ)", "(?i:[^ſ])", "\\x41", "\\x{41}", "\\x4", "\\x", "\\x{}", "\\x{110000}", "\\x{d800}",
       "\\u0041", "\\u41", "\\xe9", "\\xc3\\xa9", "\\101", "\\0", "\\cA", "\\C-a", "\\M-a", "\\p{Foo}", "\\pL", "\\p{", "\\p{^^L}", "\\p{}", "[\\x41-\\x43]", "\\-", "é+", "(?i:é)", "日本|語"]
WORDS = ["a", "b", "A", "aa", "aab", "abab", "abbac", "x", "s", "S", "ſ", "K", "ss", "ß", "ẞ", "ﬀ", "ﬁ", "ﬆ", "st", "ff", "fi", "ẚ", "i\u0307", "σ", "ς", "Σ", "ffi", "ﬃ", "h\u0331", "ẖ", "ΐ", "Ç", "ç", "'s", "'LL", "1", "12", " ", "  ", "\n", "\r\n", "\t",
         "\v", "\x85", "\u2028", "²", "é", "É", "日本", "-", "_", "{", "}", "]", "a{}", "a{,}", "a{1", "\\", "\x00", "\x1b", "\x08", "&", "[", ",", "2", "ab", "bc", "d", "語", "x1b"]


CASED = [c for c in map(chr, ALL) if len({c, c.lower(), c.upper(), c.title(), c.casefold()}) > 1] + list("\uA7CB\uA7CC\uA7DA\uA7DC\u1C89\U00010D50\U00010D70")
FOLDED = {}
for c in map(chr, ALL):
    if len(c.casefold()) > 1:
        FOLDED.setdefault(c.casefold(), []).append(c)


# Every sequence of letters that case folding maps to one letter: alone, among others, in any case, with any part repeated.
def test_letter_sequences_match_the_letter_that_they_fold_to(spans):
    draw = random.Random(3)
    parts = sorted(FOLDED)
    cases = {letter: sorted({letter, *(c for c in CASED if c.casefold() == letter)}) for letter in {letter for part in parts for letter in part}}
    wrong, read = [], 0
    for number in range(12_000 if NIGHTLY else 900):
        row = [draw.choice(parts) if draw.random() < 0.75 else draw.choice("abks1") for _ in range(draw.randint(1, 3))]
        row[0] = parts[number % len(parts)]
        letters = "".join(row)[draw.choice([0, 0, 0, 1]):]
        pattern = "".join(draw.choice(cases.get(c, [c])) + draw.choice([""] * 12 + ["+", "?", "{2}", "(?#-)"]) for c in letters)
        texts = [letters.translate({ord(c): draw.choice(cases.get(c, [c])) for c in letters}) for _ in range(3)]
        for _ in range(6):
            part = draw.choice([*row, *parts[:1]])
            texts.append("".join(draw.choice(FOLDED[part]) + rest for rest in letters.split(part))[:-1] if part in FOLDED else letters)
            texts.append(letters.replace(part, draw.choice(FOLDED.get(part, ["x"]))))
        ours = spans(f"(?i:{pattern})", text="1".join(texts))
        read += isinstance(ours, list)
        if difference(ours, f"(?i:{pattern})", "1".join(texts)):
            wrong.append((pattern, "1".join(texts), ours, library(f"(?i:{pattern})", "1".join(texts))))
    assert not wrong, f"{len(wrong)}, the first {sorted(wrong, key=lambda w: len(w[0]) + len(w[1]))[:6]}"
    assert read == number + 1



# Every letter with another case, including those that fold to several characters.
def test_each_letter_matches_its_cases_under_the_option_i(spans):
    text = "1".join(CASED) + "1" + "1".join(c.casefold() for c in CASED if len(c.casefold()) > 1) + "1sS1ſs1FFi1"
    wrong = []
    for c in CASED if NIGHTLY else [c for c in CASED if len(c.casefold()) > 1] + CASED[::23]:
        for pattern in [f"(?i:{c})", f"(?i:[{c}])+", f"(?i:[^{c}])", f"(?i:{c}x|{c})"]:
            ours = spans(pattern, text=text)
            if difference(ours, pattern, text) or not isinstance(ours, list):
                wrong.append((pattern, ours if isinstance(ours, str) else difference(ours, pattern, text)))
    assert not wrong, f"{len(wrong)}, the first {wrong[:8]}"


def random_line(draw):
    return "".join(draw.choices(WORDS, k=draw.randint(0, 14)))


def test_every_escape_and_unusual_form_matches_equally_or_is_rejected(spans):
    draw = random.Random(1)
    texts = ["", "a", "ab", "\n", "a\n", "a\nb\n", "aaaaaaa", "ba"] + [random_line(draw) for _ in range(200 if NIGHTLY else 12)]
    wrong = []
    for pattern in ODD + ESCAPES + [f"[{escape}]" for escape in ESCAPES] + [f"(?i:{escape})" for escape in ESCAPES]:
        for text in texts + [c for c in pattern]:
            problem = difference(spans(pattern, text=text), pattern, text)
            if problem:
                wrong.append((pattern, text, problem))
                break
    assert not wrong, f"{len(wrong)}, the first {wrong[:10]}"


def random_atom(draw, depth):
    if depth > 0 and draw.random() < 0.4:
        opening = draw.choice(["(", "(", "(?:", "(?:", "(?>", "(?=", "(?!", "(?<!", "(?<=", "(?i:", "(?i:", "(?m:", "(?-i:", "(?i)"])
        inner = random_pattern(draw, depth - 1)
        return opening + inner + (")" if opening != "(?i)" else "")
    return draw.choice(["a", "b", "s", "t", "'", "é", "ß", "σ", "[éß]", "[^çß]", "[ﬃς]", "\u0331", " ", ".", "\\n", "\\s", "\\S", "\\w", "\\W", "\\d", "\\h", "\\b", "\\B", "^", "$", "\\A", "\\z", "\\Z", "\\R", "[ab]",
                        "[^ab]", "[a-z&&[^b]]", "[\\w']", "[^\\s]", "\\p{L}", "\\p{Lu}", "[\\p{L}\\p{M}]", "\\P{L}", "x", "12", "|", "|", "\\1", "\\1", "\\2", "f", "fi", "[[:alpha:]]", "[[:^digit:]1]", "{", "}"])


def random_pattern(draw, depth=2):
    out = ""
    for _ in range(draw.randint(1, 4)):
        out += random_atom(draw, depth)
        if draw.random() < 0.45:
            out += draw.choice(["*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,2}", "{,2}", "{1,}", "{2}?", "{1,2}?", "{1,2}+", "**", "+*"])
    return out


def test_random_patterns_split_random_texts_equally(spans):
    draw = random.Random(2)
    wrong, read = [], 0
    for _ in range(60_000 if NIGHTLY else 2_500):
        pattern, text = random_pattern(draw), random_line(draw)
        ours = spans(pattern, text=text)
        read += isinstance(ours, list)
        problem = difference(ours, pattern, text)
        if problem:
            wrong.append((pattern, text, ours, library(pattern, text)))
    assert not wrong, f"{len(wrong)}, the first {sorted(wrong, key=lambda w: len(w[0]) + len(w[1]))[:8]}"
    assert read > 1_000

"""Compares `evenkeel tokenize` with the `tokenizers` library: ids and decoded text."""
import json
import random
import resource
import subprocess

import pytest

from forked import EVENKEEL, forked_bytes
from tokenizer_peer import BOTH, CODE_POINTS, DATA, ENGLISH, compare, fails, need, random_texts, run, saver_of
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OLMO = DATA / "tokenizer" / "allenai_gpt-neox-olmo-dolma-v1_5.json"

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def trained(pre_tokenizer, vocab=600, normalizer=None, **model):
    """Returns a small tokenizer trained by the library."""
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(ENGLISH * 3 + random_texts(300, 1), trainer)
    return tokenizer


def gpt2():
    tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta():
    tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=True), unk_token="<unk>",
                        continuing_subword_prefix="", end_of_word_suffix="")
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=True)
    return tokenizer


def llama3(pattern):
    tokenizer = trained(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 0)])])
    return tokenizer


def template():
    tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.NFC())
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A </s> </s>", "<s> $A </s> $B </s>", [("<s>", 0), ("</s>", 2)])
    return tokenizer


def digits():
    return trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                            pre_tokenizers.ByteLevel(add_prefix_space=False)]))


def one_piece():
    return trained(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))


def splits(behavior, invert):
    return lambda: trained(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\s+|[\w]*['-]"), behavior, invert=invert), pre_tokenizers.Split("a", behavior),
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)]))


KINDS = {
    "gpt2": gpt2, "roberta": roberta, "llama3": lambda: llama3(CL100K), "o200k": lambda: llama3(O200K),
    "template": template, "digits": digits, "one_piece": one_piece,
    "split_removed": splits("removed", False), "split_previous": splits("merged_with_previous", False),
    "split_next": splits("merged_with_next", True), "split_contiguous": splits("contiguous", False),
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    return saver_of(KINDS, tmp_path_factory.mktemp("kinds"))


def test_reference_encodings_are_reproduced_and_decoded():
    cases = json.loads(need(DATA / "tokenizer" / "reference_encodings.json").read_text())["cases"]
    ours = run(OLMO, [case["text"] for case in cases])
    assert len(cases) == 88
    assert [case["ids"] for case in cases] == ours


BOOKS = ["gutenberg/moby_dick.txt", "gutenberg/sherlock_holmes.txt", "tinyshakespeare/input.txt", "wikitext-2/test.txt",
         "wikitext-2/valid.txt"]


@pytest.mark.parametrize("book", BOOKS)
def test_whole_books_are_encoded_and_decoded_equally(book):
    text = need(DATA / book).read_bytes().decode()
    compare(need(OLMO), [text], ways=BOTH[:1])


def test_plain_lines_end_only_at_newline(tmp_path):
    text = need(DATA / "wikitext-2/test.txt").read_bytes().decode()[:200_000] + "\x0b\x0c\r\x85\u2028 end\n\n\nlast"
    (tmp_path / "text").write_bytes(text.encode())
    command = ["tokenize", "--model", need(OLMO), "--input"]
    done = forked_bytes(*command, tmp_path / "text")
    assert done.returncode == 0, done.stderr
    library = Tokenizer.from_file(str(OLMO))
    lines = done.stdout.decode().splitlines()
    assert [json.loads(line) for line in lines] == [library.encode(line).ids for line in text.split("\n")]
    (tmp_path / "ids").write_bytes(done.stdout)
    back = forked_bytes(*command, tmp_path / "ids", "--decode")
    assert back.returncode == 0, back.stderr
    assert back.stdout.decode() == "\n".join(library.decode(json.loads(line)) for line in lines) + "\n"


def test_twelve_thousand_random_strings_are_encoded_equally_by_the_olmo_tokenizer():
    compare(need(OLMO), random_texts(12_000, 20))


@pytest.mark.parametrize("kind", KINDS)
def test_random_strings_are_encoded_equally_by_every_kind(kinds, kind):
    compare(kinds(kind), random_texts(1_000, 21) + ENGLISH)


def test_every_code_point_has_its_class_and_normal_form():
    """Puts each code point among letters, digits, spaces, marks and itself, which reveals a wrong category or combining
    class.
    """
    texts = []
    for start in range(0, len(CODE_POINTS), 512):
        texts.append("".join(f"a{chr(c)}1{chr(c)} {chr(c)}\u0345{chr(c)}\u0334{chr(c)}" for c in CODE_POINTS[start:start + 512]))
    compare(need(OLMO), texts, decode=False, ways=BOTH[:1])


def test_a_split_pattern_splits_every_code_point_equally(kinds):
    texts = ["".join(f"b{chr(c)}2{chr(c)} {chr(c)}" for c in CODE_POINTS[i:i + 512]) for i in range(0, len(CODE_POINTS), 512)]
    compare(kinds("o200k"), texts, decode=False, ways=BOTH[:1])


MEGABYTE = 1 << 20


def huge(name):
    draw = random.Random(5)
    return {
        "one letter": lambda: "a" * MEGABYTE,
        "random letters": lambda: "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=MEGABYTE)),
        "two letters": lambda: "".join(draw.choices("ab", k=MEGABYTE)),
        "digits": lambda: "".join(draw.choices("0123456789", k=MEGABYTE)),
        "spaces": lambda: " " * MEGABYTE + "end",
        "newlines": lambda: "\n" * MEGABYTE + "end",
        "punctuation": lambda: "".join(draw.choices("!?.-_=", k=MEGABYTE)),
        "cjk": lambda: "".join(chr(draw.randint(0x4E00, 0x9FFF)) for _ in range(MEGABYTE // 3)),
        "emoji": lambda: "👩‍👩‍👧‍👦" * (MEGABYTE // 25),
        "marks": lambda: "e" + "".join(draw.choices("\u0301\u0323\u0345\u0334\u0327", k=MEGABYTE // 2)),
        "words on one line": lambda: " ".join(draw.choices(["hello", "it's", "naïve", "2024", "--"], k=MEGABYTE // 6)),
        "added tokens": lambda: "<|endoftext|>|||IP_ADDRESS|||<|endof " * (MEGABYTE // 37),
    }[name]()


HUGE = ["one letter", "random letters", "two letters", "digits", "spaces", "newlines", "punctuation", "cjk", "emoji", "marks",
        "words on one line", "added tokens"]


@pytest.mark.parametrize("name", HUGE)
def test_a_line_of_a_megabyte_is_encoded_equally_and_fast(name):
    text = huge(name)
    compare(need(OLMO), [text], ways=BOTH[:1])
    seconds = lambda: resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    before = seconds()
    subprocess.run([EVENKEEL, "tokenize", "--model", OLMO, "--input", "-", "--jsonl"], input=json.dumps(text).encode(), check=True,
                   capture_output=True)
    assert 0 < seconds() - before < 6


@pytest.mark.parametrize("name", ["random letters", "spaces", "newlines", "digits", "marks", "words on one line"])
def test_a_line_of_a_megabyte_is_split_equally_by_a_pattern(kinds, name):
    compare(kinds("llama3"), [huge(name)], ways=BOTH[:1])


CONTENTS = ["<a>", "<a><b>", "<b>", "ab", "abc", "  ", "   ", "\n", "é", "e\u0301x", "Å", "mot-clé", "x y", "_w_", "名前", "\u0301", "1"]


def encodable(library, text):
    """Returns false if the library itself fails: a token that strips to the left inside the text that another stripped
    to the right.
    """
    try:
        library.encode(text)
    except BaseException as error:
        if "Panic" not in type(error).__name__:
            raise
        return False
    return True


@pytest.mark.parametrize("seed", range(8))
def test_added_tokens_with_any_flags_are_encoded_equally(tmp_path, seed):
    draw = random.Random(seed)
    tokenizer = gpt2() if seed % 2 else template()
    flag = lambda: draw.random() < 0.4
    for content in draw.sample(CONTENTS, 9):
        token = AddedToken(content, single_word=flag(), lstrip=flag(), rstrip=flag(), normalized=flag(), special=flag())
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    parts = CONTENTS + [" ", "\t", "word", "-", "\u00a0", "\u200d", "ⓐ", "9", ".", "a", "b", "c", "\u0323"]
    texts = ["".join(draw.choices(parts, k=draw.randint(1, 14))) for _ in range(1_200)]
    texts = [text for text in texts if encodable(tokenizer, text)]
    assert len(texts) > 800
    # Releases of the library decode a token that normalisation changes differently.
    compare(tmp_path / "tokenizer.json", texts, decode=tokenizer.normalizer is None)


@pytest.mark.parametrize("form", ["pairs", "lines"])
def test_merges_are_read_as_pairs_and_as_lines(kinds, tmp_path, form):
    content = json.loads(kinds("gpt2").read_text())
    merges = [m if isinstance(m, list) else m.split(" ") for m in content["model"]["merges"]]
    content["model"]["merges"] = merges if form == "pairs" else ["#version: 0.2"] + [" ".join(m) for m in merges]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    compare(tmp_path / "tokenizer.json", random_texts(300, 22))


def test_gaps_in_the_vocabulary_and_missing_bytes_are_encoded_equally(kinds, tmp_path):
    content = json.loads(kinds("gpt2").read_text())
    model = content["model"]
    model["vocab"] = {token: id * 3 for token, id in model["vocab"].items()}
    content["added_tokens"] = [dict(t, id=t["id"] * 3) for t in content["added_tokens"]]
    used = {part for merge in model["merges"] for part in merge}
    for symbol in ("Ġ", "!", "0", "ÿ"):
        if symbol not in used:
            model["vocab"].pop(symbol, None)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    compare(tmp_path / "tokenizer.json", random_texts(300, 23) + ["0!!00 é !"])


@pytest.mark.parametrize("fuse", [False, True])
def test_unknown_bytes_become_the_unk_token(kinds, tmp_path, fuse):
    content = json.loads(kinds("roberta").read_text())
    content["model"] |= {"fuse_unk": fuse, "merges": [], "vocab": {
        token: id for token, id in content["model"]["vocab"].items() if len(token) == 1 and token.isalpha() or token[0] == "<"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    compare(tmp_path / "tokenizer.json", random_texts(300, 24) + ["a!!b!c 12"])


@pytest.mark.parametrize("size", [300, 2048])
def test_our_trainer_equals_the_trainer_of_the_library(tmp_path, size):
    texts = [need(DATA / "tinyshakespeare/input.txt").read_text()[:300_000], *ENGLISH, *random_texts(200, 3)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(text) + "\n" for text in texts))
    done = forked_bytes("tokenize", "--train", size, "--jsonl", "--input", corpus, "--model", tmp_path)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "tokenizer.json"
    compare(file, random_texts(500, 4) + [texts[0][:5_000]])

    library = Tokenizer(models.BPE())
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>", "<|padding|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    assert Tokenizer.from_file(str(file)).get_vocab() == library.get_vocab()


def test_bad_input_is_reported_in_one_line(kinds, tmp_path):
    model = kinds("gpt2")
    assert "no tokenizer.json" in fails("--model", tmp_path, "--input", "-")
    assert "cannot be read" in fails("--model", model, "--input", tmp_path / "missing")
    assert "-:2" in fails("--model", model, "--input", "-", text=b"fine\nb\xffd\n")
    assert "the line is [1], expected a string" in fails("--model", model, "--input", "-", "--jsonl", text=b"[1]\n")
    assert "allowed: 0 to" in fails("--model", model, "--input", "-", "--decode", text=b"[1, 999999]\n")
    assert "allowed: 0 to" in fails("--model", model, "--input", "-", "--decode", text=b"[-1]\n")
    assert "not valid JSON" in fails("--model", model, "--input", "-", "--decode", text=b"[1\n")
    assert "at least 258" in fails("--train", "100", "--model", tmp_path / "new", "--input", model)
    assert "exists" in fails("--train", "300", "--model", model.parent, "--input", model)

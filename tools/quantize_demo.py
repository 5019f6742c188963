#!/usr/bin/env python3
"""Make models/exode-demo-int4 from the bf16 demo checkpoint with AutoRound.

Usage:
  python tools/quantize_demo.py --source DIR_BF16 --output models/exode-demo-int4
      [--calibration FILE.npy] [--save-calibration FILE.npy]
      [--iters 200] [--threads 2] [--seed 42]

Versions it was run with: Python 3.11, auto-round 0.16.1, transformers 5.24.0,
torch 2.15.0 (CPU), safetensors 0.8.0, tokenizers 0.23.3, numpy 2.4.6.

Steps:
 1. Calibration tokens: 64 windows of local documents (man pages, Python library
    sources, README files of Debian packages) and 64 windows sampled from the bf16
    model itself (chat). No text of validation.jsonl is used: a document that shares
    lines with it is dropped. The documents depend on the packages of the machine, so
    --save-calibration stores the token matrix [windows, length] and --calibration
    reuses it; the SHA-256 of the matrix is printed either way.
 2. AutoRound (sign-gradient rounding, block by block) on the trunk: int4, group 128,
    symmetric, packing `auto_round:auto_gptq`. Linears whose sides are not multiples
    of 32 (in_proj_a, in_proj_b) stay plain. AutoRound then adds the MTP tensors that
    transformers drops and rounds mtp.layers.0.* to nearest with the same packing.
 3. Everything goes into one model.safetensors. Tensors that stay plain are taken bit
    for bit from the source file (loading in bf16 would round A_log and norm.weight).
 4. Check: unpack the written file with numpy and compare with the weights AutoRound
    left in the model, and with the source for the MTP layer.
"""

import argparse
import gzip
import hashlib
import json
import os
import random
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from demo_int4 import dequantise, packed_modules, spread

WINDOW = 512
DOCUMENT_WINDOWS = 64
CHAT_WINDOWS = 64
COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def long_lines(text):
  return {line.strip() for line in text.splitlines() if len(line.strip()) >= 40}


def read_man_page(path):
  environment = dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8", MANPAGER="cat")
  page = subprocess.run(["man", "-l", str(path)], env=environment, capture_output=True,
                        check=False)
  return page.stdout.decode("utf-8", "replace")


def read_text(path):
  data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
  return data.decode("utf-8", "replace")


def document_sources():
  """(paths, reader, windows wanted) per kind of document."""
  man = [p for s in "1235678" for p in Path(f"/usr/share/man/man{s}").glob("*.gz")
         if not p.name.startswith("gcloud")]  # 20,000 generated pages would swamp the rest
  library = [p for p in Path(sysconfig.get_path("stdlib")).glob("*.py")]
  readmes = list(Path("/usr/share/doc").glob("*/README*"))
  return [(man, read_man_page, DOCUMENT_WINDOWS // 2),
          (library, read_text, DOCUMENT_WINDOWS // 4),
          (readmes, read_text, DOCUMENT_WINDOWS // 4)]


def document_windows(tokenizer, validation, seed):
  """First WINDOW tokens of documents that share no passage with the validation text."""
  held_out = set().union(*(long_lines(json.loads(line)[1]) for line in validation.open()))
  rng = random.Random(seed)
  windows = []
  for paths, reader, wanted in document_sources():
    paths = sorted(p for p in paths if p.is_file() and not p.is_symlink())
    rng.shuffle(paths)
    taken = 0
    for path in paths:
      if taken == wanted:
        break
      text = reader(path)
      if len(long_lines(text) & held_out) > 2:
        continue
      ids = tokenizer(text[:20000], add_special_tokens=False)["input_ids"][:WINDOW]
      if len(ids) == WINDOW:
        windows.append(ids)
        taken += 1
    if taken < wanted:
      raise SystemExit(f"only {taken} of {wanted} documents found for {reader.__name__}")
  return windows


@torch.no_grad()
def chat_windows(model, tokenizer, seed):
  """Dialogues sampled from the bf16 model at temperature 1, one long row each."""
  torch.manual_seed(seed)
  starts = ["<|im_start|>user\n", "<|im_start|>system\n"]
  rows = []
  for start in starts:
    ids = tokenizer(start, add_special_tokens=False, return_tensors="pt")["input_ids"]
    ids = ids.repeat(CHAT_WINDOWS // len(starts), 1)
    out, step, cache = ids, ids, None
    while out.shape[1] < WINDOW:
      result = model(step, cache=cache, use_cache=True, logits_to_keep=1)
      cache = result.cache
      logits = result.logits[:, -1].float()
      logits[:, tokenizer.pad_token_id] = float("-inf")
      step = torch.multinomial(torch.softmax(logits, -1), 1)
      out = torch.cat([out, step], 1)
    rows += out.tolist()
  return rows


def calibration_tokens(args, tokenizer):
  if args.calibration:
    return np.load(args.calibration)
  model = AutoModelForCausalLM.from_pretrained(args.source, dtype=torch.float32).eval()
  rows = document_windows(tokenizer, args.source / "validation.jsonl", args.seed)
  rows += chat_windows(model, tokenizer, args.seed)
  random.Random(args.seed).shuffle(rows)
  return np.array(rows, dtype=np.int32)


def run_autoround(args, tokenizer, tokens, target):
  """Quantises into `target`; returns AutoRound's own rounded weights per module."""
  from auto_round import AutoRound
  model = AutoModelForCausalLM.from_pretrained(args.source, dtype=torch.bfloat16)
  # No mask: AutoRound replays the first block's mask for all blocks, but here the kinds
  # of layer take different masks. All windows are full, so plain causality is right.
  batches = [{"input_ids": rows, "attention_mask": None}
             for rows in torch.from_numpy(tokens).long().split(args.batch)]
  rounder = AutoRound(model, tokenizer, scheme="W4A16", dataset=batches, seqlen=WINDOW,
                      nsamples=len(tokens), batch_size=args.batch, iters=args.iters,
                      seed=args.seed, device_map="cpu", enable_torch_compile=False)
  rounded, _ = rounder.quantize()
  own = {name: module.weight.detach().float().numpy().copy()
         for name, module in rounded.named_modules() if isinstance(module, torch.nn.Linear)}
  rounder.save_quantized(str(target), format="auto_round")
  return own


def assemble(source, exported, output):
  """One model.safetensors and the source's config plus quantization_config."""
  tensors = {}
  for part in sorted(exported.glob("*.safetensors")):
    tensors.update(load_file(part))
  for name, tensor in load_file(source / "model.safetensors").items():
    module = name.removesuffix(".weight")
    if f"{module}.qweight" not in tensors:
      tensors[name] = tensor
  save_file({k: v.contiguous() for k, v in tensors.items()}, output / "model.safetensors",
            metadata={"format": "pt"})
  (output / "model.safetensors").chmod(0o644)
  config = json.loads((source / "config.json").read_text())
  config["quantization_config"] = json.loads(
      (exported / "config.json").read_text())["quantization_config"]
  (output / "config.json").write_text(json.dumps(config, indent=2) + "\n")
  for name in COPIED:
    shutil.copyfile(source / name, output / name)
    (output / name).chmod(0o644)


def check(source, output, own):
  """Compares the written codes with AutoRound's weights and the source's MTP layer."""
  tensors = load_file(output / "model.safetensors")
  plain = load_file(source / "model.safetensors")
  worst = {"trunk": [], "mtp": []}
  for name in packed_modules(tensors):
    kind = "trunk" if name in own else "mtp"
    wanted = own[name] if name in own else plain[f"{name}.weight"].float().numpy()
    step = np.abs(spread(tensors[f"{name}.scales"].float().numpy()))
    worst[kind].append(float((np.abs(dequantise(tensors, name) - wanted) / step).max()))
  # AutoRound's own weights are bf16 (8 bits, at most 8 steps long): 1/16 step is rounding,
  # a wrong code is a whole step. RTN clips one end of the range: up to one step.
  for kind, limit in (("trunk", 1 / 16), ("mtp", 1.01)):
    print(f"check: {kind}: {len(worst[kind])} modules, worst {max(worst[kind]):.4f} steps")
    if max(worst[kind]) > limit:
      raise SystemExit("the written weights do not match")


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--source", type=Path, required=True)
  parser.add_argument("--output", type=Path, required=True)
  parser.add_argument("--calibration", type=Path)
  parser.add_argument("--save-calibration", type=Path)
  parser.add_argument("--iters", type=int, default=200)
  parser.add_argument("--batch", type=int, default=4)
  parser.add_argument("--threads", type=int, default=2)
  parser.add_argument("--seed", type=int, default=42)
  args = parser.parse_args()
  torch.set_num_threads(args.threads)
  tokenizer = AutoTokenizer.from_pretrained(args.source)
  tokens = calibration_tokens(args, tokenizer)
  if args.save_calibration:
    np.save(args.save_calibration, tokens)
  print("calibration", tokens.shape, "sha256", hashlib.sha256(tokens.tobytes()).hexdigest())
  args.output.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory() as scratch:
    own = run_autoround(args, tokenizer, tokens, Path(scratch) / "export")
    exported = next(Path(scratch).rglob("config.json")).parent
    assemble(args.source, exported, args.output)
  check(args.source, args.output, own)


if __name__ == "__main__":
  main()

#!/usr/bin/env python3
"""Reference figures of the demo model, computed with transformers in float32.

Usage:
  python tools/reference_perplexity.py --source DIR_BF16 --model models/exode-demo-int4
      [--output tests/golden/demo] [--lines 400] [--only perplexity|golden] [--threads 2]

Versions it was run with: Python 3.11, transformers 5.24.0, torch 2.15.0 (CPU),
safetensors 0.8.0, tokenizers 0.23.3, numpy 2.4.6.

Three sets of weights, all expanded to float32 and run by Qwen3_5ForCausalLM:
  bf16            the source checkpoint
  int4-autoround  the packed file of --model, dequantised
  int4-rtn        the source, the same linears rounded to nearest (group 128, symmetric)

Perplexity, the same rule as `exode eval --perplexity FILE.jsonl --lines N`:
  every line of validation.jsonl is ["kind", text]; the text is tokenised on its own
  (special tokens parsed, no BOS) and cut to 2048 tokens; lines with fewer than 2 tokens
  are skipped; the mean negative log-likelihood runs over all predicted tokens
  (positions 1 ...) of all lines; perplexity = exp(mean). --lines N reads the first N
  lines, 0 reads all.

Files written: perplexity.json (one entry per model and number of lines; others are
kept), greedy.json (48 greedy tokens per reference prompt of int4-autoround) and
logits.json (top 5 of every position of the first prompt).
"""

import argparse
import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from demo_int4 import dequantise, packed_modules, round_to_nearest

MAX_TOKENS = 2048
GREEDY_TOKENS = 48
MODELS = ("bf16", "int4-autoround", "int4-rtn")


def float_weights(kind, source, packed):
  """State dict of the trunk in float32 for one of MODELS."""
  plain = {k: v.float() for k, v in load_file(source / "model.safetensors").items()}
  modules = packed_modules(packed)
  if kind == "int4-autoround":
    plain = {k: v.float() for k, v in packed.items()
             if not k.endswith((".qweight", ".qzeros", ".scales"))}
    plain |= {f"{m}.weight": torch.from_numpy(dequantise(packed, m)) for m in modules}
  elif kind == "int4-rtn":
    for name in (f"{m}.weight" for m in modules):
      plain[name] = torch.from_numpy(round_to_nearest(plain[name].numpy()))
  return {k: v for k, v in plain.items() if not k.startswith("mtp.")}


def load(kind, args, packed):
  config = AutoConfig.from_pretrained(args.source)
  model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
  missing, unexpected = model.load_state_dict(float_weights(kind, args.source, packed),
                                              strict=False)
  if unexpected or set(missing) - {"lm_head.weight"}:  # tied to embed_tokens
    raise SystemExit(f"{kind}: missing {missing}, unexpected {unexpected}")
  model.tie_weights()
  return model.eval()


def read_lines(path, limit):
  with path.open() as file:
    lines = [json.loads(line) for line in file]
  return lines[:limit] if limit else lines


@torch.no_grad()
def line_nll(model, ids):
  """Sum of -log p over positions 1 ... of one line."""
  ids = torch.tensor([ids])
  logits = model(ids, use_cache=False).logits[0, :-1]
  picked = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])
  return -picked.double().sum().item()


def summary(pairs):
  """pairs: (nll sum, predicted tokens) per line."""
  tokens = sum(n for _, n in pairs)
  mean = sum(s for s, _ in pairs) / tokens
  return {"lines": len(pairs), "tokens": tokens, "nll": round(mean, 6),
          "ppl": round(math.exp(mean), 4)}


def perplexity(model, tokenizer, lines):
  kinds = {}
  for kind, text in lines:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][:MAX_TOKENS]
    if len(ids) >= 2:
      kinds.setdefault(kind, []).append((line_nll(model, ids), len(ids) - 1))
  everything = [pair for pairs in kinds.values() for pair in pairs]
  return summary(everything) | {"kinds": {k: summary(p) for k, p in sorted(kinds.items())}}


def write_perplexity(args, tokenizer, packed):
  path = args.output / "perplexity.json"
  entries = json.loads(path.read_text()) if path.exists() else []
  lines = read_lines(args.source / "validation.jsonl", args.lines)
  for kind in MODELS:
    result = {"model": kind} | perplexity(load(kind, args, packed), tokenizer, lines)
    print(json.dumps(result), flush=True)
    entries = [e for e in entries if (e["model"], e["lines"]) != (kind, result["lines"])]
    entries.append(result)
    entries.sort(key=lambda e: (e["lines"], MODELS.index(e["model"])))
    path.write_text(json.dumps(entries, indent=1) + "\n")


@torch.no_grad()
def greedy(model, ids, count):
  """`count` argmax tokens (no stop at end-of-text) and each one's lead over the second."""
  tokens, margins, cache, step = [], [], None, torch.tensor([ids])
  for _ in range(count):
    result = model(step, cache=cache, use_cache=True, logits_to_keep=1)
    cache = result.cache
    best = torch.topk(result.logits[0, -1], 2)
    tokens.append(best.indices[0].item())
    margins.append(round((best.values[0] - best.values[1]).item(), 5))
    step = best.indices[:1][None]
  return tokens, margins


@torch.no_grad()
def check_reference(model, source):
  """Compares this machine's bf16 figures with reference.safetensors."""
  stored = load_file(source / "reference.safetensors")
  for case in range(len(stored) // 3):
    ids = stored[f"case{case}.input_ids"]
    logits = model(ids[None], use_cache=False).logits[0]
    wanted = stored[f"case{case}.greedy_ids"].tolist()
    tokens, margins = greedy(model, ids.tolist(), len(wanted))
    worst = (logits - stored[f"case{case}.logits"]).abs().max().item()
    print(f"reference case{case}: worst logit difference {worst:.2e}, "
          f"greedy equal {tokens == wanted}, smallest margin {min(margins)}")


@torch.no_grad()
def write_golden(args, tokenizer, packed):
  check_reference(load("bf16", args, packed), args.source)
  model = load("int4-autoround", args, packed)
  prompts = json.loads((args.source / "reference_prompts.json").read_text())
  cases = []
  for prompt in prompts:
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    tokens, margins = greedy(model, ids, GREEDY_TOKENS)
    cases.append({"prompt": prompt, "input_ids": ids, "greedy_ids": tokens,
                  "min_margin": min(margins), "margins": margins})
    print(f"greedy {prompt[:24]!r}: smallest margin {min(margins)}")
  document = {"model": "int4-autoround", "cases": cases}
  (args.output / "greedy.json").write_text(json.dumps(document) + "\n")

  ids = cases[0]["input_ids"]
  logits = model(torch.tensor([ids]), use_cache=False).logits[0]
  best = torch.topk(logits, 5)
  document = {"model": "int4-autoround", "prompt": prompts[0], "input_ids": ids,
              "top_ids": best.indices.tolist(),
              "top_logits": [[round(v, 5) for v in row] for row in best.values.tolist()],
              "logsumexp": [round(v, 5) for v in torch.logsumexp(logits, -1).tolist()]}
  (args.output / "logits.json").write_text(json.dumps(document) + "\n")


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--source", type=Path, required=True)
  parser.add_argument("--model", type=Path, required=True)
  parser.add_argument("--output", type=Path, default=Path("tests/golden/demo"))
  parser.add_argument("--lines", type=int, default=400)
  parser.add_argument("--only", choices=("perplexity", "golden"))
  parser.add_argument("--threads", type=int, default=2)
  args = parser.parse_args()
  torch.set_num_threads(args.threads)
  tokenizer = AutoTokenizer.from_pretrained(args.source)
  packed = load_file(args.model / "model.safetensors")
  args.output.mkdir(parents=True, exist_ok=True)
  if args.only != "perplexity":
    write_golden(args, tokenizer, packed)
  if args.only != "golden":
    write_perplexity(args, tokenizer, packed)


if __name__ == "__main__":
  main()

#!/usr/bin/env python3
"""Runs the exode binary as a user would: generate, eval, inspect, serve, and every kind of mistake.

usage: test_cli.py EXODE MODEL [--shared FOLDER]        (standard library only)

With --shared, perplexity is compared with the figures that transformers gave (tests/golden/demo).
"""

import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIRST_TOKEN_SECONDS = 1.5
PERPLEXITY_TOLERANCE = 0.005


class Cli:
    def __init__(self, exode, model):
        self.exode, self.model = exode, model

    def run(self, *args, code=0):
        done = subprocess.run(
            [self.exode, *map(str, args)], capture_output=True, text=True, timeout=600
        )
        assert (
            done.returncode == code
        ), f"{args}: exit {done.returncode}, not {code}\n{done.stderr}"
        return done

    def generate(self, *args):
        out = self.run("generate", self.model, "--json", *args).stdout
        return json.loads(out.strip().splitlines()[-1])

    def refuses(self, *args, code, says):
        message = self.run(*args, code=code).stderr
        assert re.search(says, message), f"{args}: '{says}' is not in\n{message}"
        assert "check failed" not in message


def test_generate(cli, _):
    prompt = ["--prompt", "def test_", "--max-tokens", 20, "--ignore-eos"]
    one = cli.generate(*prompt, "--temperature", 0)
    assert one["finish_reason"] == "length" and len(one["ids"]) == 20 and one["text"]
    assert one["usage"]["total_tokens"] == one["usage"]["prompt_tokens"] + 20
    for chunk in (1, 7):
        again = cli.generate(*prompt, "--temperature", 0, "--max-num-batched-tokens", chunk)
        assert again["ids"] == one["ids"], chunk
    seeded = [cli.generate(*prompt, "--seed", seed)["ids"] for seed in (5, 5, 6)]
    assert seeded[0] == seeded[1] != seeded[2]
    by_ids = cli.generate("--ids", "1,2,3", "--max-tokens", 4, "--temperature", 0)
    assert by_ids["usage"]["prompt_tokens"] == 3


def test_chat_and_inspect(cli, _):
    answer = cli.run(
        "chat", cli.model, "--prompt", "What does the ls command do?", "--max-tokens", 16
    )
    assert answer.stdout.strip()
    report = cli.run("inspect", cli.model).stdout
    assert "gptq_int4" in report and "kv cache" in report
    assert "exode" in cli.run("--version").stdout
    assert "serve" in cli.run("--help").stdout


def test_eval_logits(cli, folder):
    ids = folder / "ids.json"
    ids.write_text("[5, 6, 7, 8]")
    out = folder / "logits.safetensors"
    cli.run("eval", cli.model, "--logits", ids, "--out", out)
    data = out.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header["logits"]["dtype"] == "F32" and header["logits"]["shape"] == [4, 16384]
    assert len(data) == 8 + length + 4 * 4 * 16384


def test_mistakes(cli, folder):
    model = cli.model
    cli.refuses("generate", "/nowhere", "--prompt", "x", code=1, says="/nowhere")
    cli.refuses("generate", model, code=2, says="--prompt")
    cli.refuses("generate", model, "--ids", "1,x", code=2, says="--ids")
    cli.refuses("generate", model, "--ids", "99999999", code=2, says="vocabulary")
    cli.refuses("generate", model, "--prompt", "x", "--dtype", "int2", code=2, says="f32 or bf16")
    cli.refuses(
        "generate", model, "--prompt", "x", "--kv-cache-dtype", "q9", code=1, says="available"
    )
    cli.refuses("generate", model, "--prompt", "x", "--device", "tpu", code=2, says="cpu or cuda")
    cli.refuses("generate", model, "--prompt", "x", "--no-such-flag", code=2, says="no-such-flag")
    cli.refuses("generate", model, "--prompt", "x", "--memory-limit", "1MiB", code=1, says="GiB")
    cli.refuses(
        "generate", model, "--prompt", "x", "--memory-limit", "lots", code=2, says="not a size"
    )
    cli.refuses(
        "generate", model, "--prompt", "x " * 500, "--max-model-len", 64, code=2, says="context"
    )
    bad = folder / "bad"
    bad.mkdir()
    cli.refuses("inspect", bad, code=1, says="config.json")
    (bad / "config.json").write_text('{"model_type": "mamba9"}')
    (bad / "model.safetensors").write_bytes(b"\xff" * 64)
    cli.refuses("inspect", bad, code=2, says="safetensors")
    header = b"{}"
    (bad / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    cli.refuses("generate", bad, "--ids", "1", code=1, says="mamba9.*supported")
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    config["num_key_value_heads"] = 4
    (bad / "config.json").write_text(json.dumps(config))
    cli.refuses("generate", bad, "--ids", "1", code=2, says="num_key_value_heads")


def test_plan(cli, folder):
    plan = ["plan", "--synthetic", "qwen3.6-27b-int4", "--memory", "24GiB"]
    report = cli.run(*plan, "--max-model-len", 32768).stdout
    for line in ("weights", "workspace", "recurrent state", "kv cache", "driver and context"):
        assert re.search(rf"^  {line} ", report, re.MULTILINE), line
    largest = int(re.search(r"^largest +(\d+) tokens", report, re.MULTILINE).group(1))
    assert 32768 <= largest < 262144
    assert "does not fit" not in cli.run(*plan, "--max-model-len", largest).stdout
    refused = cli.run(*plan, "--max-model-len", largest + 64, code=1).stdout
    assert "--kv-cache-dtype" in refused and f"largest    {largest} tokens" in refused
    assert "exode-demo-int4" in cli.run("plan", cli.model, "--device", "cpu").stdout

    facts = folder / "facts.json"
    facts.write_text(
        '{"name": "small", "multiprocessors": 8, "shared_bytes_per_block": 101376,'
        ' "memory_bytes": 8589934592}'
    )
    small = ["plan", cli.model, "--device-facts", facts]
    assert "small, 8.00 GiB" in cli.run(*small).stdout
    facts.write_text('{"multiprocessors": 0}')
    cli.refuses(*small, code=2, says="multiprocessors")
    cli.refuses("plan", cli.model, "--device-facts", "gtx-1", code=1, says="rtx-3090")
    cli.refuses("plan", "--synthetic", "qwen9", code=2, says="qwen3.6-27b-int4")
    cli.refuses("plan", cli.model, "--synthetic", "tiny-int4", code=2, says="either")


def test_bench(cli, folder):
    out = folder / "bench.json"
    bench = ["bench", "--synthetic", "tiny-int4", "--steps", 3]
    text = cli.run(
        *bench, "--rows", "1,2", "--contexts", "0,100", "--prefill", 64, "--out", out
    ).stdout
    assert "bandwidth" in text and "gated_delta" in text
    report = json.loads(out.read_text())
    assert report["read_gb_s"] > 0 and report["copy_gb_s"] > 0
    assert report["peak_device_bytes"] > report["plan"]["weights"]
    shapes = [(d["context"], d["rows"]) for d in report["decode"]]
    assert shapes == [(0, 1), (0, 2), (100, 1), (100, 2)]
    for decode in report["decode"]:
        assert decode["tokens_per_s"] > 0 and decode["step_bytes"] > 0
        assert {op["op"] for op in decode["ops"]} >= {"matmul", "attend", "sample"}
        total = sum(op["us"] for op in decode["ops"])
        assert abs(decode["step_us"] - total - decode["overhead_us"]) < 1
    assert report["prefill"][0]["tokens_per_s"] > 0
    cli.refuses(*bench, "--rows", 0, code=2, says="--rows 0")
    cli.refuses(*bench, "--gpu-memory-limit", "24GiB", code=2, says="--memory-limit")


def first_token_seconds(cli):
    """From starting the process to the first streamed token of a chat."""
    start = time.monotonic()
    process = subprocess.Popen(
        [cli.exode, "serve", cli.model, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = re.search(r"http://\S+", process.stdout.readline()).group(0)
        body = {
            "messages": [{"role": "user", "content": "Hello"}],
            "stream": True,
            "max_tokens": 4,
        }
        request = urllib.request.Request(
            address + "/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as stream:
            for line in stream:
                if b'"content":"' in line and b'"content":""' not in line:
                    return time.monotonic() - start
        raise AssertionError("no token came")
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0


def test_start_to_first_token(cli, _):
    best = min(first_token_seconds(cli) for _ in range(3))
    print(f"start to first token: {best:.2f} s")
    assert best <= FIRST_TOKEN_SECONDS


def test_perplexity(cli, _, shared):
    golden = {
        row["model"]: row
        for row in json.loads((ROOT / "tests/golden/demo/perplexity.json").read_text())
    }
    measured = {}
    for name, folder in (("bf16", shared / "models/mini-bf16"), ("int4-autoround", cli.model)):
        lines = golden[name]["lines"]
        out = cli.run(
            "eval",
            folder,
            "--perplexity",
            shared / "models/mini-bf16/validation.jsonl",
            "--lines",
            lines,
            "--json",
        ).stdout
        result = json.loads(out)
        measured[name] = result["ppl"]
        print(f"perplexity {name}: {result['ppl']:.4f}, transformers {golden[name]['ppl']:.4f}")
        assert result["tokens"] == golden[name]["tokens"]
        assert abs(result["ppl"] / golden[name]["ppl"] - 1) <= PERPLEXITY_TOLERANCE
    assert measured["int4-autoround"] <= 1.05 * measured["bf16"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("exode")
    parser.add_argument("model")
    parser.add_argument("--shared", type=pathlib.Path)
    args = parser.parse_args()
    cli = Cli(args.exode, args.model)
    tests = [
        test_generate,
        test_chat_and_inspect,
        test_eval_logits,
        test_mistakes,
        test_plan,
        test_bench,
        test_start_to_first_token,
    ]
    if args.shared and (args.shared / "models/mini-bf16").is_dir():
        tests.append(lambda c, f: test_perplexity(c, f, args.shared))
    for test in tests:
        with tempfile.TemporaryDirectory() as folder:
            test(cli, pathlib.Path(folder))
        print("PASS", getattr(test, "__name__", "test"), flush=True)


if __name__ == "__main__":
    sys.exit(main())

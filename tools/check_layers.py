#!/usr/bin/env python3
"""Checks who may include whom, and that CMake says the same. The rules are tools/layers.txt.

For every file under src/ and every #include "...":
  - the included layer is the file's own or one that layers.txt lists for it;
  - units of a `siblings` folder do not see each other;
  - a layer with an `only` line sees nothing else of that other layer;
  - headers for CUDA (*.cuh, */cuda/*) stay in .cu, .cuh and cuda/ files;
  - the included file exists.
Then each src/<layer>/CMakeLists.txt must name exactly the dependencies of layers.txt.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
RULES = ROOT / "tools" / "layers.txt"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
MODULE = re.compile(r"exode_module\(\s*(\w+)\s*([^)]*)\)")
DEVICE_CALL = re.compile(
    r"\bcuda(Malloc\w*|Free\w*|Memcpy|DeviceSynchronize|StreamSynchronize)\s*\("
)
CPP = {".h", ".cc", ".cu", ".cuh"}


class Rules:
    def __init__(self, text):
        self.sees = {}  # layer -> layers it may include
        self.siblings = []  # folders whose entries may not include each other
        self.only = {}  # (layer, other layer) -> headers it may include of it
        for number, raw in enumerate(text.splitlines(), 1):
            words = raw.split("#")[0].split()
            if not words:
                continue
            if words[0] == "siblings" and len(words) == 2:
                self.siblings.append(words[1] + "/")
            elif words[0] == "only" and len(words) > 2:
                for header in words[2:]:
                    self.only.setdefault((words[1], header.split("/")[0]), set()).add(header)
            elif words[0].endswith(":"):
                self.sees[words[0][:-1]] = words[1:]
            else:
                raise SystemExit(f"tools/layers.txt:{number}: cannot read '{raw.strip()}'")


def unit_of(path, folder):
    """'kv/formats/dense/cpu.cc' and 'kv/formats/dense.cc' both belong to unit 'dense'."""
    return path[len(folder) :].split("/")[0].split(".")[0]


def is_sibling_include(path, header, folder):
    if not (path.startswith(folder) and header.startswith(folder)):
        return False
    shared = folder.rstrip("/").split("/")[-1]  # formats/formats.h declares all of them
    return unit_of(header, folder) not in {unit_of(path, folder), shared}


def include_errors(rules, path, header):
    layer, other = path.split("/")[0], header.split("/")[0]
    if other != layer and other not in rules.sees[layer]:
        yield (
            f"layer '{layer}' may not see '{header}'; it sees "
            f"{' '.join(rules.sees[layer]) or 'nothing'}: move the shared part down, or turn "
            "the dependency round"
        )
    allowed = rules.only.get((layer, other))
    if allowed and header not in allowed:
        yield f"'{layer}' sees only {', '.join(sorted(allowed))} of '{other}', not '{header}'"
    for folder in rules.siblings:
        if is_sibling_include(path, header, folder):
            yield f"'{header}' is a sibling; move the shared part up, next to {folder}"
    is_device_file = path.endswith((".cu", ".cuh")) or "/cuda/" in path
    if (header.endswith(".cuh") or "/cuda/" in header) and not is_device_file:
        yield f"host code includes the CUDA header '{header}'; go through the op or device table"
    if not (SRC / header).exists():
        yield f"'{header}' does not exist; includes are relative to src/"


def file_errors(rules, file):
    path = file.relative_to(SRC).as_posix()
    if path.split("/")[0] not in rules.sees:
        return [f"src/{path}: layer '{path.split('/')[0]}' is not in tools/layers.txt"]
    text = file.read_text(encoding="utf-8")
    errors = []
    for found in INCLUDE.finditer(text):
        line = text.count("\n", 0, found.start(1)) + 1
        errors += [f"src/{path}:{line}: {e}" for e in include_errors(rules, path, found.group(1))]
    if not path.startswith("device/cuda/"):
        for found in DEVICE_CALL.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            errors.append(
                f"src/{path}:{line}: {found.group(0)}…) allocates, frees or waits; only "
                "device/cuda/ may"
            )
    return errors


def cmake_errors(rules):
    for layer, sees in rules.sees.items():
        file = SRC / layer / "CMakeLists.txt"
        if not file.exists():
            yield f"src/{layer}/CMakeLists.txt: missing, but tools/layers.txt names the layer"
            continue
        for name, body in MODULE.findall(re.sub(r"#.*", "", file.read_text(encoding="utf-8"))):
            deps = re.search(r"\bDEPS\b(.*?)(?:\b(?:LIBS|SOURCES)\b|$)", body, re.DOTALL)
            deps = set(deps.group(1).split()) if deps else set()
            if name == layer and deps != set(sees):
                yield (
                    f"src/{layer}/CMakeLists.txt: DEPS are '{' '.join(sorted(deps))}', "
                    f"tools/layers.txt says '{' '.join(sorted(sees))}'"
                )


def main():
    rules = Rules(RULES.read_text(encoding="utf-8"))
    files = sorted(f for f in SRC.rglob("*") if f.suffix in CPP)
    errors = [e for f in files for e in file_errors(rules, f)] + list(cmake_errors(rules))
    for error in errors:
        print(error)
    print(
        f"layers: {len(files)} files, {len(errors)} errors"
        if errors
        else f"layers: {len(files)} files, ok"
    )
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

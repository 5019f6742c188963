#!/usr/bin/env bash
# The checks that need a GPU, as one table. `./x device-test --pack DIR` lays this file out as
# DIR/run.sh beside what it runs; nothing else is needed where DIR is carried to.
#   run.sh [--quick]     --quick: fewer fixtures, less under the sanitizer
# Exit status: 1 when a check failed, 77 when there is no GPU to run them on.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2

quick=
case ${1:-} in
  --quick) quick=1 ;;
  '') ;;
  *) echo "usage: run.sh [--quick]" >&2; exit 2 ;;
esac

skipped=77
failed=()
mkdir -p logs
for packed in bin/*.gz; do
  [[ ! -e $packed ]] || gunzip -f "$packed"
done
chmod +x bin/*
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# How many tests passed or, of a check that was skipped, why.
summary() {
  if [[ $1 == skipped ]]; then
    tail -n 1 "$2"
  else
    sed -n 's/^\[  PASSED  \] \([0-9]* tests*\).*/\1/p' "$2" | tail -n 1
  fi
}

# check NAME LIMIT_S COMMAND…
check() {
  local name=$1 limit=$2 log="logs/${1//[^a-z0-9]/-}.log" begin result rc
  shift 2
  begin=$(date +%s%N)
  timeout "$limit" "$@" >"$log" 2>&1
  rc=$?
  case $rc in
    0) result=ok ;;
    "$skipped") result=skipped ;;
    124) result="FAILED (over $limit s)"; failed+=("$log") ;;
    *) result="FAILED ($rc)"; failed+=("$log") ;;
  esac
  printf '%-32s %-20s %7.1f s  %s\n' "$name" "$result" \
    "$((($(date +%s%N) - begin) / 1000000))e-3" "$(summary "$result" "$log")"
}

skip() { echo "$*"; return $skipped; }

# Checkpoints are made from their recipes, the same bits everywhere.
checkpoints() {
  local recipe python
  [[ -d checkpoints ]] && return 0
  for python in python3 /usr/bin/python3 none; do
    "$python" -c 'import numpy' 2>/dev/null && break
  done
  [[ $python != none ]] || { skip "no python3 with numpy"; return; }
  for recipe in fixtures/*/; do
    "$python" fixtures/make_checkpoint.py "$recipe" "checkpoints.part/$(basename "$recipe")" ||
      return 1
  done
  mv checkpoints.part checkpoints
}

fixtures() {
  [[ -d checkpoints ]] || { skip "no checkpoints"; return; }
  bin/test_fixtures --device=cuda --references=fixtures --checkpoints=checkpoints \
    --gtest_brief=1 "--gtest_filter=$1"
}

# A recorded step against the same step launch by launch.
graph_against_eager() {
  [[ -d checkpoints ]] || { skip "no checkpoints"; return; }
  bin/exode generate --help | grep -q -- --self-test || { skip "no --self-test"; return; }
  bin/exode generate "checkpoints/$1" --device cuda --ids 1,2,3,4,5,6,7 --max-tokens 16 --self-test
}

sanitized() {
  local tool=$1 filter=$2 program rc
  program=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  [[ -x $program ]] || { skip "no compute-sanitizer"; return; }
  "$program" --tool "$tool" --error-exitcode 9 bin/test_ops --device=cuda --math=fast --isolated \
    --gtest_brief=1 "--gtest_filter=$filter" >"logs/$tool.txt" 2>&1
  rc=$?
  cat "logs/$tool.txt"
  ! grep -q 'Device not supported' "logs/$tool.txt" || { skip "not on this machine"; return; }
  return $rc
}

# So that timeout(1) can run them.
export -f skip checkpoints fixtures graph_against_eager sanitized
export skipped
shell() { check "$1" "$2" bash -c '"$@"' bash "${@:3}"; }

int4='*/qwen3_5_gptq:*/qwen3_5_moe'
all='*'
[[ -z $quick ]] || all=$int4
small='RmsNorm*:ProductRows*EqualTheReference/int4g128*:MoeRows*EqualTheReference/int4_shared_bf16'
small+=':AttendSteps*Reference/*dim64:GdnSlices*:SampleTest*Ties*:ElementwiseTest*'
[[ -z $quick ]] || small='ProductRows*Alone/int4g128:AttendSteps*Drafts*/bf16*dim64:GdnSlices*Conv*'

bin/test_ops --device=cuda '--gtest_filter=-*' >logs/device.log 2>&1
if [[ $? == "$skipped" ]]; then
  tail -n 1 logs/device.log >&2
  exit "$skipped"
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null ||
  echo "no nvidia-smi"
printf '%-32s %-20s %9s\n' check result time
check "ops on cuda, exact math" 300 bin/test_ops --device=cuda --gtest_brief=1
check "ops on cuda, 16-bit math" 300 bin/test_ops --device=cuda --math=fast --gtest_brief=1
shell "fixture checkpoints" 120 checkpoints
shell "fixtures on cuda" 900 fixtures "$all"
shell "graph against eager, dense" 60 graph_against_eager qwen3_5-gptq
shell "graph against eager, experts" 60 graph_against_eager qwen3_5-moe
shell "memory of kernels (memcheck)" 300 sanitized memcheck "$small"
shell "races in kernels (racecheck)" 300 sanitized racecheck "$small"

for log in "${failed[@]}"; do
  printf '\n== %s\n' "$log"
  grep -av '^$' "$log" | tail -n 40
done
[[ ${#failed[@]} == 0 ]]

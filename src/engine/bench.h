// Measures a model on a device: decode at several contexts and row counts, prefill, and where the
// time goes, beside the bandwidth that the same device showed in the same run.
//
// Contexts are given to sequences, not computed: their KV is zeros, which costs a step the same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/api.h"

namespace exode {

struct BenchOptions {
  std::vector<int32_t> contexts{0};                    // tokens before the first measured step
  std::vector<int32_t> rows{1};                        // sequences that decode at once
  std::vector<int32_t> prefill{};                      // prompt lengths
  int32_t steps = 64;                                  // measured steps of each decode
  std::function<void(const std::string&)> progress{};  // what is being measured
};

// All calls of one op with one cost, in one step.
struct BenchOp {
  std::string op;
  int32_t calls = 0;
  uint64_t bytes = 0, flops = 0;  // of all calls
  double seconds = 0;             // of all calls, between events (engine/profile.cc)
};

struct BenchBandwidth {  // bytes per second
  double read = 0;
  double copy = 0;  // bytes read and bytes written together
};

struct BenchDecode {
  int32_t context = 0, rows = 0;
  std::string skipped;        // why it was not measured; else empty
  double step_seconds = 0;    // mean, through the engine's stepper: graphs and one step ahead
  double submit_seconds = 0;  // of it, what the host takes to start a step
  std::vector<BenchOp> ops;   // largest first
};

struct BenchPrefill {
  int32_t tokens = 0;
  int32_t chunk = 0;  // rows of its largest step
  double seconds = 0;
  std::vector<BenchOp> ops;  // of the last full chunk
};

struct BenchReport {
  EngineFacts facts;
  BenchBandwidth bandwidth;
  std::vector<BenchDecode> decodes;
  std::vector<BenchPrefill> prefills;
  size_t peak_bytes = 0;  // in use on the device, as the driver reports it
};

// Sums over all ops of a step.
BenchOp total_of(const std::vector<BenchOp>& ops);

// Sets what the measurements need of max_num_seqs, max_model_len and kv_memory in `config`.
Result<BenchReport> run_bench(EngineConfig config, const BenchOptions& options);

}  // namespace exode

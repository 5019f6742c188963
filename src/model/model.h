// What the engine knows of a model: its geometry, and one function that runs a step.
//
// A step is a set of slices: rows of several sequences, each at its own position. There is no
// prefill path and no decode path; chunked prefill, decode and verify are slices of other lengths.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kv/kv.h"
#include "ops/exec.h"
#include "state/pool.h"

namespace exode {

struct ModelSpec {
  std::string family;  // "qwen3_5", "qwen3_5_moe", "qwen3", "llama"
  int32_t vocab = 0;   // rows of the output head
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t context_max = 0;
  std::vector<KvGeometry> kv_groups;
  std::optional<StateGeometry> state;
};

// Device views at fixed addresses, sliced to the rows and sequences of this step.
struct StepInputs {
  ConstTensorView tokens, positions, seq_of_row;  // [rows] i32; padding: -1
  SeqRows seqs;                                   // [seqs]
  ConstTensorView sample_rows;                    // [n] i32: rows whose logits are wanted
};

struct StepOutputs {
  TensorView logits;  // [n, vocab] f32
};

// The cache views of every layer, by group and index in the group.
struct Caches {
  std::vector<std::vector<KvView>> kv;
  std::vector<StateView> state;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelSpec& spec() const = 0;
  virtual void forward(Exec& x, const StepInputs& in, const Caches& caches,
                       const StepOutputs& out) const = 0;
};

}  // namespace exode

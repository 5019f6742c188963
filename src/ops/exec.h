// The only way to run an op. In plan mode nothing executes: shapes are validated, kernels looked
// up and scratch counted, so a step that was planned cannot fail for memory or a missing kernel.
//
//   Exec x(Exec::Mode::kRun, table, stream, arena);
//   auto scope = x.scope();
//   TensorView h = x.temp(DType::kF32, rows, width);     // until the scope ends
//   x(ops::RmsNorm{.x = in, .weight = w, .out = h});
#pragma once

#include <string>

#include "device/arena.h"
#include "ops/table.h"

namespace exode {

// Receives every op of a step, after its launch (in plan mode: instead of it): profiles and byte
// accounting.
class Trace {
 public:
  virtual ~Trace() = default;
  virtual void add(std::string_view op, const Cost& cost) = 0;
};

class Exec {
 public:
  enum class Mode : uint8_t { kPlan, kRun };

  Exec(Mode mode, const OpTable& table, Stream& stream, Arena& arena, Trace* trace = nullptr)
      : mode_(mode), table_(table), stream_(stream), arena_(arena), trace_(trace) {}

  template <class Op>
  void operator()(const Op& op) {
    validate(op);
    const auto rewind = arena_.scope();
    const Kernel<Op>& kernel = kernel_for(table_, op);
    EXODE_CHECK(kernel.launch != nullptr, std::string(backend_name(table_.backend)) +
                                              " backend has no kernel for " +
                                              std::string(name(op)));
    const auto scratch =
        arena_.take(kernel.scratch_bytes != nullptr ? kernel.scratch_bytes(table_.caps, op) : 0);
    if (mode_ == Mode::kRun) kernel.launch(stream_, op, scratch);
    if (trace_ != nullptr) trace_->add(name(op), cost(op));
  }

  // Lives until the enclosing scope() ends.
  TensorView temp(DType dtype, int32_t rows, int32_t cols) {
    const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(cols) * dtype_bytes(dtype);
    return dense_view(arena_.take(bytes).data(), dtype, {rows, cols});
  }
  [[nodiscard]] Arena::Scope scope() { return arena_.scope(); }
  bool planning() const { return mode_ == Mode::kPlan; }
  Backend backend() const { return table_.backend; }

 private:
  Mode mode_;
  const OpTable& table_;
  Stream& stream_;
  Arena& arena_;
  Trace* trace_;
};

}  // namespace exode

// The CPU kernel of every op: launch() runs it, scratch_bytes() says what it needs.
#pragma once

#include <initializer_list>

#include "base/check.h"
#include "ops/table.h"

namespace exode::cpu {

using Scratch = std::span<std::byte>;

// Activations are f32 on this backend, whatever the checkpoint stores.
inline void require_f32(std::initializer_list<ConstTensorView> activations) {
  for (const ConstTensorView& t : activations) {
    EXODE_CHECK(t.dtype == DType::kF32, "cpu kernels take f32 activations");
  }
}

void launch(Stream&, const ops::Embedding&, Scratch);
void launch(Stream&, const ops::TakeTokens&, Scratch);
void launch(Stream&, const ops::RmsNorm&, Scratch);
void launch(Stream&, const ops::AddRmsNorm&, Scratch);
void launch(Stream&, const ops::MatMul&, Scratch);
void launch(Stream&, const ops::MatMulSwiGlu&, Scratch);
void launch(Stream&, const ops::SwiGlu&, Scratch);
void launch(Stream&, const ops::SigmoidGate&, Scratch);
void launch(Stream&, const ops::AddGated&, Scratch);
void launch(Stream&, const ops::Add&, Scratch);
void launch(Stream&, const ops::GatherRows&, Scratch);
void launch(Stream&, const ops::QkNormRope&, Scratch);
void launch(Stream&, const ops::CausalConv&, Scratch);
void launch(Stream&, const ops::GdnGates&, Scratch);
void launch(Stream&, const ops::GatedDelta&, Scratch);
void launch(Stream&, const ops::GatedRmsNorm&, Scratch);
void launch(Stream&, const ops::GatedDeltaNet&, Scratch);
void launch(Stream&, const ops::MoeRoute&, Scratch);
void launch(Stream&, const ops::MoeExperts&, Scratch);
void launch(Stream&, const ops::Sample&, Scratch);
void launch(Stream&, const ops::FillRandom&, Scratch);
void launch(Stream&, const ops::ReadWords&, Scratch);
void launch(Stream&, const ops::CopyBytes&, Scratch);

// Numerics::kFast, where that is another kernel; same scratch.
void launch_fast(Stream&, const ops::MatMul&, Scratch);
void launch_fast(Stream&, const ops::MatMulSwiGlu&, Scratch);
void launch_fast(Stream&, const ops::MoeExperts&, Scratch);

size_t scratch_bytes(const DeviceCaps&, const ops::MatMul&);
size_t scratch_bytes(const DeviceCaps&, const ops::MatMulSwiGlu&);
size_t scratch_bytes(const DeviceCaps&, const ops::CausalConv&);
size_t scratch_bytes(const DeviceCaps&, const ops::GatedDelta&);
size_t scratch_bytes(const DeviceCaps&, const ops::GatedDeltaNet&);
size_t scratch_bytes(const DeviceCaps&, const ops::MoeExperts&);
size_t scratch_bytes(const DeviceCaps&, const ops::Sample&);

}  // namespace exode::cpu

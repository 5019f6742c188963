#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "ops/exec.h"
#include "weights/synthetic.h"

namespace exode {
namespace {

// Root mean square of codes 0…15 minus 8 and 0…255 minus 128, all codes being equally likely.
constexpr float kInt4CodeRms = 4.637f, kInt8CodeRms = 73.9f;

uint64_t seed_of(const std::string& name) {
  uint64_t seed = 0;
  for (const char c : name) seed = mix64(seed ^ static_cast<uint8_t>(c));
  return seed;
}

// Memory of the loader's own arena, so it may be written.
TensorView writable(const ConstTensorView& t) {
  return {const_cast<std::byte*>(t.data), t.dtype, t.shape, t.row_stride};
}

}  // namespace

void fill_synthetic(Device& device, const std::string& name, const WeightView& view) {
  const OpTable table = device.backend() == Backend::kCuda
                            ? cuda_ops(device.caps(), Numerics::kExact)
                            : cpu_ops(device.caps());
  Arena none = Arena::over({});
  Exec x(Exec::Mode::kRun, table, device.stream(), none);
  const uint64_t seed = seed_of(name);
  const float rms = 1.0f / std::sqrt(static_cast<float>(view.cols));
  if (view.layout == WeightLayout::kDense) {
    const float limit = std::sqrt(3.0f) * rms;
    x(ops::FillRandom{.out = writable(view.codes), .seed = seed, .low = -limit, .high = limit});
    return;
  }
  const bool int8 = view.layout == WeightLayout::kInt8Group;
  EXODE_CHECK((int8 || view.layout == WeightLayout::kInt4Group) && view.zeros.empty(),
              name + ": no values are made up for this layout");
  const float scale = rms / (int8 ? kInt8CodeRms : kInt4CodeRms);
  x(ops::FillRandom{.out = writable(view.codes), .seed = seed});
  x(ops::FillRandom{.out = writable(view.scales),
                    .seed = mix64(seed),
                    .low = 0.75f * scale,
                    .high = 1.25f * scale});
}

void synthetic_values(const std::string& name, const RawTensor& tensor, std::span<float> out) {
  const uint64_t seed = seed_of(name);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = tensor.low + (tensor.high - tensor.low) * random_unit(seed, i);
  }
}

}  // namespace exode

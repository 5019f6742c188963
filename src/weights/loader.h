// From checkpoint modules to WeightViews in device memory. The same calls run twice: in plan mode
// they check names, shapes and formats and count bytes; in load mode they fill the memory. The
// tensors decide the format of each module, the config only helps (weights/formats.cc).
//
//   Arena counting = Arena::counting();
//   WeightLoader plan(WeightLoader::Mode::kPlan, checkpoint, counting, device);
//   build(plan);                                  // counting.peak_bytes() is the line of the plan
//   WeightLoader load(WeightLoader::Mode::kLoad, checkpoint, arena, device);
//   build(load);  load.unused();                  // tensors nothing asked for
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/device.h"
#include "tensor/weight.h"
#include "weights/checkpoint.h"
#include "weights/host_weight.h"

namespace exode {

class Staging;

// Rows [first, first + count) of linear module `module` (the name without ".weight").
struct RowRange {
  std::string module;
  int32_t first = 0, count = 0;
  int32_t module_rows = 0;  // all rows of the module: asserted against the checkpoint
};

// What becomes of the output head: --head-dtype.
enum class HeadFormat : uint8_t {
  kAuto,    // int8 where a large 16-bit head gains by it
  kStored,  // as the checkpoint has it
  kInt8,
  kInt4
};

struct LoadOptions {
  std::function<void(uint64_t bytes_done)> progress = {};  // checkpoint bytes consumed
  int32_t strip = 1;  // rows of int4 and int8 matrices interleaved where they allow it
  HeadFormat head = HeadFormat::kAuto;
  // Where the embedding table goes, when not into the weights' arena: host memory that the device
  // reads. Counting in plan mode.
  Arena* embedding_arena = nullptr;
};

class WeightLoader {
 public:
  enum class Mode : uint8_t { kPlan, kLoad };

  WeightLoader(Mode mode, const Checkpoint& checkpoint, Arena& arena, Device& device,
               LoadOptions options = {});
  ~WeightLoader();

  bool has_module(const std::string& module) const;  // in any format
  bool has_tensor(const std::string& name) const;

  // A linear module [rows, cols] in the layout of its checkpoint format.
  Result<WeightView> linear(const std::string& module, int32_t rows, int32_t cols);
  // Row ranges stacked into one matrix. Parts of one int4 geometry stay int4, dense parts of one
  // dtype stay dense, aligned FP8 stays FP8; anything mixed becomes f32 with a warning.
  Result<WeightView> stacked(const std::vector<RowRange>& parts, int32_t cols);
  // A plain float tensor whose leading dimensions multiply to `rows` (embeddings, 3-D experts).
  Result<WeightView> plain_matrix(const std::string& tensor, int32_t rows, int32_t cols);
  // The output head [rows, cols], in the format that the options ask for.
  Result<WeightView> head(const std::string& module, int32_t rows, int32_t cols);
  // The embedding table `module`.weight, where the options want it.
  Result<WeightView> embedding(const std::string& module, int32_t rows, int32_t cols);
  // A table that is the head as well. Both are one matrix where the embedding op reads the head's
  // format and the table is wanted in device memory; else there are two.
  struct Tied {
    WeightView embedding, head;
  };
  Result<Tied> tied_embedding(const std::string& module, int32_t rows, int32_t cols);
  // A plain float tensor of `count` elements, any shape, converted to f32.
  Result<ConstTensorView> vector_f32(const std::string& tensor, int32_t count);
  // Host values placed in device memory as f32 (for example rope frequencies).
  ConstTensorView constant_f32(std::span<const float> values);

  std::vector<std::string> unused() const;  // names never asked for, in order
  // After the last call: everything is in place.
  void finish();
  uint64_t bytes_consumed() const { return consumed_bytes_; }
  // What the head became and why, for the start-up report.
  const std::string& head_report() const { return head_report_; }
  // How many matrices came in each format ("gptq_int4": 40): for the start-up report.
  const std::map<std::string, int32_t>& format_counts() const { return format_counts_; }

 private:
  using Modules = std::map<std::string, HostWeight>;

  Result<HostWeight> read(const std::string& module, int32_t rows, int32_t cols, ReadMode mode);
  Result<Modules> describe(const std::vector<RowRange>& parts, int32_t cols);
  Status fill(const WeightView& view, const std::vector<RowRange>& parts);
  WeightView take_view(const HostWeight& description, int32_t strip);
  Status write_rows(const WeightView& view, const HostWeight& weight, const RowRange& range,
                    int32_t row);
  Status write_int4_rows(const WeightView& target, const HostWeight& weight, int32_t first);
  Status write(const ConstTensorView& target, std::span<const std::byte> source);
  int32_t strip_for(const HostWeight& merged, const std::vector<RowRange>& parts) const;
  HeadFormat choose_head(const HostWeight& stored);
  Result<WeightView> quantized(const HostWeight& description, const std::string& module,
                               HeadFormat format);
  void mark_used(const std::string& tensor);

  Mode mode_;
  const Checkpoint& checkpoint_;
  Arena& arena_;
  Device& device_;
  LoadOptions options_;
  std::set<std::string> used_;
  std::set<std::string> counted_modules_;
  std::map<std::string, int32_t> format_counts_;
  uint64_t consumed_bytes_ = 0;
  std::string head_report_;
  std::unique_ptr<ThreadPool> own_pool_;  // where the device has none
  ThreadPool* pool_ = nullptr;            // null in plan mode
  std::unique_ptr<Staging> staging_;
};

}  // namespace exode

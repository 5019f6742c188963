// Append and attention over the paged cache, every dense format against the reference.
#include <gtest/gtest.h>

#include "kv/kv.h"
#include "kv/pool.h"
#include "ops/harness.h"

namespace exode::testing {
namespace {

struct Case {
  const char* format;
  int32_t kv_heads, group, dim, window;
  float soft_cap;
};

// Two sequences over scattered blocks; sequence 0 has `length` tokens in the cache.
class Cache {
 public:
  Cache(const Case& c, int32_t length)
      : geometry_{1, c.kv_heads, c.dim, 0},
        format_(*find_kv_format(c.format)),
        blocks_(blocks_for_tokens(length)),
        table_(DType::kI32, {2, blocks_}),
        memory_(KvPool::bytes_for(geometry_, format_, 2 * blocks_)),
        pool_(geometry_, format_, 2 * blocks_, memory_) {
    for (int32_t b = 0; b < blocks_; ++b) {  // interleaved and backwards
      table_.set(b, static_cast<float>(2 * (blocks_ - 1 - b)));
      table_.set(blocks_ + b, static_cast<float>(2 * b + 1));
    }
  }
  KvView view() { return pool_.layer(0, table_.cview()); }
  const std::vector<std::byte>& bytes() const { return memory_; }

 private:
  KvGeometry geometry_;
  const KvFormat& format_;
  int32_t blocks_;
  HostTensor table_;
  std::vector<std::byte> memory_;
  KvPool pool_;
};

// kernel_for() overloads for the cache ops live beside kv.h, so OpRunner finds them by lookup.
void append(OpRunner& run, Cache& cache, const Case& c, int32_t sequence, int32_t length) {
  const int32_t width = c.kv_heads * c.dim;
  const HostTensor k =
      HostTensor(DType::kF32, {length, width}).fill(1 + static_cast<uint64_t>(sequence));
  const HostTensor v =
      HostTensor(DType::kF32, {length, width}).fill(11 + static_cast<uint64_t>(sequence));
  HostTensor positions(DType::kI32, {length}), seq(DType::kI32, {length});
  for (int32_t i = 0; i < length; ++i) {
    positions.set(i, static_cast<float>(i));
    seq.set(i, static_cast<float>(sequence));
  }
  run(kv::KvAppend{.cache = cache.view(),
                   .k = k.cview(),
                   .v = v.cview(),
                   .positions = positions.cview(),
                   .seq_of_row = seq.cview()});
}

std::vector<float> attend(OpRunner& run, Cache& cache, const Case& c, const std::vector<float>& at,
                          const std::vector<float>& seq) {
  const auto rows = static_cast<int32_t>(at.size());
  const int32_t width = c.kv_heads * c.group * c.dim;
  HostTensor q(DType::kF32, {rows, width});
  for (int32_t r = 0; r < rows; ++r) {  // the same query wherever a position appears
    for (int32_t i = 0; i < width; ++i) {
      q.set(int64_t{r} * width + i,
            2 * random_unit(static_cast<uint64_t>(at[static_cast<size_t>(r)]) + 50,
                            static_cast<uint64_t>(i)) -
                1);
    }
  }
  HostTensor positions = HostTensor(DType::kI32, {rows}).fill_values(at),
             sequences = HostTensor(DType::kI32, {rows}).fill_values(seq);
  HostTensor out(DType::kF32, {rows, width});
  run(kv::Attend{.cache = cache.view(),
                 .q = q.cview(),
                 .out = out.view(),
                 .positions = positions.cview(),
                 .seq_of_row = sequences.cview(),
                 .scale = 1.0f / std::sqrt(static_cast<float>(c.dim)),
                 .soft_cap = c.soft_cap,
                 .window = c.window});
  return out.floats();
}

class KvTest : public ::testing::TestWithParam<Case> {};

TEST_P(KvTest, EqualsTheReference) {
  const Case& c = GetParam();
  OpRunner ref(Backend::kRef), cpu(Backend::kCpu);
  Cache a(c, 200), b(c, 200);
  for (int32_t s : {0, 1}) {
    append(ref, a, c, s, 200 - 60 * s);
    append(cpu, b, c, s, 200 - 60 * s);
  }
  EXPECT_EQ(a.bytes(), b.bytes());
  const std::vector<float> at{0, 1, 62, 63, 64, 65, 128, 199, 139, 0},
      seq{0, 0, 0, 0, 0, 0, 0, 0, 1, -1};
  const bool exact = !on_cuda() || std::string_view(c.format) == "f32";
  EXPECT_LE(nmse(attend(cpu, b, c, at, seq), attend(ref, a, c, at, seq)),
            exact ? 1e-10 : kFastRowError * kFastRowError);
}

TEST_P(KvTest, ARowHasTheSameBitsAloneAndInCompany) {
  const Case& c = GetParam();
  OpRunner one(Backend::kCpu, 1), three(Backend::kCpu, 3);
  Cache cache(c, 200);
  append(one, cache, c, 0, 200);
  const std::vector<float> all = attend(three, cache, c, {10, 64, 199}, {0, 0, 0});
  const std::vector<float> alone = attend(one, cache, c, {64}, {0});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                         all.begin() + static_cast<std::ptrdiff_t>(alone.size())));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, KvTest,
    ::testing::Values(Case{"f32", 1, 6, 256, 0, 0}, Case{"bf16", 2, 3, 256, 0, 0},
                      Case{"f16", 2, 1, 64, 0, 0}, Case{"bf16", 4, 4, 128, 48, 0},
                      Case{"f32", 2, 2, 64, 1, 30}),
    [](const auto& p) { return std::string(p.param.format) + "_" + std::to_string(p.index); });

TEST(KvPoolTest, CountsReferencesAndRefusesWhenFull) {
  const KvGeometry g{2, 1, 16, 0};
  const KvFormat& f = *find_kv_format("bf16");
  std::vector<std::byte> memory(KvPool::bytes_for(g, f, 2));
  KvPool pool(g, f, 2, memory);
  const BlockId a = pool.take().value(), b = pool.take().value();
  EXPECT_FALSE(pool.take().ok());
  pool.share(a);
  pool.drop(a);
  EXPECT_EQ(pool.free_blocks(), 0);
  pool.drop(a);
  pool.drop(b);
  EXPECT_EQ(pool.free_blocks(), 2);
  EXPECT_DEATH(pool.drop(a), "free kv block");
}

TEST(KvFormats, UnknownIsNullAndNamesAreListed) {
  EXPECT_EQ(find_kv_format("int3"), nullptr);
  EXPECT_NE(kv_format_names().find("bf16"), std::string::npos);
}

}  // namespace
}  // namespace exode::testing

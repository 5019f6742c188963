#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <thread>

#include "engine/engine.h"
#include "unit/engine/fake_stepper.h"

namespace exode::testing {
namespace {

struct Record {
  std::vector<TokenId> ids;
  FinishReason finish = FinishReason::kNone;
  int finishes = 0;
};

// Pools of a model with one KV layer and one recurrent layer, tiny but real.
class EngineLoopTest : public ::testing::TestWithParam<int32_t> {  // steps ahead
 protected:
  EngineLoopTest() {
    geometry_ = {.layers = 1, .heads = 1, .head_dim = 8};
    state_geometry_ = {.layers = 1,
                       .gdn = {.key_heads = 1, .value_heads = 1, .key_dim = 8, .value_dim = 8},
                       .conv_width = 4};
    stepper_.steps_ahead = GetParam();
    config_.max_num_seqs = 3;
    config_.max_num_batched_tokens = 80;
    config_.queue_max = 4;
    facts_.vocab = kFakeVocab;
    facts_.context_max = 512;
    build(16);
  }
  void build(int32_t blocks) {
    const KvFormat& format = *find_kv_format("f32");
    kv_memory_.resize(KvPool::bytes_for(geometry_, format, blocks));
    state_memory_.resize(state_geometry_.bytes_per_slot() * 3);
    kv_.emplace(geometry_, format, blocks, kv_memory_);
    states_.emplace(state_geometry_, 3, state_memory_);
    loop_ = std::make_unique<EngineLoop>(config_, facts_, stepper_, EnginePools{&*kv_, &*states_});
  }
  Request request(TokenId seed, int32_t prompt, int32_t count) {
    Request r;
    for (int32_t i = 0; i < prompt; ++i) r.prompt.push_back((seed * 31 + i) % kFakeVocab);
    r.tokens_max = count;
    return r;
  }
  RequestId submit(const Request& r) {
    const auto id = loop_->submit(r, [this](const TokenEvent& e) {
      Record& record = records_[e.request];
      record.ids.insert(record.ids.end(), e.tokens.begin(), e.tokens.end());
      if (e.finish == FinishReason::kNone) return;
      record.finish = e.finish;
      ++record.finishes;
    });
    EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().message);
    return id.value();
  }
  void drain() {
    for (int turns = 0; loop_->turn(); ++turns)
      ASSERT_LT(turns, 100000) << "the engine does not end";
  }
  void expect_all_free(int32_t blocks = 16) {
    EXPECT_EQ(kv_->free_blocks(), blocks);
    EXPECT_EQ(states_->free_slots(), 3);
  }

  KvGeometry geometry_;
  StateGeometry state_geometry_;
  EngineConfig config_;
  EngineFacts facts_;
  std::vector<std::byte> kv_memory_, state_memory_;
  std::optional<KvPool> kv_;
  std::optional<StatePool> states_;
  FakeStepper stepper_;
  std::unique_ptr<EngineLoop> loop_;
  std::map<RequestId, Record> records_;
};

TEST_P(EngineLoopTest, TokensAreThoseOfEachPrefixWhateverTheBatch) {
  std::map<RequestId, Request> sent;
  for (TokenId i = 0; i < 4; ++i) {
    const Request r = request(i, 1 + 50 * i, 10 + i);
    sent[submit(r)] = r;
  }
  drain();
  for (const auto& [id, r] : sent) {
    EXPECT_EQ(records_[id].ids, fake_continuation(r.prompt, r.tokens_max));
    EXPECT_EQ(records_[id].finish, FinishReason::kLength);
    EXPECT_EQ(records_[id].finishes, 1);
  }
  EXPECT_LE(stepper_.rows_max, config_.max_num_batched_tokens);
  expect_all_free();
}

TEST_P(EngineLoopTest, StopTokenEndsAndIsIncluded) {
  Request r = request(1, 5, 50);
  const std::vector<TokenId> expected = fake_continuation(r.prompt, 7);
  r.stop_tokens = {expected.back()};
  const RequestId id = submit(r);
  drain();
  EXPECT_EQ(records_[id].ids, expected);
  EXPECT_EQ(records_[id].finish, FinishReason::kStop);
  expect_all_free();
}

TEST_P(EngineLoopTest, CancelFreesEverythingWaitingOrRunning) {
  std::vector<RequestId> ids;
  for (TokenId i = 0; i < 4; ++i) ids.push_back(submit(request(i, 100, 200)));
  loop_->turn();
  loop_->cancel(ids[0]);  // running
  loop_->cancel(ids[3]);  // waiting
  loop_->cancel(999);     // unknown
  drain();
  EXPECT_EQ(records_[ids[0]].finish, FinishReason::kCancelled);
  EXPECT_EQ(records_[ids[3]].finish, FinishReason::kCancelled);
  EXPECT_EQ(records_[ids[1]].ids.size(), 200u);
  expect_all_free();
  EXPECT_EQ(loop_->stats().waiting, 0);
}

TEST_P(EngineLoopTest, QueueIsBounded) {
  for (TokenId i = 0; i < 4; ++i) submit(request(i, 3, 2));
  const auto refused = loop_->submit(request(9, 3, 2), [](const TokenEvent&) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  drain();
  submit(request(9, 3, 2));
  drain();
  expect_all_free();
}

TEST_P(EngineLoopTest, WaitsForMemoryInOrder) {
  build(8);  // one long request fills the pool
  const RequestId big = submit(request(1, 200, 200));
  const RequestId big2 = submit(request(2, 300, 100));
  const RequestId small = submit(request(3, 4, 4));
  loop_->turn();
  EXPECT_EQ(loop_->stats().running, 1);
  drain();
  EXPECT_EQ(records_[big].ids.size(), 200u);
  EXPECT_EQ(records_[big2].ids.size(), 100u);
  EXPECT_EQ(records_[small].ids.size(), 4u);
  expect_all_free(8);
}

TEST_P(EngineLoopTest, BadRequestsAreRefusedWithAReason) {
  const auto error = [&](const Request& r) { return loop_->submit(r, [](const TokenEvent&) {}); };
  EXPECT_FALSE(error(request(1, 0, 5)).ok());
  EXPECT_FALSE(error(request(1, 512, 5)).ok());
  EXPECT_FALSE(error(request(1, 5, 0)).ok());
  Request r = request(1, 5, 5);
  r.prompt[2] = kFakeVocab;
  EXPECT_FALSE(error(r).ok());
  r = request(1, 5, 5);
  r.sampling.top_p = 0;
  EXPECT_FALSE(error(r).ok());
  r = request(1, 5, 5);
  r.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(error(r).ok());
  r = request(1, 5, 5);
  r.sampling.logit_bias = {{kFakeVocab, 1.0f}};
  EXPECT_FALSE(error(r).ok());
}

TEST_P(EngineLoopTest, OutputIsCutAtTheContext) {
  const RequestId id = submit(request(1, 500, 1000));
  drain();
  EXPECT_EQ(records_[id].ids.size(), 12u);
  EXPECT_EQ(records_[id].finish, FinishReason::kLength);
  expect_all_free();
}

TEST_P(EngineLoopTest, StopCancelsWhatIsLeftAndRefusesMore) {
  loop_->start();
  const RequestId id = submit(request(1, 10, 400));
  loop_->stop();
  EXPECT_EQ(records_[id].finishes, 1);
  EXPECT_FALSE(loop_->submit(request(1, 10, 4), [](const TokenEvent&) {}).ok());
  expect_all_free();
}

TEST_P(EngineLoopTest, ThreadedSubmitsAllEnd) {
  config_.queue_max = 1000;
  build(16);
  loop_->start();
  std::atomic<int> ended = 0;
  std::vector<std::thread> clients;
  for (TokenId c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (TokenId i = 0; i < 50; ++i) {
        const auto id = loop_->submit(request(c * 100 + i, 1 + i, 5), [&](const TokenEvent& e) {
          if (e.finish != FinishReason::kNone) ++ended;
        });
        ASSERT_TRUE(id.ok());
        if (i % 7 == 0) loop_->cancel(id.value());
      }
    });
  }
  for (auto& c : clients) c.join();
  while (ended.load() < 200) std::this_thread::yield();
  loop_->stop();
  expect_all_free();
}

INSTANTIATE_TEST_SUITE_P(StepsAhead, EngineLoopTest, ::testing::Values(0, 1));

}  // namespace
}  // namespace exode::testing

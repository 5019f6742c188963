// One progress line on stderr while a model loads; nothing when stderr is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace exode::app {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(uint64_t done, uint64_t total);  // bytes; redraws at most ten times a second

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool visible_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_{};
};

}  // namespace exode::app

#include "app/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace exode::app {

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), visible_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (!visible_ || total == 0 || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  constexpr int kWidth = 30;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const auto filled = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f} %  {:.2f} GB/s", label_, "", filled, "",
             kWidth - filled, share * 100,
             static_cast<double>(done) / 1e9 / std::max(seconds, 1e-3));
  std::fflush(stderr);
}

}  // namespace exode::app

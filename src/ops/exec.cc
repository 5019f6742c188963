#include "ops/exec.h"

#include <chrono>

namespace exode {

double Exec::trace_clock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace exode

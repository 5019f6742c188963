// exode_bench_small_ops [attend|gdn|moe|sample|stream…]: checks the small CUDA kernels on a GPU and
// times them. Exits non-zero when a check fails.
#include <string_view>

#include "cuda/small_ops.h"

int main(int argc, char** argv) {
  using namespace exode::bench;
  const auto asked = [&](std::string_view part) {
    bool found = argc == 1;
    for (int i = 1; i < argc; ++i) found |= part == argv[i];
    return found;
  };
  Lab lab;
  if (asked("attend")) time_attend(lab);
  if (asked("gdn")) time_gdn(lab);
  if (asked("moe")) {
    check_moe(lab);
    time_moe(lab);
  }
  if (asked("sample")) {
    check_sample(lab);
    time_sample(lab);
  }
  if (asked("stream")) {
    check_stream(lab);
    time_stream(lab);
  }
  return lab.failures() == 0 ? 0 : 1;
}

// What exode bench prints and writes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/bench.h"

namespace exode::app {

nlohmann::ordered_json bench_json(const BenchReport& report, const std::string& model);
std::string bench_text(const BenchReport& report, const std::string& model);

}  // namespace exode::app

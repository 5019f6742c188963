// What the machine can do, measured by loops that do nothing else: the yardsticks of the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace exode::bench {

// Reads every byte once. The result depends on all of them, so that the loop stays.
uint64_t read_all(std::span<const std::byte> data);

// Independent chains of fused multiply-adds, `rounds` long; sets `flops` to what it did.
float multiply_add(int64_t rounds, double& flops);

std::string instruction_set();  // what run-time dispatch chose
std::string cpu_model();

}  // namespace exode::bench

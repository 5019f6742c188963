// What a plan must know of a GPU that is not there: built in for some, or from a JSON file with the
// same fields as DeviceCaps:
//
//   {"name": "rtx-3090", "multiprocessors": 82, "shared_bytes_per_block": 101376,
//    "memory_bytes": 25769803776}
#pragma once

#include <string>

#include "base/result.h"
#include "device/device.h"

namespace exode::app {

// A built-in name or the path of a file.
Result<DeviceCaps> load_device_facts(const std::string& name_or_path);
std::string device_fact_names();

}  // namespace exode::app

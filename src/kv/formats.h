// The registry of KV cache formats: one folder each in kv/formats/, one line in formats.cc.
#pragma once

#include "kv/kv.h"

namespace exode {

// formats/dense/
const KvFormat& kv_format_f32();
const KvFormat& kv_format_bf16();
const KvFormat& kv_format_f16();

}  // namespace exode

// The parts of tokenizer.json, each read into the tokenizer that it describes. What we do not
// implement is refused by name.
#pragma once

#include "text/json_fields.h"
#include "text/tokenizer_impl.h"

namespace exode::text {

// "model": vocabulary and merges.
Status read_model(fields::element model, Tokenizer::Impl& tokenizer);

Status read_normalizer(fields::element normalizer, Tokenizer::Impl& tokenizer);
Status read_pre_tokenizer(fields::element pre_tokenizer, Tokenizer::Impl& tokenizer);
Status read_post_processor(fields::element post_processor, Tokenizer::Impl& tokenizer);
Status check_decoder(fields::element decoder);

}  // namespace exode::text

#include "train/model_texts.h"

#include "model/hf_config.h"

namespace weft {

TextFile model_config_text(const ModelSpec& spec, Precision dtype) {
  return {"config.json",
          hf_config_text(spec, dtype == Precision::Float32 ? "float32" : "bfloat16")};
}

std::vector<TextFile> model_texts(ModelSpec spec, const std::optional<Tokenizer>& tokenizer,
                                  Precision dtype) {
  if (!tokenizer) return {model_config_text(spec, dtype)};
  const auto begin = tokenizer->begin_token();
  const auto end = tokenizer->end_token();
  if (begin && spec.bos_token_ids.empty()) spec.bos_token_ids = {*begin};
  if (end && spec.eos_token_ids.empty()) spec.eos_token_ids = {*end};
  return {model_config_text(spec, dtype),
          {Tokenizer::kFileName, tokenizer->file_text()},
          {"tokenizer_config.json", tokenizer->config_text(spec.max_seq_len)}};
}

}  // namespace weft

// Splits text into the words that byte-pair merging works within. Hand-written scanners match the
// split patterns of the known tokenizer families exactly as their regular expressions do; an
// unknown pattern is rejected by name.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Llama3 is also cl100k's pattern. Qwen2 differs in that every digit is a word. DeepSeek3 is a
// sequence of three patterns. O200k is GPT-4o's; its words end before a capital letter.
enum class SplitPattern { Gpt2, Llama3, Qwen2, DeepSeek3, O200k };

// "gpt2", "llama3", "qwen2", "deepseek3", "o200k".
const char* name_of(SplitPattern pattern);

// All pattern names, for messages: "gpt2, llama3, ...".
std::string split_names();

// The pattern of this name; throws a UserError(Config) listing the choices when there is none.
SplitPattern split_pattern(std::string_view name);

// The pattern that these regular expressions of a tokenizer.json, applied in sequence, amount to;
// otherwise throws a UserError(InputFile) quoting the first unknown one.
SplitPattern find_split_pattern(std::span<const std::string> regexes, std::string_view where);

// The regular expressions of a pattern, as in tokenizer.json.
std::vector<std::string> split_regexes(SplitPattern pattern);

// The end of the word that starts at `at`, which is below the size; the text is valid UTF-8.
size_t next_word(SplitPattern pattern, std::string_view text, size_t at);

// Whether every pattern ends a word at `at` in any context, as between a letter and a space. The
// text can be split there and its parts tokenized separately.
bool is_certain_word_end(std::string_view text, size_t at);

}  // namespace weft

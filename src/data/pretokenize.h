// Cuts text into the words that byte-pair merging works inside. The split patterns of the known
// tokenizer families are matched by hand-written scanners that give what their regular expressions
// give; a pattern that is not among them is refused by name.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Llama3 is also cl100k's; Qwen2 differs from it in that every digit is a word; DeepSeek3 is a
// sequence of three patterns; O200k is GPT-4o's, whose words end before a capital letter.
enum class SplitPattern { Gpt2, Llama3, Qwen2, DeepSeek3, O200k };

// "gpt2", "llama3", "qwen2", "deepseek3", "o200k".
const char* name_of(SplitPattern pattern);

// All of them, for messages: "gpt2, llama3, ...".
std::string split_names();

// The pattern of this name; a UserError(Config) naming the choices when there is none.
SplitPattern split_pattern(std::string_view name);

// The pattern that these regular expressions of a tokenizer.json, applied one after the other,
// amount to; a UserError(InputFile) quoting the first unknown one otherwise.
SplitPattern find_split_pattern(std::span<const std::string> regexes, std::string_view where);

// The regular expressions of a pattern, as tokenizer.json has them.
std::vector<std::string> split_regexes(SplitPattern pattern);

// The end of the word that begins at `at`, below the size; the text is valid UTF-8.
size_t next_word(SplitPattern pattern, std::string_view text, size_t at);

// Whether every pattern ends a word at `at` whatever stands around, so that the text can be cut
// there and its parts be split on their own, as between a letter and a space.
bool is_certain_word_end(std::string_view text, size_t at);

}  // namespace weft

// Text helpers; text.h documents each one.
#include "base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace weft {

namespace {

// Fixed notation with at most `decimals` decimals, trailing zeros dropped.
std::string trimmed_fixed(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  std::string text = buffer;
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

template <class T>
std::optional<T> parse_all(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Number of edits (insert, delete, replace, swap neighbours) that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string_view::npos; begin = end + 1) {
    parts.emplace_back(text.substr(begin, end - begin));
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::optional<int64_t> parse_int(std::string_view text) {
  return parse_all<int64_t>(text);
}

std::optional<double> parse_double(std::string_view text) {
  return parse_all<double>(text);
}

std::string format_double(double value) {
  char buffer[64];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

std::string human_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  // 1023.995 would print as 1024, so it moves to the next unit.
  while (unit + 1 < std::size(kUnits) && std::abs(bytes) >= (unit == 0 ? 1024.0 : 1023.995)) {
    bytes /= 1024.0;
    ++unit;
  }
  return cat(trimmed_fixed(bytes, unit == 0 ? 0 : 2), " ", kUnits[unit]);
}

std::string human_count(double count) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P", " E"};
  size_t unit = 0;
  // 999.5 would print as 1000, so it moves to the next unit.
  while (unit + 1 < std::size(kUnits) && std::abs(count) >= 999.5) {
    count /= 1000.0;
    ++unit;
  }
  const double size = std::abs(count);
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return trimmed_fixed(count, decimals) + kUnits[unit];
}

std::string human_duration(double seconds) {
  constexpr double kLongest = 1e12;
  if (!(seconds >= 0.0 && seconds < kLongest)) return "unknown";
  char buffer[64];
  if (seconds < 59.95) {
    std::snprintf(buffer, sizeof buffer, "%.1f s", seconds);
  } else if (seconds < 3599.5) {
    const auto rounded = static_cast<long long>(std::llround(seconds));
    std::snprintf(buffer, sizeof buffer, "%lld min %02lld s", rounded / 60, rounded % 60);
  } else {
    const auto minutes = static_cast<long long>(std::llround(seconds / 60.0));
    std::snprintf(buffer, sizeof buffer, "%lld h %02lld min", minutes / 60, minutes % 60);
  }
  return buffer;
}

std::string hex64(uint64_t value) {
  char buffer[17];
  std::snprintf(buffer, sizeof buffer, "%016llx", static_cast<unsigned long long>(value));
  return buffer;
}

std::string shortened(std::string_view text, size_t most) {
  size_t kept = std::min(text.size(), most);
  const auto is_inside_character = [&](size_t at) {
    return at < text.size() && (text[at] & 0xc0) == 0x80;
  };
  while (kept > 0 && kept + 3 > most && is_inside_character(kept)) --kept;
  std::string shown(text.substr(0, kept));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return kept < text.size() ? shown + "..." : shown;
}

std::string in_quotes(std::string_view text) {
  return cat('"', shortened(text), '"');
}

std::optional<std::string> nearest(std::string_view name,
                                   const std::vector<std::string>& candidates) {
  // The search time grows with the length, and no real name is this long.
  constexpr size_t kLongestName = 100;
  if (name.size() > kLongestName) return std::nullopt;
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

}  // namespace weft

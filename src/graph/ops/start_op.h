// The op that starts a collective, made from the definition of the collective: the same signature
// with "_start" after the name, and results that are futures.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace weft {

template <const OpDef& kOp>
struct StartText {
  static constexpr std::string_view kSuffix = "_start";
  static constexpr std::string_view kDocBegin = "Starts the collective ";
  static constexpr std::string_view kDocEnd = "; wait returns its results.";
  static constexpr std::string_view kName = kOp.signature.substr(0, kOp.signature.find('('));

  template <size_t kSize>
  static constexpr std::array<char, kSize> concat(std::string_view a, std::string_view b,
                                                  std::string_view c) {
    std::array<char, kSize> text{};
    size_t at = 0;
    for (const std::string_view part : {a, b, c}) {
      for (const char letter : part) text[at++] = letter;
    }
    return text;
  }

  static constexpr auto kSignature = concat<kOp.signature.size() + kSuffix.size()>(
      kName, kSuffix, kOp.signature.substr(kName.size()));
  static constexpr auto kDoc =
      concat<kDocBegin.size() + kName.size() + kDocEnd.size()>(kDocBegin, kName, kDocEnd);
};

template <const OpDef& kOp>
constexpr OpDef start_op() {
  OpDef start = kOp;
  start.signature = {StartText<kOp>::kSignature.data(), StartText<kOp>::kSignature.size()};
  start.doc = {StartText<kOp>::kDoc.data(), StartText<kOp>::kDoc.size()};
  start.starts = &kOp;
  start.infer = [](const Call& call) {
    std::vector<TensorType> types = kOp.infer(call);
    for (TensorType& type : types) type.future = true;
    return types;
  };
  return start;
}

}  // namespace weft

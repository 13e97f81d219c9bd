// Makes a program run as on an x86-64 machine of level HIGHEST_LEVEL, as far as WEFT_CLONES are
// concerned. Clones are selected by libgcc's record of the processor, which is filled by a function
// that the linker wraps here (--wrap). Only the levels are hidden; single features, and so the
// matmul variant, stay as they are.
#include "conformance/cpu_level.h"

extern "C" {
extern unsigned __cpu_features2[];
int __real___cpu_indicator_init();
int __wrap___cpu_indicator_init();
}

namespace {

bool has_v3() {
  return __builtin_cpu_supports("x86-64-v3");
}

bool has_v4() {
  return __builtin_cpu_supports("x86-64-v4");
}

// Clears the flag that makes `has` return true. Runs before the program is relocated, so it calls
// nothing else.
void hide(bool (*has)()) {
  for (int flag = 0; has(); ++flag) {
    volatile unsigned& word = __cpu_features2[flag / 32];
    const unsigned kept = word;
    word = kept & ~(1u << flag % 32);
    asm volatile("" ::: "memory");  // makes `has` read the word again
    if (has()) word = kept;
  }
}

}  // namespace

int __wrap___cpu_indicator_init() {
  const int result = __real___cpu_indicator_init();
  if (HIGHEST_LEVEL < 4) hide(has_v4);
  if (HIGHEST_LEVEL < 3) hide(has_v3);
  return result;
}

namespace weft {

namespace {

__attribute__((target("default"))) const char* variant() {
  return "default";
}

__attribute__((target("arch=x86-64-v3"))) const char* variant() {
  return "x86-64-v3";
}

__attribute__((target("arch=x86-64-v4"))) const char* variant() {
  return "x86-64-v4";
}

}  // namespace

const char* chosen_variant() {
  return variant();
}

}  // namespace weft

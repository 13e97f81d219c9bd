// What the files that describe config keys share: schema_training.cpp, schema.cpp and
// schema_run.cpp, each for some sections.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"

namespace weft {

using Keys = std::vector<Key<Config>>;

inline const Range kPositive{.at_least = 1};
inline const Range kNotNegative{.at_least = 0};
inline const Range kShare{.at_least = 0, .at_most = 1};

inline const Condition kManyRanks{"more than one rank",
                                  [](const Config&, int64_t r) { return r > 1; }};

// Adds keys of one section.
template <class Part>
class SectionKeys {
 public:
  SectionKeys(Keys& keys, std::string section, Part Config::*part)
      : keys_(keys), section_(std::move(section)), part_(part) {}

  template <class Member>
  void add(const std::string& name, Member Part::*member, const KeyOptions& options) {
    keys_.push_back(make_key(section_ + "." + name, part_, member, options));
  }

 private:
  Keys& keys_;
  std::string section_;
  Part Config::*part_;
};

// [job], [model], [training], [grad_scaler], [optimizer] and [lr_scheduler].
void add_training_sections(Keys& keys);

// [checkpoint], [metrics], [validation], [debug] and [device].
void add_run_sections(Keys& keys);

}  // namespace weft

#include "compile/validate_run.h"

#include <algorithm>

#include "base/error.h"
#include "compile/config_choices.h"
#include "config/derived.h"
#include "config/validate.h"
#include "runtime/device.h"

namespace weft {

void validate_run(const Config& config, int64_t ranks) {
  validate(config, ranks, config_choices());
  find_computing_backend(config.device.backend, describe_key(config, "device.backend"));
  for (const char* pass : {"autodiff", "optimizer"}) {
    const auto& disabled = config.compile.disable_passes;
    const bool is_off = std::find(disabled.begin(), disabled.end(), pass) != disabled.end();
    USER_CHECK(!is_off, describe_key(config, "compile.disable_passes"), ": a training run needs ",
               pass, "; leave it on, or use weft plan or weft opt");
  }
}

}  // namespace weft

#include "runtime/comm/verdict.h"

#include <algorithm>
#include <vector>

namespace weft {
namespace {

// Ranks with an error of their own, earliest first.
std::vector<int64_t> failures(const Control& control) {
  std::vector<int64_t> found;
  for (int64_t i = 0; i < control.ranks(); ++i) {
    const auto code = static_cast<ExitCode>(control.at(i).exit_code);
    const bool follow_up = code == ExitCode::PeerLost || code == ExitCode::Hang;
    if (control.state(i) == RankState::Failed && !follow_up) found.push_back(i);
  }
  std::sort(found.begin(), found.end(), [&](int64_t a, int64_t b) {
    return control.at(a).sign_of_life.load() < control.at(b).sign_of_life.load();
  });
  return found;
}

}  // namespace

int run_rank(int64_t rank, ShmJob& job, const RankMain& body) {
  try {
    const int code = body(rank, job);
    job.control().set_state(rank, RankState::Done);
    return code;
  } catch (...) {
    const Failure failure = current_failure();
    job.control().set_failed(rank, failure.message, failure.code);
    job.control().abort(rank, cat("rank ", rank, ": ", failure.message), ExitCode::PeerLost);
    return static_cast<int>(failure.code);
  }
}

Verdict verdict_of(const Control& control, const std::string& loss) {
  if (!loss.empty()) return {loss, 1, ExitCode::PeerLost};
  if (const std::vector<int64_t> failed = failures(control); !failed.empty()) {
    const std::string first = control.at(failed[0]).error;
    const auto same = std::count_if(failed.begin(), failed.end(),
                                    [&](int64_t i) { return control.at(i).error == first; });
    const std::string who = same == 1 ? cat("rank ", failed[0], ": ") : "";
    return {who + first, same, static_cast<ExitCode>(control.at(failed[0]).exit_code)};
  }
  if (control.aborted()) return {control.abort_reason(), 1, control.abort_code()};
  return {};
}

}  // namespace weft

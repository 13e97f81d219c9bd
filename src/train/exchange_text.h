// Texts of any length between the ranks of a job.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace weft {

// The text of every rank, in rank order, on every rank.
std::vector<std::string> exchange_texts(Communicator& comm, std::string text);

}  // namespace weft

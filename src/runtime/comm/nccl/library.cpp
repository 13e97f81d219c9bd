#include "runtime/comm/nccl/library.h"

#include <stdlib.h>

#include "base/error.h"

namespace weft::nccl {

namespace {

constexpr int kMinVersion = 22600;  // 2.26, the first with the implicit launch order

// NCCL reads its options from the environment when it creates its first communicator.
void use_launch_order(const Functions& functions) {
  int version = 0;
  const ncclResult_t result = functions.get_version(&version);
  if (result != ncclSuccess || version < kMinVersion) {
    throw DeviceError(cat("nccl: found version ", version / 10000, ".", version / 100 % 100,
                          ", Weft needs 2.26 or newer; install a newer libnccl.so.2"),
                      ExitCode::Config);
  }
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
}

}  // namespace

Functions::Functions() : library("libnccl.so.2", "NCCL 2") {
  library.load(get_version, "ncclGetVersion");
  library.load(get_unique_id, "ncclGetUniqueId");
  library.load(comm_init_rank, "ncclCommInitRank");
  library.load(comm_destroy, "ncclCommDestroy");
  library.load(comm_abort, "ncclCommAbort");
  library.load(comm_get_async_error, "ncclCommGetAsyncError");
  library.load(get_error_string, "ncclGetErrorString");
  library.load(get_last_error, "ncclGetLastError");
  library.load(all_gather, "ncclAllGather");
  library.load(reduce_scatter, "ncclReduceScatter");
  library.load(all_reduce, "ncclAllReduce");
  library.load(send, "ncclSend");
  library.load(receive, "ncclRecv");
  library.load(group_start, "ncclGroupStart");
  library.load(group_end, "ncclGroupEnd");
  use_launch_order(*this);
}

const Functions& functions() {
  static const Functions loaded;
  return loaded;
}

std::string error_text(ncclResult_t result) {
  const char* last = functions().get_last_error(nullptr);
  const bool known = last != nullptr && *last != 0;
  return cat(functions().get_error_string(result), known ? cat(" (", last, ")") : "");
}

void check(ncclResult_t result, std::string_view what) {
  if (result == ncclSuccess) return;
  // Consequences of another rank's exit are reported by the rank that noticed the exit.
  const bool remote = result == ncclRemoteError || result == ncclSystemError;
  throw DeviceError(cat("nccl: ", what, " failed: ", error_text(result)),
                    remote ? ExitCode::PeerLost : ExitCode::Internal);
}

}  // namespace weft::nccl

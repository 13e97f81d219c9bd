#include "runtime/comm/nccl/library.h"

#include "base/error.h"

namespace weft::nccl {

Functions::Functions() : library("libnccl.so.2", "NCCL 2") {
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
  // What another rank's end brings about is told by who saw that end.
  const bool remote = result == ncclRemoteError || result == ncclSystemError;
  throw DeviceError(cat("nccl: ", what, " failed: ", error_text(result)),
                    remote ? ExitCode::PeerLost : ExitCode::Internal);
}

}  // namespace weft::nccl

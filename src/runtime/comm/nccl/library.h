// The NCCL functions in use, from a library that is loaded when ranks first need it.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

#include "runtime/cuda/device/library.h"

namespace weft::nccl {

struct Functions {
  // Throws DeviceError when libnccl.so.2 is missing or lacks the implicit launch order, which runs
  // the operations of several communicators on one GPU in the order in which the host queued them.
  Functions();

  cuda::Library library;
  decltype(ncclGetVersion)* get_version = nullptr;
  decltype(ncclGetUniqueId)* get_unique_id = nullptr;
  decltype(ncclCommInitRank)* comm_init_rank = nullptr;
  decltype(ncclCommDestroy)* comm_destroy = nullptr;
  decltype(ncclCommAbort)* comm_abort = nullptr;
  decltype(ncclCommGetAsyncError)* comm_get_async_error = nullptr;
  decltype(ncclGetErrorString)* get_error_string = nullptr;
  decltype(ncclGetLastError)* get_last_error = nullptr;
  decltype(ncclAllGather)* all_gather = nullptr;
  decltype(ncclReduceScatter)* reduce_scatter = nullptr;
  decltype(ncclAllReduce)* all_reduce = nullptr;
  decltype(ncclSend)* send = nullptr;
  decltype(ncclRecv)* receive = nullptr;
  decltype(ncclGroupStart)* group_start = nullptr;
  decltype(ncclGroupEnd)* group_end = nullptr;
};

// The library, loaded once per process.
const Functions& functions();

// Throws DeviceError "nccl: <what> failed: <message>" unless the call succeeded.
void check(ncclResult_t result, std::string_view what);

#define NCCL_CHECK(call) ::weft::nccl::check((call), #call)

// Why an operation failed, in NCCL's words.
std::string error_text(ncclResult_t result);

}  // namespace weft::nccl

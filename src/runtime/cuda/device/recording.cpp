// One program as one CUDA graph: the launches of all its streams, captured once. The first stream
// forks into the others and joins them at the end, so one launch runs the entire program.
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/cuda/device/check.h"
#include "runtime/cuda/device/stream.h"

namespace weft::cuda {

namespace {

struct Destroy {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t program) const { cudaGraphExecDestroy(program); }
};

using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy>;
using GraphProgram = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;

class GraphRecording : public Recording {
 public:
  GraphRecording(CudaStream& stream, std::string_view name, cudaGraph_t graph) : stream_(stream) {
    size_t nodes = 0;
    CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    description_ = cat("program ", name, " (", nodes, " nodes)");
    cudaGraphExec_t program = nullptr;
    CUDA_CHECK(cudaGraphInstantiate(&program, graph, 0));
    // Not uploaded before its first launch: drivers have crashed in that call on graphs with NCCL's
    // launch order.
    program_.reset(program);
  }

  void replay() override { stream_.replay(program_.get(), description_); }

 private:
  CudaStream& stream_;
  GraphProgram program_;
  std::string description_;
};

// Throws the error that invalidated a capture rather than the errors that followed on other
// streams.
void throw_kept_error(std::span<const std::unique_ptr<Stream>> streams) {
  CudaStream* failed = nullptr;
  for (const auto& each : streams) {
    auto& stream = static_cast<CudaStream&>(*each);
    if (stream.kept_error() == cudaSuccess) continue;
    if (failed == nullptr || failed->kept_error() == cudaErrorStreamCaptureInvalidated) {
      failed = &stream;
    }
  }
  if (failed != nullptr) failed->throw_kept_error();
}

}  // namespace

std::unique_ptr<Recording> record_graph(std::string_view name,
                                        std::span<const std::unique_ptr<Stream>> streams,
                                        const std::function<void()>& queue) {
  auto& first = static_cast<CudaStream&>(*streams.front());
  CUDA_CHECK(cudaStreamBeginCapture(first.handle(), cudaStreamCaptureModeThreadLocal));
  std::vector<std::unique_ptr<CudaEvent>> events;
  const auto end_capture = [&] {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(first.handle(), &graph);
    cudaGetLastError();  // clears the error: a failed capture does not harm the context
    return std::pair(error, Graph(graph));
  };
  try {
    events.push_back(std::make_unique<CudaEvent>());
    first.signal(*events.front());
    for (const auto& stream : streams.subspan(1)) stream->wait(*events.front());
    queue();
    for (const auto& stream : streams.subspan(1)) {
      events.push_back(std::make_unique<CudaEvent>());
      stream->signal(*events.back());
      first.wait(*events.back());
    }
  } catch (...) {
    end_capture();
    throw_kept_error(streams);
    throw;
  }
  const auto [error, graph] = end_capture();
  throw_kept_error(streams);
  if (error != cudaSuccess) throw_cuda_error(error, "cudaStreamEndCapture");
  return std::make_unique<GraphRecording>(first, name, graph.get());
}

}  // namespace weft::cuda

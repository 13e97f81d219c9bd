// One program as one CUDA graph: the launches of all its streams, captured once. The first stream
// forks into the others and joins them again, so that one launch stands for the whole program.
#include <vector>

#include "base/text.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/stream.h"

namespace weft::cuda {

namespace {

class GraphRecording : public Recording {
 public:
  GraphRecording(CudaStream& stream, cudaGraph_t graph) : stream_(stream) {
    size_t nodes = 0;
    const cudaError_t counted = cudaGraphGetNodes(graph, nullptr, &nodes);
    const cudaError_t made = cudaGraphInstantiate(&program_, graph, 0);
    cudaGraphDestroy(graph);
    CUDA_CHECK(counted);
    CUDA_CHECK(made);
    description_ = cat("a program of ", nodes, " nodes");
    CUDA_CHECK(cudaGraphUpload(program_, stream.handle()));
  }
  ~GraphRecording() override { cudaGraphExecDestroy(program_); }
  GraphRecording(const GraphRecording&) = delete;
  GraphRecording& operator=(const GraphRecording&) = delete;

  void replay() override { stream_.replay(program_, description_); }

 private:
  CudaStream& stream_;
  cudaGraphExec_t program_ = nullptr;
  std::string description_;
};

}  // namespace

std::unique_ptr<Recording> record_graph(std::span<const std::unique_ptr<Stream>> streams,
                                        const std::function<void()>& queue) {
  auto& first = static_cast<CudaStream&>(*streams.front());
  CUDA_CHECK(cudaStreamBeginCapture(first.handle(), cudaStreamCaptureModeThreadLocal));
  std::vector<std::unique_ptr<CudaEvent>> events;
  cudaGraph_t graph = nullptr;
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
    cudaStreamEndCapture(first.handle(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  CUDA_CHECK(cudaStreamEndCapture(first.handle(), &graph));
  return std::make_unique<GraphRecording>(first, graph);
}

}  // namespace weft::cuda

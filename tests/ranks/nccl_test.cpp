// Collectives on GPUs compared with those of the CPU, bit for bit where the order is guaranteed,
// and what happens when a rank is lost. The ranks share one GPU. Without a GPU these tests are
// skipped; this process itself never touches one, as its ranks are forks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "base/half.h"
#include "graph/samples.h"
#include "ranks/ranks.h"
#include "runtime/comm/dim_layout.h"
#include "runtime/comm/flat_layout.h"
#include "runtime/comm/launcher.h"
#include "runtime/comm/sum.h"
#include "runtime/comm/transfer.h"

namespace weft {
namespace {

using Body = std::function<void(Communicator&, Device&)>;

struct Outcome {
  int code = 0;
  std::string messages;
};

Outcome run(const Mesh& mesh, const CommOptions& options, const Body& body) {
  Outcome outcome;
  LaunchOptions launch;
  launch.ranks = mesh.ranks();
  launch.report = [&](const std::string& message) { outcome.messages += message + "\n"; };
  outcome.code = launch_ranks(launch, [&](int64_t rank, ShmJob& job) {
    ::setenv("NCCL_LAUNCH_RACE_FATAL", "1", 1);  // operations out of order end the rank
    const Backend& backend = find_backend("cuda");
    const auto comm = backend.connect(job.connect({mesh, rank}, options), {.share_device = true});
    const auto device = backend.make_device({});
    device->set_watch([&](int64_t since) { comm->watch({.waiting_since = since}); });
    std::vector<CollectiveGroup> groups;
    for (const MeshAxis& axis : mesh.axes) {
      for (int64_t stream = 0; stream < kHostChannel; ++stream)
        groups.push_back({axis.name, stream});
    }
    if (mesh.axes.size() == 2) groups.push_back({mesh.axes[0].name + "+" + mesh.axes[1].name, 0});
    comm->make_groups(groups);
    body(*comm, *device);
    device->set_watch({});
    return 0;
  });
  return outcome;
}

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    const Outcome outcome = run(make_mesh({{"dp", 1}}), {}, [](Communicator&, Device&) {});
    if (outcome.code == 64) GTEST_SKIP() << outcome.messages;
    ASSERT_EQ(outcome.code, 0) << outcome.messages;
  }

  static void expect_success(const Mesh& mesh, const Body& body) {
    const Outcome outcome = run(mesh, {}, body);
    EXPECT_EQ(outcome.code, 0) << outcome.messages;
  }
};

float value_of(int64_t rank, int64_t i) {
  uint64_t x = static_cast<uint64_t>(rank * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  const int exponent = static_cast<int>(x % 7) - 3;
  return static_cast<float>(std::ldexp(static_cast<double>(x >> 40) / (1 << 23) - 1.0, exponent));
}

std::vector<char> made_up(DType dtype, int64_t rank, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) values[static_cast<size_t>(i)] = value_of(rank, i);
  std::vector<char> bytes(static_cast<size_t>(elements * dtype_bytes(dtype)));
  convert({values.data(), DType::F32}, elements, {bytes.data(), dtype});
  return bytes;
}

// GPU memory with a stream to fill and read it.
class Block {
 public:
  Block(Communicator& comm, Device& device, int64_t bytes)
      : comm_(comm), device_(device), bytes_(bytes), stream_(device.make_stream("test")) {
    memory_ = comm.allocate(bytes, device);
  }
  ~Block() { comm_.release(memory_, device_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Stream* stream() { return stream_.get(); }
  Tensor tensor(int64_t offset, DType dtype, Shape shape) const {
    return {static_cast<char*>(memory_) + offset, dtype, std::move(shape)};
  }
  void write(int64_t offset, const std::vector<char>& bytes) {
    stream_->copy_in(static_cast<char*>(memory_) + offset, bytes.data(),
                     static_cast<int64_t>(bytes.size()));
    stream_->synchronize();
  }
  std::vector<char> read(int64_t offset, int64_t bytes) {
    std::vector<char> values(static_cast<size_t>(bytes));
    stream_->copy_out(values.data(), static_cast<char*>(memory_) + offset, bytes);
    stream_->synchronize();
    return values;
  }
  // Fills memory that has not been written yet with bytes that are not a valid number.
  void poison() { write(0, std::vector<char>(static_cast<size_t>(bytes_), '\xff')); }

 private:
  Communicator& comm_;
  Device& device_;
  int64_t bytes_;
  void* memory_ = nullptr;
  std::unique_ptr<Stream> stream_;
};

// The tree sum of the values of all ranks of the group, as the CPU computes it.
std::vector<char> expected_sum(const Communicator& comm, DType dtype, int64_t elements, DType to) {
  std::vector<std::vector<char>> parts;
  std::vector<const void*> sources;
  for (const int64_t rank : comm.info().group("dp")) {
    parts.push_back(made_up(dtype, rank, elements));
  }
  for (const auto& part : parts) sources.push_back(part.data());
  std::vector<char> sum(static_cast<size_t>(elements * dtype_bytes(to)));
  tree_sum(sources, dtype, elements, {sum.data(), to});
  return sum;
}

// Members of 1500 and 700 elements: gaps between and behind them, shard boundaries inside the
// first.
void check_flat(Communicator& comm, Device& device, DType dtype, DType shard_dtype) {
  const int64_t ranks = comm.size("dp"), own = comm.coordinate("dp");
  const int64_t blocks = 3;
  const int64_t shard_size = (blocks + ranks - 1) / ranks * 1024;
  const int64_t flat_bytes = ranks * shard_size * dtype_bytes(dtype);
  const int64_t shard_bytes = shard_size * dtype_bytes(shard_dtype);
  const int64_t work_bytes = scatter_workspace(dtype, shard_size, ranks);
  Block block(comm, device, flat_bytes + shard_bytes + work_bytes);
  block.poison();
  const std::vector<Tensor> members = {block.tensor(0, dtype, {1500}),
                                       block.tensor(2048 * dtype_bytes(dtype), dtype, {700})};
  const Tensor shard = block.tensor(flat_bytes, shard_dtype, {shard_size});
  const CollectiveSite site{.axis = "dp",
                            .stream = block.stream(),
                            .workspace = block.tensor(flat_bytes + shard_bytes, dtype, {}).data};
  const std::vector<char> values = made_up(dtype, comm.rank(), 2748);
  const auto part = [&](const std::vector<char>& bytes, int64_t at, int64_t n, DType type) {
    return std::vector<char>(bytes.begin() + at * dtype_bytes(type),
                             bytes.begin() + (at + n) * dtype_bytes(type));
  };
  block.write(0, part(values, 0, 1500, dtype));
  block.write(2048 * dtype_bytes(dtype), part(values, 2048, 700, dtype));

  comm.reduce_scatter(site, members, shard);
  std::vector<char> sum = expected_sum(comm, dtype, 2748, shard_dtype);
  std::vector<char> flat(static_cast<size_t>(ranks * shard_bytes), 0);
  const auto keep = [&](int64_t at, int64_t n) {
    std::copy_n(sum.begin() + at * dtype_bytes(shard_dtype), n * dtype_bytes(shard_dtype),
                flat.begin() + at * dtype_bytes(shard_dtype));
  };
  keep(0, 1500);
  keep(2048, 700);
  require(
      block.read(flat_bytes, shard_bytes) == part(flat, own * shard_size, shard_size, shard_dtype),
      "reduce_scatter differs from the CPU");

  comm.all_gather(site, shard, members);
  std::vector<char> gathered(static_cast<size_t>(ranks * shard_size * dtype_bytes(dtype)));
  convert({flat.data(), shard_dtype}, ranks * shard_size, {gathered.data(), dtype});
  require(block.read(0, flat_bytes) == gathered, "all_gather differs from the CPU");
}

// The shard of rank `coordinate` of a tensor along a dim, with zeros beyond the end.
std::vector<char> shard_of(const std::vector<char>& full, const DimLayout& layout, int64_t element,
                           int64_t coordinate) {
  std::vector<char> shard(static_cast<size_t>(layout.shard_elements() * element), 0);
  layout.for_parts(coordinate, [&](int64_t in_full, int64_t in_shard, int64_t elements) {
    std::copy_n(full.begin() + in_full * element, elements * element,
                shard.begin() + in_shard * element);
  });
  return shard;
}

// Along a dim of small integers, whose sums are exact in any order.
void check_dim(Communicator& comm, Device& device, const std::string& axis, DType dtype,
               int64_t dim) {
  const Shape shape = {3, 8, 5};
  const int64_t ranks = comm.size(axis), own = comm.coordinate(axis), element = dtype_bytes(dtype);
  Shape part = shape;
  int64_t& size = part[static_cast<size_t>(dim)];
  size = (size + ranks - 1) / ranks;
  const DimLayout layout(shape, part, dim, axis, ranks);
  Block block(comm, device, 1 << 16);
  block.poison();
  const Tensor full = block.tensor(0, dtype, shape);
  const Tensor shard = block.tensor(4096, dtype, part);
  CollectiveSite site{
      .axis = axis, .stream = block.stream(), .workspace = block.tensor(8192, dtype, {}).data};
  const auto values = [&](int64_t factor) {
    std::vector<float> floats;
    for (int64_t i = 0; i < count(shape); ++i)
      floats.push_back(static_cast<float>(factor * (i % 9)));
    std::vector<char> bytes(floats.size() * static_cast<size_t>(element));
    convert({floats.data(), DType::F32}, count(shape), {bytes.data(), dtype});
    return bytes;
  };
  int64_t factor = 0;
  for (const int64_t rank : comm.info().group(axis)) factor += rank + 1;
  const std::vector<char> sum = values(factor);
  for (const bool ordered : {true, false}) {
    if (!ordered && dtype != DType::F32) continue;
    site.ordered = ordered;
    block.write(0, values(comm.rank() + 1));
    comm.reduce_scatter_dim(site, full, shard, dim);
    require(
        block.read(4096, layout.shard_elements() * element) == shard_of(sum, layout, element, own),
        cat("reduce_scatter along dim ", dim, " of ", axis));
    block.write(0, std::vector<char>(sum.size(), '\xff'));
    comm.all_gather_dim(site, shard, full, dim);
    require(block.read(0, std::ssize(sum)) == sum, cat("all_gather along dim ", dim, " of ", axis));
  }
}

// `elements` below and above the size up to which every rank computes the full sum.
void check_sum(Communicator& comm, Device& device, DType dtype, int64_t elements) {
  const int64_t bytes = elements * dtype_bytes(dtype);
  const int64_t at = (bytes + 255) / 256 * 256;
  Block block(comm, device, at + sum_workspace(dtype, elements, comm.size("dp")));
  block.poison();
  const Tensor tensor = block.tensor(0, dtype, {elements});
  CollectiveSite site{
      .axis = "dp", .stream = block.stream(), .workspace = block.tensor(at, dtype, {}).data};
  block.write(0, made_up(dtype, comm.rank(), elements));
  comm.all_reduce(site, {&tensor, 1});
  const std::vector<char> expected = expected_sum(comm, dtype, elements, dtype);
  require(block.read(0, bytes) == expected, cat("all_reduce of ", elements, " differs"));
  if (dtype != DType::F32) return;
  site.ordered = false;
  block.write(0, made_up(dtype, comm.rank(), elements));
  comm.all_reduce(site, {&tensor, 1});
  const std::vector<char> library = block.read(0, bytes);
  for (int64_t i = 0; i < elements; ++i) {
    const float a = reinterpret_cast<const float*>(library.data())[i];
    const float b = reinterpret_cast<const float*>(expected.data())[i];
    // Another order of at most four terms below 16.
    require(std::abs(a - b) <= 16 * 0x1p-22F, cat("library sum ", a, ", expected ", b));
  }
}

void check_integers(Communicator& comm, Device& device) {
  Block block(comm, device, 64);
  std::vector<char> bytes(24);
  for (int64_t i = 0; i < 3; ++i) {
    reinterpret_cast<int64_t*>(bytes.data())[i] = (comm.rank() + 1) * ((int64_t{1} << 40) + i);
  }
  block.write(0, bytes);
  const Tensor tensor = block.tensor(0, DType::I64, {3});
  comm.all_reduce({.axis = "dp", .stream = block.stream(), .ordered = false}, {&tensor, 1});
  const std::vector<char> sum = block.read(0, 24);
  int64_t factor = 0;
  for (const int64_t rank : comm.info().group("dp")) factor += rank + 1;
  for (int64_t i = 0; i < 3; ++i) {
    require(reinterpret_cast<const int64_t*>(sum.data())[i] == factor * ((int64_t{1} << 40) + i),
            "sum of integers");
  }
}

TEST_F(Nccl, OrderedCollectivesHaveTheBitsOfTheCpu) {
  for (const int64_t ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    expect_success(make_mesh({{"dp", ranks}}), [](Communicator& comm, Device& device) {
      check_flat(comm, device, DType::F32, DType::F32);
      check_flat(comm, device, DType::BF16, DType::F32);
      check_sum(comm, device, DType::F32, 1);
      check_sum(comm, device, DType::F32, 100'003);
      check_sum(comm, device, DType::BF16, 5000);
      check_integers(comm, device);
    });
  }
}

TEST_F(Nccl, CollectivesAlongADimMatchTheCpu) {
  const auto check = [](Communicator& comm, Device& device, const std::string& axis) {
    for (int64_t dim = 0; dim < 3; ++dim) {
      check_dim(comm, device, axis, DType::F32, dim);
      check_dim(comm, device, axis, DType::BF16, dim);
    }
  };
  for (const int64_t ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    expect_success(make_mesh({{"dp", ranks}}),
                   [&](Communicator& comm, Device& device) { check(comm, device, "dp"); });
  }
  expect_success(make_mesh({{"other", 2}, {"dp", 2}}),
                 [&](Communicator& comm, Device& device) { check(comm, device, "other+dp"); });
  // Two ranges per rank.
  for (const int64_t ranks : {2, 4}) {
    expect_success(make_mesh({{"cp", ranks}}), [](Communicator& comm, Device& device) {
      check_dim(comm, device, "cp", DType::F32, 1);
      check_dim(comm, device, "cp", DType::BF16, 1);
    });
  }
}

// Shards of one tensor of consecutive integers move from one dim to another, and around the ring.
void check_moves(Communicator& comm, Device& device, const std::string& axis,
                 const AllToAll::Dims& dims) {
  const Shape shape = {3, 8, 5, 8};
  const int64_t ranks = comm.size(axis), own = comm.coordinate(axis);
  const auto shard = [&](int64_t dim) {
    Shape part = shape;
    int64_t& size = part[static_cast<size_t>(dim)];
    size = (size + ranks - 1) / ranks;
    return part;
  };
  std::vector<char> values(static_cast<size_t>(count(shape) * 4));
  for (int64_t i = 0; i < count(shape); ++i) {
    reinterpret_cast<float*>(values.data())[i] = static_cast<float>(i + 1);
  }
  const auto expected = [&](int64_t dim, int64_t rank) {
    return shard_of(values, DimLayout(shape, shard(dim), dim, axis, ranks), 4, rank);
  };
  Block block(comm, device, 1 << 16);
  block.poison();
  const Tensor from = block.tensor(0, DType::F32, shard(dims.from));
  const Tensor to = block.tensor(8192, DType::F32, shard(dims.to));
  const CollectiveSite site{.axis = axis,
                            .stream = block.stream(),
                            .workspace = block.tensor(16384, DType::F32, {}).data};
  block.write(0, expected(dims.from, own));
  const AllToAll moves(from.shape, to.shape, dims, axis, ranks);
  const MovedTensor tensors[] = {{from, to, &moves}};
  comm.transfer(site, tensors);
  require(block.read(8192, to.elements() * 4) == expected(dims.to, own),
          cat("all_to_all from dim ", dims.from, " to ", dims.to, " of ", axis));
  const Tensor shifted = block.tensor(8192, DType::F32, from.shape);
  const Shift ring(from.elements(), 1, ranks);
  const MovedTensor in_ring[] = {{from, shifted, &ring}};
  comm.transfer(site, in_ring);
  require(block.read(8192, from.elements() * 4) == expected(dims.from, (own + ranks - 1) % ranks),
          cat("shift along dim ", dims.from, " of ", axis));
}

TEST_F(Nccl, MovesOfShardsMatchTheCpu) {
  const auto check = [](Communicator& comm, Device& device, const std::string& axis) {
    for (int64_t from = 0; from < 4; ++from) {
      for (int64_t to = 0; to < 4; ++to) {
        if (from != to) check_moves(comm, device, axis, {.from = from, .to = to});
      }
    }
  };
  for (const int64_t ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    expect_success(make_mesh({{"dp", ranks}}),
                   [&](Communicator& comm, Device& device) { check(comm, device, "dp"); });
  }
  expect_success(make_mesh({{"other", 2}, {"dp", 2}}),
                 [&](Communicator& comm, Device& device) { check(comm, device, "other+dp"); });
  expect_success(make_mesh({{"cp", 2}}), [](Communicator& comm, Device& device) {
    check_moves(comm, device, "cp", {.from = 1, .to = 3});
    check_moves(comm, device, "cp", {.from = 3, .to = 1});
  });
}

TEST_F(Nccl, GroupsAlongTwoAxesDoNotMix) {
  expect_success(make_mesh({{"other", 2}, {"dp", 2}}), [](Communicator& comm, Device& device) {
    check_flat(comm, device, DType::F32, DType::F32);
    check_sum(comm, device, DType::F32, 20'000);
  });
}

// The pattern of hybrid sharding: on one stream gathers over the inner axis, on another reductions
// over the inner axis and then over the outer one, many in flight, with ranks lagging in turn.
TEST_F(Nccl, TwoGroupsOnTwoStreamsRunInOneOrder) {
  expect_success(
      make_mesh({{"dp_replicate", 2}, {"dp_shard", 2}}), [](Communicator& comm, Device& device) {
        constexpr int64_t kElements = 1 << 16;
        constexpr int kRounds = 100;
        const int64_t bytes = kElements * dtype_bytes(DType::F32);
        Block weights(comm, device, 3 * bytes / 2);
        Block gradients(comm, device, 3 * bytes / 2);
        const Tensor gathered = weights.tensor(0, DType::F32, {kElements});
        const Tensor weight_shard = weights.tensor(bytes, DType::F32, {kElements / 2});
        const Tensor gradient = gradients.tensor(0, DType::F32, {kElements});
        const Tensor gradient_shard = gradients.tensor(bytes, DType::F32, {kElements / 2});
        const auto filled = [](float value, int64_t count) {
          std::vector<char> all(static_cast<size_t>(count) * sizeof value);
          std::fill_n(reinterpret_cast<float*>(all.data()), count, value);
          return all;
        };
        weights.write(bytes,
                      filled(static_cast<float>(comm.coordinate("dp_shard") + 1), kElements / 2));
        gradients.write(0, filled(static_cast<float>(comm.rank() + 1), kElements));
        for (int round = 0; round < kRounds; ++round) {
          if (round % 4 == comm.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          const CollectiveSite gather{
              .axis = "dp_shard", .channel = 1, .stream = weights.stream(), .ordered = false};
          const CollectiveSite scatter{
              .axis = "dp_shard", .channel = 2, .stream = gradients.stream(), .ordered = false};
          const CollectiveSite sum{
              .axis = "dp_replicate", .channel = 2, .stream = gradients.stream(), .ordered = false};
          comm.all_gather(gather, weight_shard, {&gathered, 1});
          comm.reduce_scatter(scatter, {&gradient, 1}, gradient_shard);
          comm.all_reduce(sum, {&gradient_shard, 1});
        }
        std::vector<char> full = filled(1, kElements / 2);
        const std::vector<char> second = filled(2, kElements / 2);
        full.insert(full.end(), second.begin(), second.end());
        require(weights.read(0, bytes) == full, "all_gather over dp_shard");
        require(gradients.read(bytes, bytes / 2) == filled(1 + 2 + 3 + 4, kElements / 2),
                "sums over dp_shard, then dp_replicate");
      });
}

// Loses rank 1 in the given way while rank 0's GPU waits for it.
Outcome lose_rank(const std::function<void(Block&, Communicator&)>& lose) {
  return run(make_mesh({{"dp", 2}}), {.timeout_seconds = 2, .delay = {}},
             [&](Communicator& comm, Device& device) {
               Block block(comm, device, 1 << 20);
               const Tensor tensor = block.tensor(0, DType::F32, {1 << 18});
               const CollectiveSite site{.axis = "dp", .stream = block.stream(), .ordered = false};
               for (int i = 0; i < 10000; ++i) {
                 comm.start_step(i);
                 if (i == 20 && comm.rank() == 1) lose(block, comm);
                 comm.report_progress(0, "the sum of the test");
                 comm.all_reduce(site, {&tensor, 1});
                 block.stream()->synchronize();
               }
             });
}

std::function<void(Block&, Communicator&)> send_itself(int signal) {
  return [=](Block&, Communicator&) { ::kill(::getpid(), signal); };
}

TEST_F(Nccl, AKilledRankEndsTheJob) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = lose_rank(send_itself(SIGKILL));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(outcome.code, 76);
  EXPECT_NE(outcome.messages.find("was killed by signal 9 (SIGKILL) at training step 20"),
            std::string::npos)
      << outcome.messages;
  EXPECT_LT(taken.count(), 15) << outcome.messages;
}

TEST_F(Nccl, AStoppedRankEndsTheJob) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = lose_rank(send_itself(SIGSTOP));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(outcome.code, 79);
  EXPECT_NE(outcome.messages.find("rank 1 hangs: no heartbeat"), std::string::npos)
      << outcome.messages;
  EXPECT_NE(outcome.messages.find("in the sum of the test"), std::string::npos) << outcome.messages;
  EXPECT_LT(taken.count(), 20) << outcome.messages;
}

// Destroys the GPU context of this process, as when a GPU falls off the bus: every later call
// fails. A kernel traps on an id outside its table of four rows.
void break_gpu(Block& block, Communicator&) {
  static const Call call = parse_samples(*find_op("embedding"), "ids: i32[4], w: f32[4,8]").at(0);
  std::vector<char> ids(16);
  for (int i = 0; i < 4; ++i) reinterpret_cast<int32_t*>(ids.data())[i] = 4;
  block.write(0, ids);
  const Kernel& kernel = choose_kernel(find_backend("cuda").kernels(), call, "cuda", "test");
  block.stream()->launch(kernel, {.call = &call,
                                  .operands = {block.tensor(0, DType::I32, {4}),
                                               block.tensor(256, DType::F32, {4, 8})},
                                  .results = {block.tensor(512, DType::F32, {4, 8})},
                                  .stream = block.stream(),
                                  .where = "the step that breaks it"});
}

TEST_F(Nccl, ARankWhoseGpuFailsEndsTheJob) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = lose_rank(break_gpu);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(outcome.code, 70);
  EXPECT_NE(outcome.messages.find("the step that breaks it"), std::string::npos)
      << outcome.messages;
  EXPECT_NE(outcome.messages.find(" failed: "), std::string::npos) << outcome.messages;
  EXPECT_LT(taken.count(), 20) << outcome.messages;
}

TEST_F(Nccl, FewerGpusThanRanksIsOneSentence) {
  std::string message;
  LaunchOptions launch;
  launch.ranks = 64;
  launch.report = [&](const std::string& text) { message += text + "\n"; };
  const int code = launch_ranks(launch, [](int64_t rank, ShmJob&) {
    find_backend("cuda").make_device({.index = rank, .needed = 64});
    return 0;
  });
  EXPECT_EQ(code, 64);
  EXPECT_NE(message.find("64 ranks need a GPU each, found "), std::string::npos) << message;
}

}  // namespace
}  // namespace weft

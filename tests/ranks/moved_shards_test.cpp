// Collectives that only move data, over threads and over processes, compared with an oracle for
// every element: between any two dims, with padding, over joint axes, and around the ring.
#include <gtest/gtest.h>

#include "graph/text.h"
#include "plan/lower.h"
#include "ranks/elements.h"
#include "ranks/ranks.h"
#include "runtime/comm/transfer.h"
#include "runtime/executor.h"

namespace weft {
namespace {

// Two tensors of one block, filled with bytes that are not a valid number.
struct Pair {
  Pair(const Shape& first_shape, const Shape& second_shape, DType dtype, Communicator& comm_,
       Device& device_)
      : comm(comm_), device(device_) {
    const int64_t begin = (count(first_shape) * 8 + 63) / 64 * 64;
    const int64_t bytes = begin + count(second_shape) * 8 + 64;
    memory = static_cast<char*>(comm.allocate(bytes, device));
    std::memset(memory, 0xff, static_cast<size_t>(bytes));
    first = {memory, dtype, first_shape};
    second = {memory + begin, dtype, second_shape};
  }
  ~Pair() { comm.release(memory, device); }

  Communicator& comm;
  Device& device;
  char* memory = nullptr;
  Tensor first;
  Tensor second;
};

// Which rank of the axis has index `at` of a dim of this size, and where in its shard.
std::pair<int64_t, int64_t> place_of(const std::string& axis, int64_t at, int64_t size,
                                     int64_t ranks) {
  if (axis != "cp" || ranks == 1) {
    const int64_t part = (size + ranks - 1) / ranks;
    return {at / part, at % part};
  }
  const int64_t chunk = size / (2 * ranks);
  const int64_t number = at / chunk;
  const bool head = number < ranks;
  return {head ? number : 2 * ranks - 1 - number, at % chunk + (head ? 0 : chunk)};
}

// Calls fn(index in the full tensor, index in the rank's shard along the dim) for all of the shard.
template <class Fn>
void for_shard(const Shape& shape, size_t dim, const std::string& axis, const Communicator& comm,
               const Fn& fn) {
  const int64_t ranks = comm.size(axis), size = shape.at(dim), part = (size + ranks - 1) / ranks;
  int64_t inner = 1;
  for (size_t i = dim + 1; i < shape.size(); ++i) inner *= shape[i];
  for (int64_t i = 0; i < count(shape); ++i) {
    const auto [owner, at] = place_of(axis, i / inner % size, size, ranks);
    if (owner != comm.coordinate(axis)) continue;
    fn(i, (i / inner / size * part + at) * inner + i % inner);
  }
}

void check_all_to_all(Communicator& comm, Device& device, const std::string& axis,
                      const Shape& shape, const AllToAll::Dims& dims) {
  const auto shard_shape = [&](int64_t dim) {
    Shape shard = shape;
    int64_t& size = shard[static_cast<size_t>(dim)];
    size = (size + comm.size(axis) - 1) / comm.size(axis);
    return shard;
  };
  for (const DType dtype : {DType::F32, DType::BF16}) {
    Pair pair(shard_shape(dims.from), shard_shape(dims.to), dtype, comm, device);
    const AllToAll moves(pair.first.shape, pair.second.shape, dims, axis, comm.size(axis));
    for (int round = 0; round < 3; ++round) {
      const auto value = [&](int64_t i) { return encode(dtype, element(0, round, i)); };
      for_shard(shape, static_cast<size_t>(dims.from), axis, comm,
                [&](int64_t full, int64_t own) { write_bits(pair.first, own, value(full)); });
      const MovedTensor tensors[] = {{pair.first, pair.second, &moves}};
      comm.transfer({axis, 0}, tensors);
      std::vector<uint64_t> expected(static_cast<size_t>(pair.second.elements()), 0);
      for_shard(shape, static_cast<size_t>(dims.to), axis, comm, [&](int64_t full, int64_t own) {
        expected[static_cast<size_t>(own)] = value(full);
      });
      for (int64_t i = 0; i < pair.second.elements(); ++i) {
        require(read_bits(pair.second, i) == expected[static_cast<size_t>(i)],
                cat("element ", i, " moved from dim ", dims.from, " to ", dims.to, " of ", axis,
                    " differs in round ", round));
      }
    }
  }
}

void check_moves(Communicator& comm, Device& device, const std::string& axis) {
  for (const Shape& shape : {Shape{3, 8, 5, 4}, Shape{7, 1, 9, 2}}) {
    for (int64_t from = 0; from < std::ssize(shape); ++from) {
      for (int64_t to = 0; to < std::ssize(shape); ++to) {
        if (from != to) check_all_to_all(comm, device, axis, shape, {.from = from, .to = to});
      }
    }
  }
}

void check_shift(Communicator& comm, Device& device, const std::string& axis) {
  const std::vector<int64_t> group = comm.info().group(axis);
  const int64_t ranks = comm.size(axis);
  Pair pair({3, 100}, {3, 100}, DType::F32, comm, device);
  for (const int64_t steps : {1, 2, -1, 1}) {
    fill(pair.first, comm.rank(), steps);
    const Shift moves(300, steps, ranks);
    const MovedTensor tensors[] = {{pair.first, pair.second, &moves}};
    comm.transfer({axis, 3}, tensors);
    const int64_t sender = ((comm.coordinate(axis) - steps) % ranks + ranks) % ranks;
    for (int64_t i = 0; i < 300; ++i) {
      const float value = element(group[static_cast<size_t>(sender)], steps, i);
      require(read_bits(pair.second, i) == encode(DType::F32, value),
              cat("element ", i, " shifted by ", steps, " over ", axis, " differs"));
    }
  }
}

class MovedShards : public testing::TestWithParam<std::tuple<Transport, Mesh>> {};

TEST_P(MovedShards, MatchTheOracle) {
  const auto& [transport, mesh] = GetParam();
  const auto body = [](Communicator& comm, Device& device) {
    std::vector<std::string> names;
    for (const MeshAxis& axis : comm.info().mesh.axes) names.push_back(axis.name);
    if (names.size() > 1) names.push_back(join(names, "+"));
    for (const std::string& name : names) {
      check_moves(comm, device, name);
      check_shift(comm, device, name);
    }
    comm.barrier();
  };
  for (const std::string& error : run_ranks(mesh, {.transport = transport}, body)) {
    EXPECT_EQ(error, "");
  }
}

TEST(MovedShardsOfATensor, KnowHeadAndTailOverCp) {
  for (const Transport transport : {Transport::Threads, Transport::Shm}) {
    for (const std::string& error :
         run_ranks(make_mesh({{"cp", 2}}), {.transport = transport},
                   [](Communicator&comm, Device&device) {
                     check_all_to_all(comm, device, "cp", {2, 8, 3, 4}, {.from = 1, .to = 3});
                     check_all_to_all(comm, device, "cp", {2, 8, 3, 4}, {.from = 3, .to = 1});
                   })) {
      EXPECT_EQ(error, "");
    }
  }
}

TEST(MovedShardsOfATensor, MoveOverExpertAxes) {
  const Mesh mesh = parse_mesh("dp_replicate=2, dp_shard=2, tp=2; edp=2, ep=2");
  for (const Transport transport : {Transport::Threads, Transport::Shm}) {
    for (const std::string& error :
         run_ranks(mesh, {.transport = transport}, [](Communicator&comm, Device&device) {
           for (const char* axis :
                {"ep", "tp", "edp", "edp+ep", "dp_shard+tp", "dp_replicate+edp"}) {
             check_all_to_all(comm, device, axis, {8, 4, 3, 5}, {.from = 0, .to = 1});
             check_all_to_all(comm, device, axis, {8, 4, 3, 5}, {.from = 1, .to = 0});
             check_shift(comm, device, axis);
           }
         })) {
      EXPECT_EQ(error, "");
    }
  }
}

// Rows and their offsets, of two types, on a stream of their own.
TEST(MovedShardsOfATensor, MoveTogether) {
  const Graph graph = parse_graph(R"(graph g(mesh dp_shard=4; edp=2, ep=2) {
  %x = input "x" : f32[4,2,3] @S(0:edp) @S(0:ep)
  %n = input "n" : i32[4,2] @S(0:edp) @S(0:ep)
  %fx, %fn = all_to_all_start(%x, %n; axis="ep", from=0, to=1) : future<f32[4,2,3] @S(0:edp) @S(1:ep)>, future<i32[4,2] @S(0:edp) @S(1:ep)>
  %y, %m = wait(%fx, %fn) : f32[4,2,3] @S(0:edp) @S(1:ep), i32[4,2] @S(0:edp) @S(1:ep)
  return y=%y, m=%m
}
)");
  const Backend& backend = find_backend("cpu");
  const DeviceSpec spec = load_device_spec({}, "cpu");
  const ProgramSource source{ProgramKind::Last, &graph};
  const Plan plan = lower(
      {&source, 1},
      {.backend = backend.name, .kernels = backend.kernels(), .device = spec, .packed_params = {}});
  const auto body = [&](Communicator& comm, Device& device) {
    Executor executor(plan, device, backend.kernels(), comm);
    const auto rank = static_cast<int>(comm.rank());
    std::vector<float> x, y(6), expected;
    std::vector<int32_t> n, m(2), expected_n;
    for (int i = 0; i < 6; ++i) x.push_back(static_cast<float>(10 * rank + i));
    for (int i = 0; i < 2; ++i) n.push_back(100 * rank + i);
    executor.write("x", x.data(), 24);
    executor.write("n", n.data(), 8);
    executor.run(ProgramKind::Last);
    executor.read("y", y.data(), 24);
    executor.read("m", m.data(), 8);
    for (int peer = rank / 2 * 2; peer < rank / 2 * 2 + 2; ++peer) {
      for (int i = 0; i < 3; ++i) {
        expected.push_back(static_cast<float>(10 * peer + 3 * (rank % 2) + i));
      }
      expected_n.push_back(100 * peer + rank % 2);
    }
    require(y == expected && m == expected_n, "the result differs");
    comm.barrier();
  };
  for (const Transport transport : {Transport::Threads, Transport::Shm}) {
    for (const std::string& error : run_ranks(plan.mesh, {.transport = transport}, body)) {
      EXPECT_EQ(error, "");
    }
  }
}

// Rows [sources, parts, 4 slots, 3] there and back; each rank has 1 to 4 rows for each other one.
void check_rows(Communicator& comm, Device& device) {
  constexpr int64_t kSlots = 4, kWidth = 3;
  const int64_t ranks = comm.size("ep"), own = comm.coordinate("ep");
  const auto filled = [](int64_t from, int64_t to) { return 1 + (3 * from + to) % kSlots; };
  Pair rows({1, ranks, kSlots, kWidth}, {ranks, 1, kSlots, kWidth}, DType::F32, comm, device);
  Pair offsets({1, ranks, 2}, {ranks, 1, 2}, DType::I32, comm, device);
  fill(rows.first, comm.rank(), 0);
  for (int64_t peer = 0; peer < ranks; ++peer) {
    offsets.first.as<int32_t>()[2 * peer + 1] = static_cast<int32_t>(filled(own, peer));
    offsets.second.as<int32_t>()[2 * peer + 1] = static_cast<int32_t>(filled(peer, own));
  }
  const AllToAll there(rows.first.shape, rows.second.shape, {.from = 0, .to = 1}, "ep", ranks);
  const MovedTensor sent[] = {{rows.first, rows.second, &there, &offsets.first}};
  comm.transfer({"ep", 0}, sent);
  const std::vector<int64_t> group = comm.info().group("ep");
  const uint64_t unwritten = 0xffffffff;
  for (int64_t i = 0; i < rows.second.elements(); ++i) {
    const int64_t source = i / (kSlots * kWidth), row = i / kWidth % kSlots;
    const int64_t in_source = own * kSlots * kWidth + i % (kSlots * kWidth);
    const float value = element(group[static_cast<size_t>(source)], 0, in_source);
    require(read_bits(rows.second, i) ==
                (row < filled(source, own) ? encode(DType::F32, value) : unwritten),
            cat("element ", i, " of the rows differs"));
  }
  std::memset(rows.first.data, 0xff, static_cast<size_t>(rows.first.elements() * 4));
  const AllToAll back(rows.second.shape, rows.first.shape, {.from = 1, .to = 0}, "ep", ranks);
  const MovedTensor returned[] = {{rows.second, rows.first, &back, &offsets.second}};
  comm.transfer({"ep", 0}, returned);
  for (int64_t i = 0; i < rows.first.elements(); ++i) {
    const int64_t target = i / (kSlots * kWidth), row = i / kWidth % kSlots;
    const uint64_t expected = encode(DType::F32, element(comm.rank(), 0, i));
    require(read_bits(rows.first, i) == (row < filled(own, target) ? expected : unwritten),
            cat("element ", i, " of the returned rows differs"));
  }
}

TEST(MovedShardsOfATensor, OnlyFilledRowsMove) {
  for (const Transport transport : {Transport::Threads, Transport::Shm}) {
    for (const char* mesh : {"dp_shard=4; ep=4", "dp_shard=2, tp=3; edp=2, ep=3"}) {
      for (const std::string& error :
           run_ranks(parse_mesh(mesh), {.transport = transport}, check_rows)) {
        EXPECT_EQ(error, "");
      }
    }
  }
}

// The shift runs on a stream of its own while the compute stream goes on.
TEST(MovedShardsOfATensor, RunAsStepsOfAPlan) {
  const Graph graph = parse_graph(R"(graph g(mesh tp=2) {
  %x = input "x" : f32[4,6] @S(0:tp)
  %f = shift_start(%x; axis="tp") : future<f32[4,6] @S(0:tp)>
  %y = add(%x, %x) : f32[4,6] @S(0:tp)
  %s = wait(%f) : f32[4,6] @S(0:tp)
  %z = add(%s, %y) : f32[4,6] @S(0:tp)
  %m = all_to_all(%z; axis="tp", from=0, to=1) : f32[4,6] @S(1:tp)
  return m=%m
}
)");
  const Backend& backend = find_backend("cpu");
  const DeviceSpec spec = load_device_spec({}, "cpu");
  const ProgramSource source{ProgramKind::Last, &graph};
  const Plan plan = lower(
      {&source, 1},
      {.backend = backend.name, .kernels = backend.kernels(), .device = spec, .packed_params = {}});
  EXPECT_EQ(plan.streams.back(), "activation");
  const auto body = [&](Communicator& comm, Device& device) {
    Executor executor(plan, device, backend.kernels(), comm);
    std::vector<float> x(12), m(12), expected;
    for (int i = 0; i < 12; ++i) x[i] = static_cast<float>(comm.rank() * 12 + i);
    executor.write("x", x.data(), 48);
    executor.run(ProgramKind::Last);
    executor.read("m", m.data(), 48);
    for (int row = 0; row < 4; ++row) {
      for (int column = 0; column < 3; ++column) {
        const int own = row * 6 + static_cast<int>(comm.rank()) * 3 + column;
        expected.push_back(static_cast<float>(2 * own + (own + 12) % 24));
      }
    }
    require(m == expected, "the result differs");
    comm.barrier();
  };
  for (const Transport transport : {Transport::Threads, Transport::Shm}) {
    for (const std::string& error : run_ranks(plan.mesh, {.transport = transport}, body)) {
      EXPECT_EQ(error, "");
    }
  }
}

TEST(MovedShardsOfATensor, FailIfRanksDisagree) {
  const auto errors = run_ranks(make_mesh({{"cp", 2}}), {}, [](Communicator& comm, Device& device) {
    Pair pair({8}, {8}, DType::F32, comm, device);
    const int64_t elements = 8 - comm.rank();
    const Tensor from{pair.first.data, DType::F32, {elements}};
    const Shift moves(elements, 1, 2);
    const MovedTensor tensors[] = {{from, pair.second, &moves}};
    comm.transfer({"cp", 0}, tensors);
  });
  EXPECT_NE(errors[0].find("ranks disagree"), std::string::npos) << errors[0];
}

INSTANTIATE_TEST_SUITE_P(, MovedShards,
                         testing::Combine(testing::Values(Transport::Threads, Transport::Shm),
                                          testing::ValuesIn(meshes())),
                         case_name);

}  // namespace
}  // namespace weft

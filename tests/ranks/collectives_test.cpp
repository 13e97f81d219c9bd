// Every collective over threads and over processes, for groups of many sizes and along two axes at
// once, compared bit for bit with a scalar oracle.
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "ranks/elements.h"
#include "ranks/ranks.h"

namespace weft {
namespace {

// The tree of the contract in its simplest form.
float oracle_sum(const std::vector<float>& terms) {
  if (terms.size() == 1) return terms[0];
  size_t split = 1;
  while (split * 2 < terms.size()) split *= 2;
  const auto middle = terms.begin() + static_cast<std::ptrdiff_t>(split);
  return oracle_sum({terms.begin(), middle}) + oracle_sum({middle, terms.end()});
}

uint64_t oracle_sum_bits(DType dtype, const std::vector<int64_t>& ranks, int64_t seed, int64_t i) {
  std::vector<float> terms;
  for (const int64_t rank : ranks) {
    terms.push_back(decode(dtype, encode(dtype, element(rank, seed, i))));
  }
  return bits_from_f32(oracle_sum(terms));
}

int64_t rounded(int64_t elements) {
  return (elements + kFlatBlock - 1) / kFlatBlock * kFlatBlock;
}

// Members of a flat tensor with gaps between them in memory, and this rank's shard of it.
struct Flat {
  Flat(const std::vector<int64_t>& sizes, DType member_dtype, DType shard_dtype, int64_t shards,
       Communicator& comm_, Device& device_)
      : comm(comm_), device(device_) {
    int64_t total = 0, bytes = 0;
    for (const int64_t size : sizes) {
      starts.push_back(total);
      total += rounded(size);
      bytes += rounded(size) * 8 + 192;
    }
    const int64_t shard_size = rounded((total + shards - 1) / shards);
    memory = static_cast<char*>(comm.allocate(bytes + shard_size * 8, device));
    std::memset(memory, 0xff, static_cast<size_t>(bytes + shard_size * 8));
    char* at = memory;
    for (const int64_t size : sizes) {
      members.push_back({at, member_dtype, {size}});
      at += rounded(size) * 8 + 192;
    }
    shard = {at, shard_dtype, {shard_size}};
  }
  ~Flat() { comm.release(memory, device); }

  Communicator& comm;
  Device& device;
  char* memory = nullptr;
  std::vector<Tensor> members;
  std::vector<int64_t> starts;
  Tensor shard;
};

const std::vector<int64_t> kSizes = {3, 2048, 1025, 1, 5000};

// Gathers different values in every round and compares all of them.
void gather_rounds(Communicator& comm, const CollectiveSite& site, Flat& flat, int rounds) {
  const std::vector<int64_t> group = comm.info().group(site.axis);
  const DType from = flat.shard.dtype, to = flat.members[0].dtype;
  for (int round = 0; round < rounds; ++round) {
    fill(flat.shard, comm.rank(), round);
    comm.all_gather(site, flat.shard, flat.members);
    const int64_t shard_size = flat.shard.elements();
    for (size_t m = 0; m < flat.members.size(); ++m) {
      for (int64_t i = 0; i < flat.members[m].elements(); ++i) {
        const int64_t at = flat.starts[m] + i;
        const int64_t owner = group[static_cast<size_t>(at / shard_size)];
        const float value = decode(from, encode(from, element(owner, round, at % shard_size)));
        require(read_bits(flat.members[m], i) == encode(to, value),
                cat("gathered member ", m, " element ", i, " differs in round ", round));
      }
    }
  }
}

void check_all_gather(Communicator& comm, Device& device, std::string_view axis, DType from,
                      DType to) {
  Flat flat(kSizes, to, from, comm.size(axis), comm, device);
  gather_rounds(comm, {axis, 0}, flat, 3);
}

// The same for reduce_scatter.
void reduce_rounds(Communicator& comm, const CollectiveSite& site, Flat& flat, int rounds) {
  const RankInfo& info = comm.info();
  const std::vector<int64_t> group = info.group(site.axis);
  const DType from = flat.members[0].dtype;
  for (int round = 0; round < rounds; ++round) {
    for (size_t m = 0; m < flat.members.size(); ++m) {
      fill(flat.members[m], comm.rank(), round + static_cast<int64_t>(m));
    }
    comm.reduce_scatter(site, flat.members, flat.shard);
    const int64_t shard_size = flat.shard.elements();
    std::vector<uint64_t> expected(static_cast<size_t>(shard_size), 0);
    for (size_t m = 0; m < flat.members.size(); ++m) {
      for (int64_t i = 0; i < flat.members[m].elements(); ++i) {
        const int64_t at = flat.starts[m] + i - info.coordinate(site.axis) * shard_size;
        if (at < 0 || at >= shard_size) continue;
        expected[static_cast<size_t>(at)] =
            oracle_sum_bits(from, group, round + static_cast<int64_t>(m), i);
      }
    }
    for (int64_t i = 0; i < shard_size; ++i) {
      require(read_bits(flat.shard, i) == expected[static_cast<size_t>(i)],
              cat("reduced element ", i, " of the shard differs in round ", round));
    }
  }
}

void check_reduce_scatter(Communicator& comm, Device& device, std::string_view axis, DType from) {
  Flat flat(kSizes, from, DType::F32, comm.size(axis), comm, device);
  reduce_rounds(comm, {axis, 1}, flat, 3);
}

// The same for all_reduce.
void sum_rounds(Communicator& comm, const CollectiveSite& site, Flat& flat, int rounds) {
  const std::vector<int64_t> group = comm.info().group(site.axis);
  const DType dtype = flat.members[0].dtype;
  for (int round = 0; round < rounds; ++round) {
    for (const Tensor& tensor : flat.members) fill(tensor, comm.rank(), round);
    comm.all_reduce(site, flat.members);
    for (const Tensor& tensor : flat.members) {
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        const auto sum = static_cast<uint32_t>(oracle_sum_bits(dtype, group, round, i));
        require(read_bits(tensor, i) == encode(dtype, f32_from_bits(sum)),
                cat("all-reduced element ", i, " differs in round ", round));
      }
    }
  }
}

void check_all_reduce(Communicator& comm, Device& device, std::string_view axis, DType dtype,
                      const std::vector<int64_t>& sizes) {
  Flat flat(sizes, dtype, dtype, 1, comm, device);
  sum_rounds(comm, {axis, 2}, flat, 3);
}

void check_integers(Communicator& comm, Device& device, std::string_view axis, int64_t size) {
  const std::vector<int64_t> group = comm.info().group(axis);
  Flat flat({size}, DType::I64, DType::I64, 1, comm, device);
  auto* values = flat.members[0].as<int64_t>();
  const auto value = [](int64_t rank, int64_t i) { return (rank + 1) * ((int64_t{1} << 58) - i); };
  for (int64_t i = 0; i < size; ++i) values[i] = value(comm.rank(), i);
  comm.all_reduce({axis, 0}, flat.members);
  for (int64_t i = 0; i < size; ++i) {
    uint64_t sum = 0;
    for (const int64_t rank : group) sum += static_cast<uint64_t>(value(rank, i));
    require(static_cast<uint64_t>(values[i]) == sum, cat("integer sum ", i, " differs"));
  }
}

// A tensor [outer, dim, inner], and this rank's shard along the dim.
struct Sharded {
  Sharded(const Shape& shape, size_t dim_, DType full_dtype, DType shard_dtype, int64_t shards,
          Communicator& comm_, Device& device_)
      : comm(comm_), device(device_), dim(static_cast<int64_t>(dim_)) {
    full = {nullptr, full_dtype, shape};
    shard = {nullptr, shard_dtype, shape};
    size = shape.at(dim_);
    part = (size + shards - 1) / shards;
    shard.shape[dim_] = part;
    for (size_t i = dim_ + 1; i < shape.size(); ++i) inner *= shape[i];
    const int64_t bytes = (full.elements() * 8 + 63) / 64 * 64;
    memory = static_cast<char*>(comm.allocate(bytes + shard.elements() * 8, device));
    std::memset(memory, 0xff, static_cast<size_t>(bytes + shard.elements() * 8));
    full.data = memory;
    shard.data = memory + bytes;
  }
  ~Sharded() { comm.release(memory, device); }

  Communicator& comm;
  Device& device;
  char* memory = nullptr;
  Tensor full;
  Tensor shard;
  int64_t dim = 0;
  int64_t size = 0;  // of the dim
  int64_t part = 0;
  int64_t inner = 1;
};

void check_all_gather_dim(const std::string& axis, Sharded& sharded) {
  Communicator& comm = sharded.comm;
  const std::vector<int64_t> group = comm.info().group(axis);
  const DType dtype = sharded.full.dtype;
  for (int round = 0; round < 3; ++round) {
    fill(sharded.shard, comm.rank(), round);
    comm.all_gather_dim({axis, 0}, sharded.shard, sharded.full, sharded.dim);
    for (int64_t i = 0; i < sharded.full.elements(); ++i) {
      const int64_t at = i / sharded.inner % sharded.size;
      const int64_t outer = i / sharded.inner / sharded.size;
      const int64_t owner = group[static_cast<size_t>(at / sharded.part)];
      const int64_t local = (outer * sharded.part + at % sharded.part) * sharded.inner;
      const float value = element(owner, round, local + i % sharded.inner);
      require(read_bits(sharded.full, i) == encode(dtype, value),
              cat("gathered element ", i, " along dim ", sharded.dim, " of ", axis,
                  " differs in round ", round));
    }
  }
}

void check_reduce_scatter_dim(const std::string& axis, Sharded& sharded) {
  Communicator& comm = sharded.comm;
  const std::vector<int64_t> group = comm.info().group(axis);
  for (int round = 0; round < 3; ++round) {
    fill(sharded.full, comm.rank(), round);
    comm.reduce_scatter_dim({axis, 1}, sharded.full, sharded.shard, sharded.dim);
    for (int64_t i = 0; i < sharded.shard.elements(); ++i) {
      const int64_t at = comm.coordinate(axis) * sharded.part + i / sharded.inner % sharded.part;
      const int64_t outer = i / sharded.inner / sharded.part;
      uint64_t expected = 0;
      if (at < sharded.size) {
        const int64_t from = (outer * sharded.size + at) * sharded.inner + i % sharded.inner;
        const uint64_t sum = oracle_sum_bits(sharded.full.dtype, group, round, from);
        expected = encode(sharded.shard.dtype, f32_from_bits(static_cast<uint32_t>(sum)));
      }
      require(read_bits(sharded.shard, i) == expected,
              cat("reduced element ", i, " along dim ", sharded.dim, " of ", axis,
                  " differs in round ", round));
    }
  }
}

void check_dims(Communicator& comm, Device& device, const std::string& axis) {
  for (const Shape& shape : {Shape{3, 8, 5}, Shape{1, 7, 1}, Shape{2, 1, 4}}) {
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      for (const DType dtype : {DType::F32, DType::BF16}) {
        Sharded sharded(shape, dim, dtype, dtype, comm.size(axis), comm, device);
        check_all_gather_dim(axis, sharded);
        check_reduce_scatter_dim(axis, sharded);
      }
      Sharded widened(shape, dim, DType::BF16, DType::F32, comm.size(axis), comm, device);
      check_reduce_scatter_dim(axis, widened);
    }
  }
}

void check_everything(Communicator& comm, Device& device) {
  for (const MeshAxis& axis : comm.info().mesh.axes) {
    for (const DType to : {DType::F32, DType::BF16, DType::F16}) {
      check_all_gather(comm, device, axis.name, DType::F32, to);
      check_all_gather(comm, device, axis.name, to, DType::F32);
      check_reduce_scatter(comm, device, axis.name, to);
      check_all_reduce(comm, device, axis.name, to, {1, 3000, 17});
      check_all_reduce(comm, device, axis.name, to, {1, 3, 5});
    }
    check_integers(comm, device, axis.name, 12);
    check_integers(comm, device, axis.name, 1000);
  }
  comm.barrier();
}

class Collectives : public testing::TestWithParam<std::tuple<Transport, Mesh>> {
 protected:
  void run(const RankBody& body) {
    const auto& [transport, mesh] = GetParam();
    for (const std::string& error : run_ranks(mesh, {.transport = transport}, body)) {
      EXPECT_EQ(error, "");
    }
  }
};

TEST_P(Collectives, MatchTheOracle) {
  run(check_everything);
}

TEST_P(Collectives, AlongADimMatchTheOracle) {
  run([](Communicator& comm, Device& device) {
    std::vector<std::string> names;
    for (const MeshAxis& axis : comm.info().mesh.axes) {
      names.push_back(axis.name);
      check_dims(comm, device, axis.name);
    }
    if (names.size() > 1) check_dims(comm, device, join(names, "+"));
    comm.barrier();
  });
}

TEST_P(Collectives, OfFlatTensorsOverAJointAxis) {
  run([](Communicator& comm, Device& device) {
    std::vector<std::string> names;
    for (const MeshAxis& axis : comm.info().mesh.axes) names.push_back(axis.name);
    const std::string joint = join(names, "+");
    check_all_gather(comm, device, joint, DType::F32, DType::BF16);
    check_reduce_scatter(comm, device, joint, DType::F32);
    check_all_reduce(comm, device, joint, DType::F32, {1, 3000, 17});
    comm.barrier();
  });
}

// Two rows of eight columns over two ranks: the first has columns 0, 1, 6 and 7.
TEST(CollectivesAlongADim, ShareHeadAndTailOverCp) {
  const auto body = [](Communicator& comm, Device& device) {
    Sharded sharded({2, 8}, 1, DType::F32, DType::F32, 2, comm, device);
    const float factor = comm.rank() == 0 ? 1.0F : 2.0F;
    auto* full = sharded.full.as<float>();
    for (int i = 0; i < 16; ++i) full[i] = factor * static_cast<float>(i);
    comm.reduce_scatter_dim({"cp", 0}, sharded.full, sharded.shard, 1);
    const std::vector<float> shard(sharded.shard.as<float>(), sharded.shard.as<float>() + 8);
    const std::vector<float> expected = comm.rank() == 0
                                            ? std::vector<float>{0, 3, 18, 21, 24, 27, 42, 45}
                                            : std::vector<float>{6, 9, 12, 15, 30, 33, 36, 39};
    require(shard == expected, "the shard differs");
    std::memset(sharded.full.data, 0xff, 16 * sizeof(float));
    comm.all_gather_dim({"cp", 0}, sharded.shard, sharded.full, 1);
    for (int i = 0; i < 16; ++i) {
      require(full[i] == 3.0F * static_cast<float>(i), "the full tensor differs");
    }
    comm.barrier();
  };
  for (const Transport transport : {Transport::Threads, Transport::Shm}) {
    for (const std::string& error :
         run_ranks(make_mesh({{"cp", 2}}), {.transport = transport}, body)) {
      EXPECT_EQ(error, "");
    }
  }
}

// Two rows of three columns over two ranks, of which the second has one column and padding.
TEST(CollectivesAlongADim, ShareAnUnevenDim) {
  const auto body = [](Communicator& comm, Device& device) {
    Sharded sharded({2, 3}, 1, DType::F32, DType::F32, 2, comm, device);
    const float factor = comm.rank() == 0 ? 1.0F : 2.0F;
    auto* full = sharded.full.as<float>();
    for (int i = 0; i < 6; ++i) full[i] = factor * static_cast<float>(i + 1);
    comm.reduce_scatter_dim({"tp", 0}, sharded.full, sharded.shard, 1);
    const std::vector<float> shard(sharded.shard.as<float>(), sharded.shard.as<float>() + 4);
    const std::vector<float> expected =
        comm.rank() == 0 ? std::vector<float>{3, 6, 12, 15} : std::vector<float>{9, 0, 18, 0};
    require(shard == expected, "the shard differs");
    std::memset(sharded.full.data, 0xff, 6 * sizeof(float));
    comm.all_gather_dim({"tp", 0}, sharded.shard, sharded.full, 1);
    require(std::vector<float>(full, full + 6) == std::vector<float>{3, 6, 9, 12, 15, 18},
            "the full tensor differs");
    comm.barrier();
  };
  for (const Transport transport : {Transport::Threads, Transport::Shm}) {
    for (const std::string& error :
         run_ranks(make_mesh({{"tp", 2}}), {.transport = transport}, body)) {
      EXPECT_EQ(error, "");
    }
  }
}

TEST_P(Collectives, GatherIntoASharedBlock) {
  run([](Communicator& comm, Device& device) {
    const std::string axis = comm.info().mesh.axes.back().name;
    Flat flat(kSizes, DType::BF16, DType::F32, comm.size(axis), comm, device);
    const int64_t shard_size = flat.shard.elements();
    auto* shared =
        static_cast<char*>(comm.allocate_shared(axis, shard_size * comm.size(axis) * 2, device));
    for (size_t m = 0; m < kSizes.size(); ++m) flat.members[m].data = shared + flat.starts[m] * 2;
    gather_rounds(comm, {axis, 0}, flat, 5);
    comm.release(shared, device);
  });
}

// The streams of a plan run concurrently, over one axis or over several. Each gets all of its own
// results, in every round.
TEST_P(Collectives, ChannelsDoNotDisturbEachOther) {
  run([](Communicator& comm, Device& device) {
    constexpr int kRounds = 50;
    const std::string first = comm.info().mesh.axes.front().name;
    const std::string last = comm.info().mesh.axes.back().name;
    Flat gathered(kSizes, DType::BF16, DType::F32, comm.size(last), comm, device);
    Flat reduced(kSizes, DType::F32, DType::F32, comm.size(last), comm, device);
    Flat summed({2000}, DType::F32, DType::F32, 1, comm, device);
    // A future passes its thread's error to the caller of get().
    const auto start = [&](const auto& rounds, const CollectiveSite& site, Flat& flat) {
      return std::async(std::launch::async, [&, site] { rounds(comm, site, flat, kRounds); });
    };
    std::future<void> gather = start(gather_rounds, {last, 1}, gathered);
    std::future<void> reduce = start(reduce_rounds, {last, 2}, reduced);
    sum_rounds(comm, {first, 0}, summed, kRounds);
    gather.get();
    reduce.get();
    comm.barrier();
  });
}

TEST_P(Collectives, ExchangeCollectsInRankOrder) {
  run([](Communicator& comm, Device&) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{10001}}) {
      const std::string own(size, static_cast<char>('a' + comm.rank()));
      std::string all(size * static_cast<size_t>(comm.ranks()), '?');
      comm.exchange(own, all);
      std::string expected;
      for (int64_t i = 0; i < comm.ranks(); ++i)
        expected += std::string(size, static_cast<char>('a' + i));
      require(all == expected, cat("exchange of ", size, " bytes differs"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Collectives,
                         testing::Combine(testing::Values(Transport::Threads, Transport::Shm),
                                          testing::ValuesIn(meshes())),
                         case_name);

}  // namespace
}  // namespace weft

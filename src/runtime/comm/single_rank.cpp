#include "runtime/comm/single_rank.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/device.h"

namespace weft {
namespace {

class SingleRank : public Communicator {
 public:
  const RankInfo& info() const override { return info_; }
  bool is_supervised() const override { return false; }

  void* allocate(int64_t bytes, Device& device) override { return device.allocate(bytes); }
  void* allocate_shared(std::string_view axis, int64_t, Device&) override { refuse(axis); }
  void release(void* memory, Device& device) override { device.release(memory); }

  void all_gather(const CollectiveSite& site, const Tensor&, std::span<const Tensor>) override {
    refuse(site.axis);
  }
  void reduce_scatter(const CollectiveSite& site, std::span<const Tensor>, const Tensor&) override {
    refuse(site.axis);
  }
  void all_reduce(const CollectiveSite& site, std::span<const Tensor>) override {
    refuse(site.axis);
  }

  void all_gather_dim(const CollectiveSite& site, const Tensor&, const Tensor&, int64_t) override {
    refuse(site.axis);
  }
  void reduce_scatter_dim(const CollectiveSite& site, const Tensor&, const Tensor&,
                          int64_t) override {
    refuse(site.axis);
  }

  void transfer(const CollectiveSite& site, std::span<const MovedTensor>) override {
    refuse(site.axis);
  }

  void barrier() override {}
  void exchange(std::span<const char> own, std::span<char> all) override {
    CHECK(own.size() == all.size(), own.size(), " bytes of one rank, room for ", all.size());
    std::copy(own.begin(), own.end(), all.begin());
  }

  void start_step(int64_t) override {}
  void report_progress(int64_t, std::string_view) override {}
  void watch(const DeviceLook&) override {}
  std::optional<std::string> poll_error() const override { return std::nullopt; }
  void abort(std::string_view) override {}

 private:
  [[noreturn]] static void refuse(std::string_view axis) {
    throw InternalError(cat("a collective over ", axis, " in a run of one rank without axes"));
  }

  RankInfo info_;
};

}  // namespace

Communicator& single_rank() {
  static SingleRank rank;
  return rank;
}

}  // namespace weft

// One save goes through the phases Writing, Written, (on rank 0) Waiting, Committed on every rank.
// Only collect() and the calls that start a save communicate; both happen on the main thread.
#include "train/saver.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "base/disk.h"
#include "base/error.h"
#include "base/half.h"
#include "runtime/comm/host_work.h"
#include "train/exchange_text.h"

namespace weft {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What rank 0 or a failed rank tells the others: one character, then a text. The character is kDone
// or the exit code of the failure.
constexpr char kDone = static_cast<char>(ExitCode::Done);

std::string encode(const Failure& failure) {
  return static_cast<char>(failure.code) + failure.message;
}

// Weights that are not finite would be useless to whoever loads them.
void check_finite(std::span<const float> values, std::string_view param) {
  if (std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) return;
  throw UserError(ExitCode::NonFinite, cat("parameter \"", param,
                                           "\" is not finite, so no checkpoint was saved; lower "
                                           "optimizer.lr"));
}

// Stored elements as the file holds them.
void convert(const SavedRange& range, std::span<const std::byte> stored, std::span<std::byte> out) {
  if (range.from->tensor.dtype == range.dtype) {
    if (out.data() != stored.data()) std::memcpy(out.data(), stored.data(), out.size());
    return;
  }
  CHECK(range.from->tensor.dtype == DType::F32 && range.dtype == DType::BF16, range.from->name,
        " in ", dtype_name(range.dtype));
  for (size_t i = 0; i < out.size() / 2; ++i) {
    float value = 0;
    std::memcpy(&value, stored.data() + 4 * i, 4);
    const uint16_t half = bf16_from_f32(value);
    std::memcpy(out.data() + 2 * i, &half, 2);
  }
}

}  // namespace

Saver::Saver(const Config& config, Session& session, std::vector<TextFile> texts,
             Communicator& comm)
    : config_(config),
      session_(session),
      comm_(comm),
      texts_(std::move(texts)),
      folder_(checkpoint_path(config)),
      files_(session.compiled(), session.params(), config.checkpoint, comm.rank()),
      copy_(nullptr, [](std::byte*) {}) {
  if (config.checkpoint.async_mode != AsyncMode::Async) return;
  // Weights that are exported in another type are in two files, but copied once.
  int64_t bytes = 0;
  std::map<std::tuple<std::string_view, int64_t, int64_t>, int64_t> known;
  for (const SavedRange& range : files_.ranges()) {
    const auto name = std::string_view(range.from == nullptr ? "" : range.from->name.c_str());
    const auto [at, fresh] = known.try_emplace({name, range.at, range.stored_bytes()}, bytes);
    copies_.push_back({at->second, fresh && range.from != nullptr});
    if (copies_.back().is_first) bytes += range.stored_bytes();
  }
  copy_ = session.allocate_host(bytes);
}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

void Saver::check_space() const {
  constexpr int64_t kTexts = 64 << 20;  // more than the manifest and all texts need
  const int64_t needed = files_.bytes() + (files_.bytes() > kTexts ? kTexts : 0);
  const int64_t free = free_disk_bytes(folder_.path());
  if (free >= needed) return;
  throw UserError(
      ExitCode::CannotWrite,
      cat(folder_.path(), ": a checkpoint needs ", human_bytes(static_cast<double>(needed)), ", ",
          human_bytes(static_cast<double>(free)),
          " are free; free some space, set another job.dump_folder, or "
          "checkpoint.enable = false"));
}

void Saver::save(const TrainingState& state) {
  finish();
  const HostWork work(comm_, "saving a checkpoint");
  begin(state);
  if (phase_ == SavePhase::Writing) write_own(false);
  finish();
}

bool Saver::start(const TrainingState& state) {
  if (phase_ != SavePhase::Idle && config_.checkpoint.if_busy == BusyPolicy::Skip) return false;
  finish();
  const double before = now();
  begin(state);
  if (phase_ != SavePhase::Writing) return true;
  copy_shard();
  current_.blocked_seconds = now() - before;
  in_background(&Saver::write_copied);
  return true;
}

// Rank 0 creates the files; everyone learns under which name, or why not.
void Saver::begin(const TrainingState& state) {
  started_ = now();
  current_ = {};
  current_.step = state.step;
  current_.bytes = files_.bytes();
  error_.clear();
  blocks_.clear();
  planned_.assign(files_.files().begin(), files_.files().end());
  std::string outcome;
  if (comm_.rank() == 0) {
    // A new name, so that what a killed run left behind is never written to again.
    partial_ = folder_.partial_path(state.step, random_tag());
    current_texts_ = texts_;
    current_texts_.push_back({std::string(kTrainingStateName), to_json(state)});
    for (const TextFile& index : files_.indexes()) current_texts_.push_back(index);
    for (const TextFile& file : current_texts_) {
      planned_.push_back({file.name, std::ssize(file.text)});
      current_.bytes += std::ssize(file.text);
    }
    try {
      folder_.begin(partial_);
      reserve_files(partial_, planned_);
      outcome = kDone + partial_;
    } catch (const std::exception&) {
      outcome = encode(current_failure());
    }
  }
  outcome = exchange_texts(comm_, outcome).front();
  if (outcome.front() != kDone) {
    fail(outcome);
    return;
  }
  partial_ = outcome.substr(1);
  phase_ = SavePhase::Writing;
}

void Saver::copy_shard() {
  const std::span<const SavedRange> ranges = files_.ranges();
  for (size_t i = 0; i < ranges.size(); ++i) {
    const SavedRange& range = ranges[i];
    if (!copies_[i].is_first) continue;
    session_.executor().read_part(range.from->name,
                                  range.at * dtype_bytes(range.from->tensor.dtype),
                                  copy_.get() + copies_[i].at, range.stored_bytes());
  }
}

// Writes what belongs to this rank, from the device or from the copy, and the texts on rank 0.
void Saver::write_own(bool from_copy) {
  std::vector<FileRange> ranges;
  for (const SavedRange& saved : files_.ranges()) ranges.push_back(saved.range);
  const size_t tensors = ranges.size();
  for (size_t i = files_.files().size(); i < planned_.size(); ++i) {
    ranges.push_back({i, 0, planned_[i].bytes});
  }
  const auto provide = [&](size_t index, int64_t first, std::span<std::byte> bytes) {
    if (index >= tensors) {
      const std::string& text = current_texts_[index - tensors].text;
      std::memcpy(bytes.data(), text.data() + first, bytes.size());
      return;
    }
    const SavedRange& range = files_.ranges()[index];
    const std::byte* copy = from_copy ? copy_.get() + copies_[index].at : nullptr;
    fill(range, {copy, static_cast<size_t>(copy == nullptr ? 0 : range.stored_bytes())}, first,
         bytes);
  };
  try {
    blocks_ = write_ranges(partial_, planned_, ranges, provide);
    phase_ = SavePhase::Written;
  } catch (const std::exception&) {
    error_ = encode(current_failure());
    phase_ = SavePhase::Failed;
  }
}

void Saver::fill(const SavedRange& range, std::span<const std::byte> copy, int64_t first,
                 std::span<std::byte> bytes) {
  if (range.from == nullptr) {
    if (range.text.empty()) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
    } else {
      std::memcpy(bytes.data(), range.text.data() + first, bytes.size());
    }
    return;
  }
  const int64_t size = dtype_bytes(range.from->tensor.dtype);
  const int64_t from = first / dtype_bytes(range.dtype);
  const auto length = static_cast<size_t>(std::ssize(bytes) / dtype_bytes(range.dtype) * size);
  std::vector<std::byte> read;
  std::span<const std::byte> stored;
  if (copy.empty()) {
    // Into its place at once, unless it has to be converted.
    std::span<std::byte> target = bytes;
    if (length != bytes.size()) {
      read.resize(length);
      target = read;
    }
    session_.executor().read_part(range.from->name, (range.at + from) * size, target.data(),
                                  static_cast<int64_t>(length));
    stored = target;
  } else {
    stored = copy.subspan(static_cast<size_t>(from * size), length);
  }
  if (!range.weight.empty()) {
    check_finite({reinterpret_cast<const float*>(stored.data()), length / sizeof(float)},
                 range.weight);
  }
  convert(range, stored, bytes);
}

void Saver::advance(std::span<const SavePhase> phases) {
  if (phase_ == SavePhase::Idle) return;
  const auto all = [&](auto... allowed) {
    return std::all_of(phases.begin(), phases.end(),
                       [&](SavePhase phase) { return ((phase == allowed) || ...); });
  };
  if (all(SavePhase::Written, SavePhase::Failed)) {
    collect();
  } else if (phases[0] == SavePhase::Committed || phases[0] == SavePhase::Failed) {
    if (all(SavePhase::Waiting, SavePhase::Committed, SavePhase::Failed)) conclude();
  }
}

// All ranks have written: rank 0 receives their blocks and commits.
void Saver::collect() {
  if (thread_.joinable()) thread_.join();
  for (const std::string& error : exchange_texts(comm_, error_)) {
    if (error.empty()) continue;
    fail(error);
    return;
  }
  const std::string own(reinterpret_cast<const char*>(blocks_.data()),
                        blocks_.size() * sizeof(WrittenBlock));
  const std::vector<std::string> all = exchange_texts(comm_, own);
  phase_ = SavePhase::Waiting;
  if (comm_.rank() != 0) return;
  blocks_.clear();
  for (const std::string& blocks : all) {
    const size_t count = blocks.size() / sizeof(WrittenBlock), known = blocks_.size();
    blocks_.resize(known + count);
    std::memcpy(blocks_.data() + known, blocks.data(), blocks.size());
  }
  in_background(&Saver::commit);
}

void Saver::commit() {
  try {
    current_.digest = folder_.commit(partial_, make_manifest(current_.step, planned_, blocks_));
    current_.seconds = now() - started_;
  } catch (const std::exception&) {
    error_ = encode(current_failure());
    phase_ = SavePhase::Failed;
    return;
  }
  phase_ = SavePhase::Committed;
  try {
    const CheckpointConfig& keep = config_.checkpoint;
    current_.removed = folder_.prune({.latest = keep.keep_latest_k, .every = keep.keep_every});
  } catch (const std::exception&) {
    current_.kept = current_failure().message;
  }
}

// Rank 0 has committed or failed; everyone learns which.
void Saver::conclude() {
  if (thread_.joinable()) thread_.join();
  const bool committed = phase_ == SavePhase::Committed;
  const std::string outcome = committed ? kDone + current_.digest : error_;
  const std::string first = exchange_texts(comm_, outcome).front();
  if (first.front() != kDone) {
    fail(first);
    return;
  }
  current_.digest = first.substr(1);
  current_.path = folder_.path_of(current_.step);
  if (current_.blocked_seconds == 0) current_.blocked_seconds = current_.seconds;
  committed_step_ = current_.step;
  failures_ = 0;
  outcomes_.push_back(std::move(current_));
  phase_ = SavePhase::Idle;
}

// The next attempt uses new files; what is left of this one is removed if that is possible.
void Saver::fail(const std::string& outcome) {
  current_.code = static_cast<ExitCode>(outcome.front());
  current_.error = outcome.substr(1);
  current_.seconds = now() - started_;
  ++failures_;
  outcomes_.push_back(std::move(current_));
  phase_ = SavePhase::Idle;
  if (comm_.rank() != 0) return;
  try {
    remove_folder(partial_);
  } catch (const UserError&) {
    // The next run removes it.
  }
}

void Saver::finish() {
  if (phase_ == SavePhase::Idle) return;
  const HostWork work(comm_, "waiting for a checkpoint");
  while (phase_ != SavePhase::Idle) {
    if (thread_.joinable()) thread_.join();
    advance(exchange_phases());
  }
}

std::vector<SavePhase> Saver::exchange_phases() {
  const SavePhase own = phase_;
  std::vector<SavePhase> all(static_cast<size_t>(comm_.ranks()));
  comm_.exchange(std::span(reinterpret_cast<const char*>(&own), 1),
                 std::span(reinterpret_cast<char*>(all.data()), all.size()));
  return all;
}

void Saver::in_background(void (Saver::*work)()) {
  thread_ = std::thread([this, work] { (this->*work)(); });
}

}  // namespace weft

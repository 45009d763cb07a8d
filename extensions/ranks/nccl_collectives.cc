// Makes NCCL's communicators, and calls NCCL for each operation.
#include "extensions/ranks/nccl_collectives.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "extensions/ranks/abortable.h"
#include "extensions/ranks/collective_call.h"
#include "extensions/ranks/nccl.h"
#include "interop/device/code.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

using nccl::Result;

void expect_success(const nccl::Library& nccl, nccl::Comm comm, Result result,
                    std::string_view what) {
  if (result == Result::kSuccess) return;
  const char* const more = nccl.get_last_error(comm);
  const std::string text =
      str_format("NCCL could not {}: {}{}{}", what, nccl.get_error_string(result),
                 *more == '\0' ? "" : "; ", more);
  if (result == Result::kRemoteError) throw GroupError(text);
  throw DeviceError(static_cast<int>(Code::kUnknown), text);
}

// The next two are by DType and Reduction. -1: NCCL moves the type, but does not reduce it. Source:
// ncclDataType_t and ncclRedOp_t of nccl.h.
constexpr nccl::DataType kTypes[kDTypeCount] = {-1, 0, -1, 2,  4,  1,  -1, 3,  5,  6,
                                                9,  7, 8,  -1, -1, -1, -1, -1, -1, -1};
constexpr nccl::RedOp kOperations[] = {0, 1, 3, 2};

nccl::DataType type_of(DType dtype) noexcept {
  return kTypes[static_cast<int>(dtype)];
}

void expect_gpu(Device device) {
  if (device.type != DeviceType::kCuda) {
    throw InvalidArgument(
        str_format("NCCL on {}: it needs a GPU; for host devices there is "
                   "make_host_collectives()",
                   to_string(device)));
  }
  static_cast<void>(device_api(device));  // throws if this is built without CUDA
}

// NCCL reads the environment when the first communicator is made.
nccl::Config config_of(const nccl::Library& nccl, const NcclOptions& options) {
  nccl::Config config;
  config.version = static_cast<unsigned>(nccl.version);
  config.blocking = 1;
  if (nccl.version >= nccl::kGraphUsageSince) {
    config.graph_usage_mode = options.graph_mixing ? 2 : 1;
  } else if (!options.graph_mixing) {
    ::setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", /*overwrite=*/0);
  }
  return config;
}

class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(const nccl::Library& nccl, int rank, int size, Device device,
                  std::chrono::milliseconds limit)
      : Collectives(rank, size, device), nccl_(nccl), limit_(limit) {
    const DeviceScope reachable(device_api(device), device.id);
  }
  ~NcclCollectives() override;

  // Inside an NCCL group, the communicator exists when the group has ended.
  void begin_init(const NcclId& id, nccl::Config& config);

  void synchronize(StreamRef stream) override;
  void abort() noexcept override { life_.abort("it was aborted on this rank"); }
  bool is_aborted() const noexcept override { return life_.is_aborted(); }
  void* native() const noexcept override { return is_aborted() ? nullptr : comm_; }

 protected:
  void enqueue(StreamRef stream, std::span<const CollectiveCall> calls) override;
  void check_alive() const override;

 private:
  Result enqueue_one(nccl::Stream stream, const CollectiveCall& call) const;
  std::optional<std::string> find_failure();

  const nccl::Library& nccl_;
  const std::chrono::milliseconds limit_;
  nccl::Comm comm_ = nullptr;
  // ncclCommAbort tells the kernels to end, and then waits for the graphs that use the
  // communicator. The aborting thread may be the one that must end these graphs, so it must not
  // wait.
  Abortable life_{[this] {
    if (comm_ != nullptr) (void)nccl_.comm_abort(comm_);
  }};
};

void NcclCollectives::begin_init(const NcclId& id, nccl::Config& config) {
  const DeviceScope scope(device_api(device()), device().id);
  nccl::UniqueId unique;
  std::memcpy(unique.internal, id.bytes.data(), sizeof(unique.internal));
  expect_success(nccl_, nullptr,
                 nccl_.comm_init_rank_config(&comm_, size(), unique, rank(), &config),
                 str_format("make rank {} of {} on {}", rank(), size(), to_string(device())));
}

// Both ways to end a communicator wait until no graph uses it.
NcclCollectives::~NcclCollectives() {
  if (life_.end() || comm_ == nullptr) return;
  const Result result = nccl_.comm_destroy(comm_);
  if (result == Result::kSuccess) return;
  log_event(LogLevel::kError, "communicator_lost rank={} error=\"{}\"", rank(),
            nccl_.get_error_string(result));
}

void NcclCollectives::check_alive() const {
  if (!is_aborted()) return;
  throw GroupError(str_format("the communicator of rank {} of {} cannot be used any more: {}",
                              rank(), size(), life_.why()));
}

std::optional<std::string> NcclCollectives::find_failure() {
  const Abortable::Use use = life_.use();
  if (!use) return std::nullopt;
  Result result = Result::kSuccess;
  const Result asked = nccl_.comm_get_async_error(comm_, &result);
  if (asked != Result::kSuccess) result = asked;
  if (result == Result::kSuccess || result == Result::kInProgress) return std::nullopt;
  return str_format("{}; {}", nccl_.get_error_string(result), nccl_.get_last_error(comm_));
}

// The stream is queried first: finished work needs no other rank.
void NcclCollectives::synchronize(StreamRef stream) {
  check_alive();
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  constexpr auto kSpin = std::chrono::milliseconds(1);
  for (;;) {
    const Code code = stream.api().query_stream(stream.handle());
    if (code != Code::kNotReady) {
      check(code, "wait for collectives");
      return check_alive();
    }
    if (is_aborted()) break;
    const auto waited = Clock::now() - begin;
    if (std::optional<std::string> failure = find_failure()) {
      life_.abort(*failure);
    } else if (waited > limit_) {
      life_.abort(
          str_format("its work was not done within {} ms: another rank has not come, or "
                     "calls something else",
                     limit_.count()));
    }
    if (waited > kSpin) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    } else {
      std::this_thread::yield();
    }
  }
  check_alive();
}

Result NcclCollectives::enqueue_one(nccl::Stream stream, const CollectiveCall& call) const {
  constexpr nccl::DataType kBytes = kTypes[static_cast<int>(DType::kUInt8)];
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return nccl_.all_reduce(call.in, call.out, static_cast<std::size_t>(call.elements),
                              type_of(call.dtype), kOperations[static_cast<int>(call.reduction)],
                              comm_, stream);
    case CollectiveKind::kAllGather:
      return nccl_.all_gather(call.in, call.out, call.bytes(), kBytes, comm_, stream);
    case CollectiveKind::kBroadcast:
      return nccl_.broadcast(call.in, call.out, call.bytes(), kBytes, call.peer, comm_, stream);
    case CollectiveKind::kSend:
      return nccl_.send(call.in, call.bytes(), kBytes, call.peer, comm_, stream);
    case CollectiveKind::kReceive:
      break;
  }
  return nccl_.recv(call.out, call.bytes(), kBytes, call.peer, comm_, stream);
}

void NcclCollectives::enqueue(StreamRef stream, std::span<const CollectiveCall> calls) {
  for (const CollectiveCall& call : calls) {
    if (call.kind != CollectiveKind::kAllReduce || type_of(call.dtype) >= 0) continue;
    throw InvalidArgument(str_format("{}: NCCL does not reduce this type", describe(call)));
  }
  std::string what = describe(calls[0]);
  if (calls.size() > 1) what += str_format(" and {} more", calls.size() - 1);
  const Abortable::Use use = life_.use();
  if (!use) return check_alive();
  // The first operation of a kind makes connections, which allocates memory.
  const RelaxedCapture relaxed(&stream.graphs());
  void* const native = stream.native();
  Result result = Result::kSuccess;
  if (calls.size() == 1) {
    result = enqueue_one(native, calls[0]);
  } else {
    expect_success(nccl_, comm_, nccl_.group_start(), "begin a group");
    for (const CollectiveCall& call : calls) {
      if (result == Result::kSuccess) result = enqueue_one(native, call);
    }
    const Result ended = nccl_.group_end();
    if (result == Result::kSuccess) result = ended;
  }
  if (result != Result::kSuccess) check_alive();  // an abort ended it, and has the reason
  expect_success(nccl_, comm_, result, what);
}

}  // namespace

NcclId make_nccl_id(const NcclOptions& options) {
  const nccl::Library& nccl = nccl::library(options.library);
  nccl::UniqueId unique;
  expect_success(nccl, nullptr, nccl.get_unique_id(&unique), "make an id");
  NcclId id;
  std::memcpy(id.bytes.data(), unique.internal, id.bytes.size());
  return id;
}

// A rank 0 that cannot make an id says so, so that the others do not wait.
NcclId share_nccl_id(Group& group, const NcclOptions& options) {
  constexpr std::size_t kWords = sizeof(NcclId) / sizeof(std::uint64_t);
  std::array<std::uint64_t, kWords + 1> words = {};  // 1 if there is an id, and the id
  std::exception_ptr failure;
  if (group.rank() == 0) {
    try {
      const NcclId made = make_nccl_id(options);
      std::memcpy(words.data() + 1, made.bytes.data(), made.bytes.size());
      words[0] = 1;
    } catch (...) {
      failure = std::current_exception();
    }
  }
  const std::vector<std::uint64_t> all = gather(group, words);
  if (failure) std::rethrow_exception(failure);
  if (all[0] != 1) throw GroupError("rank 0 could not make an id of NCCL; its error says why");
  NcclId id;
  std::memcpy(id.bytes.data(), all.data() + 1, id.bytes.size());
  return id;
}

std::unique_ptr<Collectives> make_nccl_collectives(const NcclId& id, int rank, int size,
                                                   Device device, const NcclOptions& options) {
  expect_gpu(device);
  const nccl::Library& nccl = nccl::library(options.library);
  auto made = std::make_unique<NcclCollectives>(nccl, rank, size, device, options.time_limit);
  nccl::Config config = config_of(nccl, options);
  made->begin_init(id, config);
  return made;
}

std::vector<std::unique_ptr<Collectives>> make_nccl_collectives(std::span<const Device> devices,
                                                                const NcclOptions& options) {
  if (devices.empty()) throw InvalidArgument("collectives without ranks: give at least one device");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    expect_gpu(devices[i]);
    if (std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(i), devices[i]) !=
        devices.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw InvalidArgument(
          str_format("{} is named twice: NCCL needs a GPU for each rank", to_string(devices[i])));
    }
  }
  const nccl::Library& nccl = nccl::library(options.library);
  const NcclId id = make_nccl_id(options);
  nccl::Config config = config_of(nccl, options);
  // All steps that can fail here come first: group_end() waits for the ranks that have begun until
  // all others have, too.
  std::vector<std::unique_ptr<NcclCollectives>> made;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    made.push_back(std::make_unique<NcclCollectives>(nccl, static_cast<int>(i),
                                                     static_cast<int>(devices.size()), devices[i],
                                                     options.time_limit));
  }
  expect_success(nccl, nullptr, nccl.group_start(), "begin a group");
  std::exception_ptr failure;
  try {
    for (const auto& one : made)
      one->begin_init(id, config);
  } catch (...) {
    failure = std::current_exception();
    // A failed NCCL call ends the group. Source: ncclGroupEndInternal().
    nccl::Comm none = nullptr;
    (void)nccl.comm_init_rank_config(&none, 1, {}, /*rank=*/-1, &config);
  }
  const Result ended = nccl.group_end();
  if (failure) std::rethrow_exception(failure);
  expect_success(nccl, nullptr, ended, str_format("make {} ranks", devices.size()));
  std::vector<std::unique_ptr<Collectives>> ends(std::make_move_iterator(made.begin()),
                                                 std::make_move_iterator(made.end()));
  return ends;
}

}  // namespace cgtree

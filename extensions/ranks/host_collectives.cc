// Collectives of host devices: kernels that meet, read the memory of all ranks, and write their
// own.
//
// A kernel's arguments are values and the address of the shared state, so only the shared state
// must outlive a graph.

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "extensions/ranks/collective_call.h"
#include "extensions/ranks/collectives.h"
#include "extensions/ranks/rendezvous.h"
#include "interop/device/graph_api.h"
#include "interop/device/kernel_function.h"

namespace cgtree {
namespace {

// A send that waits to be received. It lives in the sender's kernel.
struct Parcel {
  const CollectiveCall* call;
  bool is_received = false;
};

// The shared state of a communicator. The rendezvous' lock guards all members that change.
struct HostMeeting {
  HostMeeting(int size, std::chrono::milliseconds limit)
      : rendezvous(size, limit), calls(static_cast<std::size_t>(size)) {}

  Rendezvous rendezvous;
  std::vector<const CollectiveCall*> calls;  // by rank, of the operation in progress
  std::map<std::pair<int, int>, std::deque<Parcel*>> parcels;  // by sender and receiver
};

template <typename T>
T reduce(T a, T b, Reduction reduction) {
  using Word = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;  // wraps around
  switch (reduction) {
    case Reduction::kSum:
      return static_cast<T>(static_cast<Word>(a) + static_cast<Word>(b));
    case Reduction::kProduct:
      return static_cast<T>(static_cast<Word>(a) * static_cast<Word>(b));
    case Reduction::kMinimum:
      return b < a ? b : a;
    case Reduction::kMaximum:
      return a < b ? b : a;
  }
  return a;
}

// Reduces in the order of the ranks, so that all get the same bits.
template <typename T>
void reduce_all(const std::vector<const CollectiveCall*>& calls, std::byte* result) {
  const auto count = static_cast<std::size_t>(calls[0]->elements);
  std::memcpy(result, calls[0]->in, count * sizeof(T));
  T* const values = reinterpret_cast<T*>(result);
  for (std::size_t rank = 1; rank < calls.size(); ++rank) {
    const T* const other = static_cast<const T*>(calls[rank]->in);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = reduce(values[i], other[i], calls[0]->reduction);
  }
}

using ReduceAll = void (*)(const std::vector<const CollectiveCall*>&, std::byte*);

// By DType; null for types without arithmetic here.
constexpr ReduceAll kReducers[kDTypeCount] = {nullptr,
                                              &reduce_all<std::int8_t>,
                                              &reduce_all<std::int16_t>,
                                              &reduce_all<std::int32_t>,
                                              &reduce_all<std::int64_t>,
                                              &reduce_all<std::uint8_t>,
                                              &reduce_all<std::uint16_t>,
                                              &reduce_all<std::uint32_t>,
                                              &reduce_all<std::uint64_t>,
                                              nullptr,
                                              nullptr,
                                              &reduce_all<float>,
                                              &reduce_all<double>};

ReduceAll reducer_of(DType dtype) noexcept {
  return kReducers[static_cast<int>(dtype)];
}

std::vector<std::byte> result_of(const std::vector<const CollectiveCall*>& calls, int rank) {
  const CollectiveCall& own = *calls[static_cast<std::size_t>(rank)];
  const std::size_t part = own.bytes();
  std::vector<std::byte> result(part * (own.kind == CollectiveKind::kAllGather ? calls.size() : 1));
  if (own.kind == CollectiveKind::kAllReduce) {
    reducer_of(own.dtype)(calls, result.data());
  } else if (own.kind == CollectiveKind::kBroadcast) {
    std::memcpy(result.data(), calls[static_cast<std::size_t>(own.peer)]->in, part);
  } else {
    for (std::size_t i = 0; i < calls.size(); ++i)
      std::memcpy(result.data() + i * part, calls[i]->in, part);
  }
  return result;
}

std::string enter(HostMeeting& meeting, int rank, const CollectiveCall& call, int first_rank) {
  meeting.calls[static_cast<std::size_t>(rank)] = &call;
  const CollectiveCall& first = *meeting.calls[static_cast<std::size_t>(first_rank)];
  if (match(first, call)) return "";
  return str_format(
      "rank {} of {} calls {} where rank {} calls {}: all ranks must call the same, in one order",
      rank, meeting.rendezvous.size(), describe(call), first_rank, describe(first));
}

// The ranks meet twice: all read the inputs of the others before any rank writes, because the
// output of a rank may be its input.
void run_collective(HostMeeting& meeting, int rank, const CollectiveCall& call) {
  Rendezvous& rendezvous = meeting.rendezvous;
  if (!rendezvous.meet(rank, [&](int first) { return enter(meeting, rank, call, first); })) return;
  const std::vector<std::byte> result = result_of(meeting.calls, rank);
  if (rendezvous.meet(rank)) std::memcpy(call.out, result.data(), result.size());
}

bool receive(HostMeeting& meeting, int rank, const CollectiveCall& call) {
  const std::pair way{call.peer, rank};
  const bool came = meeting.rendezvous.wait(
      call.peer, [&] { return !meeting.parcels[way].empty(); },
      [&] {
        return str_format("rank {} of {} did not send within {} ms: rank {} calls {}", call.peer,
                          meeting.rendezvous.size(), meeting.rendezvous.limit().count(), rank,
                          describe(call));
      });
  if (!came) return false;
  return meeting.rendezvous.change([&]() -> std::string {
    std::deque<Parcel*>& waiting = meeting.parcels[way];
    Parcel& parcel = *waiting.front();
    const CollectiveCall& sent = *parcel.call;
    if (sent.elements != call.elements || sent.dtype != call.dtype) {
      return str_format("rank {} calls {} where rank {} calls {}: both must name the same", rank,
                        describe(call), call.peer, describe(sent));
    }
    std::memcpy(call.out, sent.in, call.bytes());
    parcel.is_received = true;
    waiting.pop_front();
    return "";
  });
}

// All sends come before any receive, and no send is waited for until all receives are done: so no
// two ranks wait for each other.
void run_between_two(HostMeeting& meeting, int rank, std::span<const CollectiveCall> calls) {
  std::vector<Parcel> parcels;
  for (const CollectiveCall& call : calls) {
    if (call.kind == CollectiveKind::kSend) parcels.push_back({&call});
  }
  const bool is_sent = meeting.rendezvous.change([&] {
    for (Parcel& parcel : parcels)
      meeting.parcels[{rank, parcel.call->peer}].push_back(&parcel);
    return std::string();
  });
  if (!is_sent) return;
  for (const CollectiveCall& call : calls) {
    if (call.kind == CollectiveKind::kReceive && !receive(meeting, rank, call)) return;
  }
  for (const Parcel& parcel : parcels) {
    const bool was_received = meeting.rendezvous.wait(
        parcel.call->peer, [&] { return parcel.is_received; },
        [&] {
          return str_format("rank {} of {} did not receive within {} ms: rank {} calls {}",
                            parcel.call->peer, meeting.rendezvous.size(),
                            meeting.rendezvous.limit().count(), rank, describe(*parcel.call));
        });
    if (!was_received) return;
  }
}

// The arguments: HostMeeting*, the rank, the number of calls, and the calls.
void run_on_host(const LaunchDims&, const void* const* arguments) {
  HostMeeting& meeting = **static_cast<HostMeeting* const*>(arguments[0]);
  const int rank = *static_cast<const int*>(arguments[1]);
  const std::span calls(static_cast<const CollectiveCall*>(arguments[3]),
                        *static_cast<const std::size_t*>(arguments[2]));
  try {
    if (calls[0].is_between_two()) {
      run_between_two(meeting, rank, calls);
    } else {
      run_collective(meeting, rank, calls[0]);
    }
  } catch (const std::exception& error) {
    meeting.rendezvous.fail(str_format("rank {} failed: {}", rank, error.what()));
  }
}

constexpr KernelFunction kCollective = {"collective", &run_on_host, nullptr, /*waits=*/true};

class HostCollectives final : public Collectives {
 public:
  HostCollectives(std::shared_ptr<HostMeeting> meeting, int rank, Device device)
      : Collectives(rank, meeting->rendezvous.size(), device), meeting_(std::move(meeting)) {}
  ~HostCollectives() override {
    meeting_->rendezvous.leave(
        rank(), str_format("rank {} of {} has left the communicator", rank(), size()));
  }

  void synchronize(StreamRef stream) override {
    stream.synchronize();
    check_alive();
  }
  void abort() noexcept override {
    meeting_->rendezvous.fail(
        str_format("rank {} of {} has aborted the communicator", rank(), size()));
  }
  bool is_aborted() const noexcept override { return meeting_->rendezvous.has_failed(); }

 protected:
  void enqueue(StreamRef stream, std::span<const CollectiveCall> calls) override {
    std::vector<CollectiveCall> between_two;
    for (const CollectiveCall& call : calls) {
      if (call.is_between_two()) between_two.push_back(call);
      if (call.kind != CollectiveKind::kAllReduce || reducer_of(call.dtype) != nullptr) continue;
      throw InvalidArgument(str_format(
          "{}: the host device has no arithmetic for this type; reduce float32", describe(call)));
    }
    for (const CollectiveCall& call : calls) {
      if (!call.is_between_two()) launch(stream, {&call, 1});
    }
    if (!between_two.empty()) launch(stream, between_two);
    if (!stream.is_capturing()) check_alive();
  }
  void check_alive() const override {
    if (is_aborted()) throw GroupError(meeting_->rendezvous.failure());
  }

 private:
  void launch(StreamRef stream, std::span<const CollectiveCall> calls) {
    HostMeeting* const meeting = meeting_.get();
    const int own = rank();
    const std::size_t count = calls.size();
    const std::array<KernelArgument, 4> arguments = {{{&meeting, sizeof(meeting)},
                                                      {&own, sizeof(own)},
                                                      {&count, sizeof(count)},
                                                      {calls.data(), calls.size_bytes()}}};
    check(stream.graphs().launch_kernel(stream.handle(), kCollective, {}, arguments),
          name(calls[0].kind));
  }

  const std::shared_ptr<HostMeeting> meeting_;
};

}  // namespace

std::vector<std::unique_ptr<Collectives>> make_host_collectives(
    std::span<const Device> devices, std::chrono::milliseconds time_limit) {
  const auto meeting = std::make_shared<HostMeeting>(static_cast<int>(devices.size()), time_limit);
  std::vector<std::unique_ptr<Collectives>> ends;
  for (const Device device : devices) {
    if (device.type == DeviceType::kCuda) {
      throw InvalidArgument(str_format(
          "collectives of host devices on {}: use make_nccl_collectives()", to_string(device)));
    }
    const int rank = static_cast<int>(ends.size());
    ends.push_back(std::make_unique<HostCollectives>(meeting, rank, device));
  }
  return ends;
}

std::vector<std::unique_ptr<Collectives>> make_host_collectives(
    int size, std::chrono::milliseconds time_limit) {
  std::vector<Device> devices;
  for (int rank = 0; rank < size; ++rank)
    devices.push_back(Device::host(rank));
  return make_host_collectives(devices, time_limit);
}

}  // namespace cgtree

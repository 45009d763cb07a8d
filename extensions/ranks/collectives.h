// Collectives: operations of the devices of several ranks together: reduce, gather, send, receive.
//
// The host device has an implementation in memory, the cuda device one over NCCL, which is loaded
// when it is first used.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// The operation of all_reduce(), element by element.
enum class Reduction { kSum, kProduct, kMinimum, kMaximum };

// A Collectives is one rank's end of a communicator. Its functions enqueue work on a stream of its
// device, and return. All ranks call the same functions with the same sizes in the same order, and
// capture the same of them. While the stream captures, they become part of the graph, which must
// end before the Collectives does; each launch of it is a call that the other ranks must make, too.
//
// Uses of one Collectives must be in order on the device: on one stream, or on streams that wait
// for each other. A Communicator (extensions/ranks/communicator.h) sees to that.
//
// Tensors are contiguous, of this device, and of one type. Functions throw InvalidArgument for
// tensors, ranks or types that do not fit; DeviceError; and GroupError after abort().
//
// Thread safety: used by one thread at a time, but for abort().
class Collectives {
 public:
  virtual ~Collectives() = default;
  Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  virtual int rank() const noexcept = 0;  // in [0, size())
  virtual int size() const noexcept = 0;  // the number of ranks
  // The device of all tensors and streams.
  virtual Device device() const noexcept = 0;

  // out = the reduction of all ranks' `in`, of the same shape; the two may be one tensor.
  virtual void all_reduce(StreamRef stream, const Tensor& in, const Tensor& out,
                          Reduction reduction) = 0;
  // out {size() * n elements} = the `in` of each rank, n elements, rank by rank.
  virtual void all_gather(StreamRef stream, const Tensor& in, const Tensor& out) = 0;
  // `tensor` becomes that of rank `root`.
  virtual void broadcast(StreamRef stream, const Tensor& tensor, int root) = 0;
  // Rank `to` must receive() as many elements from this one.
  virtual void send(StreamRef stream, const Tensor& tensor, int to) = 0;
  // Rank `from`, which is another one, must send() as many elements to this one.
  virtual void receive(StreamRef stream, const Tensor& tensor, int from) = 0;

  // The next two make one operation of the calls between them, which end_group() enqueues: sends
  // and receives in both directions do not wait for each other.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
  // Ends all groups that have begun, and forgets what was called since. Does nothing without one.
  virtual void cancel_group() noexcept = 0;

  // Waits until the work of `stream` is done. Throws GroupError, after abort(), if that takes
  // longer than the time limit, or if another rank has aborted: a rank that died would otherwise
  // let this one wait for ever.
  virtual void synchronize(StreamRef stream) = 0;
  // Ends all work of the communicator that waits for other ranks, with results that are undefined.
  // It cannot be used any more. Any thread.
  virtual void abort() noexcept = 0;
  // Whether abort() was called, here or on another rank, as far as this rank has noticed. Any
  // thread.
  virtual bool is_aborted() const noexcept = 0;

  // Returns the implementation's own communicator: an ncclComm_t, or null; null after abort(),
  // which frees it: not to be used while another thread may call that.
  virtual void* native() const noexcept { return nullptr; }
};

// The time that synchronize() waits for.
inline constexpr std::chrono::milliseconds kCollectivesTimeLimit(60'000);

// Returns the ends of a communicator of host devices of this process: rank i works on
// Device::host(i). Each rank needs a thread of its own. Throws InvalidArgument for more ranks than
// there are host devices.
std::vector<std::unique_ptr<Collectives>> make_host_collectives(
    int size, std::chrono::milliseconds time_limit = kCollectivesTimeLimit);
// As above: rank i works on devices[i], whose memory every thread reaches. Two ranks may share a
// device.
std::vector<std::unique_ptr<Collectives>> make_host_collectives(
    std::span<const Device> devices, std::chrono::milliseconds time_limit = kCollectivesTimeLimit);

}  // namespace cgtree

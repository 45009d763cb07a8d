// Collectives: operations of the devices of several ranks: reduce, gather, send, receive.
//
// The host device has an implementation in memory; that of the cuda device is over NCCL, which is
// loaded at its first use.
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

struct CollectiveCall;  // collective_call.h
class Group;

// A Collectives is one rank's end of a communicator. Its functions enqueue work on a stream of its
// device, and return. All ranks call the same functions with the same sizes in the same order, and
// capture the same of them. While the stream captures, they become part of the graph, which must be
// destroyed before the Collectives; each launch of it is a call that the other ranks must make,
// too.
//
// Uses of one Collectives must be in order on the device: on one stream, or on streams that wait
// for each other. A Communicator (extensions/ranks/communicator.h) ensures this.
//
// Tensors are contiguous, of this device, and of one type. Functions throw InvalidArgument for
// tensors, ranks or types that do not fit; StaleTensor; DeviceError; and GroupError after abort().
//
// Thread safety: used by one thread at a time, except abort() and is_aborted().
class Collectives {
 public:
  virtual ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  int rank() const noexcept { return rank_; }  // in [0, size())
  int size() const noexcept { return size_; }  // the number of ranks
  // The device of all tensors and streams.
  Device device() const noexcept { return device_; }

  // out = the reduction of all ranks' `in`, of the same shape; the two may be one tensor.
  void all_reduce(StreamRef stream, const Tensor& in, const Tensor& out, Reduction reduction);
  // out {size() * n elements} = the `in` of each rank, n elements, rank by rank.
  void all_gather(StreamRef stream, const Tensor& in, const Tensor& out);
  // `tensor` becomes that of rank `root`.
  void broadcast(StreamRef stream, const Tensor& tensor, int root);
  // Rank `to` must receive() as many elements from this rank.
  void send(StreamRef stream, const Tensor& tensor, int to);
  // Rank `from`, which is another rank, must send() as many elements to this rank.
  void receive(StreamRef stream, const Tensor& tensor, int from);

  // The next two make one operation of the calls between them, which end_group() enqueues: sends
  // and receives in both directions do not wait for each other.
  void begin_group();
  void end_group();
  // Ends all open groups, and drops their calls. Does nothing without an open group.
  void cancel_group() noexcept;

  // Waits until the work of `stream` is done. Throws GroupError, after abort(), if that takes
  // longer than the time limit, or if another rank aborted: otherwise a rank that died would let
  // this rank wait forever.
  virtual void synchronize(StreamRef stream) = 0;
  // Ends all work of the communicator that waits for other ranks, with undefined results. It cannot
  // be used any more. Any thread.
  virtual void abort() noexcept = 0;
  // True after abort(), here or on another rank, as far as this rank has noticed. Any thread.
  virtual bool is_aborted() const noexcept = 0;

  // Returns the implementation's own communicator: an ncclComm_t, or null; null after abort(),
  // which frees it. Do not use it while another thread may call abort().
  virtual void* native() const noexcept { return nullptr; }

 protected:
  // Throws InvalidArgument unless 0 <= rank < size, or if the device does not exist.
  Collectives(int rank, int size, Device device);

  // Enqueues the calls as one operation: at least one call, and none is empty.
  virtual void enqueue(StreamRef stream, std::span<const CollectiveCall> calls) = 0;
  // Throws GroupError if the communicator was aborted.
  virtual void check_alive() const = 0;

 private:
  // `in`: null for receive(). `out`: null for send().
  void add(StreamRef stream, CollectiveCall call, const Tensor* in, const Tensor* out);
  void enqueue_group();

  const int rank_;
  const int size_;
  const Device device_;
  int depth_ = 0;  // begin_group() without end_group()
  StreamRef stream_;
  std::vector<CollectiveCall> calls_;
  std::vector<StorageRef> storages_;  // the memory of the calls
};

// The time limit of synchronize().
inline constexpr std::chrono::milliseconds kCollectivesTimeLimit(60'000);

// Returns the ends of a communicator of host devices of this process: rank i works on
// Device::host(i). Each rank needs its own thread. Throws InvalidArgument for more ranks than there
// are host devices.
std::vector<std::unique_ptr<Collectives>> make_host_collectives(
    int size, std::chrono::milliseconds time_limit = kCollectivesTimeLimit);
// As above: rank i works on devices[i], whose memory every thread can access. Two ranks may share a
// device.
std::vector<std::unique_ptr<Collectives>> make_host_collectives(
    std::span<const Device> devices, std::chrono::milliseconds time_limit = kCollectivesTimeLimit);

// Returns a group of the ranks of `collectives`: a vote is an all-reduce of a few words on a stream
// of the group, with the time limit of synchronize().
//
// Only the group may use the collectives: votes have no order with operations that a model would
// enqueue there. Throws InvalidArgument for null, OutOfMemory.
std::unique_ptr<Group> make_collectives_group(std::shared_ptr<Collectives> collectives);

}  // namespace cgtree

// CheckedCollectives: what implementations of Collectives have in common: they check arguments,
// collect groups, and tell the owners of memory.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "extensions/ranks/collective_call.h"
#include "extensions/ranks/collectives.h"

namespace cgtree {

class CheckedCollectives : public Collectives {
 public:
  int rank() const noexcept final { return rank_; }
  int size() const noexcept final { return size_; }
  Device device() const noexcept final { return device_; }

  void all_reduce(StreamRef stream, const Tensor& in, const Tensor& out, Reduction reduction) final;
  void all_gather(StreamRef stream, const Tensor& in, const Tensor& out) final;
  void broadcast(StreamRef stream, const Tensor& tensor, int root) final;
  void send(StreamRef stream, const Tensor& tensor, int to) final;
  void receive(StreamRef stream, const Tensor& tensor, int from) final;

  void begin_group() final;
  void end_group() final;
  void cancel_group() noexcept final;

 protected:
  // Throws InvalidArgument unless 0 <= rank < size, or if the device does not exist.
  CheckedCollectives(int rank, int size, Device device);

  // Enqueues the calls as one operation: there is at least one, and none is empty.
  virtual void enqueue(StreamRef stream, std::span<const CollectiveCall> calls) = 0;
  // Throws GroupError if the communicator was aborted.
  virtual void check_alive() const = 0;

 private:
  void add(StreamRef stream, const CollectiveCall& call, const Tensor& a, const Tensor& b);
  void enqueue_group();

  const int rank_;
  const int size_;
  const Device device_;
  int depth_ = 0;  // begin_group() without its end_group()
  StreamRef stream_;
  std::vector<CollectiveCall> calls_;
  std::vector<StorageRef> storages_;  // what they use
};

}  // namespace cgtree

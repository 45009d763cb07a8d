// CallTrace: a device in front of another that writes down every call.
#pragma once

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/forwarding_device.h"

namespace cgtree::testing {

struct TracedCall {
  std::thread::id thread;
  const char* verb;
  VerbKind kind;
  StreamHandle stream;  // kNull where the verb has none
  Code code;
  bool is_captured;  // a capture that began through the trace was open
};

// "alloc_data_space", "launch on stream 0x7: 900"; for messages.
std::string to_string(const TracedCall& call);

// Works over every device. Verbs of VirtualMemoryAPI, attributes and last errors are not traced.
//
// Threads: any.
class CallTrace final : private VerbHook {
 public:
  // `target` must outlive it.
  explicit CallTrace(DeviceAPI& target) : device_(target, *this) {}

  DeviceAPI& device() noexcept { return device_; }

  std::vector<TracedCall> calls() const;
  void clear();
  std::vector<TracedCall> calls_of(VerbKind kind) const;
  std::size_t count(std::string_view verb) const;
  // Allocations and frees while a capture was open.
  std::vector<TracedCall> memory_calls_under_capture() const;

 private:
  Code around(const VerbCall& call, Forward forward) override;

  ForwardingDevice device_;
  mutable std::mutex mutex_;
  std::vector<TracedCall> calls_;
  int open_captures_ = 0;
};

}  // namespace cgtree::testing

// The thread's stack of current streams.
#include "interop/device/current_stream.h"

#include "base/error.h"

namespace cgtree {
namespace {

// Per thread, as in CUDA and TVM: a step function must find its stream without being handed one.
thread_local StreamRef t_current;
thread_local std::uint64_t t_scopes_opened = 0;

}  // namespace

StreamRef current_stream() {
  if (!t_current) {
    throw InvalidArgument(
        "no stream is current on this thread: call this inside a step function, or open a "
        "StreamScope");
  }
  return t_current;
}

StreamRef current_stream_or_none() noexcept {
  return t_current;
}

std::uint64_t stream_scopes_opened() noexcept {
  return t_scopes_opened;
}

StreamScope::StreamScope(StreamRef stream) noexcept : previous_(t_current) {
  ++t_scopes_opened;
  t_current = stream;
}

StreamScope::~StreamScope() {
  t_current = previous_;
}

}  // namespace cgtree

// Situation: an open capture with all objects that a call during it may use, and such calls.
#pragma once

#include "interop/device/device_api.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {

// A capture on `origin` with one node; `fork` has joined it without work.
struct Situation {
  Situation(const DeviceUnderTest& device, CaptureMode mode, StreamKind kind);
  // Ends captures that the call has left open.
  ~Situation();

  DeviceBench bench;
  DeviceAPI& api = bench.api;
  GraphAPI& graphs = bench.graphs;
  StreamHandle origin;
  StreamHandle fork = bench.stream();
  StreamHandle other = bench.stream();
  StreamHandle blocking = bench.stream(StreamKind::kBlocking);
  EventHandle captured = bench.event();
  EventHandle outside = bench.event();  // recorded and complete
  EventHandle fresh = bench.event();    // never recorded
  float* x = bench.floats(16);
  float* other_x = bench.floats(16);
  float host_x[16] = {};
  void* spare = nullptr;
  void* spare_pinned = nullptr;
  GraphHandle graph = GraphHandle::kNull;
  ExecHandle exec = ExecHandle::kNull;
};

// Each destroys its object immediately.
Code alloc(Situation& s);
Code alloc_pinned(Situation& s);
Code free_data(Situation& s);
Code free_pinned(Situation& s);
Code create_stream(Situation& s);
Code create_event(Situation& s);
Code instantiate(Situation& s);
Code destroy_exec(Situation& s);
Code begin(Situation& s, StreamHandle stream, CaptureMode mode = CaptureMode::kRelaxed);
Code end(Situation& s, StreamHandle stream);
Code info(Situation& s, StreamHandle stream);
Code nodes_of_an_ended_graph(Situation& s);
Code edges_of_an_ended_graph(Situation& s);
Code launch_without_blocks(Situation& s);
Code launch_host_function(Situation& s, StreamHandle stream);
Code ask_for_free_memory(Situation& s);
// Waits on the capturing stream for an event of another capture.
Code merge(Situation& s);

// Makes the call with this thread's capture mode exchanged, and then restores the mode.
template <typename Call>
Code in_mode(Situation& s, CaptureMode mode, Call call) {
  check(s.graphs.exchange_capture_mode(&mode), "exchange");
  const Code code = call(s);
  check(s.graphs.exchange_capture_mode(&mode), "exchange");
  return code;
}

}  // namespace cgtree::testing

// A device made of numbers: segments, streams whose work ends on demand, and captures that trap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/segment_source.h"
#include "allocator/segments/stream_events.h"

namespace cgtree {

// Segments from 1 << 40 up, the lowest gap first. A call that an open capture forbids (free,
// shrink, record, query, wait) is a failed check, as is any misuse; a segment or event that is
// never freed is a test failure at the device's end.
//
// Thread safety: any thread.
class FakeDevice : public SegmentSource, public StreamEvents {
 public:
  explicit FakeDevice(std::size_t capacity = SIZE_MAX) : capacity_(capacity) {}
  ~FakeDevice() override;

  // SegmentSource. Segments grow into the gap behind them.
  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override;
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override;

  // StreamEvents.
  bool exists(StreamId stream) const noexcept override;
  std::optional<EventId> record(StreamId stream) override;
  bool is_complete(EventId event) override;
  void wait(EventId event) override;  // ends the work before the event
  void give_back(EventId event) noexcept override;

  // Enqueue one more piece of work on the stream, and end the oldest piece, or all pieces so far.
  std::uint64_t submit(StreamId stream);
  void finish_one(StreamId stream);
  void finish(StreamId stream);
  // Returns true if the piece of work that submit() numbered has ended.
  bool is_done(StreamId stream, std::uint64_t number) const;

  // A capture that the allocator knows of: while it is open, the calls above are failed checks,
  // except record() on streams other than `streams`.
  void begin_capture() { ++captures_; }
  void end_capture() { --captures_; }
  // A capture on the stream that the allocator does not know of.
  void begin_foreign_capture(StreamId stream);
  void end_foreign_capture(StreamId stream);
  // Makes all later calls with the stream fail. Its work goes on.
  void destroy_stream(StreamId stream);

  // Called in free(), and once in allocate() or wait(), without a lock held.
  std::function<void()> while_freeing;
  std::function<void()> while_allocating;
  std::function<void()> while_waiting;

  // Makes free() wait for all work, as cudaFree does.
  void synchronize_frees() { frees_synchronize_ = true; }

  // Refuses the k-th allocate() or grow() from now (1: the next), or the k-th and all later ones.
  void fail_at(std::size_t k);
  void fail_from(std::size_t k);
  void fail_no_more();

  std::vector<std::size_t> asked() const;  // sizes of allocate(), including refused calls
  std::vector<Range> held() const;
  std::size_t bytes_held() const;
  std::size_t events_recorded() const { return recorded_; }
  std::size_t events_queried() const { return queried_; }
  std::size_t events_waited_for() const { return waited_; }
  // The number of calls of record() with the stream while it did not exist.
  std::size_t records_refused(StreamId stream) const;

 private:
  struct Work {
    std::uint64_t submitted = 0;
    std::uint64_t done = 0;
  };
  struct Event {
    StreamId stream;
    std::uint64_t after;  // has happened once done() of the stream reaches this
  };

  void refuse_if_told(std::size_t bytes);
  void forbid_in_capture() const;

  const std::size_t capacity_;
  std::atomic<int> captures_{0};
  std::atomic<bool> frees_synchronize_{false};
  std::atomic<std::size_t> recorded_{0}, queried_{0}, waited_{0};
  mutable std::mutex mutex_;  // guards all members below
  std::map<std::uintptr_t, std::size_t> held_;
  std::vector<std::size_t> asked_;
  std::map<StreamId, Work> work_;
  std::set<StreamId> capturing_;  // in foreign captures
  std::set<StreamId> destroyed_;
  std::map<StreamId, std::size_t> records_refused_;
  std::map<EventId, Event> events_;
  EventId last_event_ = 0;
  std::size_t bytes_ = 0;
  std::size_t calls_ = 0;  // of allocate() and grow()
  std::size_t fail_first_ = 0, fail_last_ = 0;
};

}  // namespace cgtree

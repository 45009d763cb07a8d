// Finds the contexts that share plain memory, and orders their calls.
#include "cgtree/memory/plain_memory.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/device_api.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {
namespace {

constexpr Range kAll{1, std::numeric_limits<std::uintptr_t>::max() - 1};

// A null point with an owner stands for the end of the context's stream, permanently: a graph of
// the caller's uses the bytes at each launch, and launches are not calls.
template <typename Point>
bool is_for_good(const std::shared_ptr<Point>& last) noexcept {
  return last == nullptr && last.use_count() > 0;
}

}  // namespace

std::shared_ptr<PlainMemory> PlainMemory::of(DeviceAPI& api) {
  return std::static_pointer_cast<PlainMemory>(
      api.shared([]() -> std::shared_ptr<void> { return std::make_shared<PlainMemory>(); }));
}

bool PlainMemoryUser::Spans::contains(Range range) const noexcept {
  const auto after = spans_.upper_bound(range.address);
  return after != spans_.begin() && range.end() <= std::prev(after)->second.end;
}

template <typename AnyMap>
auto PlainMemoryUser::Spans::first_in(AnyMap& spans, Range range) noexcept {
  auto found = spans.upper_bound(range.address);
  if (found != spans.begin() && std::prev(found)->second.end > range.address) --found;
  return found == spans.end() || found->first >= range.end() ? spans.end() : found;
}

bool PlainMemoryUser::Spans::overlaps(Range range) const noexcept {
  return first_in(spans_, range) != spans_.end();
}

// Joins spans that touch, so that there are no more spans than pieces of memory.
void PlainMemoryUser::Spans::add(Range range) {
  std::uintptr_t begin = range.address;
  std::uintptr_t end = range.end();
  auto first = spans_.lower_bound(begin);
  if (first != spans_.begin() && std::prev(first)->second.end >= begin) --first;
  auto last = first;
  for (; last != spans_.end() && last->first <= end; ++last) {
    begin = std::min(begin, last->first);
    end = std::max(end, last->second.end);
  }
  if (first != last && first->first == begin) {  // cannot fail
    first->second = {end, nullptr};
    spans_.erase(std::next(first), last);
    return;
  }
  spans_.emplace_hint(first, begin, Span{end, nullptr});
  spans_.erase(first, last);
}

template <typename Visit>
void PlainMemoryUser::Spans::for_each_in(Range range, const Visit& visit) {
  for (auto at = first_in(spans_, range); at != spans_.end() && at->first < range.end(); ++at) {
    const std::uintptr_t begin = std::max(at->first, range.address);
    visit(Range{begin, std::min(at->second.end, range.end()) - begin}, at->second.last);
  }
}

PlainMemoryUser::PlainMemoryUser(ContextStream& stream)
    : memory_(PlainMemory::of(stream.home().api())),
      stream_(stream),
      anchor_(std::make_shared<Anchor>()) {
  anchor_->stream = &stream;
  waited_for_.resize(kMostRemembered);
  const std::lock_guard lock(memory_->mutex_);
  memory_->users_.push_back(this);
}

PlainMemoryUser::~PlainMemoryUser() {
  {
    const std::lock_guard lock(memory_->mutex_);
    std::erase(memory_->users_, this);
  }
  const std::lock_guard lock(anchor_->mutex);
  anchor_->stream = nullptr;
}

// Requires: the mutex is held.
void PlainMemoryUser::note_neighbour() noexcept {
  if (!std::exchange(has_neighbours_, true)) stream_.note_neighbour();
}

void PlainMemoryUser::remember(const PlainUse& use) noexcept {
  PlainUse* const recent = &recent_[place_of(use)];
  std::copy_backward(recent, recent + kAlike - 1, recent + kAlike);
  *recent = use;
}

void PlainMemoryUser::note(const PlainUse& use) {
  if (use.range.bytes == 0 || is_recent(use)) return;
  if (is_known(use)) return remember(use);
  std::vector<std::shared_ptr<const Point>> ended;  // after the lock, as events may block
  const std::lock_guard lock(memory_->mutex_);
  Spans& known = use.is_written ? written_ : read_;
  known.for_each_in({use.range.address - 1, use.range.bytes + 2},  // includes touching spans
                    [&](Range, const auto& last) { ended.push_back(last); });
  known.add(use.range);
  if (const auto found = std::ranges::find_if(ended, is_for_good<const Point>);
      found != ended.end())
    known.for_each_in(use.range, [&](Range, auto& last) { last = *found; });
  Spans& mine = use.is_written ? shared_writes_ : shared_reads_;
  for (PlainMemoryUser* const other : memory_->users_) {
    if (other == this) continue;
    bool is_neighbour = false;
    const auto share = [&](Spans& theirs) {
      return [&](Range bytes, const auto&) {
        is_neighbour = true;
        mine.add(bytes);
        theirs.add(bytes);
      };
    };
    other->written_.for_each_in(use.range, share(other->shared_writes_));
    if (use.is_written) other->read_.for_each_in(use.range, share(other->shared_reads_));
    if (!is_neighbour) continue;
    note_neighbour();
    other->note_neighbour();
  }
  remember(use);
}

// Returns an upper bound of the number of points. Requires: the mutex is held.
std::size_t PlainMemoryUser::count_points() {
  if (points_ <= kMostPoints) return points_;
  std::set<std::shared_ptr<const Point>> points;
  for (Spans* const spans : {&read_, &written_})
    spans->for_each_in(kAll, [&](Range, const auto& last) { points.insert(last); });
  return points_ = points.size();
}

// Without a stream nothing waits, and all uses are open, also those without a neighbour.
bool PlainMemoryUser::begin(std::span<const PlainUse> uses, StreamRef stream, StreamRef captured) {
  std::vector<PlainUse> shared;
  std::vector<Wait> waits;
  for (const PlainUse& use : uses)
    note(use);
  if (!stream) {
    open_.insert(open_.end(), uses.begin(), uses.end());
    return is_open();
  }
  bool has_many_points = false;
  {
    const std::lock_guard lock(memory_->mutex_);
    if (!has_neighbours_) return false;
    has_many_points = count_points() > kMostPoints;
    for (const PlainUse& use : uses) {
      if (!is_shared(use)) continue;
      shared.push_back(use);
      collect(use, stream, waits);
    }
  }
  if (has_many_points && capture_of(stream_.get()) == 0) join_points();
  if (shared.empty()) return false;
  for (const Wait& one : waits)
    wait(one, stream, captured);
  // One new point after all of them replaces many, because only a few are remembered.
  if (waits.size() > kMostRemembered / 4 && stream == stream_.get() && capture_of(stream) == 0) {
    const auto all = std::make_shared<const Point>(stream_);
    std::set<std::shared_ptr<const Point>> ended;  // after the lock, as events may block
    for (const Wait& one : waits)
      ended.insert(one.point);
    waited_for_[next_waited_for_] = all;
    next_waited_for_ = (next_waited_for_ + 1) % kMostRemembered;
    const std::lock_guard lock(memory_->mutex_);
    for (PlainMemoryUser* const other : memory_->users_) {
      if (other == this) continue;
      for (const PlainUse& use : shared) {
        other->for_each_conflict(use, [&](Range, std::shared_ptr<const Point>& last) {
          if (last != nullptr && ended.contains(last)) last = all;
        });
      }
    }
  }
  open_.insert(open_.end(), shared.begin(), shared.end());
  return true;
}

// A neighbour's work is before the end of its stream, so a neighbour on the same stream need not be
// waited for. Requires: the mutex is held.
void PlainMemoryUser::collect(const PlainUse& use, StreamRef stream,
                              std::vector<Wait>& waits) const {
  for (PlainMemoryUser* const other : memory_->users_) {
    if (other == this || other->stream_.get() == stream) continue;
    other->for_each_conflict(use, [&](Range, const std::shared_ptr<const Point>& last) {
      if (last != nullptr && std::ranges::find(waited_for_, last) != waited_for_.end()) return;
      const bool is_known = std::ranges::any_of(
          waits, [&](const Wait& wait) { return wait.user == other && wait.point == last; });
      if (!is_known) waits.push_back({last, other, other->anchor_, use});
    });
  }
}

// Without the mutex, which is only held briefly. A neighbour in the capture is ordered inside the
// graph; its work from before the capture precedes the launches, which follow its stream.
void PlainMemoryUser::wait(const Wait& wait, StreamRef stream, StreamRef captured) {
  std::shared_ptr<const Point> point = wait.point;
  if (point == nullptr) {
    {
      const std::lock_guard lock(wait.anchor->mutex);
      if (wait.anchor->stream == nullptr) return;  // all of its work has ended
      const ContextStream& other = *wait.anchor->stream;
      const std::uint64_t capture = capture_of(other.get());
      if (capture != 0 && captured && capture == capture_of(captured))
        return other.order_before(captured);
      if (capture != 0) {
        throw CaptureError(
            static_cast<int>(Code::kStreamCaptureIsolation),
            str_format("{} bytes at {:#x} are used by two contexts, and the stream of the other "
                       "one, {:#x}, is being captured, so that this call cannot wait for it: end "
                       "the capture before the call",
                       wait.use.range.bytes, wait.use.range.address,
                       static_cast<std::uintptr_t>(other.handle())));
      }
      point = std::make_shared<const Point>(other);
    }
    const std::lock_guard lock(memory_->mutex_);
    const auto found = std::ranges::find(memory_->users_, wait.user);
    if (found != memory_->users_.end() && (*found)->anchor_ == wait.anchor) {
      wait.user->for_each_conflict(wait.use, [&](Range, std::shared_ptr<const Point>& last) {
        if (last == nullptr && !is_for_good(last)) last = point;
      });
      ++wait.user->points_;
    }
  }
  point->event.make_wait(stream);
  if (stream != stream_.get()) return;
  waited_for_[next_waited_for_] = std::move(point);
  next_waited_for_ = (next_waited_for_ + 1) % kMostRemembered;
}

bool PlainMemoryUser::is_alone_on(StreamRef stream) const {
  const std::lock_guard lock(memory_->mutex_);
  return std::ranges::all_of(memory_->users_, [&](const PlainMemoryUser* other) {
    return !other->has_neighbours_ || other->stream_.get() == stream;
  });
}

void PlainMemoryUser::end(bool in_graph) {
  const std::vector<PlainUse> ended = std::exchange(open_, {});
  if (ended.empty()) return;
  const StreamRef stream = stream_.get();
  std::shared_ptr<const Point> point;
  if (in_graph) {
    point = {anchor_, nullptr};  // permanently
  } else if (!is_alone_on(stream) && capture_of(stream) == 0) {
    point = std::make_shared<const Point>(stream_);
  }
  std::vector<std::shared_ptr<const Point>> former;  // after the lock, as events may block
  const std::lock_guard lock(memory_->mutex_);
  for (const PlainUse& use : ended) {
    (use.is_written ? written_ : read_)
        .for_each_in(use.range, [&](Range, std::shared_ptr<const Point>& last) {
          if (!is_for_good(last)) former.push_back(std::exchange(last, point));
        });
  }
  points_ += point != nullptr;
}

// Memory that differs at each call leaves a point each time. A new point is after all of them.
void PlainMemoryUser::join_points() {
  const auto newest = std::make_shared<const Point>(stream_);
  std::vector<std::shared_ptr<const Point>> former;  // after the lock, as events may block
  const std::lock_guard lock(memory_->mutex_);
  for (Spans* const spans : {&read_, &written_}) {
    spans->for_each_in(kAll, [&](Range, std::shared_ptr<const Point>& last) {
      if (last != nullptr) former.push_back(std::exchange(last, newest));
    });
  }
  points_ = 1;
}

}  // namespace cgtree

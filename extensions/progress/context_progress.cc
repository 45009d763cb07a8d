// Notes replays while they are launched, and reads their progress.
#include "extensions/progress/context_progress.h"

#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "cgtree/values/group.h"
#include "extensions/audit/audit.h"
#include "extensions/progress/mark_words.h"
#include "interop/device/code.h"
#include "interop/device/device_api.h"

namespace cgtree {

ContextProgress::ContextProgress(const ContextOptions& options, ContextMemory& memory, Spent& spent,
                                 ReplayTimer& timer, const ProgressOptions& progress)
    : memory_(memory),
      spent_(spent),
      max_graph_bytes_(options.max_graph_bytes),
      about_{.context = options.name.empty() ? to_string(memory.device()) : options.name,
             .device = to_string(memory.device()),
             .rank = options.group == nullptr ? 0 : options.group->rank(),
             .ranks = options.group == nullptr ? 1 : options.group->size()},
      timer_(timer),
      every_(progress.every_nth_replay),
      times_scopes_(progress.times_scopes) {
  DeviceAPI& api = memory.stream().api();
  if (!api.supports(memory.device().id, DeviceAttribute::kSupportsProgress)) {
    throw InvalidArgument("watch_progress() on " + about_.device +
                          ", a kind of device that does not tell how far its work has come");
  }
  flags_ = memory.empty_pinned({2 * static_cast<std::int64_t>(kSlots)}, DType::kInt64);
  for (std::size_t word = 0; word < 2 * kSlots; ++word)
    clear_word(flags_, word);
  load_clock(memory.stream());  // before anything hangs
}

void ContextProgress::give_up(std::string_view what) noexcept {
  Launches unknown;
  {
    const std::lock_guard lock(mutex_);
    unknown.swap(launches_);
  }
  has_failed_ = true;
  is_open_ = false;
  (void)memory_.stream().graphs().take_last_error();
  log_event(LogLevel::kError, "progress_not_watched context=\"{}\" what=\"{}\"", about_.context,
            what);
}

MarkedRecording* ContextProgress::marked_of(Recording& recording, std::string* why) {
  *why = MarkedRecording::why_not(recording);
  if (!why->empty()) return nullptr;
  const Audit& audit = audit_of(recording);
  if (audit.marked != nullptr && audit.marked->has_graphs()) return audit.marked.get();
  *why = audit.why_unmarked;
  if (!why->empty()) return nullptr;
  if (!fits(recording.costs.graph_bytes)) {
    *why = str_format(
        "a second executable graph of {} bytes would exceed ContextOptions::max_graph_bytes",
        recording.costs.graph_bytes);
    return nullptr;
  }
  if (Clock::now() < tries_again_) {
    *why = "memory was short when a second executable graph was made last";
    return nullptr;
  }
  try {
    if (audit.marked == nullptr)
      audit.marked = std::make_shared<MarkedRecording>(recording, memory_, spent_);
    made_.reserve(made_.size() + 1);
    audit.marked->make_graphs(recording);
    made_.push_back(audit.marked);
    return audit.marked.get();
  } catch (const OutOfMemory& error) {
    *why = error.what();
    tries_again_ = Clock::now() + kTriesAgainAfter;
  } catch (const std::exception& error) {
    *why = audit.why_unmarked = error.what();
  }
  (void)memory_.stream().graphs().take_last_error();
  return nullptr;
}

void ContextProgress::keep_within_graph_bytes() noexcept {
  while (!made_.empty() && !fits(0)) {
    if (const auto marked = made_.front().lock()) marked->drop_graphs();
    made_.erase(made_.begin());
  }
  std::erase_if(made_, [](const auto& marked) { return marked.expired(); });
}

void ContextProgress::read_times() {
  if (!times_scopes_) return;
  for (Launch& launch : launches_) {
    if (launch.marks == nullptr || launch.are_times_read || !has_ended(launch)) continue;
    launch.are_times_read = true;
    const std::vector<PlannedMark>& marks = launch.marks->planned();
    std::map<std::string_view, std::chrono::nanoseconds> sums;
    for (std::size_t i = 0; i < marks.size(); ++i)
      sums[marks[i].scope] += launch.marks->time(i);
    timer_.count_scopes(launch.function, sums);
  }
}

void ContextProgress::drop_ended() noexcept {
  Launches taken;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  while (launches_.size() > 1 && has_ended(launches_.front()) &&
         has_ended(*std::next(launches_.begin()))) {
    taken.splice(taken.end(), launches_, launches_.begin());
  }
}

void ContextProgress::abandon() noexcept {
  is_open_ = false;
  Launches last;
  const std::lock_guard lock(mutex_);
  if (launches_.empty() || launches_.back().is_closed) return;
  last.splice(last.begin(), launches_, std::prev(launches_.end()));
}

void ContextProgress::open(Node& node) noexcept try {
  if (has_failed_) return;
  abandon();
  read_times();
  drop_ended();
  // Only this thread adds launches. A request for marks waits for a replay that is noted.
  if (!launches_.empty() && launched_ - launches_.front().sequence >= kSlots) {
    const std::lock_guard lock(mutex_);
    ++unwatched_;
    return;
  }
  Launch launch{
      .function = node.function->name, .node = node.id, .number = node.recording.costs.replays};
  const bool is_turn = every_ > 0 && launch.number % every_ == 0;
  MarkedRecording* marked = nullptr;
  if (is_turn || marks_next_.exchange(false)) {
    marked = marked_of(node.recording, &launch.why_unmarked);
  } else {
    launch.why_unmarked = every_ > 0 ? str_format("only every {}th replay leaves marks", every_)
                                     : "only a replay behind one that took too long leaves marks";
  }
  {
    const std::lock_guard lock(mutex_);
    launch.sequence = launched_++;
    clear_word(flags_, launch.begin_word());
    clear_word(flags_, launch.end_word());
    launch.time = Clock::now();
    if (marked != nullptr) {
      launch.marks = marked->marks();
      for (Launch& other : launches_)  // its marks will be overwritten
        if (other.marks == launch.marks) other.are_times_read = true;
    }
    launches_.push_back(std::move(launch));
  }
  is_open_ = true;
  if (marked == nullptr) return;
  marked->exchange(node.recording);
  exchanged_ = &node.recording;
  exchanged_for_ = marked;
} catch (const std::exception& error) {
  give_up(error.what());
}

void ContextProgress::restore() noexcept {
  if (exchanged_ == nullptr) return;
  exchanged_for_->exchange(*exchanged_);
  exchanged_ = nullptr;
  exchanged_for_ = nullptr;
}

void ContextProgress::write_flag(std::size_t word) {
  const StreamRef stream = memory_.stream();
  const DeviceScope current = stream.make_device_current();
  auto* const flag = reinterpret_cast<std::uint64_t*>(flags_.address()) + word;
  check(stream.graphs().memset(stream.handle(), flag, 1, sizeof(*flag)),
        "mark where a replay is on its stream");
}

// The thread inside the context changes flags_ and the last of launches_, and so may read them.
void ContextProgress::begin_launch() noexcept try {
  if (!is_open_) return;
  if (exchanged_for_ != nullptr) exchanged_for_->begin_launch(memory_.stream());
  write_flag(launches_.back().begin_word());
} catch (const DeviceError& error) {
  // The marks of a failed device are still read: the call is about to meet the error.
  if (!is_sticky(static_cast<Code>(error.code()))) give_up(error.what());
} catch (const std::exception& error) {
  give_up(error.what());
}

void ContextProgress::close() noexcept try {
  if (!std::exchange(is_open_, false)) return;
  write_flag(launches_.back().end_word());
  const std::lock_guard lock(mutex_);
  launches_.back().is_closed = true;
} catch (const std::exception& error) {
  give_up(error.what());
}

void ContextProgress::end() noexcept {
  restore();
  try {
    read_times();
  } catch (const std::bad_alloc&) {  // they are lost
  }
  Launches launches;
  Tensor flags;
  {
    const std::lock_guard lock(mutex_);
    launches.swap(launches_);
    flags = std::exchange(flags_, Tensor());
  }
  if (flags.defined()) release_page(std::move(flags), memory_.stream());
  for (const auto& one : std::exchange(made_, {}))
    if (const auto marked = one.lock()) marked->drop_graphs();
}

ContextProgressReport ContextProgress::report() const {
  ContextProgressReport report = about_;
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  report.unwatched = unwatched_;
  for (const Launch& launch : launches_) {
    ReplayProgress& replay = report.replays.emplace_back();
    replay.function = launch.function;
    replay.node = launch.node;
    replay.number = launch.number;
    replay.age = std::chrono::duration_cast<std::chrono::milliseconds>(now - launch.time);
    replay.has_ended = has_ended(launch);
    replay.has_begun = replay.has_ended || read_word(flags_, launch.begin_word()) != 0;
    replay.why_unmarked = launch.why_unmarked;
    if (launch.marks == nullptr) continue;
    const std::vector<PlannedMark>& marks = launch.marks->planned();
    for (std::size_t i = 0; i < marks.size(); ++i) {
      // The marks belong to the launch that began last.
      const bool is_reached = replay.has_ended || (replay.has_begun && launch.marks->is_reached(i));
      replay.marks.push_back(
          {marks[i].scope, marks[i].kernels, marks[i].is_collective, is_reached});
    }
  }
  return report;
}

bool ContextProgress::exceeds(std::chrono::milliseconds limit) noexcept {
  const std::lock_guard lock(mutex_);
  for (Launch& launch : launches_) {
    if (has_ended(launch)) continue;
    if (!launch.first_since) launch.first_since = Clock::now();
    if (launch.was_told || Clock::now() - *launch.first_since <= limit) return false;
    launch.was_told = true;
    marks_next_ = true;
    return true;
  }
  return false;
}

}  // namespace cgtree

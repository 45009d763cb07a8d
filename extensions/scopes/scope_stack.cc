// Keeps the path of the open scopes of a thread.
#include "extensions/scopes/scope_stack.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/log_event.h"
#include "extensions/scopes/scope_log.h"
#include "extensions/scopes/utf8.h"

namespace cgtree {
namespace {

constexpr std::uint64_t kUnnamed = 0;  // not the id of a named scope

// Returns the first of a block of free ids, reserved for one thread.
std::uint64_t first_id() noexcept {
  constexpr int kBitsOfThread = 40;
  static std::atomic<std::uint64_t> threads = 0;
  return (threads.fetch_add(1, std::memory_order_relaxed) + 1) << kBitsOfThread;
}

void warn_of_depth() noexcept {
  static std::atomic<bool> has_warned = false;
  if (has_warned.exchange(true)) return;
  log_event(LogLevel::kWarn,
            "scopes_too_deep what=\"more than {} scopes are open on a thread; those beyond have no "
            "name\" advice=\"close each scope that was opened\"",
            ScopeStack::kMostOpen);
}

}  // namespace

std::uint64_t ScopeStack::open(std::string_view name) noexcept {
  tell();
  if (named_ == kMostOpen) {
    ++unnamed_;
    warn_of_depth();
    return kUnnamed;
  }
  if (last_id_ == 0) last_id_ = first_id();
  scopes_[named_++] = {++last_id_, end_};
  const std::size_t begin = end_;
  if (end_ > 0 && !name.empty()) append("/", 1);
  append(name, kMostOfName);
  if (end_ == begin + 1 && begin > 0) end_ = begin;  // not even one character fits
  return last_id_;
}

// Paths go into logs, metrics, JSON and terminals.
void ScopeStack::append(std::string_view text, std::size_t most) noexcept {
  std::size_t room = std::min(most, path_.size() - 1 - end_);
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::size_t taken = std::max<std::size_t>(bytes, 1);
    if (taken > room) return;
    const bool is_shown = bytes > 1 || (bytes == 1 && text[0] >= ' ' && text[0] != '\x7f');
    std::memcpy(path_.data() + end_, is_shown ? text.data() : "?", taken);
    end_ += taken;
    room -= taken;
    text.remove_prefix(taken);
  }
}

void ScopeStack::close(std::uint64_t id) noexcept {
  if (id == kUnnamed) {
    if (unnamed_ > 0) --unnamed_;
    return;
  }
  for (std::size_t i = named_; i-- > 0;) {
    if (scopes_[i].id != id) continue;
    tell();
    return erase(i);
  }
}

std::size_t ScopeStack::open_since(Mark mark) const noexcept {
  std::size_t first = named_;
  while (first > 0 && scopes_[first - 1].id > mark.id)
    --first;
  return named_ - first + unnamed_ - std::min(unnamed_, mark.unnamed);
}

void ScopeStack::close_since(Mark mark) noexcept {
  if (open_since(mark) == 0) return;
  tell();
  unnamed_ = std::min(unnamed_, mark.unnamed);
  while (named_ > 0 && scopes_[named_ - 1].id > mark.id)
    erase(named_ - 1);
}

// The rest of the path moves to the front. The first name of a path has no '/' before it, and a
// scope without a name has no place in it.
void ScopeStack::erase(std::size_t i) noexcept {
  const std::size_t begin = scopes_[i].begin;
  std::size_t next = i + 1 < named_ ? scopes_[i + 1].begin : end_;
  if (begin == 0 && next > begin && next < end_) ++next;
  const std::size_t shorter = next - begin;
  std::memmove(path_.data() + begin, path_.data() + next, end_ - next);
  end_ -= shorter;
  for (std::size_t j = i + 1; j < named_; ++j)
    scopes_[j - 1] = {scopes_[j].id, std::max(scopes_[j].begin, next) - shorter};
  --named_;
}

void ScopeStack::tell() noexcept {
  for (ScopeLog* log = logs_; log != nullptr; log = log->next())
    log->before_change(path());
}

void ScopeStack::add(ScopeLog& log) noexcept {
  log.set_next(logs_);
  logs_ = &log;
}

void ScopeStack::remove(const ScopeLog& log) noexcept {
  if (logs_ == &log) {
    logs_ = log.next();
    return;
  }
  for (ScopeLog* one = logs_; one != nullptr; one = one->next())
    if (one->next() == &log) return one->set_next(log.next());
}

}  // namespace cgtree

// Threads that meet at a rendezvous.
#include "extensions/ranks/group.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "extensions/ranks/rendezvous.h"

namespace cgtree {

namespace {

using Words = std::span<std::uint64_t>;

// The shared state of a group of threads. The rendezvous' lock guards `given`.
struct ThreadMeeting {
  ThreadMeeting(int size, std::chrono::milliseconds limit)
      : rendezvous(size, limit), given(static_cast<std::size_t>(size)) {}

  Rendezvous rendezvous;
  std::vector<Words> given;  // by rank; a waiting rank keeps its words in place
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(std::shared_ptr<ThreadMeeting> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(rank) {}
  ~ThreadGroup() override {
    meeting_->rendezvous.leave(rank_,
                               str_format("rank {} of {} has left the group", rank_, size()));
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return meeting_->rendezvous.size(); }

  void minimum(Words words) override {
    const bool met = meeting_->rendezvous.meet(
        rank_, [&](int first) { return enter(words, first); }, [&] { complete(); });
    if (!met) throw GroupError(meeting_->rendezvous.failure());
  }

 private:
  std::string enter(Words words, int first) {
    meeting_->given[static_cast<std::size_t>(rank_)] = words;
    const std::size_t count = meeting_->given[static_cast<std::size_t>(first)].size();
    if (words.size() == count) return "";
    return str_format(
        "rank {} of {} gives {} words where rank {} gives {}: the ranks do not do the same", rank_,
        size(), words.size(), first, count);
  }

  void complete() {
    const std::vector<Words>& given = meeting_->given;
    for (std::size_t i = 0; i < given[0].size(); ++i) {
      std::uint64_t least = given[0][i];
      for (const Words& words : given)
        least = std::min(least, words[i]);
      for (const Words& words : given)
        words[i] = least;
    }
  }

  const std::shared_ptr<ThreadMeeting> meeting_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_thread_groups(int size,
                                                       std::chrono::milliseconds time_limit) {
  const auto meeting = std::make_shared<ThreadMeeting>(size, time_limit);
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank)
    groups.push_back(std::make_unique<ThreadGroup>(meeting, rank));
  return groups;
}

}  // namespace cgtree

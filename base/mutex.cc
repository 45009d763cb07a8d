// Counts the locks that each thread holds, by rank.
#include "base/mutex.h"

#ifdef CGTREE_CHECK_LOCK_ORDER

#include <bit>
#include <cstdio>

#include "base/check.h"
#include "base/frame.h"

namespace cgtree::lock_order {
namespace {

enum class Held { kBrief, kLong, kSeveral };

struct Rank {
  const char* name;
  Held held;
};

constexpr Rank kRanks[] = {
#define CGTREE_LOCK_RANK(name, held) {#name, Held::held},
    CGTREE_LOCK_RANKS(CGTREE_LOCK_RANK)
#undef CGTREE_LOCK_RANK
};
constexpr std::size_t kCount = sizeof(kRanks) / sizeof(kRanks[0]);
static_assert(kCount <= 64);

constexpr std::uint64_t bit(LockRank rank) {
  return std::uint64_t{1} << static_cast<int>(rank);
}

// Returns a bit for each rank, or only for ranks that must not be held in a blocking call.
constexpr std::uint64_t brief_ranks() {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < kCount; ++i)
    if (kRanks[i].held != Held::kLong) bits |= std::uint64_t{1} << i;
  return bits;
}

// Without constructor and destructor, because threads lock while they end.
struct ThreadLocks {
  std::uint64_t held;  // a bit for each rank
  unsigned count[kCount];
};

const char* name_of_last(std::uint64_t ranks) {
  return kRanks[std::bit_width(ranks) - 1].name;
}

[[noreturn, gnu::cold]] void refuse(const char* what, const char* why, std::uint64_t held) {
  static char text[256];
  std::snprintf(text, sizeof(text), "%s %s %s is held by the same thread", what, why,
                name_of_last(held));
  check_failed(text, std::source_location::current());
}

}  // namespace

void expect_next(LockRank rank) noexcept {
  const Rank& wanted = kRanks[static_cast<int>(rank)];
  std::uint64_t before = bit(rank) - 1;
  if (wanted.held != Held::kBrief) before |= bit(rank);
  const std::uint64_t held = of_thread<ThreadLocks>().held & ~before;
  if (held != 0) refuse(wanted.name, "is taken while", held);
}

void note_taken(LockRank rank) noexcept {
  ThreadLocks& locks = of_thread<ThreadLocks>();
  ++locks.count[static_cast<int>(rank)];
  locks.held |= bit(rank);
}

void note_released(LockRank rank) noexcept {
  ThreadLocks& locks = of_thread<ThreadLocks>();
  unsigned& count = locks.count[static_cast<int>(rank)];
  CGTREE_CHECK(count > 0);
  if (--count == 0) locks.held &= ~bit(rank);
}

void expect_may_block(const char* call) noexcept {
  const std::uint64_t held = of_thread<ThreadLocks>().held & brief_ranks();
  if (held != 0) refuse(call, "may block, but", held);
}

void expect_may_wait(LockRank rank) noexcept {
  const std::uint64_t held = of_thread<ThreadLocks>().held & brief_ranks() & ~bit(rank);
  if (held != 0) refuse(kRanks[static_cast<int>(rank)].name, "is waited with, but", held);
}

}  // namespace cgtree::lock_order

#endif

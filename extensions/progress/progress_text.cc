// Describes where replays hang, and the ranks that wait for one another.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "extensions/progress/progress_watch.h"

namespace cgtree {
namespace {

// Returns the first replay that has not ended; or null.
const ReplayProgress* current_of(const ContextProgressReport& context) {
  const auto found = std::ranges::find(context.replays, false, &ReplayProgress::has_ended);
  return found == context.replays.end() ? nullptr : &*found;
}

// Returns the number of the first mark that is not reached. All marks before it are reached.
std::optional<std::size_t> first_missing(const ReplayProgress& replay) {
  const auto found = std::ranges::find(replay.marks, false, &ReplayMark::is_reached);
  if (found == replay.marks.end()) return std::nullopt;
  return static_cast<std::size_t>(found - replay.marks.begin());
}

std::string place_of(const ReplayMark& mark) {
  return mark.scope.empty() ? "outside of all scopes" : str_format("'{}'", mark.scope);
}

std::string kernels_of(const ReplayMark& mark) {
  if (mark.kernels.empty()) return "no kernel";
  return str_format("{} {}", mark.kernels.size() == 1 ? "kernel" : "kernels",
                    joined(mark.kernels, ", "));
}

std::string name_of(const ReplayProgress& replay) {
  return str_format("replay {} of '{}' (recording {})", replay.number, replay.function,
                    replay.node);
}

std::vector<const ReplayMark*> collectives_of(const ReplayProgress& replay) {
  std::vector<const ReplayMark*> found;
  for (const ReplayMark& mark : replay.marks)
    if (mark.is_collective) found.push_back(&mark);
  return found;
}

std::size_t reached_of(const std::vector<const ReplayMark*>& marks) {
  return static_cast<std::size_t>(std::ranges::count_if(marks, &ReplayMark::is_reached));
}

std::string marks_text(const ReplayProgress& replay) {
  std::string text;
  const std::size_t count = replay.marks.size();
  std::size_t last = 0;  // last reached mark, from 1
  for (std::size_t i = 0; i < count; ++i)
    if (replay.marks[i].is_reached) last = i + 1;
  text += last == 0 ? "    reached      no mark: the first work of it has not ended\n"
                    : str_format("    reached      mark {} of {}, behind {}\n", last, count,
                                 place_of(replay.marks[last - 1]));
  const std::optional<std::size_t> missing = first_missing(replay);
  if (!missing) return text + "    all marks are reached, and its end is not\n";
  const ReplayMark& mark = replay.marks[*missing];
  text += str_format("    not reached  mark {} of {}, behind {}: {}\n", *missing + 1, count,
                     place_of(mark), kernels_of(mark));
  if (!mark.is_collective) return text;
  const auto collectives = collectives_of(replay);
  const auto number = std::ranges::find(collectives, &mark) - collectives.begin();
  return text + str_format("    it is collective {} of {}, which waits for the other ranks\n",
                           number + 1, collectives.size());
}

std::string context_text(const ContextProgressReport& context) {
  std::string text = str_format("context '{}' on {}", context.context, context.device);
  if (context.ranks > 1) text += str_format(", rank {} of {}", context.rank, context.ranks);
  text += '\n';
  const ReplayProgress* const current = current_of(context);
  if (current == nullptr) {
    if (context.replays.empty()) return text + "  no replay was watched yet\n";
    return text + str_format("  all replays have ended, the last was {}\n",
                             name_of(context.replays.back()));
  }
  text += str_format("  {} has not ended, {:.1f} s after its launch\n", name_of(*current),
                     static_cast<double>(current->age.count()) / 1000);
  if (!current->has_begun) {
    text +=
        "    it has not begun: work in front of it on its stream, which is no replay, or an event "
        "that\n    the stream waits for, does not end\n";
  } else if (current->marks.empty()) {
    text += str_format("    it leaves no marks: {}\n", current->why_unmarked);
  } else {
    text += marks_text(*current);
  }
  const auto behind = &context.replays.back() - current;
  if (behind > 0) text += str_format("  {} behind it\n", behind);
  return text;
}

// Ranks make the same collectives in the same order: the first difference is the place to look at.
std::string difference_of(const std::vector<const ReplayMark*>& own,
                          const std::vector<const ReplayMark*>& others) {
  const auto [here, there] = std::ranges::mismatch(
      own, others, {}, [](const ReplayMark* mark) { return std::string_view(mark->scope); },
      [](const ReplayMark* mark) { return std::string_view(mark->scope); });
  if (here == own.end() && there == others.end()) return "";
  const auto number = here - own.begin() + 1;
  std::string text;
  if (own.size() != others.size()) {
    text += str_format("; its recording has {} collectives where this one has {}", others.size(),
                       own.size());
  }
  const auto place = [](const ReplayMark* mark) { return place_of(*mark); };
  if (here == own.end()) return text + str_format(", and {} behind them", place(*there));
  if (there == others.end()) {
    return text + str_format(", and none like collective {}, {}", number, place(*here));
  }
  return text + str_format("{} collective {} is {} where here it is {}",
                           text.empty() ? ";" : ", and", number, place(*there), place(*here));
}

// Returns the place of a rank, for a rank that waits for it in collective `number` of `waiting`.
std::string where_is(const ContextProgressReport& other, const ReplayProgress& waiting,
                     std::size_t number) {
  const ReplayProgress* const current = current_of(other);
  const ReplayProgress* replay = current;
  if (current == nullptr && !other.replays.empty()) replay = &other.replays.back();
  if (replay == nullptr) return "has replayed nothing that was watched";
  const auto own = collectives_of(waiting);
  const auto others = collectives_of(*replay);
  std::string text;
  if (current == nullptr) {
    text = str_format("has ended {}", name_of(*replay));
  } else if (!current->has_begun) {
    text = str_format("has not begun {}", name_of(*replay));
  } else if (const auto missing = first_missing(*replay); missing && !others.empty()) {
    const ReplayMark& mark = replay->marks[*missing];
    if (mark.is_collective) {
      text = str_format("is in collective {} of {}, {}", reached_of(others) + 1, others.size(),
                        place_of(mark));
    } else {
      text = str_format("is in front of its collective {} of {}, {}: {}", reached_of(others) + 1,
                        others.size(), place_of(mark), kernels_of(mark));
    }
  } else {
    text = str_format("is in {}", name_of(*replay));
  }
  if (replay->function != waiting.function || others.empty()) return text;
  if (replay->number == waiting.number && reached_of(others) == number && current != nullptr) {
    return text;
  }
  return text + difference_of(own, others);
}

std::string ranks_text(std::span<const ContextProgressReport> contexts) {
  std::string text;
  for (const ContextProgressReport& one : contexts) {
    const ReplayProgress* const current = current_of(one);
    if (one.ranks < 2 || current == nullptr || !current->has_begun) continue;
    const auto missing = first_missing(*current);
    if (!missing || !current->marks[*missing].is_collective) continue;
    const std::size_t number = reached_of(collectives_of(*current));
    for (const ContextProgressReport& other : contexts) {
      if (&other == &one || other.ranks != one.ranks || other.rank == one.rank) continue;
      text += str_format("rank {} waits in collective {}, {}: rank {} {}\n", one.rank, number + 1,
                         place_of(current->marks[*missing]), other.rank,
                         where_is(other, *current, number));
    }
  }
  return text;
}

}  // namespace

std::string to_string(std::span<const ContextProgressReport> contexts) {
  std::string text;
  for (const ContextProgressReport& context : contexts)
    text += context_text(context);
  return text + ranks_text(contexts);
}

}  // namespace cgtree

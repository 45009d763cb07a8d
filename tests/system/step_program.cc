// Draws, prints, reads and shrinks programs.
#include "tests/system/step_program.h"

#include <fmt/format.h>

#include <sstream>

#include "base/error.h"

namespace cgtree::testing {

StepProgram draw_program(std::mt19937& random) {
  const auto pick = [&](int count) {
    return static_cast<std::uint8_t>(std::uniform_int_distribution<int>(0, count - 1)(random));
  };
  StepProgram program;
  program.rounds = 3 + pick(6);
  const int count = 3 + pick(12);
  for (int i = 0; i < count; ++i) {
    // Calls are drawn more often than other actions.
    const auto action = static_cast<Action>(pick(2) == 0 ? pick(13) : pick(kActions));
    const bool fails = pick(12) == 0;
    program.operations.push_back({action, pick(4), pick(8), pick(4),
                                  pick(5) == 0 ? pick(2) : pick(1),
                                  fails ? static_cast<std::uint8_t>(1 + pick(2)) : pick(1)});
  }
  return program;
}

std::string to_text(const StepProgram& program) {
  std::string text = fmt::format("{}:", program.rounds);
  for (const Operation& o : program.operations) {
    text += fmt::format(" {}.{}.{}.{}.{}.{}", static_cast<int>(o.action), o.x, o.y, o.to, o.context,
                        o.fault);
  }
  return text;
}

StepProgram parse_program(const std::string& text) {
  StepProgram program;
  std::istringstream in(text);
  char mark = 0;
  if (!(in >> program.rounds >> mark) || mark != ':') {
    throw InvalidArgument(fmt::format("'{}' does not begin with a number of rounds", text));
  }
  std::string word;
  while (in >> word) {
    int fields[6] = {};
    std::istringstream fields_in(word);
    for (int& field : fields) {
      if (!(fields_in >> field) || field < 0 || field > 255) {
        throw InvalidArgument(fmt::format("operation '{}' is not six numbers", word));
      }
      fields_in.get(mark);
    }
    if (fields[0] >= kActions)
      throw InvalidArgument(fmt::format("there is no action {}", fields[0]));
    const auto byte = [&](int i) { return static_cast<std::uint8_t>(fields[i]); };
    program.operations.push_back(
        {static_cast<Action>(byte(0)), byte(1), byte(2), byte(3), byte(4), byte(5)});
  }
  return program;
}

StepProgram shrink(StepProgram program, const std::function<bool(const StepProgram&)>& fails) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    const auto try_this = [&](StepProgram candidate) {
      if (!fails(candidate)) return false;
      program = std::move(candidate);
      return smaller = true;
    };
    for (std::size_t i = program.operations.size(); i-- > 0;) {
      StepProgram without = program;
      without.operations.erase(without.operations.begin() + static_cast<std::ptrdiff_t>(i));
      try_this(std::move(without));
    }
    StepProgram shorter = program;
    if (--shorter.rounds > 0) try_this(std::move(shorter));
  }
  return program;
}

}  // namespace cgtree::testing

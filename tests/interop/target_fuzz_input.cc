// Reads a target, writes it, and reads it again.
#include "tests/interop/target_fuzz_input.h"

#include <optional>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "targets/target.h"

namespace cgtree {

bool read_and_write_again(std::string_view text) {
  std::optional<Target> target;
  try {
    target.emplace(text);
  } catch (const InvalidArgument& error) {
    if (std::string(error.message()).empty()) throw std::logic_error("refused without a word");
    return false;
  }
  const std::string written = target->to_json();
  const Target again(written);  // an exception here is a finding
  if (again != *target || again.to_json() != written) throw std::logic_error(written);
  for (const auto& [name, value] : target->options()) {
    const OptionSpec* const spec = target->kind().options.find(name);
    if (spec == nullptr || spec->type != type_of(value)) throw std::logic_error(name);
  }
  return true;
}

}  // namespace cgtree

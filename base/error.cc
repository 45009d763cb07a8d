// Composes the text of an Error.
#include "base/error.h"
#include "base/format.h"

#include <utility>

namespace cgtree {
namespace {

// Paths are recorded as given to the compiler, which is relative to the repository's root.
std::string prefix_of(const std::source_location& where) {
  return str_format("{}:{}: ", where.file_name(), where.line());
}

}  // namespace

Error::Error(std::string_view message, std::source_location where)
    : std::runtime_error(prefix_of(where).append(message)), prefix_(prefix_of(where).size()) {
}

OutOfMemory::OutOfMemory(std::string_view message, MemoryReport report, std::source_location where)
    : Error(message, where), report_(std::make_shared<const MemoryReport>(std::move(report))) {
}

std::string to_string(const Divergence& d) {
  std::string text =
      str_format("a replay of '{}'{} (node {}) differs from an eager run in {}", d.function,
                 d.key.empty() ? "" : str_format(" [{}]", d.key), d.node, d.what);
  if (d.elements > 0) {
    text += str_format(" at [{}]: {} of {} elements, by at most {:g} where {:g} is allowed",
                       joined(d.position, ", "), d.differing, d.elements, d.largest, d.tolerance);
  }
  text += str_format("; replayed {}, eager {}", d.replayed, d.eager);
  if (!d.suspects.empty()) {
    text += str_format(". Suspects: {}", joined(d.suspects, "; "));
  } else if (d.elements > 0) {
    text +=
        ": a recording keeps the value, or the address, that the step function found in what "
        "is no input: pass it as one";
  }
  return text + ". How to find the node: docs/inspect.md";
}

VerifyError::VerifyError(Divergence divergence, std::source_location where)
    : Error(to_string(divergence), where),
      divergence_(std::make_shared<const Divergence>(std::move(divergence))) {
}

std::string_view Error::message() const noexcept {
  return std::string_view(what()).substr(prefix_);
}

}  // namespace cgtree

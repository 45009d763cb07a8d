// Composes the text of an Error.
#include "base/error.h"

#include <fmt/format.h>

#include <utility>

namespace cgtree {
namespace {

// Paths are recorded as given to the compiler, which is relative to the repository's root.
std::string prefix_of(const std::source_location& where) {
  return fmt::format("{}:{}: ", where.file_name(), where.line());
}

}  // namespace

Error::Error(std::string_view message, std::source_location where)
    : std::runtime_error(prefix_of(where).append(message)), prefix_(prefix_of(where).size()) {
}

OutOfMemory::OutOfMemory(std::string_view message, MemoryReport report, std::source_location where)
    : Error(message, where), report_(std::make_shared<const MemoryReport>(std::move(report))) {
}

std::string_view Error::message() const noexcept {
  return std::string_view(what()).substr(prefix_);
}

}  // namespace cgtree

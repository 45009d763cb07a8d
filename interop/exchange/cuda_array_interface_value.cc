// Prints values for messages.
#include "interop/exchange/cuda_array_interface_value.h"

#include <fmt/format.h>

namespace cgtree {
namespace {

constexpr std::size_t kMaxText = 60;   // characters
constexpr std::size_t kMaxItems = 10;  // of a list
constexpr int kMaxDepth = 4;           // of lists in lists

std::string text_of(const InterfaceValue& value, int depth);

struct Printer {
  int depth;

  std::string operator()(InterfaceValue::None) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(std::uint64_t value) const { return std::to_string(value); }
  std::string operator()(const std::string& value) const {
    const bool is_cut = value.size() > kMaxText;
    return fmt::format("'{}{}'", value.substr(0, kMaxText), is_cut ? "..." : "");
  }
  std::string operator()(const InterfaceValue::Other& value) const {
    return value.text.substr(0, kMaxText);
  }
  std::string operator()(const InterfaceList& list) const {
    if (depth == kMaxDepth) return "(...)";
    std::string text = "(";
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) text += ", ";
      if (i == kMaxItems) return text + fmt::format("... {} in all)", list.size());
      text += text_of(list[i], depth + 1);
    }
    return text + (list.size() == 1 ? ",)" : ")");
  }
};

std::string text_of(const InterfaceValue& value, int depth) {
  return std::visit(Printer{depth}, value.value);
}

}  // namespace

std::string to_string(const InterfaceValue& value) {
  return text_of(value, 0);
}

}  // namespace cgtree

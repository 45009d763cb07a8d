// Compares collectives, and names them in messages.
#include "extensions/ranks/collective_call.h"
#include "base/format.h"

namespace cgtree {
namespace {

constexpr std::string_view kKinds[] = {"all_reduce", "all_gather", "broadcast", "send", "receive"};
constexpr std::string_view kReductions[] = {"sum", "product", "minimum", "maximum"};

}  // namespace

bool match(const CollectiveCall& a, const CollectiveCall& b) noexcept {
  return a.kind == b.kind && a.dtype == b.dtype && a.reduction == b.reduction && a.peer == b.peer &&
         a.elements == b.elements;
}

std::string_view name(CollectiveKind kind) noexcept {
  return kKinds[static_cast<int>(kind)];
}

std::string describe(const CollectiveCall& call) {
  std::string text(name(call.kind));
  if (call.kind == CollectiveKind::kAllReduce) {
    text += str_format("({})", kReductions[static_cast<int>(call.reduction)]);
  } else if (call.kind == CollectiveKind::kSend) {
    text += str_format(" to rank {}", call.peer);
  } else if (call.kind != CollectiveKind::kAllGather) {
    text += str_format(" from rank {}", call.peer);
  }
  return str_format("{} of {} {}", text, call.elements, name(call.dtype));
}

}  // namespace cgtree

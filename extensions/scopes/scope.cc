// Opens and closes the scopes of the calling thread.
#include "extensions/scopes/scope.h"

#include "extensions/scopes/scope_stack.h"

namespace cgtree {

static_assert(Scope::kMostOpen == ScopeStack::kMostOpen);

Scope::Scope(std::string_view name) noexcept : id_(open_scope(name)) {
}

Scope::~Scope() {
  close_scope(id_);
}

std::uint64_t open_scope(std::string_view name) noexcept {
  return of_thread<ScopeStack>().open(name);
}

void close_scope(std::uint64_t scope) noexcept {
  of_thread<ScopeStack>().close(scope);
}

}  // namespace cgtree

// Symbol: the address of a function or variable of a library that is loaded at run time.
#pragma once

namespace cgtree {

// A Symbol converts to a pointer of any type.
struct Symbol {
  void* address;

  template <typename Pointed>
  operator Pointed*() const noexcept {
    return reinterpret_cast<Pointed*>(address);
  }
};

}  // namespace cgtree

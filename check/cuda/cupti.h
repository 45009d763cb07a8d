// Cupti: CUPTI's functions, from the library that the process has or finds.
#pragma once

#include <cupti_callbacks.h>
#include <cupti_version.h>

#include <cstdint>
#include <span>
#include <string>

namespace cgtree::graph_check {

class Cupti {
 public:
  // Loads the library and subscribes. On failure why_not() says why.
  Cupti(CUpti_CallbackFunc callback, void* user);

  // Returns "" if there are callbacks.
  const std::string& why_not() const noexcept { return why_not_; }
  std::uint32_t version() const noexcept { return version_; }
  // Has callbacks of these functions made, or not. Functions that CUPTI does not know are left out.
  void enable(bool is_wanted, CUpti_CallbackDomain domain,
              std::span<const CUpti_CallbackId> calls) noexcept;

 private:
  std::string why_not_;
  std::uint32_t version_ = 0;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  decltype(&cuptiEnableCallback) enable_ = nullptr;
};

}  // namespace cgtree::graph_check

// Green contexts of CUDA, and a kernel that notes where it runs.
#pragma once

#include <cstdint>
#include <memory>

namespace cgtree::testing {

inline constexpr int kSmWords = 32;  // of 32 bits, one bit for each SM

// A GreenContext owns a part of the SMs of device 0, and a stream of it.
class GreenContext {
 public:
  // Returns null if the driver has no green contexts.
  static std::unique_ptr<GreenContext> make(unsigned sms);
  ~GreenContext();
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;

  void* stream() const noexcept { return stream_; }
  unsigned sms() const noexcept { return sms_; }

 private:
  GreenContext() = default;

  void* context_ = nullptr;
  void* stream_ = nullptr;
  unsigned sms_ = 0;
};

// Clears kSmWords words, and enqueues a kernel that sets the bit of each SM on which its blocks
// run.
void note_sms(std::uint32_t* words, void* stream);

}  // namespace cgtree::testing

#include "cgtree/check/mark_words.h"

#include <array>
#include <atomic>
#include <exception>
#include <utility>

#include "base/log_event.h"
#include "interop/device/kernel.h"
#ifdef CGTREE_WITH_CUDA
#include "cgtree/check/cuda/mark_kernel.h"
#endif

namespace cgtree {
namespace {

std::uint32_t* word_of(const Tensor& page, std::size_t word) noexcept {
  return reinterpret_cast<std::uint32_t*>(page.address()) + word;
}

void write_on_host(const LaunchDims&, std::uint32_t* words, std::uint64_t count,
                   std::uint64_t value) {
  for (std::uint64_t i = 0; i < count; ++i)
    std::atomic_ref(words[i]).store(static_cast<std::uint32_t>(value), std::memory_order_release);
}

// The write of some words, as a kernel takes it.
class Write {
 public:
  Write(const MarkWords& words, std::uint32_t value) noexcept
      : words_(word_of(words.page, words.first)), count_(words.count), value_(value) {}
  Write(const Write&) = delete;
  Write& operator=(const Write&) = delete;

  static KernelFunction kernel() noexcept {
    const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
    cuda = cuda::write_words_function();
#endif
    return make_kernel<&write_on_host>("write_marks", cuda).function;
  }
  LaunchDims dims() const noexcept {
    return {.grid = {1}, .block = {count_ == 1 ? 1u : 128u}};
  }
  KernelArguments arguments() const noexcept {
    return list_;
  }

 private:
  std::uint32_t* const words_;
  const std::uint64_t count_;
  const std::uint64_t value_;
  const std::array<KernelArgument, 3> list_ = {
      {{&words_, sizeof(words_)}, {&count_, sizeof(count_)}, {&value_, sizeof(value_)}}};
};

}  // namespace

std::uint32_t read_word(const Tensor& page, std::size_t word) noexcept {
  return std::atomic_ref(*word_of(page, word)).load(std::memory_order_acquire);
}

void clear_word(const Tensor& page, std::size_t word) noexcept {
  std::atomic_ref(*word_of(page, word)).store(0, std::memory_order_release);
}

void write_words(StreamRef stream, const MarkWords& words, std::uint32_t value) {
  const Write write(words, value);
  enqueue_kernel(stream, Write::kernel(), write.dims(), write.arguments());
}

NodeHandle insert_write(ProgressAPI& progress, GraphHandle graph, std::span<const NodeHandle> after,
                        std::span<const NodeHandle> before, const MarkWords& words,
                        std::uint32_t value) {
  const Write write(words, value);
  NodeHandle made = NodeHandle::kNull;
  check(progress.insert_kernel(graph, after, before, Write::kernel(), write.dims(),
                               write.arguments(), &made),
        "add a mark to a recording");
  return made;
}

void release_page(Tensor page, StreamRef stream) noexcept {
  if (!page.defined()) return;
  try {
    page.storage()->owner().used(*page.storage(), stream);
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "marks_use_not_noted error=\"{}\"", error.what());
  }
}

}  // namespace cgtree

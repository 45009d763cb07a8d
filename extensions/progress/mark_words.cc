// Reads and clears words, and inserts the kernel that writes the clock to a word.
#include "extensions/progress/mark_words.h"

#include <array>
#include <atomic>
#include <chrono>
#include <exception>

#include "base/log_event.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"
#ifdef CGTREE_WITH_CUDA
#include "extensions/progress/cuda/mark_kernel.h"
#endif

namespace cgtree {
namespace {

std::uint64_t* words_of(const Tensor& page) noexcept {
  return reinterpret_cast<std::uint64_t*>(page.address());
}

void write_clock_on_host(const LaunchDims&, std::uint64_t* words, std::uint64_t cleared,
                         std::uint64_t word) {
  for (std::uint64_t i = 0; i < cleared; ++i)
    std::atomic_ref(words[i]).store(0, std::memory_order_release);
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  std::atomic_ref(words[word])
      .store(static_cast<std::uint64_t>(now.count()), std::memory_order_release);
}

}  // namespace

std::uint64_t read_word(const Tensor& page, std::size_t word) noexcept {
  return std::atomic_ref(words_of(page)[word]).load(std::memory_order_acquire);
}

void clear_word(const Tensor& page, std::size_t word) noexcept {
  std::atomic_ref(words_of(page)[word]).store(0, std::memory_order_release);
}

void clear_words(const Tensor& page, StreamRef stream) {
  const DeviceScope current = stream.make_device_current();
  check(stream.graphs().memset(stream.handle(), words_of(page), 0, page.bytes()),
        "clear the marks of a recording");
}

void load_clock(StreamRef stream) {
#ifdef CGTREE_WITH_CUDA
  if (stream.device().type != DeviceType::kCuda) return;
  const DeviceScope current = stream.make_device_current();
  cuda::load_write_clock();
#else
  (void)stream;
#endif
}

NodeHandle insert_clock(GraphAPI& graphs, GraphHandle graph, std::span<const NodeHandle> after,
                        std::span<const NodeHandle> before, const Tensor& page, std::size_t word,
                        std::size_t cleared) {
  const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
  cuda = cuda::write_clock_function();
#endif
  std::uint64_t* const words = words_of(page);
  const std::array<KernelArgument, 3> arguments = {
      {{&words, sizeof(words)}, {&cleared, sizeof(cleared)}, {&word, sizeof(word)}}};
  NodeHandle made = NodeHandle::kNull;
  check(graphs.insert_kernel(graph, after, before,
                             make_kernel<&write_clock_on_host>("write_clock", cuda).function,
                             {.grid = {1}, .block = {cleared == 0 ? 1u : 128u}}, arguments, &made),
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

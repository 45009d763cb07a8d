// The Python type cgtree._cgtree.Settings.
#include "python/extension/settings.h"

#include <algorithm>
#include <array>
#include <utility>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include "base/error.h"
#include "python/extension/module.h"
#include "python/extension/object.h"

namespace cgtree::python {
namespace {

constexpr std::size_t kMaxBytes = 64;
constexpr std::size_t kInRegisters = 16;

// Calls visit(word) for each word of the value until that returns false.
template <typename Visit>
bool visit_value(const Getter& getter, const Visit& visit) {
  if (getter.bytes <= kInRegisters) {
    const auto call =
        reinterpret_cast<std::uint64_t (*)(std::uintptr_t, int, int)>(getter.function);
    const std::uint64_t value = call(getter.object, getter.first, getter.second);
    return visit(getter.bytes == 8 ? value : value & ((1ULL << (8 * getter.bytes)) - 1));
  }
  std::array<std::uint64_t, kMaxBytes / sizeof(std::uint64_t)> words{};
  reinterpret_cast<void* (*)(void*, std::uintptr_t, int, int)>(getter.function)(
      words.data(), getter.object, getter.first, getter.second);
  for (std::size_t i = 0; i * sizeof(std::uint64_t) < getter.bytes; ++i) {
    if (!visit(words[i])) return false;
  }
  return true;
}

// Returns the bits by which the thread flushes denormals to zero, and reads them as zero.
std::uint64_t denormals() noexcept {
#ifdef __x86_64__
  constexpr unsigned kFlush = 0x8000;
  constexpr unsigned kAreZeros = 0x0040;
  return _mm_getcsr() & (kFlush | kAreZeros);
#else
  return 0;
#endif
}

// Makes Settings of tuples (function, object, first, second, bytes).
Settings make(const std::vector<std::tuple<Word, Word, int, int, std::size_t>>& given) {
  std::vector<Getter> getters;
  for (const auto& [function, object, first, second, bytes] : given)
    getters.push_back({function, object, first, second, bytes});
  return Settings(std::move(getters));
}

}  // namespace

Settings::Settings(std::vector<Getter> getters) : getters_(std::move(getters)) {
  for (const Getter& getter : getters_) {
    const bool is_word = getter.bytes == 1 || getter.bytes == 4 || getter.bytes == 8;
    if (getter.function == 0 || !(is_word || getter.bytes > kInRegisters) ||
        getter.bytes > kMaxBytes) {
      throw InvalidArgument("Settings(): no such function, or results of no such size");
    }
  }
}

template <typename Visit>
bool Settings::visit(const Visit& visit) const {
  return visit(denormals()) && std::ranges::all_of(getters_, [&](const Getter& getter) {
           return visit_value(getter, visit);
         });
}

std::vector<std::uint64_t> Settings::read() const {
  std::vector<std::uint64_t> values;
  visit([&](std::uint64_t word) {
    values.push_back(word);
    return true;
  });
  return values;
}

bool Settings::are(std::span<const std::uint64_t> values) const noexcept {
  const std::uint64_t* expected = values.data();
  return visit([&](std::uint64_t word) { return word == *expected++; });
}

void add_settings_type(PyObject* module) {
  add_type<Settings>(module, {.name = "cgtree._cgtree.Settings",
                              .methods = {bind<[](const Settings& settings) {
                                return items_of(to_python(settings.read()).get());
                              }>("read")},
                              .maker = constructor<&make>()});
}

}  // namespace cgtree::python

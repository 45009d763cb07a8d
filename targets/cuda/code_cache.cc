// Reads and writes the cache. Each entry is a file: lists of strings, each preceded by its length,
// and a checksum.
#include "targets/cuda/code_cache.h"
#include "base/format.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

namespace cgtree::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "cgtree code 1\n";

// FNV-1a. The hash names files and detects damage; the key itself is compared.
std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::uint32_t check_of(std::string_view text) noexcept {
  return static_cast<std::uint32_t>(hash_of(text));
}

std::string pack(const std::vector<std::string>& texts) {
  std::string packed = str_format("{}\n", texts.size());
  for (const std::string& text : texts)
    packed += str_format("{}\n", text.size()) + text;
  return packed;
}

// Removes a number and the end of its line from the front; returns nothing if there is none.
std::optional<std::size_t> take_number(std::string_view* rest) {
  std::size_t number = 0;
  std::size_t at = 0;
  for (; at < rest->size() && at < 12 && (*rest)[at] >= '0' && (*rest)[at] <= '9'; ++at)
    number = 10 * number + static_cast<std::size_t>((*rest)[at] - '0');
  if (at == 0 || at == rest->size() || (*rest)[at] != '\n') return std::nullopt;
  rest->remove_prefix(at + 1);
  return number;
}

std::optional<std::vector<std::string>> unpack(std::string_view rest) {
  const auto count = take_number(&rest);
  if (!count) return std::nullopt;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < *count; ++i) {
    const auto bytes = take_number(&rest);
    if (!bytes || *bytes > rest.size()) return std::nullopt;
    texts.emplace_back(rest.substr(0, *bytes));
    rest.remove_prefix(*bytes);
  }
  return rest.empty() ? std::optional(std::move(texts)) : std::nullopt;
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string path_of(const std::string& folder, const std::string& packed_key) {
  return str_format("{}/{:016x}.code", folder, hash_of(packed_key));
}

}  // namespace

std::optional<CompiledCode> find_code(const std::string& folder,
                                      const std::vector<std::string>& key) {
  const std::string packed_key = pack(key);
  std::ifstream file(path_of(folder, packed_key), std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::string_view rest = all;
  if (!rest.starts_with(kFormat)) return std::nullopt;
  rest.remove_prefix(kFormat.size());
  const auto checksum = take_number(&rest);
  if (!checksum || *checksum != check_of(rest)) return std::nullopt;
  auto texts = unpack(rest);
  if (!texts || texts->size() < 3 || (*texts)[0] != packed_key) return std::nullopt;
  CompiledCode code{std::move((*texts)[1]), {}, std::move((*texts)[2]), /*is_cached=*/true};
  code.lowered_names.assign(std::make_move_iterator(texts->begin() + 3),
                            std::make_move_iterator(texts->end()));
  return code;
}

void keep_code(const std::string& folder, const std::vector<std::string>& key,
               const CompiledCode& code) {
  static std::atomic<unsigned> files{0};
  const std::string packed_key = pack(key);
  std::vector<std::string> texts = {packed_key, code.image, code.log};
  texts.insert(texts.end(), code.lowered_names.begin(), code.lowered_names.end());
  const std::string packed = pack(texts);
  const std::string path = path_of(folder, packed_key);
  // The file is written under a unique name first: another process must not read half of it.
  const std::string draft = str_format("{}.{}.{}", path, getpid(), ++files);
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  std::ofstream file(draft, std::ios::binary);
  file << kFormat << check_of(packed) << '\n' << packed;
  file.close();
  if (file) fs::rename(draft, path, ignored);
  if (!file || ignored) fs::remove(draft, ignored);
}

std::string default_cache_folder() {
  if (std::getenv("CGTREE_CACHE_DIR") != nullptr) return environment("CGTREE_CACHE_DIR");
  if (const std::string folder = environment("XDG_CACHE_HOME"); !folder.empty()) {
    return folder + "/cgtree";
  }
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/cgtree";
}

}  // namespace cgtree::cuda

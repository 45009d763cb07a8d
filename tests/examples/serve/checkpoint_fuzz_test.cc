// Fuzzes the files of a model that serve reads: config.json, a safetensors file and the index of
// several. Accepted files are consistent, and refused ones raise InvalidArgument.
//
// The first byte of the input selects the file, and the others are its content. A safetensors file
// begins with the length of its header, which is taken from the input in half of the cases.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "examples/serve/config.h"
#include "examples/serve/safetensors.h"

namespace {

using namespace cgtree;
namespace fs = std::filesystem;

// A folder of this process, which the system removes with other temporary files.
const fs::path& folder() {
  static const fs::path made = [] {
    const fs::path path =
        fs::temp_directory_path() / ("cgtree_checkpoint_fuzz_" + std::to_string(::getpid()));
    fs::create_directories(path / "model");
    return path / "model";
  }();
  return made;
}

void write(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
}

void fuzz_config(std::string_view text) {
  const fs::path path = folder() / "config.json";
  write(path, text);
  try {
    const serve::ModelConfig config = serve::read_config(path);
    serve::check_config(config, 1);
    CGTREE_CHECK(config.layers > 0 && config.hidden > 0 && config.heads > 0);
    CGTREE_CHECK(config.kv_heads > 0 && config.ffn > 0 && config.vocabulary > 0);
    CGTREE_CHECK(config.parameters() > 0);
  } catch (const InvalidArgument& error) {
    CGTREE_CHECK(!error.message().empty());
  }
}

void read_all() {
  try {
    for (const auto& [name, tensor] : serve::read_checkpoint(folder())) {
      std::size_t bytes = size_of(tensor.dtype);
      for (const std::int64_t size : tensor.shape) {
        CGTREE_CHECK(size >= 0);
        CGTREE_CHECK(size == 0 || bytes <= SIZE_MAX / static_cast<std::size_t>(size));
        bytes *= static_cast<std::size_t>(size);
      }
      CGTREE_CHECK(tensor.file.parent_path() == folder());
      CGTREE_CHECK(serve::read(tensor).size() == bytes);
    }
  } catch (const InvalidArgument& error) {
    CGTREE_CHECK(!error.message().empty());
  }
}

void fuzz_safetensors(std::string_view text, bool has_length) {
  std::string file(text);
  if (!has_length) {
    // The header ends with its JSON, or with the input.
    const std::size_t end = text.rfind('}');
    const std::uint64_t length = end == std::string_view::npos ? text.size() : end + 1;
    std::string begin(sizeof(length), '\0');
    std::memcpy(begin.data(), &length, sizeof(length));
    file = begin + file;
  }
  fs::remove(folder() / "model.safetensors.index.json");
  write(folder() / "model.safetensors", file);
  read_all();
}

void fuzz_index(std::string_view text) {
  write(folder() / "model.safetensors.index.json", text);
  read_all();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      fuzz_config(text);
      break;
    case 1:
      fuzz_safetensors(text, /*has_length=*/false);
      break;
    case 2:
      fuzz_safetensors(text, /*has_length=*/true);
      break;
    default:
      fuzz_index(text);
  }
  return 0;
}

// Reads files and checks their headers.
#include "examples/serve/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace cgtree::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw InvalidArgument(fmt::format("'{}': {}", path.string(), what));
}

std::vector<std::byte> read_bytes(const fs::path& path, std::size_t begin, std::size_t end) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(end - begin);
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
  if (!file) fail(path, fmt::format("bytes {} to {} cannot be read", begin, end));
  return bytes;
}

// `data` is the offset of the data in the file.
StoredTensor parse_tensor(const std::string& name, const Json& entry, const fs::path& path,
                          std::size_t data, std::size_t file_size) {
  static const std::map<std::string, DType> types = {
      {"F32", DType::kFloat32}, {"BF16", DType::kBFloat16}, {"F16", DType::kFloat16}};
  const std::string type = entry.at("dtype");
  if (types.count(type) == 0)
    fail(path, fmt::format("{} is {}, expected F32, BF16 or F16", name, type));
  // Json converts a negative number to a large one.
  const std::size_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
  if (begin > end || end > file_size - data) {
    fail(path,
         fmt::format("{} is bytes {} to {} of the data, but the file has {} bytes of data: it is "
                     "truncated",
                     name, begin, end, file_size - data));
  }
  StoredTensor tensor{types.at(type), entry.at("shape"), path, data + begin, data + end};
  std::size_t expected = size_of(tensor.dtype);
  for (const std::int64_t size : tensor.shape) {
    if (size < 0 || (size > 0 && expected > std::numeric_limits<std::size_t>::max() /
                                                static_cast<std::size_t>(size))) {
      fail(path, fmt::format("{} has the shape {}, which no tensor has", name, tensor.shape));
    }
    expected *= static_cast<std::size_t>(size);
  }
  if (end - begin != expected) {
    fail(path, fmt::format("{} has {} bytes, but {} {} needs {}", name, end - begin, type,
                           tensor.shape, expected));
  }
  return tensor;
}

void add_file(const fs::path& path, std::map<std::string, StoredTensor>& tensors) {
  std::error_code error;
  const std::size_t size = fs::file_size(path, error);
  if (error) fail(path, error.message());
  if (size < 8) fail(path, fmt::format("has {} bytes, too few for the length of a header", size));
  std::uint64_t length = 0;
  std::memcpy(&length, read_bytes(path, 0, 8).data(), sizeof(length));
  if (length > size - 8) {
    fail(path, fmt::format("its header has {} bytes, but the file has {} after the length: it is "
                           "truncated",
                           length, size - 8));
  }
  const std::vector<std::byte> header = read_bytes(path, 8, 8 + length);
  try {
    const auto* const text = reinterpret_cast<const char*>(header.data());
    const Json json = Json::parse(text, text + length);
    for (const auto& [name, entry] : json.items()) {
      if (name != "__metadata__") tensors[name] = parse_tensor(name, entry, path, 8 + length, size);
    }
  } catch (const Json::exception& wrong) {
    fail(path, fmt::format("its header is not one of safetensors: {}", wrong.what()));
  }
}

}  // namespace

std::map<std::string, StoredTensor> read_checkpoint(const fs::path& folder) {
  std::map<std::string, StoredTensor> tensors;
  const fs::path index = folder / "model.safetensors.index.json";
  std::set<std::string> files = {"model.safetensors"};
  if (fs::exists(index)) {
    try {
      std::ifstream stream(index);
      files.clear();
      for (const auto& file : Json(Json::parse(stream).at("weight_map")))
        files.insert(file.get<std::string>());
    } catch (const Json::exception& error) {
      fail(index, error.what());
    }
  }
  for (const std::string& file : files) {
    if (file != fs::path(file).filename()) {
      fail(index, fmt::format("names '{}', which is not a file of its folder", file));
    }
    add_file(folder / file, tensors);
  }
  return tensors;
}

std::vector<std::byte> read(const StoredTensor& tensor) {
  return read_bytes(tensor.file, tensor.begin, tensor.end);
}

}  // namespace cgtree::serve

// Maps files and checks their headers.
#include "examples/serve/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace cgtree::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::pair<const char*, DType> kTypes[] = {
    {"F32", DType::kFloat32}, {"BF16", DType::kBFloat16}, {"F16", DType::kFloat16}};

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw InvalidArgument(fmt::format("'{}': {}", path.string(), what));
}

std::span<const std::byte> map_file(const fs::path& path, std::shared_ptr<const void>& mapping) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, std::strerror(errno));
  struct stat status = {};
  fstat(file, &status);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const data = size < 8 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (data == MAP_FAILED) {
    fail(path, fmt::format("has {} bytes, too few for the length of a header, or cannot be mapped",
                           size));
  }
  mapping = std::shared_ptr<const void>(
      data, [size](const void* p) { munmap(const_cast<void*>(p), size); });
  return {static_cast<const std::byte*>(data), size};
}

StoredTensor parse_tensor(const Json& entry, std::span<const std::byte> data,
                          const std::string& name, const fs::path& path) {
  const std::string type = entry.at("dtype");
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const auto& t) { return t.first == type; });
  if (found == std::end(kTypes)) {
    fail(path, fmt::format("{} is {}, expected F32, BF16 or F16", name, type));
  }
  StoredTensor tensor{found->second, entry.at("shape"), {}, path.string()};
  const std::size_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
  if (begin > end || end > data.size()) {
    fail(path,
         fmt::format("{} is bytes {} to {} of the data, but the file has {} bytes of data: it is "
                     "truncated",
                     name, begin, end, data.size()));
  }
  std::size_t expected = size_of(tensor.dtype);
  for (const std::int64_t size : tensor.shape)
    expected *= static_cast<std::size_t>(size);
  if (end - begin != expected) {
    fail(path, fmt::format("{} has {} bytes, but {} {} needs {}", name, end - begin, type,
                           tensor.shape, expected));
  }
  tensor.bytes = data.subspan(begin, expected);
  return tensor;
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& folder) : folder_(folder) {
  const fs::path index = folder / "model.safetensors.index.json";
  if (!fs::exists(index)) {
    add_file(folder / "model.safetensors");
    return;
  }
  try {
    std::ifstream stream(index);
    std::set<std::string> files;
    const Json json = Json::parse(stream);
    for (const auto& entry : json.at("weight_map"))
      files.insert(entry.get<std::string>());
    for (const std::string& file : files)
      add_file(folder / file);
  } catch (const Json::exception& error) {
    fail(index, error.what());
  }
}

void Checkpoint::add_file(const fs::path& path) {
  const std::span<const std::byte> bytes = map_file(path, mappings_.emplace_back());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > bytes.size() - 8) {
    fail(path, fmt::format("its header has {} bytes, but the file has {} after the length: it is "
                           "truncated",
                           length, bytes.size() - 8));
  }
  const auto header = bytes.subspan(8, length);
  const auto* const text = reinterpret_cast<const char*>(header.data());
  try {
    const Json json = Json::parse(text, text + length);
    for (const auto& [name, entry] : json.items()) {
      if (name == "__metadata__") continue;
      tensors_[name] = parse_tensor(entry, bytes.subspan(8 + length), name, path);
    }
  } catch (const Json::exception& error) {
    fail(path, fmt::format("its header is not one of safetensors: {}", error.what()));
  }
}

const StoredTensor& Checkpoint::find(const std::string& name,
                                     std::span<const std::int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    fail(folder_, fmt::format("has no tensor {}; expected one of {}", name, shape));
  }
  if (!std::ranges::equal(found->second.shape, shape)) {
    fail(found->second.file,
         fmt::format("{} has shape {}, but config.json says {}", name, found->second.shape, shape));
  }
  return found->second;
}

void write_safetensors(const fs::path& path, DType dtype, std::span<const NamedShape> tensors,
                       const std::function<std::vector<std::byte>(std::size_t)>& read) {
  Json header = Json::object();
  std::size_t offset = 0;
  for (const NamedShape& tensor : tensors) {
    std::size_t bytes = size_of(dtype);
    for (const std::int64_t size : tensor.shape)
      bytes *= static_cast<std::size_t>(size);
    header[tensor.name] = {{"dtype", dtype == DType::kFloat32 ? "F32" : "BF16"},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<std::byte> bytes = read(i);
    file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
  if (!file.flush()) fail(path, "cannot be written");
}

}  // namespace cgtree::serve

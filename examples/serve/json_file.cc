// A temporary file beside the target, renamed over it once it is complete.
#include "examples/serve/json_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/error.h"

namespace cgtree::serve {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, std::string_view reason) {
  throw InvalidArgument(fmt::format("cannot write '{}': {}", path.string(), reason));
}

// Removed at the end of the scope, unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target)
      : target_(target), path_(fmt::format("{}.{}.tmp", target.string(), getpid())) {
    errno = 0;
    file_.open(path_, std::ios::binary | std::ios::trunc);
    if (!file_) fail(target_, std::strerror(errno));
  }
  ~TemporaryFile() {
    std::error_code ignored;
    if (!renamed_) fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view text) {
    errno = 0;
    file_.write(text.data(), static_cast<std::streamsize>(text.size()));
    file_.close();
    if (!file_) fail(target_, std::strerror(errno));
  }

  void rename() {
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) fail(target_, error.message());
    renamed_ = true;
  }

 private:
  fs::path target_;
  fs::path path_;
  std::ofstream file_;
  bool renamed_ = false;
};

// Where the bytes go: a link stays a link. Renaming over a device or a folder would replace it.
fs::path resolve(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::weakly_canonical(path, error);
  if (error) fail(path, error.message());
  if (path.empty() || !target.has_filename()) fail(path, "it names no file");
  const fs::file_status status = fs::status(target, error);
  if (fs::is_symlink(target, error)) fail(path, "it is a link to nothing");
  if (fs::is_directory(status)) fail(path, "it is a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) fail(path, "it is not a regular file");
  return target;
}

}  // namespace

void expect_writable(const fs::path& path) {
  const TemporaryFile probe(resolve(path));
}

void write_whole(const fs::path& path, std::string_view text) {
  TemporaryFile file(resolve(path));
  file.write(text);
  file.rename();
}

}  // namespace cgtree::serve

// Reads text through zlib, which passes plain files through as they are.
#include "allocator/reports/line_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace cgtree {

struct LineReader::File {
  gzFile handle = nullptr;
};

LineReader::LineReader(const std::string& path) : path_(path), file_(std::make_unique<File>()) {
  file_->handle = gzopen(path.c_str(), "rb");
  if (file_->handle == nullptr) {
    throw InvalidArgument(fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
  }
}

LineReader::~LineReader() {
  gzclose(file_->handle);
}

std::string LineReader::place() const {
  return fmt::format("{}, line {}", path_, number_);
}

// Reads more text behind what is left in the buffer; false at the end of the file.
bool LineReader::fill() {
  char chunk[1 << 16];
  const int got = gzread(file_->handle, chunk, sizeof(chunk));
  int code = Z_OK;
  const char* const message = gzerror(file_->handle, &code);
  // A truncated file is an error only once its end is reached, and then after the last bytes.
  if (got < 0 || (got == 0 && code != Z_OK && code != Z_STREAM_END)) {
    throw InvalidArgument(fmt::format(
        "{}, after line {}: {}; the file is truncated or damaged, fetch it again", path_, number_,
        code == Z_BUF_ERROR ? "the compressed data end too early" : message));
  }
  buffer_.erase(0, position_);
  position_ = 0;
  buffer_.append(chunk, static_cast<std::size_t>(got));
  return got > 0;
}

bool LineReader::next(std::string& line) {
  std::size_t end;
  while ((end = buffer_.find('\n', position_)) == std::string::npos) {
    if (fill()) continue;
    end = buffer_.size();  // the last line may have no end
    if (end == position_) return false;
    break;
  }
  line.assign(buffer_, position_, end - position_);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  position_ = end < buffer_.size() ? end + 1 : end;
  ++number_;
  return true;
}

}  // namespace cgtree

// Parses and checks rows.
#include "tests/support/rmm_log.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <iterator>
#include <string_view>
#include <unordered_map>

#include "base/error.h"

namespace cgtree {
namespace {

// A LineReader reads the lines of a text file, compressed with gzip or plain. zlib passes plain
// files through as they are.
class LineReader {
 public:
  // Throws InvalidArgument if the file cannot be opened.
  explicit LineReader(const std::string& path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Reads the next line, without its end; returns false at the end of the file. Throws
  // InvalidArgument if the compressed data end too early or are corrupt.
  bool next(std::string& line);

  std::size_t number() const { return number_; }  // of the line read last, from 1

  // Returns the position as "FILE, line N", for messages.
  std::string place() const;

 private:
  bool fill();

  const std::string path_;
  const gzFile file_;
  std::string buffer_;
  std::size_t position_ = 0;  // in buffer_
  std::size_t number_ = 0;
};

LineReader::LineReader(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
  if (file_ == nullptr) {
    throw InvalidArgument(fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
  }
}

LineReader::~LineReader() {
  gzclose(file_);
}

std::string LineReader::place() const {
  return fmt::format("{}, line {}", path_, number_);
}

// Appends more text to the rest in the buffer; returns false at the end of the file.
bool LineReader::fill() {
  char chunk[1 << 16];
  const int got = gzread(file_, chunk, sizeof(chunk));
  int code = Z_OK;
  const char* const message = gzerror(file_, &code);
  // A truncated file is an error only at its end, after the last bytes were read.
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

constexpr std::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream";
constexpr std::size_t kColumns = 6;
constexpr std::string_view kColumnNames[kColumns] = {"Thread",  "Time", "Action",
                                                     "Pointer", "Size", "Stream"};
enum Column { kThread, kTime, kAction, kPointer, kSize, kStream };
using Row = std::array<std::string_view, kColumns>;

// Parses "0x1f" in base 16, other text in the given base; returns false unless the whole text is
// the number.
bool parse(std::string_view text, int base, std::uint64_t& number) {
  if (base == 16 && text.substr(0, 2) == "0x") text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number, base);
  return error == std::errc() && end == text.end();
}

class Parser {
 public:
  explicit Parser(const std::string& path) : reader_(path) {}

  Trace run() {
    std::string line;
    if (!reader_.next(line) || line != kHeader) {
      throw InvalidArgument(fmt::format("{}: the header is '{}', not '{}'", reader_.place(),
                                        line.substr(0, 100), kHeader));
    }
    while (reader_.next(line))
      take(split(line));
    return std::move(trace_);
  }

 private:
  struct Live {
    std::uint32_t slot;
    std::size_t bytes;
    std::size_t line;  // of its allocation
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument(fmt::format("{}: {}", reader_.place(), why));
  }

  Row split(std::string_view line) const {
    const auto commas = static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
    if (commas + 1 != kColumns) {
      refuse(fmt::format("{} columns where there must be {}: '{}'", commas + 1, kColumns,
                         line.substr(0, 100)));
    }
    Row row;
    for (std::string_view& field : row) {
      field = line.substr(0, line.find(','));
      line.remove_prefix(std::min(field.size() + 1, line.size()));
    }
    return row;
  }

  std::uint64_t number(const Row& row, Column column, int base) const {
    std::uint64_t number = 0;
    if (!parse(row[column], base, number)) {
      refuse(fmt::format("{} '{}' is not a number", kColumnNames[column], row[column]));
    }
    return number;
  }

  void take(const Row& row) {
    const std::uint64_t pointer = number(row, kPointer, 16);
    const std::size_t bytes = number(row, kSize, 10);
    if (row[kAction] == "allocate") {
      allocate(pointer, bytes);
    } else if (row[kAction] == "free") {
      free(pointer, bytes);
    } else if (row[kAction] == "allocate failure") {
      ++trace_.failures;
    } else {
      refuse(fmt::format("Action '{}' is none of 'allocate', 'allocate failure' and 'free'",
                         row[kAction]));
    }
  }

  void allocate(std::uint64_t pointer, std::size_t bytes) {
    if (bytes == 0) refuse("an allocation of 0 bytes");
    if (bytes > SIZE_MAX - live_bytes_) {
      refuse(fmt::format("{} bytes beside {} that are live are more than a machine has", bytes,
                         live_bytes_));
    }
    const auto slot = static_cast<std::uint32_t>(trace_.slots);
    const auto [known, is_new] = live_.try_emplace(pointer, Live{slot, bytes, reader_.number()});
    if (!is_new) {
      refuse(fmt::format("{:#x} is allocated a second time; it is live since line {}", pointer,
                         known->second.line));
    }
    ++trace_.slots;
    trace_.steps.push_back({slot, bytes});
    live_bytes_ += bytes;
    trace_.peak_live_bytes = std::max(trace_.peak_live_bytes, live_bytes_);
  }

  void free(std::uint64_t pointer, std::size_t bytes) {
    const auto known = live_.find(pointer);
    if (known == live_.end()) refuse(fmt::format("{:#x} is freed but not live", pointer));
    if (known->second.bytes != bytes) {
      refuse(fmt::format("{:#x} is freed with {} bytes, allocated with {} in line {}", pointer,
                         bytes, known->second.bytes, known->second.line));
    }
    trace_.steps.push_back({known->second.slot, 0});
    live_bytes_ -= bytes;
    live_.erase(known);
  }

  LineReader reader_;
  Trace trace_;
  std::unordered_map<std::uint64_t, Live> live_;
  std::size_t live_bytes_ = 0;
};

}  // namespace

Trace read_rmm_log(const std::string& path) {
  return Parser(path).run();
}

}  // namespace cgtree

// Reads request traces: the arrival and the number of tokens of each request.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "examples/serve/scheduler.h"

namespace cgtree::serve {

// The largest count of tokens a trace may ask for, so that positions fit an int32.
inline constexpr std::int64_t kMaxTraceTokens = 10'000'000;

// Parses CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens, and returns the
// requests ordered by arrival. Fields may be quoted, lines may end in CRLF, and empty lines are
// skipped. A timestamp is a date, a blank or `T`, a time with up to nine decimals of a second, and
// `Z`, an offset or nothing, such as `2023-11-16 18:15:46.6805900`; years are 1970 to 2200. Throws
// InvalidArgument `name:line:column: ...`, both counted from 1, columns in bytes.
std::vector<Request> parse_trace(std::string_view text, std::string_view name);

// Reads a file and parses it. Throws InvalidArgument also if the file cannot be read.
std::vector<Request> read_trace(const std::filesystem::path& path);

}  // namespace cgtree::serve

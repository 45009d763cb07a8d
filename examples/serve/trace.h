// The request trace: who asked for how many tokens, and when.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace cgtree::serve {

struct Request {
  std::int64_t arrival_ns = 0;  // since the first request of the trace
  std::int64_t context_tokens = 0;
  std::int64_t generated_tokens = 1;

  bool operator==(const Request&) const = default;
};

// The largest count of tokens a trace may ask for, so that positions fit an int32.
inline constexpr std::int64_t kMaxTraceTokens = 10'000'000;

// Parses CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens; fields may be quoted,
// lines may end in CRLF, empty lines are skipped. Ordered by arrival in the result. Throws
// InvalidArgument `name:line:column: ...`, both counted from 1, columns in bytes.
std::vector<Request> parse_trace(std::string_view text, std::string_view name);

// As above, from a file; throws InvalidArgument if it cannot be read.
std::vector<Request> read_trace(const std::filesystem::path& path);

}  // namespace cgtree::serve

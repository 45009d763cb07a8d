// The command line of report: prints the report of a snapshot, or of an event file.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cgtree/watch/report.h"

namespace {

constexpr std::string_view kUsage =
    "usage: report FILE\n"
    "\n"
    "Prints why calls did not replay, what recordings cost, and what to change in the code. FILE\n"
    "has what Context::snapshot_json() returns, or is ContextOptions::event_file, which may have\n"
    "several contexts; - is the standard input.\n"
    "\n"
    "Exit status: 0 done, 2 bad usage, or a file that cannot be read or is neither of the two.\n";

// Returns the path relative to the folder of the user: `bazel run` starts programs elsewhere.
std::filesystem::path absolute(const char* path) {
  const char* const caller = std::getenv("BUILD_WORKING_DIRECTORY");
  return std::filesystem::path(caller == nullptr ? "" : caller) / path;
}

int fail(const char* file, std::string_view why) {
  std::fprintf(stderr, "report: %s: %.*s\n", file, static_cast<int>(why.size()), why.data());
  return 2;
}

int print_report_of(const char* name) {
  std::string text;
  if (std::string_view(name) == "-") {
    std::string block(1 << 16, '\0');
    while (const std::size_t read = std::fread(block.data(), 1, block.size(), stdin))
      text.append(block, 0, read);
    if (std::ferror(stdin) != 0) return fail(name, std::strerror(errno));
  } else {
    const std::filesystem::path path = absolute(name);
    std::ifstream file(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path)) return fail(name, "cannot be read");
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  try {
    const std::string report = cgtree::report_of(text);
    const bool is_written = std::fwrite(report.data(), 1, report.size(), stdout) == report.size() &&
                            std::fflush(stdout) == 0;
    return is_written ? 0 : fail("the report", std::strerror(errno));
  } catch (const cgtree::InvalidArgument& error) {
    return fail(name, error.message());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view first = argc == 2 ? argv[1] : "";
  const bool asks_for_help = first == "--help" || first == "-h";
  if (argc == 2 && !asks_for_help) return print_report_of(argv[1]);
  std::fwrite(kUsage.data(), 1, kUsage.size(), asks_for_help ? stdout : stderr);
  return asks_for_help ? 0 : 2;
}

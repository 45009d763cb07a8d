// The command line of report: prints the report of a snapshot, of an event file, or of watches.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "extensions/progress/progress_json.h"
#include "extensions/watch/report.h"

namespace {

constexpr std::string_view kUsage =
    "usage: report FILE...\n"
    "\n"
    "Prints why calls did not replay, what recordings cost, and what to change in the code. FILE\n"
    "has what Context::snapshot_json() returns, or is ContextOptions::event_file, which may have\n"
    "several contexts; - is the standard input. Of several files there is a report of each.\n"
    "\n"
    "Of files that have what progress_json() makes of ProgressWatch::report(), one for each "
    "process,\n"
    "it prints where replays hang and what each rank waits for.\n"
    "\n"
    "Exit status: 0 done, 2 bad usage, or a file that cannot be read or is none of these.\n";

// Returns the path relative to the folder of the user: `bazel run` starts programs elsewhere.
std::filesystem::path absolute(const char* path) {
  const char* const caller = std::getenv("BUILD_WORKING_DIRECTORY");
  return std::filesystem::path(caller == nullptr ? "" : caller) / path;
}

int fail(const char* file, std::string_view why) {
  std::fprintf(stderr, "report: %s: %.*s\n", file, static_cast<int>(why.size()), why.data());
  return 2;
}

// Writes what is in the file. Returns an exit status.
int read_file(const char* name, std::string& text) {
  if (std::string_view(name) == "-") {
    std::string block(1 << 16, '\0');
    while (const std::size_t read = std::fread(block.data(), 1, block.size(), stdin))
      text.append(block, 0, read);
    return std::ferror(stdin) == 0 ? 0 : fail(name, std::strerror(errno));
  }
  const std::filesystem::path path = absolute(name);
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) return fail(name, "cannot be read");
  text.assign(std::istreambuf_iterator<char>(file), {});
  return 0;
}

int print(const std::string& report) {
  const bool is_written = std::fwrite(report.data(), 1, report.size(), stdout) == report.size() &&
                          std::fflush(stdout) == 0;
  return is_written ? 0 : fail("the report", std::strerror(errno));
}

// Of one file the error is what its own kind of report says.
int print_report_of(const std::vector<const char*>& names) {
  std::vector<std::string> texts(names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const int status = read_file(names[i], texts[i]); status != 0) return status;
  std::size_t at = 0;
  try {
    if (std::ranges::none_of(texts, cgtree::is_progress)) {
      std::string all;
      for (; at < texts.size(); ++at) {
        if (texts.size() > 1) all += std::string(at > 0 ? "\n" : "") + names[at] + ":\n";
        all += cgtree::report_of(texts[at]);
      }
      return print(all);
    }
    for (; at < texts.size(); ++at)
      (void)cgtree::read_progress(texts[at]);
    return print(cgtree::to_string(cgtree::join_progress(texts)));
  } catch (const cgtree::InvalidArgument& error) {
    return fail(names[at], error.message());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view first = argc == 2 ? argv[1] : "";
  const bool asks_for_help = first == "--help" || first == "-h";
  if (argc > 1 && !asks_for_help) return print_report_of({argv + 1, argv + argc});
  std::fwrite(kUsage.data(), 1, kUsage.size(), asks_for_help ? stdout : stderr);
  return asks_for_help ? 0 : 2;
}

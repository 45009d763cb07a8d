// Reporter: where the reports of a watched process go, and when: at its end, on SIGUSR1, and a line
// of JSON for each finding, which remains if the process is killed.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "check/report.h"

namespace cgtree::graph_check {

// Writes one line on standard error, with "cgtree-check: " in front.
void say(std::string_view line) noexcept;

// A process has at most one Reporter, which is never destroyed. In its environment:
//
//   CGTREE_CHECK_DIR   a folder of cgtree-check run: PID.TIME.json gets the report at the end,
//                      PID.TIME.jsonl findings
//   CGTREE_CHECK_JSON  a file that gets the report
//
// A child of fork() reports nothing: CUDA does not work there. It says so at its end.
class Reporter {
 public:
  // Makes the report. `is_end`: the process ends, and CUDA may not be called. Must not throw.
  using Make = std::function<Report(bool is_end)>;

  explicit Reporter(Make make);

  // Writes a line of JSON at once.
  void tell(const std::string& finding) noexcept;

 private:
  void report(bool is_end) noexcept;

  Make make_;
  std::string stem_;  // of the files in the folder: the process, and when it began
  std::string file_;
};

}  // namespace cgtree::graph_check

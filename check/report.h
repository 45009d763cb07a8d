// Reports: findings as JSON, and as text for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "check/finding.h"
#include "check/ledger.h"
#include "check/stacks.h"

namespace cgtree::graph_check {

// Facts of the process in a report.
struct Process {
  int pid = 0;
  std::string program;
  std::vector<std::string> unseen;  // memory and nodes that could not be seen
  std::vector<std::string> calls;   // "cuMemAlloc_v2 12": calls that were seen
};

struct Report {
  std::string json;
  std::string table;
};

// Returns a finding with all that it has, and with "text", its entry in a table.
nlohmann::json to_json(const Finding& finding, const Stacks& stacks);

// The report of one process. Its JSON:
//
//   {"pid": 7, "program": "...", "findings": [...], "totals": {"graphs": 2, ...},
//    "unseen": [...], "calls": [...]}
Report make_report(const Process& process, const std::vector<Finding>& findings,
                   const LedgerTotals& totals, const Stacks& stacks);

}  // namespace cgtree::graph_check

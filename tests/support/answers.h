// Answers: the results of a device, call by call, written to a file to be compared with another's.
#pragma once

#include <string>

#include "interop/device/graph_api.h"

namespace cgtree::testing {

struct CallAnswer {
  std::string device;
  std::string call;
  std::string mode;    // of the capture
  std::string stream;  // the kind of the capturing stream
  Code code;
  Code last_error;       // of the calling thread, after the call
  CaptureStatus status;  // of the capture, after the call
  Code end;              // the result of ending the capture after that
};

// Keeps the answer until the program ends, and then writes all of them as JSON, one row per line,
// to the file CGTREE_ANSWERS; does nothing without that variable. tools/compare_answers.py reads
// the file.
//
// Thread safety: one thread.
void note_answer(const CallAnswer& answer);

}  // namespace cgtree::testing

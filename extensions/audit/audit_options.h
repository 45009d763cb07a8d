// Audit: the memory to which recordings refer (docs/audit.md).
#pragma once

#include "cgtree/values/options.h"

namespace cgtree {

// The action when a recording refers to memory that is not known to live as long as it does.
enum class OnForeignPointer {
  kRecord,  // the recording notes it: snapshots and the event file show it
  kWarn,    // and the log warns, once for each kernel
  kThrow,   // CaptureError, which names the kernel, its parameter and the memory
};

// The options of audit().
struct AuditOptions {
  OnForeignPointer on_foreign_pointer = OnForeignPointer::kRecord;
};

// Makes the extension that each context of //:cgtree has: it reads each recorded graph, and rebinds
// inputs and shares executable graphs if the options of a function ask for it.
ExtensionFactory audit(AuditOptions options = {});

}  // namespace cgtree

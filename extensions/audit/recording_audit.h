// RecordingAudit: audits one recording: gathers the memory to which it may refer, reads its graphs,
// keeps the memory that they use, and refuses uses that the options forbid.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cgtree/record/examination.h"
#include "extensions/audit/audit.h"
#include "extensions/audit/audit_options.h"

namespace cgtree {

// Its functions are called as those of Examination.
class RecordingAudit {
 public:
  explicit RecordingAudit(OnForeignPointer on_foreign_pointer) noexcept
      : on_foreign_pointer_(on_foreign_pointer) {}

  // `hands_out_rows`: see Audit.
  void begin(CapturedStep& step, bool hands_out_rows);
  std::size_t prepare();
  bool may_refuse() const noexcept;
  void read(NodeContents contents);
  // `scopes`: of its nodes.
  void finish(NodeScopes scopes);
  void give_up() noexcept;

 private:
  void describe(UsedMemory& memory) const;
  void keep_live(const StorageRef& storage) const noexcept;
  void refuse_copy_sources(const Audit& audit) const;
  void refuse_foreign(const Audit& audit) const;

  const OnForeignPointer on_foreign_pointer_;
  CapturedStep* step_ = nullptr;  // from begin() on
  KnownMemory known_;             // to which the graphs may refer
  std::vector<StorageRef> live_;  // the held outputs in known_
  bool has_copy_sources_ = false;
  bool hands_out_rows_ = false;
  std::unique_ptr<Auditor> auditor_;  // while it reads
};

}  // namespace cgtree

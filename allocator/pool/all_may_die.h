// A caller's word that a restore may end any live block.
#pragma once

namespace cgtree {

// In place of the list of the blocks that die: nobody reads them any more, whichever they are.
class AllMayDie {
 public:
  explicit constexpr AllMayDie(int) {}  // so that `{}` is an empty list and not this
};
inline constexpr AllMayDie kAllMayDie{0};

}  // namespace cgtree

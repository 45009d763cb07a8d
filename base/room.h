// make_room(): makes sure that the next push_back() cannot fail.
#pragma once

#include <vector>

namespace cgtree {

// Makes room for one more element. Unlike reserve(size() + 1), which takes exactly that much and
// therefore moves all elements each time, it doubles the capacity. Throws std::bad_alloc; nothing
// has changed then.
template <typename T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(2 * list.size() + 1);
}

}  // namespace cgtree

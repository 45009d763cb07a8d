// Adds pages of words.
#include "caching/threads/block_marks.h"

#include <new>
#include <utility>

namespace cgtree {
namespace {

constexpr std::size_t kFewestSlots = 64;

}  // namespace

BlockMarks::BlockMarks() {
  tables_.push_back(std::make_unique<Table>(kFewestSlots));
  table_.store(tables_.back().get(), std::memory_order_release);
}

void BlockMarks::Table::insert(const Page& page) noexcept {
  std::size_t i = slot(page.number);
  while (pages[i].load(std::memory_order_relaxed) != nullptr)
    i = (i + 1) & mask;
  pages[i].store(&page, std::memory_order_release);
}

void BlockMarks::mark(const void* address, BlockMark mark) noexcept {
  const Page* const page = make_page(address);
  if (page == nullptr) return;
  word_of(*page, address)->store(mark.word(), std::memory_order_relaxed);
  count(*page, 1);
}

std::size_t BlockMarks::marked() const noexcept {
  std::size_t sum = 0;
  for (const std::unique_ptr<Page>& page : pages_)
    sum += static_cast<std::size_t>(page->marked.load(std::memory_order_relaxed));
  return sum;
}

// Returns the page of the address, or null without host memory for it.
const BlockMarks::Page* BlockMarks::make_page(const void* address) noexcept {
  if (const Page* const known = page_of(address)) return known;
  try {
    const auto number = reinterpret_cast<std::uintptr_t>(address) >> kPageBits;
    // Braces, because Clang 14 does not make aggregates from arguments in parentheses.
    std::unique_ptr<Page> page(
        new Page{number, std::make_unique<Word[]>(kPageBytes / kBlockAlignment)});
    if (2 * (pages_.size() + 1) > tables_.back()->mask + 1) {
      auto larger = std::make_unique<Table>(2 * (tables_.back()->mask + 1));
      for (const std::unique_ptr<Page>& other : pages_)
        larger->insert(*other);
      tables_.push_back(std::move(larger));
      table_.store(tables_.back().get(), std::memory_order_release);
    }
    pages_.push_back(std::move(page));
    tables_.back()->insert(*pages_.back());
    return pages_.back().get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace cgtree

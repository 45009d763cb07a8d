// BlockMarks: the data about blocks that threads may read without the lock of their pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/pool/block_mark.h"

namespace cgtree {

// BlockMarks has a word for each 512 bytes of the pages of 2 MiB in which blocks have been marked,
// less than a hundredth of the size of the pages. A page's words live as long as this object, so a
// reader needs no lock: a wrong address finds an empty word, not freed memory.
class BlockMarks {
 public:
  using Word = BlockMark::Word;

  BlockMarks();
  BlockMarks(const BlockMarks&) = delete;
  BlockMarks& operator=(const BlockMarks&) = delete;

  // Returns null if no block can start at the address, or if no block of its page has been marked.
  // May be called from any thread.
  Word* find(const void* address) const noexcept {
    const Page* const page = page_of(address);
    return page == nullptr ? nullptr : word_of(*page, address);
  }
  // The same, but returns null if the word is empty. If no block of a page is marked, no word is
  // read, because each read may miss the processor's caches.
  Word* find_marked(const void* address) const noexcept {
    const Page* const page = page_of(address);
    if (page == nullptr || page->marked.load(std::memory_order_relaxed) == 0) return nullptr;
    Word* const word = word_of(*page, address);
    return word->load(std::memory_order_relaxed) == 0 ? nullptr : word;
  }

  // Marks a block without a mark, unless host memory for it runs out. Requires: one thread at a
  // time calls mark() or note_removal(), and the address is aligned.
  void mark(const void* address, BlockMark mark) noexcept;
  // Must be called after the word of a block was emptied.
  void note_removal(const void* address) noexcept { count(*page_of(address), -1); }

  // Returns how many blocks are marked. Requires: the same.
  std::size_t marked() const noexcept;

 private:
  static constexpr int kPageBits = 21;
  static constexpr std::size_t kPageBytes = std::size_t{1} << kPageBits;
  struct Page {
    const std::uintptr_t number;
    const std::unique_ptr<Word[]> words;
    mutable std::atomic<std::int32_t> marked{0};  // blocks
  };
  // An open hash of pages, at most half full. A larger one replaces it; readers may still be in the
  // smaller one, which is therefore kept.
  struct Table {
    explicit Table(std::size_t slots) : mask(slots - 1), pages(slots) {}
    std::size_t slot(std::uintptr_t page) const { return page * 0x9e3779b97f4a7c15 >> 32 & mask; }
    void insert(const Page& page) noexcept;

    std::size_t mask;
    std::vector<std::atomic<const Page*>> pages;
  };

  static Word* word_of(const Page& page, const void* address) noexcept {
    return &page.words[reinterpret_cast<std::uintptr_t>(address) % kPageBytes / kBlockAlignment];
  }
  // One thread at a time, so that no atomic addition is needed.
  static void count(const Page& page, std::int32_t more) noexcept {
    page.marked.store(page.marked.load(std::memory_order_relaxed) + more,
                      std::memory_order_relaxed);
  }
  const Page* page_of(const void* address) const noexcept {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    if (number % kBlockAlignment != 0) return nullptr;
    const Table* const table = table_.load(std::memory_order_acquire);
    const std::uintptr_t page = number >> kPageBits;
    for (std::size_t i = table->slot(page);; i = (i + 1) & table->mask) {
      const Page* const entry = table->pages[i].load(std::memory_order_acquire);
      if (entry == nullptr || entry->number == page) return entry;
    }
  }
  const Page* make_page(const void* address) noexcept;

  std::atomic<const Table*> table_;
  std::vector<std::unique_ptr<Table>> tables_;  // the last one is in use
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace cgtree

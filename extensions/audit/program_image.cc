// Looks an address up among the segments of the loaded program and libraries.
#include "extensions/audit/program_image.h"

#include <link.h>

namespace cgtree {
namespace {

// Returns a value other than 0 if the address is in this object, which ends the iteration.
int contains(dl_phdr_info* object, std::size_t, void* address) {
  const std::uintptr_t wanted = *static_cast<const std::uintptr_t*>(address);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    const std::uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && wanted - begin < segment.p_memsz) return 1;
  }
  return 0;
}

}  // namespace

bool is_in_program_image(std::uintptr_t address) noexcept {
  return dl_iterate_phdr(&contains, &address) != 0;
}

}  // namespace cgtree

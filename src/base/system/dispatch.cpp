#include "base/system/dispatch.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace evenkeel {
namespace {

#if defined(__x86_64__) && defined(__linux__)
// Constants that older Linux headers lack: ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA.
constexpr long kRequestPermission = 0x1023, kTileData = 18;

bool processor_has_tiles() {
  constexpr unsigned kBFloat16 = 1u << 22, kTiles = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBFloat16) != 0 && (d & kTiles) != 0;
}

bool request_tiles() {
  return isa() == Isa::kAvx512 && processor_has_tiles() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool request_tiles() { return false; }
#endif

}  // namespace

bool has_bfloat16_tiles() {
  static const bool granted = request_tiles();
  return granted;
}

}  // namespace evenkeel

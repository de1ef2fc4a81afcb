#include "nn/kernels/primitives/workspace_pool.h"

namespace evenkeel::kernels {
namespace {

struct AllKept {
  std::mutex mutex;
  std::vector<KeptList*> lists;
};

AllKept& all_kept() {
  static AllKept& all = *new AllKept;
  return all;
}

}  // namespace

KeptList::KeptList() {
  const std::scoped_lock lock(all_kept().mutex);
  all_kept().lists.push_back(this);
}

void release_kept() {
  const std::scoped_lock lock(all_kept().mutex);
  for (auto* list : all_kept().lists) list->release();
}

}  // namespace evenkeel::kernels

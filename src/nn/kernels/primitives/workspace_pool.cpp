#include "nn/kernels/primitives/workspace_pool.h"

namespace evenkeel::nn::kernels {
namespace {

struct AllPools {
  std::mutex mutex;
  std::vector<WorkspacePoolBase*> pools;
};

AllPools& all_pools() {
  static AllPools& all = *new AllPools;
  return all;
}

}  // namespace

void register_pool(WorkspacePoolBase& pool) {
  const std::scoped_lock lock(all_pools().mutex);
  all_pools().pools.push_back(&pool);
}

void release_workspaces() {
  const std::scoped_lock lock(all_pools().mutex);
  for (auto* pool : all_pools().pools) pool->release();
}

}  // namespace evenkeel::nn::kernels

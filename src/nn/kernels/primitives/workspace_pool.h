/// \file  Provides pools of workspaces. A function takes a workspace from the pool of its type and gives it back when
/// it returns, so later calls reuse the memory and cause no page faults. Any thread may take any workspace.
///
/// Example:  const WorkspaceLease<MyBuffers> buffers(workspace_pool<MyBuffers>());
///           float* x = buffers->x.at_least(n);
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace evenkeel::nn::kernels {

/// Frees the workspaces of all pools that are not leased. Call it when the model of a run is destroyed. Threads: any.
void release_workspaces();

/// The common base of all pools, for release_workspaces().
class WorkspacePoolBase {
 public:
  virtual ~WorkspacePoolBase() = default;
  /// Frees the workspaces that are not leased.
  virtual void release() = 0;
};

/// Adds a pool to those of release_workspaces(). REQUIRES that it is never destroyed. Threads: any.
void register_pool(WorkspacePoolBase& pool);

/// A pool of workspaces of type W. It grows to the largest number that was ever leased at the same time. Threads: any.
template <typename W>
class WorkspacePool final : public WorkspacePoolBase {
 public:
  /// Owns one workspace of the pool until the end of its scope. The workspace is a free one, or a new one if none is
  /// free. Its content is what the previous owner left.
  class Lease {
   public:
    explicit Lease(WorkspacePool& pool) : pool_(pool), workspace_(pool.take()) {}
    ~Lease() { pool_.give_back(std::move(workspace_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    W& operator*() const { return *workspace_; }
    W* operator->() const { return workspace_.get(); }

   private:
    WorkspacePool& pool_;
    std::unique_ptr<W> workspace_;
  };

  void release() override {
    const std::scoped_lock lock(mutex_);
    free_.clear();
  }

 private:
  std::unique_ptr<W> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique<W>();
    auto workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void give_back(std::unique_ptr<W> workspace) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(workspace));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<W>> free_;
};

/// Returns the pool of type W, one per process.
template <typename W>
WorkspacePool<W>& workspace_pool() {
  static WorkspacePool<W>* const pool = [] {
    auto* made = new WorkspacePool<W>;  // never destroyed: threads may outlive main()
    register_pool(*made);               // only now, because another thread may call release() at once
    return made;
  }();
  return *pool;
}
template <typename W>
using WorkspaceLease = typename WorkspacePool<W>::Lease;

}  // namespace evenkeel::nn::kernels
